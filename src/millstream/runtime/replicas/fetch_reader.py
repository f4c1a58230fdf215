"""What one reader, a consumer or a follower, is told of one partition.

A consumer reads below the high watermark, from a leader that may be read or from a follower, up
to what that one knows to be committed (KIP-392). A follower reads up to the log end of the leader,
which first records how far the follower has come; its fetch is bound to the leader by the leader
epoch, and what it confirms is true whoever leads by now, so no lease is asked. What is looked at,
in this order; the first that holds is the answer:

==============================  ===================================================================
a consumer asks a leader whose  NOT_LEADER_OR_FOLLOWER: another broker may lead, and have records
lease is over, and who is not   that this one will never have (``LeaderRole.may_be_read``)
followed any more
another leader epoch is meant   FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH (KIP-320)
a follower shares nothing with  OFFSET_OUT_OF_RANGE with the log start, where it begins anew
this log any more
the logs part                   the end of the common part (KIP-595)
a follower is out of sync and   how far the log goes, and no records (KIP-73)
the rate limit is exceeded
another replica is nearer       its broker id, and no records (KIP-392)
==============================  ===================================================================

Kafka: ``Partition.fetchRecords``, ``ReplicaManager.readFromLog``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.model.broker import NO_BROKER_EPOCH, BrokerId
from millstream.model.epoch_end import EpochEndOffset
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import NO_LEADER_EPOCH, NO_OFFSET, Offset
from millstream.protocol.messages import fetch as messages
from millstream.protocol.messages.fetch import PartitionData
from millstream.replication.divergence import is_diverging
from millstream.runtime.replicas.partition import READ_ALL, READ_COMMITTED
from millstream.storage.log import ReadAhead

if TYPE_CHECKING:
    from millstream.runtime.replicas.fetch_sessions import PartitionFetch
    from millstream.runtime.replicas.partition import Partition
    from millstream.runtime.replicas.partitions import Partitions
    from millstream.storage.log import LogRead

NO_REPLICA: Final = BrokerId(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAbilities:
    """What the version of a request, or the API, has room for."""

    by_topic_id: bool = True
    """A partition is named by its topic's id."""
    reads_followers: bool = True
    """A consumer may read from a follower."""
    hears_of_divergence: bool = True
    """The answer can say where logs part."""


class FetchParams:
    """Who fetches, and how much (Kafka: ``FetchParams``). ``max_bytes`` bounds all partitions
    together; the first batch found is whole whatever its size.
    """

    rack = ""
    """Where a consumer is, if it is to be sent to a replica that is near; else empty."""
    replica_id = NO_REPLICA
    """The follower that fetches; -1 for a consumer."""
    replica_epoch = NO_BROKER_EPOCH

    def __init__(
        self, isolation: int, max_bytes: int, min_bytes: int, abilities: FetchAbilities
    ) -> None:
        self.isolation = isolation
        self.max_bytes = max_bytes
        self.min_bytes = min_bytes
        self.abilities = abilities


