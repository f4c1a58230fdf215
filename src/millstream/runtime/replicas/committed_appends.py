"""Appends of coordinators, whose outcome is told once they are committed: their own records, and
the markers that end transactions.
"""

from __future__ import annotations

from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.records.batch import Batch
from millstream.records.control import MARKER_BATCH_SIZE, MarkerBatch
from millstream.runtime.replicas.partition import UNLIMITED, Partition


def append_internal(partition: Partition, records: bytes) -> Deferred[Offset]:
    """Append one batch of a coordinator's own; filled with its last offset once committed, or
    with a KafkaError: NOT_ENOUGH_REPLICAS under min ISR, what :meth:`Partition.append` refuses.
    """
    outcome: Deferred[Offset]
    try:
        if partition.leading is not None and partition.leading.is_under_min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        batch = Batch(memoryview(bytearray(records)))
        result = partition.append(batch, partition.clock.now_ms())
    except KafkaError as error:
        outcome = Deferred()
        outcome.fail(error)
        return outcome
    last_offset = result.last_offset
    if last_offset < partition.log.offsets.high_watermark:
        return Deferred.of(last_offset)
    outcome = Deferred()

    def settle(error: KafkaError | None) -> None:
        if error is None:
            outcome.complete(last_offset)
        else:
            outcome.fail(error)

    partition.wait_for_commit(last_offset, settle)
    return outcome


def append_marker(
    partition: Partition, marker: MarkerBatch, *, transaction_version: int
) -> Deferred[Offset]:
    """Append the control batch that ends a producer's transaction here; filled with its offset
    once committed.

    Fails with a KafkaError: what :meth:`Partition.refusal_to_write` says with acks=all,
    INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, what :meth:`Partition.append` refuses;
    NOT_ENOUGH_REPLICAS_AFTER_APPEND where too few replicas are in sync by then: the marker is
    written, and may be written again.
    """
    outcome: Deferred[Offset] = Deferred()
    try:
        partition.check_write(-1)
        result = partition.log.appender.append_marker(
            marker,
            leader_epoch=partition.leader_epoch,
            now_ms=partition.clock.now_ms(),
            transaction_version=transaction_version,
        )
    except Exception as error:
        outcome.fail(partition.refusal_after(error, ErrorCode.KAFKA_STORAGE_ERROR))
        return outcome
    partition.wrote(result, MARKER_BATCH_SIZE, 1)

    def settle(error: KafkaError | None) -> None:
        # Committed readers may see a whole transaction now, whatever its bytes were.
        partition.data_arrived(UNLIMITED)
        if error is None:
            outcome.complete(result.last_offset)
        else:
            outcome.fail(error)

    partition.wait_for_acks(result.last_offset, -1, settle)
    return outcome
