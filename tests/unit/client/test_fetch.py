"""What a fetch shows: whole batches, and with read_committed no aborted records."""

from __future__ import annotations

from millstream.client.core.consumer.fetched import end_of_batches
from millstream.client.fetch import Fetched
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.fetch import AbortedTransaction
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.control import ControlType, EndTransactionMarker, build_marker_batch


def data(offset: int, producer_id: int = -1, *, transactional: bool = False) -> bytes:
    builder = BatchBuilder(
        BatchOptions(
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=transactional,
        )
    )
    builder.append(0, None, b"value")
    builder.append(0, None, b"value")
    return builder.build()


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return build_marker_batch(
        EndTransactionMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=0,
        base_offset=offset,
    )


def visible(log: bytes, aborted: list[tuple[int, int]]) -> list[int]:
    transactions = [AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted]
    fetched = Fetched(
        topic_partition=TopicPartition("t", 0),
        data=memoryview(log),
        fetch_offset=0,
        next_offset=0,
        high_watermark=0,
        last_stable_offset=0,
        log_start_offset=0,
        aborted_transactions=transactions,
    )
    return [batch.base_offset for batch in fetched.batches()]


def test_the_end_of_whole_batches() -> None:
    log = data(5) + data(7)
    assert end_of_batches(memoryview(log)) == (9, -1)
    assert end_of_batches(memoryview(log[:-1])) == (7, -1)
    assert end_of_batches(memoryview(log[:60])) is None
    assert end_of_batches(memoryview(b"")) is None


def test_markers_are_no_data() -> None:
    log = data(0, 1, transactional=True) + marker(2, 1, ControlType.COMMIT) + data(3)
    assert visible(log, []) == [0, 3]


def test_an_aborted_transaction_is_left_out_up_to_its_marker() -> None:
    log = (
        data(0, 1, transactional=True)
        + data(2, 2, transactional=True)
        + data(4)
        + marker(6, 1, ControlType.ABORT)
        + data(7, 1, transactional=True)
        + marker(9, 2, ControlType.COMMIT)
        + marker(10, 1, ControlType.COMMIT)
    )
    assert visible(log, [(1, 0)]) == [2, 4, 7]


def test_two_aborted_transactions_of_one_producer() -> None:
    log = (
        data(0, 1, transactional=True)
        + marker(2, 1, ControlType.ABORT)
        + data(3, 1, transactional=True)
        + marker(5, 1, ControlType.COMMIT)
        + data(6, 1, transactional=True)
        + marker(8, 1, ControlType.ABORT)
    )
    assert visible(log, [(1, 6), (1, 0)]) == [3]


def test_a_fetch_that_starts_inside_an_aborted_transaction() -> None:
    assert visible(data(4, 1, transactional=True) + marker(6, 1, ControlType.ABORT), [(1, 0)]) == []