def refused(
    fetch: PartitionFetch,
    error: ErrorCode,
    *,
    high_watermark: Offset = NO_OFFSET,
    log_start_offset: Offset = NO_OFFSET,
) -> PartitionData:
    """Return what a reader is told of a partition whose log is here and refuses."""
    return PartitionData(
        partition_index=fetch.partition,
        error_code=error.code,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def not_here(partition: int, error: ErrorCode) -> PartitionData:
    """Return what a reader is told of a partition that is not looked at, for this error."""
    return PartitionData(
        partition_index=partition,
        error_code=error.code,
        high_watermark=NO_OFFSET,
        aborted_transactions=[],
        records=b"",
    )


def is_urgent(found: PartitionData) -> bool:
    """True for what is not to wait for records."""
    return (
        found.error_code != 0
        or found.diverging_epoch.end_offset != NO_OFFSET
        or found.preferred_read_replica != NO_REPLICA
    )


class FetchReader:
    """Reads partitions for whoever sent one fetch request."""

    is_recorded = False
    """True once a follower's progress is noted: reading again says nothing new."""
    is_throttled = False
    """True while followers out of sync are held back by the leader's rate limit."""

    def __init__(self, partitions: Partitions, params: FetchParams) -> None:
        self._partitions = partitions
        self._params = params
        self.of_replica = params.replica_id >= 0
        self._is_plain = not self.of_replica and not params.rack
        """True for a consumer that may be told something other than records for its epoch alone."""

    def find(self, fetch: PartitionFetch) -> Partition:
        """Return the partition that is meant, or raise the KafkaError that says why it is not here:
        UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID, or as ``Partitions.get``.
        """
        partitions = self._partitions
        by_topic_id = self._params.abilities.by_topic_id
        slots = (
            partitions.by_id.get(fetch.topic_id)
            if by_topic_id
            else partitions.by_name.get(fetch.topic)
        )
        index = fetch.partition
        if slots is not None and 0 <= index < len(slots):
            partition = slots[index]
            if partition is not None:
                fetch.topic = partition.topic_partition.topic
                return partition
        if not by_topic_id:
            return self._led_or_followed(fetch)
        image = self._partitions.metadata.topic_by_id(fetch.topic_id)
        if image is not None:
            fetch.topic = image.name
        elif not fetch.topic:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        # A session remembers the name of an id whose topic is gone since; another may have it now.
        partition = self._led_or_followed(fetch)
        if partition.topic_id != fetch.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        return partition

    def _led_or_followed(self, fetch: PartitionFetch) -> Partition:
        """Return a partition that is led here, or followed where the reader may be so served."""
        if not self.of_replica and self._params.abilities.reads_followers:
            partition = self._partitions.replica(fetch.topic, fetch.partition)
            if partition is not None and partition.following is not None:
                return partition
        return self._partitions.get(fetch.topic, fetch.partition)

    def read(
        self,
        partition: Partition,
        fetch: PartitionFetch,
        *,
        max_bytes: int,
        min_one_batch: bool,
        wait_for_disk: bool,
    ) -> PartitionData | ReadAhead:
        """Read one partition, or say what has to be read ahead of it (``Partition.read``). What is
        found goes into the answer as it is.

        Never raises: what refuses is the answer's error, and whatever fails in storage is the
        partition's own (``Partition.read``).
        """
        try:
            if partition.leading is not None and not self.of_replica:
                partition.check_may_be_read()
            if fetch.current_leader_epoch >= 0:
                partition.check_leader_epoch(fetch.current_leader_epoch)
            if max_bytes < 0 and fetch.fetch_offset < partition.log.offsets.high_watermark:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a limit of {max_bytes} bytes")
            if fetch.last_fetched_epoch >= 0 or not self._is_plain:
                instead = self._before_reading(partition, fetch)
                if instead is not None:
                    return instead
            isolation = READ_ALL if self.of_replica else self._params.isolation
            read = partition.read(
                fetch.fetch_offset,
                max_bytes=max_bytes,
                isolation=isolation,
                min_one_batch=min_one_batch,
                wait_for_disk=wait_for_disk,
            )
            if read.cold is not None:
                return read.cold
        except KafkaError as error:
            return refused(fetch, error.error)
        offsets, records = partition.log.offsets, read.records
        return PartitionData(
            partition_index=fetch.partition,
            error_code=0,
            high_watermark=offsets.high_watermark,
            last_stable_offset=offsets.last_stable_offset,
            log_start_offset=offsets.log_start_offset,
            aborted_transactions=None if isolation != READ_COMMITTED else _aborted(read),
            records=b"" if records is None else records,
        )

    def has_news(self, partition: Partition, fetch: PartitionFetch) -> bool:
        """Tell whether a partition that had nothing to say has to be looked at again. Most of a
        session with many have nothing new: no records, and all else as the reader was told.
        """
        log = partition.log.offsets
        if (
            partition.is_gone
            or fetch.fetch_offset != log.log_end_offset
            or fetch.told_high_watermark != log.high_watermark
            or fetch.told_log_start_offset != log.log_start_offset
            or fetch.current_leader_epoch not in (NO_LEADER_EPOCH, partition.leader_epoch)
        ):
            return True
        leading = partition.leading
        if not self.of_replica:
            return leading is not None and not leading.may_be_read
        return not self.is_recorded and (
            leading is None
            or not leading.on_same_fetch(
                self._params.replica_id,
                fetch.fetch_offset,
                self._params.replica_epoch,
                fetch.log_start_offset,
            )
        )

    def _before_reading(self, partition: Partition, fetch: PartitionFetch) -> PartitionData | None:
        """Look at what a reader has; return what it is told in place of records, if anything."""
        of_replica = self.of_replica
        leading = partition.leading
        if not (
            # Under the same leader a log only grows: what agreed with it when this fetch looked
            # before agrees with it now, unless the beginning of the log has come as far.
            self.is_recorded
            and fetch.quiet_at is partition
            and leading is not None
            and fetch.fetch_offset > partition.log.offsets.log_start_offset
        ):
            instead = self._compare(partition, fetch)
            if instead is not None:
                return instead
            if of_replica:
                self._record(partition, fetch)
        if of_replica:
            replica = self._params.replica_id
            if self.is_throttled and leading is not None and leading.is_throttled(replica):
                return _no_records(partition, fetch)
        elif self._params.rack and leading is not None:
            near = leading.preferred_read_replica(self._params.rack, fetch.fetch_offset)
            if near is not None:
                answer = _no_records(partition, fetch)
                answer.preferred_read_replica = near
                return answer
        return None

    def _compare(self, partition: Partition, fetch: PartitionFetch) -> PartitionData | None:
        """Compare a reader's log with ours; return what it is told where they do not agree."""
        if self.of_replica and shares_nothing(partition, fetch):
            return _begins_later(partition, fetch)
        if fetch.last_fetched_epoch >= 0:
            return divergence(partition, fetch)
        if (
            self.of_replica
            and self._params.abilities.hears_of_divergence
            and fetch.fetch_offset > partition.log.log_end_offset
        ):
            return _ends_before(partition, fetch)
        return None

    def _record(self, partition: Partition, fetch: PartitionFetch) -> None:
        """Take note of how far a follower has come."""
        if self.is_recorded:
            return
        if partition.leading is None:
            # The partition has no other replicas, whoever asks.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if fetch.fetch_offset > partition.log.offsets.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        partition.leading.on_follower_fetch(
            self._params.replica_id,
            fetch.fetch_offset,
            self._params.replica_epoch,
            fetch.log_start_offset,
        )


