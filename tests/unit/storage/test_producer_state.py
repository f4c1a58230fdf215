"""Idempotence rule by rule, on a log: what is a duplicate, what is refused, what is forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    append,
    append_marker,
    close,
    create_log,
    read_batches,
    reopen,
)

from millstream.model.errors import ErrorCode, KafkaError
from millstream.storage.log import AppendResult, Log

ID = 7


def write(
    log: Log, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False
) -> AppendResult:
    return append(
        log,
        *[b"v"] * count,
        producer_id=ID,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def refused(
    log: Log, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False
) -> ErrorCode:
    before = (log.log_end_offset, log.size, log.producers.active())
    with pytest.raises(KafkaError) as error:
        write(log, sequence, count, epoch=epoch, transactional=transactional)
    assert (log.log_end_offset, log.size, log.producers.active()) == before
    return error.value.error


def test_sequences_continue(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    write(log, 0, 3)
    write(log, 3, 2)
    assert refused(log, 6) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 5


def test_a_repeated_batch_succeeds_with_its_first_offsets(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    write(log, 0, 3)
    write(log, 3, 2)
    again = write(log, 0, 3)
    assert (again.base_offset, again.last_offset, again.duplicate) == (0, 2, True)
    assert again.log_append_time_ms == NOW_MS
    assert log.log_end_offset == 5


def test_only_exact_batches_of_the_last_five_are_duplicates(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    for sequence in range(0, 12, 2):
        write(log, sequence, 2)
    for sequence in range(2, 12, 2):
        assert write(log, sequence, 2).base_offset == sequence
    assert refused(log, 0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, 2, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, 2, 4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_begins_anywhere(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    assert write(log, 1234).base_offset == 0
    assert refused(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_epochs(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    write(log, 0, 2, epoch=3)
    assert refused(log, 2, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, 2, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(log, 0, epoch=4)
    assert refused(log, 2, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, 0, 2, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH, "window is forgotten"
    assert write(log, 0, epoch=4).duplicate
    write(log, 1, epoch=4)


def test_sequences_wrap(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    write(log, 2**31 - 2, 4)
    write(log, 2)
    assert write(log, 2**31 - 2, 4).duplicate
    log = create_log(tmp_path / "other")
    write(log, 2**31 - 1)
    write(log, 0)
    assert write(log, 2**31 - 1).duplicate


def test_a_plain_write_in_an_open_transaction_is_refused(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    write(log, 0, transactional=True)
    assert refused(log, 1) is ErrorCode.INVALID_TXN_STATE
    write(log, 1, transactional=True)
    append_marker(log, ID, commit=True)
    write(log, 2)


def test_after_a_marker_with_a_new_epoch_sequences_begin_at_zero(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    write(log, 0, 5, transactional=True)
    append_marker(log, ID, commit=False, producer_epoch=1)
    assert refused(log, 5, epoch=0, transactional=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, 5, epoch=1, transactional=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(log, 0, epoch=1, transactional=True)


def test_markers_of_old_producers_and_coordinators_are_refused(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    write(log, 0, epoch=2, transactional=True)
    append_marker(log, ID, commit=True, producer_epoch=2, coordinator_epoch=9)
    with pytest.raises(KafkaError) as old_epoch:
        append_marker(log, ID, commit=True, producer_epoch=1, coordinator_epoch=9)
    assert old_epoch.value.error is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as old_coordinator:
        append_marker(log, ID, commit=True, producer_epoch=2, coordinator_epoch=8)
    assert old_coordinator.value.error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.log_end_offset == 2


def test_a_refused_batch_leaves_no_trace(tmp_path: Path) -> None:
    """KAFKA-6683: producer state changes only after the write."""
    log = create_log(tmp_path)
    write(log, 0)
    refused(log, 9, epoch=5)
    write(log, 1)


@pytest.mark.parametrize("clean", [True, False])
def test_state_survives_a_restart(tmp_path: Path, clean: bool) -> None:
    log = create_log(tmp_path)
    for sequence in range(30):
        write(log, sequence)
    append(log, b"t", producer_id=8, producer_epoch=1, base_sequence=4, is_transactional=True)
    append(log, b"plain")
    before = log.producers.active()
    if clean:
        close(log)
    log = reopen(tmp_path, clean=clean)
    assert log.producers.active() == before
    assert write(log, 29).duplicate
    assert write(log, 30).base_offset == 32
    assert refused(log, 32) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.last_stable_offset == 30


def test_the_window_of_five_survives_a_crash_as_far_as_the_log_is_read(tmp_path: Path) -> None:
    log = create_log(tmp_path / "one")
    for sequence in range(4):
        write(log, sequence)
    log = reopen(tmp_path / "one", clean=False)
    for sequence in range(4):
        assert write(log, sequence).base_offset == sequence


def test_idle_producers_expire_and_open_transactions_keep_theirs(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    write(log, 0)
    append(log, b"t", producer_id=8, producer_epoch=1, base_sequence=0, is_transactional=True)
    day_ms = 86_400_000
    log.producers.expire(now_ms=NOW_MS + day_ms - 1)
    assert [p.producer_id for p in log.producers.active()] == [7, 8]
    log.producers.expire(now_ms=NOW_MS + day_ms)
    assert [p.producer_id for p in log.producers.active()] == [8]
    assert write(log, 55).base_offset == 2


def test_of_too_many_producers_those_that_wrote_last_are_kept(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"t", producer_id=90, producer_epoch=0, base_sequence=0, is_transactional=True)
    for producer_id in (91, 92, ID, 93):
        append(log, b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    append(log, b"v", producer_id=91, producer_epoch=0, base_sequence=1)
    assert len(log.producers.entries()) == 5
    log.producers.forget_oldest(3)
    assert [p.producer_id for p in log.producers.active()] == [90, 91, 93]
    log.producers.forget_oldest(0)
    assert [p.producer_id for p in log.producers.active()] == [90]
    assert log.last_stable_offset == 0
    assert write(log, 55).base_offset == 6


def test_what_producers_tells(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    write(log, 3, 2, epoch=1, transactional=True)
    (producer,) = log.producers.active()
    assert producer.producer_id == ID
    assert (producer.producer_epoch, producer.last_sequence) == (1, 4)
    assert (producer.last_timestamp, producer.current_txn_first_offset) == (NOW_MS, 0)
    assert producer.coordinator_epoch == -1
    append_marker(log, ID, commit=True, producer_epoch=1, coordinator_epoch=6)
    (producer,) = log.producers.active()
    assert (producer.coordinator_epoch, producer.current_txn_first_offset) == (6, -1)
    assert len(read_batches(log, 0)) == 2
