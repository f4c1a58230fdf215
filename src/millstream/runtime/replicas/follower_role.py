"""A partition that this broker follows: carries out what a leader's answer means.

`replication.follower` decides; here its effects meet the log, and those who read it. The fetches
themselves are those of `replica_fetcher`, one for all partitions of a leader.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, assert_never

from millstream.model.epoch_end import EpochEndOffset
from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from millstream.model.leadership import PartitionState
from millstream.model.offsets import NO_LEADER_EPOCH, Offset
from millstream.protocol.messages.fetch import PartitionData
from millstream.protocol.outgoing import IN_MEMORY
from millstream.replication.follower import (
    Append,
    FetchAnswer,
    FetchPosition,
    FollowerReplication,
    FollowerRules,
    LogView,
    ReadState,
    RestartAt,
    Truncate,
    high_watermark_after,
    last_fetched_epoch,
)
from millstream.runtime.replicas.leader_role import ReplicationContext
from millstream.runtime.replicas.readable_bytes import UNKNOWN_SIZE
from millstream.runtime.replicas.replica_fetch_session import PartitionKey

if TYPE_CHECKING:
    from millstream.runtime.replicas.partition import Partition

log = logging.getLogger(__name__)


class Fetcher(Protocol):
    """Fetches for a partition that follows (``replica_fetcher.ReplicaFetcher``)."""

    def moved(self, role: FollowerRole) -> None:
        """Fetch soon: something other than an answer has changed what the partition asks for."""


class FollowerRole:
    """One partition that follows."""

    __slots__ = (
        "_context",
        "_is_behind",
        "_is_cutting",
        "fetcher",
        "machine",
        "partition",
        "waits_for_flush",
    )

    def __init__(
        self, partition: Partition, state: PartitionState, context: ReplicationContext
    ) -> None:
        config = context.config.current
        self.partition = partition
        self._context = context
        self.machine = FollowerReplication(
            state.leader,
            state.leader_epoch,
            FollowerRules(config.replica_lag_time_max_ms, config.replica_fetch_backoff_ms),
        )
        self.fetcher: Fetcher | None = None
        """Who fetches for it; None where it has no leader, or the broker is stopping."""
        self.waits_for_flush = partition.flushes.is_due
        """True while the leader must not hear how far the log goes: its end is not on disk, though
        the role before may have written it.
        """
        self._is_behind = True
        self._is_cutting = False
        """True between the two steps of a truncation."""

    @property
    def key(self) -> PartitionKey:
        """How a fetch names the partition."""
        return self.partition.topic_id, self.partition.topic_partition.partition

    def position(self) -> FetchPosition:
        """Return what to ask for."""
        kept = self.partition.log
        end = kept.offsets.log_end_offset
        return self.machine.position(
            log_end_offset=end,
            log_start_offset=kept.offsets.log_start_offset,
            latest_epoch=last_fetched_epoch(kept.latest_epoch, end),
        )

    @property
    def is_throttled(self) -> bool:
        """True when this replica has to wait while the follower's rate limit is exceeded: where it
        is named, is behind what the leader has committed, and is not in the ISR.
        """
        context = self._context
        if not self._is_behind or not context.throttle.follower.names(self.partition):
            return False
        image = context.metadata.topic(self.partition.topic_partition.topic)
        index = self.partition.topic_partition.partition
        known = image is not None and index < len(image.partitions)
        return not (known and image and context.broker_id in image.partitions[index].isr)

    def on_local_end(self, offset: Offset) -> None:
        """Take note that the log counts up to an offset: it may be told to the leader."""
        if offset >= self.partition.log.log_end_offset and self.waits_for_flush:
            self.waits_for_flush = False
            if self.fetcher is not None:
                self.fetcher.moved(self)

    def on_data(self, asked: FetchPosition, data: PartitionData, now_ms: float) -> None:
        """Carry out what the leader's answer means. KafkaError when the disk fails at it."""
        try:
            self._on_data(asked, data, now_ms)
        except StorageError as error:
            raise self.partition.disk_failed(error) from error
        except CorruptLogError as error:
            # It stays out of sync; others that follow the same leader go on.
            log.error("%s: its log is damaged: %s", self._name, error)
            self.machine.on_no_answer(now_ms)

    def _on_data(self, asked: FetchPosition, data: PartitionData, now_ms: float) -> None:
        kept = self.partition.log
        answer = FetchAnswer(
            error=ErrorCode.of(data.error_code),
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
            diverging=_diverging(data),
            has_records=bool(data.records),
        )
        own = kept.offsets
        view = LogView(own.log_end_offset, own.high_watermark, kept.end_offset_for_epoch)
        for effect in self.machine.on_answer(asked, answer, view, now_ms):
            match effect:
                case Append():
                    self._append(data, now_ms)
                case Truncate(offset, loses_committed):
                    self._truncate(offset, data, loses_committed=loses_committed)
                case RestartAt(offset):
                    log.info("%s: the leader's log begins at %d", self._name, offset)
                    kept.truncation.truncate_fully_and_start_at(
                        offset, now_ms=self._context.clock.now_ms()
                    )
                case ReadState():
                    self._context.read_state(self.partition.topic_partition)
                case _:
                    assert_never(effect)

    def on_no_answer(self, now_ms: float) -> None:
        """Pause: the leader is not reached."""
        for effect in self.machine.on_no_answer(now_ms):
            assert isinstance(effect, ReadState)
            self._context.read_state(self.partition.topic_partition)

    def _append(self, data: PartitionData, now_ms: float) -> None:
        kept = self.partition.log
        records = data.records
        if records:
            assert isinstance(records, IN_MEMORY)
            end = kept.log_end_offset
            self.waits_for_flush = True
            try:
                self.partition.append_as_follower(records)
            except (CorruptLogError, KafkaError) as error:
                self.waits_for_flush = False
                log.error("%s: what the leader sent is not appended: %s", self._name, error)
                self.machine.on_no_answer(now_ms)
                return
            except Exception:
                # Records that are in the log must not be told to the leader before their flush.
                self.waits_for_flush &= kept.log_end_offset > end
                raise
            throttle = self._context.throttle.follower
            if throttle.names(self.partition):
                throttle.record(len(records))
        own = kept.offsets
        self._is_behind = own.log_end_offset < data.high_watermark
        self.partition.has_followed |= not self._is_behind
        before = own.high_watermark
        high_watermark = high_watermark_after(
            own=before,
            leader_high_watermark=data.high_watermark,
            log_end_offset=own.log_end_offset,
        )
        if high_watermark > before:
            self.partition.commit(high_watermark, UNKNOWN_SIZE)
        start = min(data.log_start_offset, own.high_watermark)
        if start > own.log_start_offset:
            kept.truncation.increment_log_start_offset(start)

    def _truncate(self, offset: Offset, data: PartitionData, *, loses_committed: bool) -> None:
        """Cut the log, in one step or in two with a flush between them: the leader is asked again
        then, and says the same. A flush follows in either case, and nothing is fetched before it is
        done (``storage.durability``).
        """
        kept = self.partition.log
        if not self._is_cutting:
            level = logging.ERROR if loses_committed else logging.INFO
            self._context.committed_cuts += loses_committed
            log.log(
                level,
                "%s: cut from %d back to %d, where its log parts from the leader's in epoch %d%s",
                self._name,
                kept.log_end_offset,
                offset,
                data.diverging_epoch.epoch,
                ": below the high watermark" if loses_committed else "",
            )
        now_ms = self._context.clock.now_ms()
        self._is_cutting = kept.truncation.begin_truncation(offset, now_ms=now_ms)
        if not self._is_cutting:
            kept.truncation.truncate_to(offset, now_ms=now_ms)
        self.waits_for_flush = True
        self.partition.flushes.ask()
        self.partition.wake_readers()

    @property
    def _name(self) -> str:
        return str(self.partition.topic_partition)


def _diverging(data: PartitionData) -> EpochEndOffset | None:
    diverging = data.diverging_epoch
    if diverging.epoch == NO_LEADER_EPOCH and diverging.end_offset < 0:
        return None
    return EpochEndOffset(diverging.epoch, diverging.end_offset)
