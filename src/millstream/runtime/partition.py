"""One partition that this broker leads: its log, when a write counts, and who waits for it.

Here a log meets a role. With one replica, a record is committed (below the high watermark, seen by
consumers) when the flush policy says that it is safe:

============  ==============================================================================
``ack``       after an fsync; concurrent writes share one (group commit)
``interval``  once written, except that every ``flush.messages`` records one fsync comes first;
              another follows after ``flush.ms``
``os``        once written: the page cache and, in a cluster, the replicas keep it
============  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.config.topic import TopicConfig
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset
from millstream.model.topic import INTERNAL_TOPICS, TopicId, TopicPartition
from millstream.records.batch import Batch
from millstream.records.limits import ProduceLimits
from millstream.records.record_checks import recompress
from millstream.runtime.offload import Offload
from millstream.runtime.produce_limits import produce_limits
from millstream.runtime.waiters import CommitCallback, CommitWaiters, FetchWaiter
from millstream.storage.log import AppendResult, Log, LogRead

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
UNLIMITED: Final = 2**63 - 1


class Partition:
    """The leader's side of one partition.

    ``request_flush`` is called with the partition when its newest records must reach the disk
    before they count; the answer is :meth:`on_flushed` or :meth:`fail`.
    """

    __slots__ = (
        "_clock",
        "_commit_waiters",
        "_flush_after_ms",
        "_flush_due_ms",
        "_flush_records",
        "_offload",
        "_on_storage_error",
        "_recompressing",
        "_request_flush",
        "_unannounced_bytes",
        "_unflushed_records",
        "fetch_waiters",
        "is_internal",
        "leader_epoch",
        "limits",
        "log",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        log: Log,
        *,
        topic_id: TopicId,
        leader_epoch: LeaderEpoch,
        config: TopicConfig,
        clock: Clock,
        offload: Offload,
        request_flush: Callable[[Partition], None],
        on_storage_error: Callable[[StorageError], None],
    ) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.is_internal = log.topic_partition.topic in INTERNAL_TOPICS
        self.leader_epoch = leader_epoch
        self._take_config(config)
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self._clock = clock
        self._offload = offload
        self._recompressing = 0
        self._commit_waiters = CommitWaiters()
        self._request_flush = request_flush
        self._on_storage_error = on_storage_error
        self._unannounced_bytes = 0
        self._unflushed_records = 0
        self._flush_due_ms = 0.0
        log.assign_epoch_start(leader_epoch)
        # What recovery kept is as safe as it gets: a broker on its own commits it at once.
        log.update_high_watermark(log.log_end_offset)

    @property
    def high_watermark(self) -> Offset:
        """The first offset that consumers may not see yet."""
        return self.log.high_watermark

    def set_config(self, config: TopicConfig) -> None:
        """Take over new settings of the topic."""
        self._take_config(config)
        self.log.update_config(config)

    def append(self, batch: Batch, now_ms: int) -> AppendResult:
        """Append one validated batch as leader.

        KafkaError for a broken producer sequence and KAFKA_STORAGE_ERROR when the disk says no. The
        result says where the batch lies; :meth:`wait_for_commit` says when it counts.
        """
        try:
            result = self.log.append_as_leader(batch, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except StorageError as error:
            self._on_storage_error(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._unannounced_bytes += batch.size
        self._unflushed_records += batch.count
        if self._unflushed_records >= self._flush_records:
            self._request_flush(self)
        else:
            self._advance(result.last_offset + 1)
        return result

    def must_recompress(self, batch: Batch) -> bool:
        """Tell whether ``batch`` has to take the slow way, for its codec or for its order."""
        return self._recompressing > 0 or self.limits.needs_recompression(batch)

    def append_recompressed(self, batch: Batch) -> Deferred[AppendResult]:
        """Bring a validated batch to the topic's ``compression.type`` off the loop, then append it.

        The bytes are copied first. One lane serves all such batches in order, and while one of this
        partition is on its way every later one follows it, so a producer's sequence holds.
        """
        copy = Batch(memoryview(bytearray(batch.buffer)))
        limits = self.limits
        self._recompressing += 1
        outcome: Deferred[AppendResult] = Deferred()

        def work() -> Batch:
            return recompress(copy, limits) if limits.needs_recompression(copy) else copy

        def finish(ready: Deferred[Batch]) -> None:
            self._recompressing -= 1
            try:
                result = self.append(ready.result(), self._clock.now_ms())
            except KafkaError as error:
                outcome.fail(error)
            else:
                outcome.complete(result)

        self._offload.run("recompress", work).on_done(finish)
        return outcome

    def append_internal(self, records: bytes) -> Deferred[Offset]:
        """Append one batch of a coordinator's own; filled with its last offset once committed."""
        outcome: Deferred[Offset] = Deferred()
        try:
            result = self.append(Batch(memoryview(bytearray(records))), self._clock.now_ms())
        except KafkaError as error:
            outcome.fail(error)
            return outcome

        def settle(error: KafkaError | None) -> None:
            if error is None:
                outcome.complete(result.last_offset)
            else:
                outcome.fail(error)

        self.wait_for_commit(result.last_offset, settle)
        return outcome

    def wait_for_commit(self, last_offset: Offset, callback: CommitCallback) -> None:
        """Call back with None once the write is committed, or with what went wrong."""
        if last_offset < self.log.high_watermark:
            callback(None)
        else:
            self._commit_waiters.add(last_offset, callback)

    def read(
        self, fetch_offset: Offset, *, max_bytes: int, isolation: int, min_one_batch: bool
    ) -> LogRead:
        """Read whole batches that a consumer may see; OFFSET_OUT_OF_RANGE outside the log."""
        log = self.log
        bound = log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark
        return log.read(
            fetch_offset,
            max_bytes=max_bytes,
            upper_bound_offset=bound,
            min_one_batch=min_one_batch,
        )

    def check_leader_epoch(self, current_leader_epoch: LeaderEpoch) -> None:
        """Refuse a client that believes in another leadership (KIP-320)."""
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def delete_records_before(self, offset: Offset) -> Offset:
        """Move the log start up (−1: to the high watermark) and return the new low watermark."""
        target = self.log.high_watermark if offset == -1 else offset
        if not 0 <= target <= self.log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete before {target}: the high watermark is {self.log.high_watermark}",
            )
        self.log.increment_log_start_offset(target)
        self.wake_readers()
        return self.log.log_start_offset

    def on_flushed(self, up_to: Offset) -> None:
        """Commit what an fsync has made safe."""
        self._unflushed_records = self.log.log_end_offset - up_to
        self._advance(up_to)

    def flush_if_due(self, now_ms: float) -> None:
        """Ask for the flush that ``flush.ms`` wants, once its time has come (monotonic clock)."""
        if self._flush_after_ms == UNLIMITED or not self._unflushed_records:
            self._flush_due_ms = now_ms + self._flush_after_ms
        elif now_ms >= self._flush_due_ms:
            self._flush_due_ms = now_ms + self._flush_after_ms
            self._request_flush(self)

    def fail(self, error: KafkaError) -> None:
        """Stop leading: answer every waiting write with ``error``, let every reader look again."""
        self._commit_waiters.fail(error)
        self.wake_readers()

    def wake_readers(self) -> None:
        """Let every parked fetch look again."""
        for waiter in tuple(self.fetch_waiters):
            waiter.wake()

    def _take_config(self, config: TopicConfig) -> None:
        self.limits: ProduceLimits = produce_limits(config)
        self._flush_records = self._flush_after_ms = UNLIMITED
        if config.flush_policy == "ack":
            self._flush_records = 1
        elif config.flush_policy == "interval":
            self._flush_records = config.flush_messages
            self._flush_after_ms = config.flush_ms

    def _advance(self, high_watermark: Offset) -> None:
        log = self.log
        if high_watermark <= log.high_watermark:
            return
        log.update_high_watermark(high_watermark)
        self._commit_waiters.release(high_watermark)
        if self.fetch_waiters:
            for waiter in tuple(self.fetch_waiters):
                waiter.data_arrived(self._unannounced_bytes)
        self._unannounced_bytes = 0
