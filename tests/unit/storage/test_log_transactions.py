"""Last stable offset, transaction index, aborted transactions of a read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    ONE_SEGMENT,
    append,
    append_marker,
    close,
    create_log,
    read_batches,
    reopen,
)

from millstream.config.topic import TopicConfig
from millstream.storage.log import AbortedTransaction, Log


def begin(log: Log, producer_id: int, sequence: int = 0, *, count: int = 1) -> int:
    return append(
        log,
        *[b"t"] * count,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    ).base_offset


def end(log: Log, producer_id: int, *, commit: bool) -> int:
    offset = append_marker(log, producer_id, commit=commit).base_offset
    log.offsets.update_high_watermark(log.log_end_offset)
    return offset


def aborted(log: Log, offset: int, max_bytes: int = 1 << 30) -> list[AbortedTransaction]:
    read = log.reader.read(
        offset,
        max_bytes=max_bytes,
        upper_bound_offset=log.last_stable_offset,
        min_one_batch=True,
    )
    return log.reader.aborted_transactions(read)


def test_last_stable_offset_is_the_oldest_open_transaction(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"plain")
    assert log.last_stable_offset == 1
    begin(log, 1)
    begin(log, 2)
    append(log, b"plain")
    assert (log.last_stable_offset, log.high_watermark) == (1, 4)
    end(log, 1, commit=True)
    assert log.last_stable_offset == 2
    end(log, 2, commit=False)
    assert log.last_stable_offset == log.high_watermark == 6


def test_a_marker_counts_once_it_is_committed(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    begin(log, 1)
    append_marker(log, 1, commit=True)
    assert log.last_stable_offset == 0
    log.offsets.update_high_watermark(1)
    assert log.last_stable_offset == 0
    log.offsets.update_high_watermark(2)
    assert log.last_stable_offset == 2


def test_a_transaction_beyond_the_high_watermark_does_not_hold_it(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"a")
    append(
        log, b"t", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True,
        commit=False,
    )  # fmt: skip
    assert log.last_stable_offset == 1
    log.offsets.update_high_watermark(2)
    assert log.last_stable_offset == 1


def test_aborts_are_indexed_and_commits_are_not(tmp_path: Path) -> None:
    log = create_log(tmp_path, ONE_SEGMENT)
    index = tmp_path / "orders-0" / "00000000000000000000.txnindex"
    begin(log, 1)
    end(log, 1, commit=True)
    assert not index.exists()
    begin(log, 1, 1)
    begin(log, 2)
    end(log, 1, commit=False)
    fields = [0, 1, 2, 4, 3]
    widths = [2, 8, 8, 8, 8]
    expected = b"".join(f.to_bytes(w, "big") for f, w in zip(fields, widths, strict=True))
    assert index.read_bytes() == expected


def test_reads_name_the_aborted_transactions_that_they_touch(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    begin(log, 1)
    append(log, b"plain" * 30)
    end(log, 1, commit=False)
    first_end = log.log_end_offset
    for _ in range(20):
        append(log, b"x" * 100)
    second = begin(log, 2)
    end(log, 2, commit=False)
    assert len(log.segment_base_offsets) > 2
    assert AbortedTransaction(1, 0) in aborted(log, 0)
    assert aborted(log, first_end) == []
    assert aborted(log, second) == [AbortedTransaction(2, second)]
    assert aborted(log, log.log_end_offset) == []


def test_an_abort_in_a_later_segment_is_found_from_an_earlier_one(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    begin(log, 1)
    for _ in range(30):
        append(log, b"x" * 100)
    end(log, 1, commit=False)
    assert len(log.segment_base_offsets) > 3
    assert aborted(log, 0, max_bytes=200) == [AbortedTransaction(1, 0)]
    assert aborted(log, 10) == [AbortedTransaction(1, 0)]


@pytest.mark.parametrize("clean", [True, False])
def test_the_transaction_index_is_there_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = create_log(tmp_path)
    for n in range(30):
        begin(log, 1, n, count=1)
        append(log, b"x" * 50)
        end(log, 1, commit=n % 3 == 0)
    begin(log, 2)
    expected = [aborted(log, offset) for offset in range(log.log_end_offset)]
    stable = log.last_stable_offset
    if clean:
        close(log)
    log = reopen(tmp_path, clean=clean)
    assert log.last_stable_offset == stable
    assert [aborted(log, offset) for offset in range(log.log_end_offset)] == expected


def test_a_follower_notes_the_stable_offset_right_after_the_marker(tmp_path: Path) -> None:
    """One append that holds an abort and the same producer's next transaction: its entry must not
    name an offset past that transaction, or a search would stop too early.
    """
    leader = create_log(tmp_path / "leader", ONE_SEGMENT)
    begin(leader, 1)
    end(leader, 1, commit=False)
    begin(leader, 1, 1)
    append(leader, b"plain")
    follower = create_log(tmp_path / "follower", ONE_SEGMENT)
    data = b"".join(bytes(batch.buffer) for batch in read_batches(leader, 0))
    follower.follower_appender.append_as_follower(data, now_ms=NOW_MS)
    name = "orders-0/00000000000000000000.txnindex"
    written = (tmp_path / "follower" / name).read_bytes()
    assert written == (tmp_path / "leader" / name).read_bytes()
    assert int.from_bytes(written[26:34], "big") == 2


def test_truncation_reopens_a_transaction_whose_marker_is_cut(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"plain")
    begin(log, 1)
    marker = end(log, 1, commit=False)
    log.truncation.truncate_to(marker, now_ms=NOW_MS)
    assert (log.high_watermark, log.last_stable_offset) == (2, 1)
    assert aborted(log, 0) == []
    end(log, 1, commit=True)
    assert log.last_stable_offset == 3


@pytest.mark.slow
def test_ten_thousand_open_transactions(tmp_path: Path) -> None:
    log = create_log(tmp_path, ONE_SEGMENT)
    count = 10_000
    for producer_id in range(count):
        begin(log, producer_id)
    assert (log.last_stable_offset, log.high_watermark) == (0, count)
    for producer_id in range(count - 1, -1, -1):
        end(log, producer_id, commit=producer_id % 2 == 0)
    assert log.last_stable_offset == log.high_watermark == 2 * count
    assert len(aborted(log, 0)) == count // 2
    close(log)
    log = reopen(tmp_path, ONE_SEGMENT)
    assert len(aborted(log, 0)) == count // 2
    assert log.last_stable_offset == 2 * count


def test_a_transaction_ends_where_segments_have_become_too_small_for_a_marker(
    tmp_path: Path,
) -> None:
    log = create_log(tmp_path)
    begin(log, 1)
    begin(log, 2)
    log.update_config(TopicConfig({"internal.segment.bytes": "50"}))
    assert (end(log, 1, commit=True), end(log, 2, commit=False)) == (2, 3)
    assert log.segment_base_offsets == [0, 2, 3]
    assert log.last_stable_offset == log.log_end_offset == 4
    assert [(each.producer_id, each.first_offset) for each in aborted(log, 0)] == [(2, 1)]
    assert [each.is_control for each in read_batches(log, 0)] == [False, False, True, True]
    end_before = log.log_end_offset
    close(log)
    reopened = reopen(tmp_path)
    assert reopened.log_end_offset == end_before
    assert reopened.last_stable_offset == end_before
