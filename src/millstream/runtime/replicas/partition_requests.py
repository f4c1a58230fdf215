"""What clients ask of a partition beside Produce and Fetch: ListOffsets by time,
OffsetForLeaderEpoch, DescribeProducers, DeleteRecords.
"""

from __future__ import annotations

from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.runtime.replicas.partition import Partition
from millstream.storage.log import (
    ActiveProducer,
    EpochEndOffset,
    ReadAhead,
    TimestampLookup,
    TimestampOffset,
)


def offset_for_timestamp(
    partition: Partition, timestamp: int | None
) -> Deferred[TimestampOffset | None]:
    """Look up the first record at or after ``timestamp`` in milliseconds, or for None the first
    one with the largest timestamp, committed or not; None if there is none.

    What is not in memory is read off the loop, so the answer may come later. It fails with
    CORRUPT_MESSAGE where the log is damaged, with KAFKA_STORAGE_ERROR where a disk fails, and
    with what :meth:`Partition.refusal_to_answer` says once the answer is there.
    """
    return spawn(_look_up(partition, TimestampLookup(timestamp)))


async def _look_up(partition: Partition, lookup: TimestampLookup) -> TimestampOffset | None:
    while True:
        try:
            found = partition.log.reader.look_up(lookup, wait_for_disk=False)
            if not isinstance(found, ReadAhead):
                return found
            await partition.offload.run(f"look up {found.log_directory}", found.run)
        except Exception as error:
            if partition.gone is not None:
                raise partition.gone from error
            raise partition.refusal_after(error, ErrorCode.CORRUPT_MESSAGE) from error
        partition.check_may_answer()


def end_of_epoch(partition: Partition, leader_epoch: LeaderEpoch) -> EpochEndOffset:
    """Return where the largest epoch at or below ``leader_epoch`` ends, as the leader knows it;
    both -1 where none is known. Refused as :meth:`Partition.refusal_to_read` says.
    """
    partition.check_may_be_read()
    if leader_epoch == partition.leader_epoch:
        # The current epoch ends where the log ends, written to or not.
        return EpochEndOffset(leader_epoch, partition.log.log_end_offset)
    return partition.log.end_offset_for_epoch(leader_epoch)


def active_producers(partition: Partition) -> list[ActiveProducer]:
    """Return the producers remembered, by id. Refused as :meth:`Partition.refusal_to_answer`
    says.
    """
    partition.check_may_answer()
    return partition.log.producers.active()


def delete_records_before(partition: Partition, offset: Offset) -> Offset:
    """Move the log start up (−1: to the high watermark) and return it.

    KafkaError: OFFSET_OUT_OF_RANGE beyond the high watermark, KAFKA_STORAGE_ERROR when the disk
    says no, :meth:`Partition.refusal_to_answer`: what another leader has is not deleted.
    """
    partition.check_may_answer()
    log = partition.log
    target = log.high_watermark if offset == -1 else offset
    if not 0 <= target <= log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"cannot delete before {target}: the high watermark is {log.high_watermark}",
        )
    try:
        log.truncation.increment_log_start_offset(target)
    except Exception as error:
        raise partition.refusal_after(error, ErrorCode.KAFKA_STORAGE_ERROR) from error
    partition.wake_readers()
    return log.log_start_offset
