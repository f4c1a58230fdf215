"""One partition: when a write counts, what a reader sees, and what becomes of both in a fault."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import pytest
from tests.unit.runtime.coordinator_site import HeldOffload
from tests.unit.runtime.log_site import LogSite, Outcomes, append, batch, read, write

from millstream.config.topic import TopicConfig
from millstream.model.deferred import Deferred
from millstream.model.errors import CorruptIndexError, CorruptLogError, ErrorCode, KafkaError
from millstream.records.batch import Batch, iter_batches, rewrite_timestamps
from millstream.records.compression import Codec
from millstream.records.limits import RecordsRefusedError
from millstream.records.validation import OPENED_BYTES
from millstream.runtime.replicas.committed_appends import append_internal
from millstream.runtime.replicas.partition import READ_COMMITTED, Partition
from millstream.runtime.replicas.partition_requests import (
    delete_records_before,
    offset_for_timestamp,
)
from millstream.runtime.replicas.waiters import FetchWaiter
from millstream.storage.log import AppendResult
from millstream.storage.log_appender import LogAppender
from millstream.storage.log_reader import LogReader
from millstream.storage.log_truncation import LogTruncation

T = TypeVar("T")


@pytest.fixture
def site() -> LogSite:
    return LogSite()


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()


def make(site: LogSite, **configs: str) -> Partition:
    site.create(**configs)
    return site.partition()


def park(site: LogSite, partition: Partition, missing_bytes: int = 1) -> list[bool]:
    """Park a fetch; the list says what it was woken with."""
    woken: list[bool] = []
    FetchWaiter(
        site.clock,
        partitions=[partition],
        missing_bytes=missing_bytes,
        wait_ms=60_000,
        on_woken=woken.append,
    )
    return woken


def refusal(call: object, *arguments: object, **more: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **more)  # type: ignore[operator]
    return caught.value.error


# When a write counts


def test_under_ack_a_write_counts_after_its_flush(site: LogSite, outcomes: Outcomes) -> None:
    partition = make(site, flush_policy="ack")
    site.offload.held = True
    write(partition, outcomes)
    site.clock.settle()
    assert (partition.high_watermark, outcomes, read(partition)) == (0, [], b"")
    site.offload.release("flush")
    assert (partition.high_watermark, outcomes) == (1, ["ok"])
    assert partition.log.recovery_point == 1
    assert read(partition)


def test_under_os_a_write_counts_at_once(site: LogSite, outcomes: Outcomes) -> None:
    partition = make(site, flush_policy="os")
    write(partition, outcomes)
    assert (partition.high_watermark, outcomes) == (1, ["ok"])
    site.clock.advance(60_000)
    assert partition.log.recovery_point == 0


def test_under_interval_every_nth_record_waits_for_a_flush(
    site: LogSite, outcomes: Outcomes
) -> None:
    partition = make(site, flush_policy="interval", flush_messages="3")
    site.offload.held = True
    write(partition, outcomes, name="1 ")
    write(partition, outcomes, name="2 ")
    assert outcomes == ["1 ok", "2 ok"]
    write(partition, outcomes, name="3 ")
    write(partition, outcomes, name="4 ")
    site.clock.settle()
    assert len(outcomes) == 2
    site.offload.release()
    site.clock.settle()
    site.offload.release()
    assert outcomes[2:] == ["3 ok", "4 ok"]
    write(partition, outcomes, name="5 ")
    assert outcomes[4:] == ["5 ok"]


def test_under_interval_a_flush_follows_when_its_time_has_come(site: LogSite) -> None:
    partition = make(site, flush_policy="interval", flush_messages="1000", flush_ms="5000")
    partition.flushes.ask_if_due(0)
    append(partition, b"v")
    partition.flushes.ask_if_due(4999)
    site.clock.settle()
    assert partition.log.recovery_point == 0
    partition.flushes.ask_if_due(5000)
    site.clock.settle()
    assert partition.log.recovery_point == 1


def test_a_flush_falls_due_after_a_change_from_another_policy(site: LogSite) -> None:
    partition = make(site, flush_policy="os")
    partition.flushes.ask_if_due(0)
    append(partition, b"v")
    partition.flushes.ask_if_due(1000)
    site.show(flush_policy="interval", flush_messages="1000", flush_ms="5000")
    partition.flushes.ask_if_due(6000)
    site.clock.settle()
    assert partition.log.recovery_point == 1


def test_writes_that_come_while_the_disk_works_share_the_next_flush(
    site: LogSite, outcomes: Outcomes
) -> None:
    partition = make(site, flush_policy="ack")
    site.offload.held = True
    write(partition, outcomes, name="1 ")
    site.clock.settle()
    write(partition, outcomes, name="2 ")
    write(partition, outcomes, name="3 ")
    site.clock.settle()
    site.offload.release()
    assert outcomes == ["1 ok"]
    assert partition.high_watermark == 1
    site.offload.release()
    assert outcomes == ["1 ok", "2 ok", "3 ok"]


def test_a_change_of_settings_holds_for_the_next_batch(site: LogSite, outcomes: Outcomes) -> None:
    partition = make(site, flush_policy="os", max_message_bytes="1000")
    assert partition.limits.max_message_bytes == 1000
    site.show(flush_policy="ack", max_message_bytes="2000")
    assert partition.limits.max_message_bytes == 2000
    site.offload.held = True
    write(partition, outcomes)
    site.clock.settle()
    assert outcomes == []
    site.show(flush_policy="os")
    write(partition, outcomes)
    assert outcomes == ["ok", "ok"]
    site.offload.release()


def test_the_high_watermark_does_not_go_back(site: LogSite, outcomes: Outcomes) -> None:
    partition = make(site, flush_policy="ack")
    site.offload.held = True
    write(partition, outcomes)
    site.clock.settle()
    site.show(flush_policy="os")
    write(partition, outcomes)
    assert partition.high_watermark == 2
    site.offload.release()
    assert partition.high_watermark == 2


def test_what_recovery_kept_is_committed(site: LogSite) -> None:
    partition = make(site, flush_policy="ack")
    site.offload.held = True
    append(partition, b"v")
    site.restart()
    assert site.partition() is not partition
    assert site.partition().high_watermark == 1


def test_a_role_that_has_ended_commits_nothing_when_its_flushes_are_released(
    site: LogSite,
) -> None:
    """A replica moves while its role changes: another role says what is committed since."""
    partition = make(site, flush_policy="ack")
    partition.flushes.hold()
    append(partition, b"a")
    site.clock.settle()
    partition.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    plan = partition.log.flush_plan()
    assert plan is not None
    plan.run()
    assert plan.durability.flushed(plan)
    partition.flushes.release()
    site.clock.settle()
    assert partition.log.high_watermark == 0


def test_a_partition_whose_disk_holds_everything_commits_without_a_flush(
    site: LogSite, outcomes: Outcomes
) -> None:
    partition = make(site, flush_policy="ack")
    write(partition, outcomes)
    plan = partition.log.flush_plan()
    assert plan is not None
    plan.run()
    partition.log.flushed(plan)
    assert outcomes == []
    assert partition.flushes.begin() is None
    assert outcomes == ["ok"]


def test_a_coordinators_batch_is_answered_once_committed(site: LogSite) -> None:
    partition = make(site, flush_policy="ack")
    site.offload.held = True
    data = batch(b"a", b"b").buffer
    outcome = append_internal(partition, bytes(data))
    site.clock.settle()
    assert not outcome.done
    site.offload.release()
    assert outcome.result() == 1


# Duplicates


def producing(sequence: int) -> dict[str, int]:
    return {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}


def test_a_duplicate_has_the_first_offsets_and_counts_when_they_do(
    site: LogSite, outcomes: Outcomes
) -> None:
    partition = make(site, flush_policy="ack")
    site.offload.held = True
    append(partition, b"a", **producing(0))
    append(partition, b"b", **producing(1))
    repeated = append(partition, b"a", **producing(0))
    assert (repeated.base_offset, repeated.last_offset, repeated.duplicate) == (0, 0, True)
    partition.wait_for_commit(repeated.last_offset, outcomes.note())
    site.clock.settle()
    assert outcomes == []
    site.offload.release()
    assert outcomes == ["ok"]
    assert partition.log.log_end_offset == 2


def test_a_duplicate_brings_readers_nothing(site: LogSite) -> None:
    partition = make(site, flush_policy="os")
    size = batch(b"a", **producing(0)).size
    append(partition, b"a", **producing(0))
    woken = park(site, partition, missing_bytes=size + 1)
    append(partition, b"a", **producing(0))
    append(partition, b"b", **producing(1))
    site.clock.settle()
    assert woken == []


# Readers


def test_a_reader_that_parks_between_two_flushes_is_woken_by_the_second(site: LogSite) -> None:
    partition = make(site, flush_policy="ack")
    site.offload.held = True
    append(partition, b"a")
    site.clock.settle()
    append(partition, b"b")
    site.offload.release()
    assert partition.high_watermark == 1
    woken = park(site, partition)
    site.clock.settle()
    site.offload.release()
    site.clock.settle()
    assert partition.high_watermark == 2
    assert woken == [True]


def test_bytes_count_for_a_reader_when_they_are_committed(site: LogSite) -> None:
    partition = make(site, flush_policy="ack")
    size = batch(b"x").size
    woken = park(site, partition, missing_bytes=2 * size)
    site.offload.held = True
    append(partition, b"x")
    site.clock.settle()
    append(partition, b"x")
    site.offload.release()
    site.clock.settle()
    assert woken == []
    site.offload.release()
    site.clock.settle()
    assert woken == [True]


def test_a_committed_reader_sees_nothing_of_an_open_transaction(site: LogSite) -> None:
    partition = make(site, flush_policy="os")
    append(partition, b"plain")
    append(partition, b"open", **producing(0), is_transactional=True)
    append(partition, b"behind")
    assert partition.log.last_stable_offset == 1
    (committed,) = iter_batches(read(partition, isolation=READ_COMMITTED))
    assert committed.base_offset == 0
    assert read(partition, 1, READ_COMMITTED) == b""
    assert len(list(iter_batches(read(partition)))) == 3


def test_a_read_outside_of_the_log_is_out_of_range(site: LogSite) -> None:
    partition = make(site)
    for offset in (-1, 1):
        assert refusal(read, partition, offset) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_deleted_records_move_the_start_and_wake_readers(site: LogSite) -> None:
    partition = make(site, flush_policy="os")
    append(partition, b"a", b"b")
    append(partition, b"c")
    woken = park(site, partition)
    assert delete_records_before(partition, 1) == 1
    site.clock.settle()
    assert woken == [False]
    assert delete_records_before(partition, 0) == 1
    assert delete_records_before(partition, -1) == 3
    for offset in (4, -2):
        assert refusal(delete_records_before, partition, offset) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_client_of_another_leadership_is_refused(site: LogSite) -> None:
    site.create(epoch=3)
    partition = site.partition()
    for epoch in (-1, 3):
        partition.check_leader_epoch(epoch)
    assert refusal(partition.check_leader_epoch, 2) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(partition.check_leader_epoch, 4) is ErrorCode.UNKNOWN_LEADER_EPOCH


# Batches that are prepared before they are appended


def produce(
    partition: Partition, produced: Batch, acks: int = 1
) -> AppendResult | Deferred[AppendResult]:
    return partition.append_produced(
        produced.buffer, acks=acks, version=12, now_ms=1_700_000_000_000
    )


def later(partition: Partition, produced: Batch) -> Deferred[AppendResult]:
    appended = produce(partition, produced)
    assert isinstance(appended, Deferred)
    return appended


def test_batches_behind_one_that_is_prepared_follow_it(site: LogSite) -> None:
    partition = make(site, flush_policy="os", compression_type="gzip")
    plain, ready = batch(b"a" * 100), batch(b"b", codec=Codec.GZIP)
    site.offload.held = True
    first = later(partition, plain)
    second = later(partition, ready)
    plain.buffer[:] = bytes(len(plain.buffer))  # as the next receive does
    ready.buffer[:] = bytes(len(ready.buffer))
    site.offload.release("prepare")
    assert (first.result().base_offset, second.result().base_offset) == (0, 1)
    at_once = produce(partition, batch(b"c", codec=Codec.GZIP))
    assert isinstance(at_once, AppendResult)
    assert [found.codec for found in iter_batches(read(partition))] == [Codec.GZIP] * 3


def test_a_batch_that_cannot_be_prepared_is_refused_and_the_next_goes_on(
    site: LogSite,
) -> None:
    partition = make(site, flush_policy="os", compression_type="zstd")
    compressed = bytearray(batch(b"a" * 100, codec=Codec.GZIP).buffer)
    compressed[-6] ^= 0x40
    damaged = Batch(memoryview(compressed))
    damaged = rewrite_timestamps(
        damaged, max_timestamp=damaged.max_timestamp, log_append_time=False
    )  # with its CRC made anew
    site.offload.held = True
    outcome, behind = later(partition, damaged), later(partition, batch(b"b"))
    site.offload.release("prepare")
    assert refusal(outcome.result) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert behind.result().base_offset == 0


def test_strict_validation_opens_a_large_compressed_batch_off_the_loop(site: LogSite) -> None:
    noise = random.Random(1).randbytes(OPENED_BYTES)
    sound = batch(noise, codec=Codec.LZ4)
    nameless = batch(noise, b"", codec=Codec.LZ4)
    partition = make(site, flush_policy="os", record_validation="strict")
    site.offload.held = True
    first, second = later(partition, sound), later(partition, batch(b"small"))
    assert not first.done
    site.offload.release("prepare")
    assert (first.result().base_offset, second.result().base_offset) == (0, 1)
    assert isinstance(produce(partition, batch(b"small", codec=Codec.LZ4)), AppendResult)
    partition.set_config(TopicConfig({"cleanup.policy": "compact"}))
    outcome = later(partition, nameless)
    site.offload.release("prepare")
    with pytest.raises(RecordsRefusedError) as caught:
        outcome.result()
    assert [error.batch_index for error in caught.value.record_errors] == [0, 1]
    partition.set_config(TopicConfig({"record.validation": "relaxed", "flush.policy": "os"}))
    assert isinstance(produce(partition, nameless), AppendResult)


def test_a_codec_that_stumbles_is_an_error_of_the_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stumbling(HeldOffload):
        def run(self, lane: str, function: Callable[[], T]) -> Deferred[T]:
            if lane != "prepare":
                return super().run(lane, function)
            failed: Deferred[T] = Deferred()
            failed.fail(MemoryError("a codec is out of memory"))
            return failed

    partition = make(LogSite(offload=Stumbling()), flush_policy="os", compression_type="gzip")
    outcome = later(partition, batch(b"a"))
    assert refusal(outcome.result) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "a codec is out of memory" in caplog.text
    assert isinstance(produce(partition, batch(b"b", codec=Codec.GZIP)), AppendResult)


def test_a_batch_whose_topic_goes_while_it_is_prepared_is_refused_at_once(site: LogSite) -> None:
    partition = make(site, compression_type="gzip")
    site.offload.held = True
    outcome = later(partition, batch(b"a"))
    site.delete()
    assert refusal(outcome.result) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    site.offload.release("prepare")
    assert partition.log.log_end_offset == 0


def test_batches_that_wait_are_bounded_over_all_partitions(site: LogSite) -> None:
    site.create("u", compression_type="gzip")
    partition = make(site, compression_type="gzip")
    budget = site.partitions.preparer.budget
    budget.limit_bytes = 2_000
    site.offload.held = True
    waiting = later(site.partition("u"), batch(bytes(1_500)))
    refused = later(partition, batch(bytes(1_500)))
    assert refusal(refused.result) is ErrorCode.REQUEST_TIMED_OUT
    site.offload.release("prepare")
    assert (waiting.result().base_offset, budget.used_bytes) == (0, 0)
    assert not later(partition, batch(bytes(1_500))).done


# Faults


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (CorruptLogError("not a batch"), ErrorCode.KAFKA_STORAGE_ERROR),
        (CorruptIndexError("not an index"), ErrorCode.KAFKA_STORAGE_ERROR),
        (ValueError("nobody foresaw it"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_nothing_but_an_error_of_kafkas_leaves_a_partition(
    site: LogSite,
    raised: Exception,
    told: ErrorCode,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    partition = make(site, flush_policy="os")
    found = append(partition, b"a")
    monkeypatch.setattr(LogAppender, "append_as_leader", fail)
    monkeypatch.setattr(LogReader, "read", fail)
    monkeypatch.setattr(LogTruncation, "increment_log_start_offset", fail)
    for call in (
        lambda: append(partition, b"b"),
        lambda: produce(partition, batch(b"b")),
        lambda: append_internal(partition, bytes(batch(b"b").buffer)).result(),
        lambda: delete_records_before(partition, 1),
    ):
        assert refusal(call) is told
    assert str(raised) in caplog.text
    damaged = isinstance(raised, CorruptLogError | CorruptIndexError)
    assert refusal(read, partition) is (ErrorCode.CORRUPT_MESSAGE if damaged else told)
    assert site.failed_directories == []
    partition.wait_for_acks(found.last_offset, 1, Outcomes().note())


def test_an_error_of_the_machine_that_storage_let_through_takes_the_directory_offline(
    site: LogSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "read fails")

    partition = make(site, flush_policy="os")
    monkeypatch.setattr(LogReader, "read", fail)
    assert refusal(read, partition) is ErrorCode.KAFKA_STORAGE_ERROR
    assert site.failed_directories == ["/logs"]


def test_a_partition_that_fails_answers_every_write_and_wakes_every_reader(
    site: LogSite, outcomes: Outcomes
) -> None:
    partition = make(site, flush_policy="ack")
    site.offload.held = True
    write(partition, outcomes)
    write(partition, outcomes)
    woken = park(site, partition)
    partition.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    site.clock.settle()
    assert outcomes == ["NOT_LEADER_OR_FOLLOWER"] * 2
    assert woken == [False]


def test_a_write_that_comes_to_a_partition_that_is_gone_is_answered(
    site: LogSite, outcomes: Outcomes
) -> None:
    """As the first batch of a request whose second one finds that their disk has failed."""
    partition = make(site, flush_policy="ack")
    result = append(partition, b"a")
    partition.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    partition.wait_for_commit(result.last_offset, outcomes.note())
    assert outcomes == ["KAFKA_STORAGE_ERROR"]
    assert refusal(append, partition, b"b") is ErrorCode.KAFKA_STORAGE_ERROR
    internal = append_internal(partition, bytes(batch(b"c").buffer))
    assert refusal(internal.result) is ErrorCode.KAFKA_STORAGE_ERROR


def test_what_was_committed_before_the_end_still_counts(site: LogSite, outcomes: Outcomes) -> None:
    partition = make(site, flush_policy="os")
    result = append(partition, b"a")
    partition.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    partition.wait_for_commit(result.last_offset, outcomes.note())
    assert outcomes == ["ok"]


def test_a_disk_that_fails_takes_its_directory_offline(site: LogSite, outcomes: Outcomes) -> None:
    site.create("u")
    partition = make(site, flush_policy="ack")
    site.offload.held = True
    write(partition, outcomes)
    site.files.broken = {"write"}
    assert refusal(append, partition, b"b") is ErrorCode.KAFKA_STORAGE_ERROR
    assert outcomes == ["KAFKA_STORAGE_ERROR"]
    assert site.failed_directories == ["/logs"]
    assert refusal(site.partition, "u") is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_read_that_fails_takes_the_directory_offline(site: LogSite) -> None:
    partition = make(site, flush_policy="os", segment_bytes="1048576")
    append(partition, b"a")
    append(partition, b"b")
    append(partition, b"c")
    site.files.broken = {"read"}
    assert refusal(read, partition, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert site.failed_directories == ["/logs"]


@pytest.mark.parametrize("timestamp", [1, None])
def test_a_look_up_that_fails_takes_the_directory_offline(
    site: LogSite, timestamp: int | None
) -> None:
    partition = make(site, flush_policy="os")
    append(partition, b"a")
    append(partition, b"b", b"c")
    site.files.broken = {"read"}
    found = offset_for_timestamp(partition, timestamp)
    assert refusal(found.result) is ErrorCode.KAFKA_STORAGE_ERROR
    assert site.failed_directories == ["/logs"]


def test_a_look_up_ends_with_the_leadership(site: LogSite) -> None:
    partition = make(site, flush_policy="os", segment_bytes="1048576")
    append(partition, b"a")
    partition.log.appender.roll(now_ms=0)
    site.offload.held = True
    found = offset_for_timestamp(partition, 1)
    assert not found.done
    partition.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    site.offload.release()
    assert refusal(found.result) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_look_up_in_a_damaged_log_says_so(site: LogSite) -> None:
    partition = make(site, flush_policy="os")
    append(partition, b"a" * 100)
    file = site.files.open(f"{partition.log.directory}/{0:020}.log")
    file.write_at(65, bytes(50))
    assert refusal(offset_for_timestamp(partition, 1).result) is ErrorCode.CORRUPT_MESSAGE
    assert site.failed_directories == []


def test_a_waiter_that_raises_keeps_no_other_from_its_answer(
    site: LogSite, outcomes: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    partition = make(site, flush_policy="ack")
    site.offload.held = True

    def fault(_: object) -> None:
        raise RuntimeError("a fault of ours")

    write(partition, outcomes)
    partition.wait_for_commit(append(partition, b"x").last_offset, fault)
    write(partition, outcomes)
    woken = park(site, partition)
    site.clock.settle()
    site.offload.release()
    assert "a fault of ours" in caplog.text
    site.clock.settle()
    assert outcomes == ["ok", "ok"]
    assert woken == [True]
