"""What a fetch is told of one partition in place of records."""

from __future__ import annotations

from typing import Final

from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from millstream.runtime.replicas.fetch_sessions import PartitionFetch
from millstream.runtime.replicas.partition import Partition

_NONE_ABORTED: Final[list[AbortedTransaction]] = []
_NOWHERE: Final = BrokerId(-1)


def is_urgent(data: PartitionData) -> bool:
    """Tell whether a partition has something to say that is not to wait for records."""
    return (
        data.error_code != 0
        or data.diverging_epoch.epoch != -1
        or data.preferred_read_replica != -1
    )


def shares_nothing(partition: Partition, fetch: PartitionFetch) -> bool:
    """Tell whether a follower's log ends before ours begins, or just there and in an epoch of which
    we know nothing any more: whatever it holds, it may have parted from ours.
    """
    log = partition.log
    if fetch.fetch_offset != log.log_start_offset:
        return fetch.fetch_offset < log.log_start_offset
    return 0 <= fetch.last_fetched_epoch < log.epoch_for_offset(log.log_start_offset)


def begins_later(partition: Partition, fetch: PartitionFetch) -> PartitionData:
    """Tell a follower whose log shares nothing with ours where to start anew."""
    return PartitionData(
        partition_index=fetch.partition,
        error_code=ErrorCode.OFFSET_OUT_OF_RANGE.code,
        high_watermark=partition.log.high_watermark,
        log_start_offset=partition.log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def no_records(
    partition: Partition, fetch: PartitionFetch, *, instead_at: BrokerId = _NOWHERE
) -> PartitionData:
    """Answer how far the log goes and nothing of what is in it; a consumer is sent to the replica
    in its rack (KIP-392).
    """
    log = partition.log
    return PartitionData(
        partition_index=fetch.partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        preferred_read_replica=instead_at,
        aborted_transactions=None,
        records=b"",
    )


def divergence(partition: Partition, fetch: PartitionFetch) -> PartitionData | None:
    """Tell a client whose log forked off where the common part ends (KIP-595); not one that asks
    for what is deleted.
    """
    log = partition.log
    end = log.end_offset_for_epoch(fetch.last_fetched_epoch)
    if end.leader_epoch == -1 or fetch.fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if end.leader_epoch >= fetch.last_fetched_epoch and end.end_offset >= fetch.fetch_offset:
        return None
    return _diverging(partition, fetch, end.leader_epoch, end.end_offset)


def ends_before(partition: Partition, fetch: PartitionFetch) -> PartitionData:
    """Tell a follower that has no records, and goes on beyond our end, where that is: it would
    leave out what is written up to there.
    """
    log = partition.log
    return _diverging(partition, fetch, log.latest_epoch, log.log_end_offset)


def _diverging(
    partition: Partition, fetch: PartitionFetch, epoch: LeaderEpoch, end_offset: Offset
) -> PartitionData:
    log = partition.log
    return PartitionData(
        partition_index=fetch.partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
        aborted_transactions=None,
        records=b"",
    )


def refused(
    index: int, error: KafkaError, *, aborted: list[AbortedTransaction] | None = _NONE_ABORTED
) -> PartitionData:
    """Refuse one partition; Kafka has null for ``aborted`` where a log was asked."""
    return PartitionData(
        partition_index=index,
        error_code=error.error.code,
        high_watermark=-1,
        aborted_transactions=aborted,
        records=b"",
    )