def shares_nothing(partition: Partition, fetch: PartitionFetch) -> bool:
    """Tell whether a follower's log ends before ours begins, or just there and in an epoch of which
    we know nothing any more: whatever it holds, it may have parted from ours.
    """
    log = partition.log
    log_start_offset = log.offsets.log_start_offset
    if fetch.fetch_offset != log_start_offset:
        return fetch.fetch_offset < log_start_offset
    return 0 <= fetch.last_fetched_epoch < log.epoch_for_offset(log_start_offset)


def divergence(partition: Partition, fetch: PartitionFetch) -> PartitionData | None:
    """Tell a client whose log forked off where the common part ends (KIP-595); not one that asks
    for what is deleted.
    """
    log = partition.log
    end = log.end_offset_for_epoch(fetch.last_fetched_epoch)
    if end.leader_epoch == NO_LEADER_EPOCH or fetch.fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    parts = is_diverging(
        end, last_fetched_epoch=fetch.last_fetched_epoch, fetch_offset=fetch.fetch_offset
    )
    return _diverging(partition, fetch, end) if parts else None


def _ends_before(partition: Partition, fetch: PartitionFetch) -> PartitionData:
    """Tell a follower that has no records, and goes on beyond our end, where that is: it would
    leave out what is written up to there.
    """
    log = partition.log
    return _diverging(partition, fetch, EpochEndOffset(log.latest_epoch, log.log_end_offset))


def _diverging(
    partition: Partition, fetch: PartitionFetch, common_end: EpochEndOffset
) -> PartitionData:
    """Say the largest epoch in common and where it ends."""
    answer = _no_records(partition, fetch)
    answer.diverging_epoch = messages.EpochEndOffset(
        epoch=common_end.leader_epoch, end_offset=common_end.end_offset
    )
    return answer


def _begins_later(partition: Partition, fetch: PartitionFetch) -> PartitionData:
    """Tell a follower whose log shares nothing with ours where to start anew."""
    return refused(
        fetch,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        high_watermark=partition.log.high_watermark,
        log_start_offset=partition.log.log_start_offset,
    )


def _no_records(partition: Partition, fetch: PartitionFetch) -> PartitionData:
    """Answer how far the log goes and nothing of what is in it."""
    offsets = partition.log.offsets
    return PartitionData(
        partition_index=fetch.partition,
        error_code=0,
        high_watermark=offsets.high_watermark,
        last_stable_offset=offsets.last_stable_offset,
        log_start_offset=offsets.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def _aborted(read: LogRead) -> list[messages.AbortedTransaction]:
    """Return the transactions that a committed reader must leave out."""
    return [
        messages.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in read.aborted
    ]
