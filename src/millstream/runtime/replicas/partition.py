"""One partition that this broker keeps: its log, when a write counts, and who waits for it.

Here a log meets a role: leading alone, leading others (``leader_role``), or following
(``replica_fetcher``). With one replica, a record is committed (below the high watermark, seen by
consumers) once it is as safe as the flush policy asks (``partition_flushes``); with more replicas
the policy says when it counts on this broker, and the replicas together when it is committed.

Beside this module: batches that have to wait before their append (``waiting_appends``), appends of
coordinators (``committed_appends``), requests but Produce and Fetch (``partition_requests``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from millstream.config.topic import TopicConfig
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset
from millstream.model.topic import INTERNAL_TOPICS, TopicId, TopicPartition
from millstream.records.batch import LENGTH_OVERHEAD, TRANSACTIONAL_BIT, Batch
from millstream.records.crc32c import Buffer
from millstream.records.limits import ProduceLimits
from millstream.records.validation import validate_produced
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.admission import Preparer
from millstream.runtime.replicas.log_refusals import refusal_of
from millstream.runtime.replicas.partition_flushes import PartitionFlushes
from millstream.runtime.replicas.produce_limits import produce_limits
from millstream.runtime.replicas.waiters import CommitCallback, CommitWaiters, FetchWaiter
from millstream.runtime.replicas.waiting_appends import WaitingAppends
from millstream.storage.log import AppendResult, Log, LogRead

if TYPE_CHECKING:
    from millstream.runtime.replicas.follower_role import FollowerRole
    from millstream.runtime.replicas.leader_role import LeaderRole

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
READ_ALL: Final = -1
"""What a follower reads: up to the log end, committed or not."""
UNLIMITED: Final = 2**63 - 1


class Partition:
    """One replica of one partition; a new leader or follower is a new object around the same log.

    ``request_flush`` is called with the partition when its newest records must reach the disk
    before they count, see ``flushes``; a flush that fails ends in :meth:`fail`. A disk that fails
    is told to ``on_storage_error``, which fails the partitions that lie there; who called gets
    KAFKA_STORAGE_ERROR.
    """

    __slots__ = (
        "_on_storage_error",
        "_preparer",
        "clock",
        "commit_waiters",
        "config",
        "fetch_waiters",
        "flushes",
        "following",
        "gone",
        "has_followed",
        "is_internal",
        "leader_epoch",
        "leading",
        "limits",
        "log",
        "replica_waiters",
        "topic_id",
        "topic_partition",
        "unannounced_bytes",
        "waiting",
    )

    def __init__(
        self,
        log: Log,
        *,
        topic_id: TopicId,
        leader_epoch: LeaderEpoch,
        config: TopicConfig,
        clock: Clock,
        preparer: Preparer,
        request_flush: Callable[[Partition], None],
        on_storage_error: Callable[[StorageError], None],
    ) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.is_internal = log.topic_partition.topic in INTERNAL_TOPICS
        self.leader_epoch = leader_epoch
        self.config = config
        self.limits: ProduceLimits = produce_limits(config)
        self.flushes = PartitionFlushes(self, request_flush, config)
        self.leading: LeaderRole | None = None
        """What this leader knows of its followers; None where it has none."""
        self.following: FollowerRole | None = None
        """Whom this replica follows; None on a leader."""
        self.has_followed = False
        """True once it has caught up with a leader since the log was opened."""
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self.replica_waiters: dict[FetchWaiter, None] = {}
        """Fetches of followers, which wait for the log end and not for the high watermark."""
        self.clock = clock
        self._preparer = preparer
        self.waiting: WaitingAppends | None = None
        """The batches that cannot be appended at once; None where none ever had to wait."""
        self.commit_waiters = CommitWaiters()
        self._on_storage_error = on_storage_error
        self.gone: KafkaError | None = None
        """What ended this role, and answers everybody who comes still: see :meth:`fail`."""
        self.unannounced_bytes = 0
        """Bytes that are written, and that no waiting fetch has heard of."""

    def lead_alone(self) -> None:
        """Begin to lead a partition that has no other replica. Raises StorageError."""
        self.log.assign_epoch_start(self.leader_epoch)
        # What recovery kept is as safe as it gets: a broker on its own commits it at once.
        self.log.offsets.update_high_watermark(self.log.log_end_offset)

    def take_over(self, before: Partition) -> None:
        """Go on where another role of the same log ended."""
        self.has_followed = before.has_followed
        self.flushes.take_over(before.flushes)

    @property
    def offload(self) -> Offload:
        """What does the work that would block, for requests about this partition."""
        return self._preparer.offload

    @property
    def is_gone(self) -> bool:
        """True once another object, or nothing, serves this topic partition: see :meth:`fail`."""
        return self.gone is not None

    @property
    def high_watermark(self) -> Offset:
        """The first offset that consumers may not see yet."""
        return self.log.high_watermark

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that can be read."""
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The offset that the next record gets."""
        return self.log.log_end_offset

    def visible_end(self, isolation: int) -> Offset:
        """Return the first offset that a consumer may not see: the last stable offset for
        ``READ_COMMITTED``, else the high watermark.
        """
        log = self.log
        return log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark

    @property
    def log_start_epoch(self) -> LeaderEpoch:
        """The leader epoch of the first offset that can be read."""
        return self.log.epoch_for_offset(self.log.log_start_offset)

    @property
    def knows_what_is_committed(self) -> bool:
        """False from an election until the leader has committed a record of its own epoch, or all
        before it (KIP-207): an end that is told until then could go back.
        """
        return self.leading is None or self.leading.knows_what_is_committed

    def set_config(self, config: TopicConfig) -> None:
        """Take over the topic's settings; does nothing where they are those in force."""
        if config is self.config:
            return
        self.config = config
        self.limits = produce_limits(config)
        self.flushes.set_policy(config)
        self.log.update_config(config)
        if self.leading is not None:
            self.leading.config_changed()

    def append_produced(
        self,
        records: Buffer,
        *,
        acks: int,
        version: int,
        now_ms: int,
        transactional_id: str | None = None,
    ) -> AppendResult | Deferred[AppendResult]:
        """Append what a client's Produce request of ``version`` has for this partition.

        At once, or later for a batch that must be prepared first and for those behind it
        (``admission``), and for one that begins a transaction of ``transactional_id`` here
        (``transactional_appends``); ``records`` may be reused after the call. Refused with a
        KafkaError, raised or in the Deferred, and with nothing else: :meth:`refusal_to_write`, what
        ``validate_produced`` and :meth:`append` refuse, INVALID_TOPIC_EXCEPTION for a topic that
        clients do not write. What nobody foresaw is logged and is UNKNOWN_SERVER_ERROR.
        """
        try:
            if self.leading is not None:
                self.check_write(acks)
            if self.is_internal:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, "clients do not write internal topics"
                )
            limits = self.limits
            batch = validate_produced(records, limits, version=version, now_ms=now_ms)
            if batch.attributes & TRANSACTIONAL_BIT:
                return self.waiting_appends.append_transactional(
                    batch, acks, version, transactional_id
                )
            waiting = self.waiting
            must_queue = waiting is not None and waiting.admission.entries
            if must_queue or limits.needs_preparation(batch):
                return self.waiting_appends.admit(batch, acks)
            return self.append(batch, now_ms)
        except KafkaError:
            raise
        except Exception as error:
            raise self.refusal_after(error, ErrorCode.KAFKA_STORAGE_ERROR) from error

    @property
    def waiting_appends(self) -> WaitingAppends:
        """``waiting``, made at first use."""
        if self.waiting is None:
            self.waiting = WaitingAppends(self, self._preparer)
        return self.waiting

    def check_write(self, acks: int) -> None:
        """Raise what :meth:`refusal_to_write` returns, if anything."""
        refusal = self.refusal_to_write(acks)
        if refusal is not None:
            raise refusal

    def append(self, batch: Batch, now_ms: int) -> AppendResult:
        """Append one validated batch as leader, now.

        KafkaError for a broken producer sequence, KAFKA_STORAGE_ERROR when the disk says no or the
        log is damaged where it ends, what :meth:`fail` was given once the partition is gone. The
        result says where the batch lies; :meth:`wait_for_acks` says when it counts.
        """
        if self.gone is not None:
            raise self.gone
        try:
            result = self.log.appender.append_as_leader(
                batch, leader_epoch=self.leader_epoch, now_ms=now_ms
            )
        except KafkaError:
            raise
        except Exception as error:
            raise self.refusal_after(error, ErrorCode.KAFKA_STORAGE_ERROR) from error
        if result.duplicate:
            return result
        # What wrote() does, written out: a call would cost every batch that is produced.
        size = batch.length + LENGTH_OVERHEAD
        self.unannounced_bytes += size
        flushes = self.flushes
        flushes.unflushed_records += batch.count
        if self.leading is not None:
            self.leading.wrote(result.last_offset + 1, size)
        if flushes.unflushed_records >= flushes.record_limit:
            flushes.request(self)
        else:
            self.counts_up_to(result.last_offset + 1, self.unannounced_bytes)
        return result

    def wrote(self, result: AppendResult, size: int, count: int) -> None:
        """Take note of a batch that was appended as leader."""
        self.unannounced_bytes += size
        flushes = self.flushes
        flushes.unflushed_records += count
        if self.leading is not None:
            self.leading.wrote(result.last_offset + 1, size)
        if flushes.unflushed_records >= flushes.record_limit:
            flushes.request(self)
        else:
            self.counts_up_to(result.last_offset + 1, self.unannounced_bytes)

    def refusal_to_write(self, acks: int) -> KafkaError | None:
        """Return what a write with ``acks`` would be refused with now; None where it may go on.

        NOT_LEADER_OR_FOLLOWER where another broker may lead by now and ``leader.lease`` is set, or
        this object serves the partition no more; NOT_ENOUGH_REPLICAS for acks=all under min ISR.
        Nothing is changed: who asks before preparing a write keeps its state when refused.
        """
        leading = self.leading
        if self.gone is not None or leading is None:
            return self.gone
        if not leading.may_write:
            return _without_lease()
        if acks == -1 and leading.is_under_min_isr:
            return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return None

    def refusal_to_answer(self) -> KafkaError | None:
        """Return why this broker may not speak for the partition now; None where it may.

        NOT_LEADER_OR_FOLLOWER where the session with the metadata store may have expired, so that
        another broker may lead by now, whatever ``leader.lease`` says: that setting is about
        writes, and acks=all keeps those from being lost, while nothing else keeps an answer from
        being out of date. What :meth:`fail` was given once the partition is gone. Every answer that
        speaks for a partition's latest state asks it.
        """
        if self.gone is not None or self.leading is None or self.leading.holds_lease:
            return self.gone
        return _without_lease()

    def refusal_to_read(self) -> KafkaError | None:
        """Return why a consumer may not be served what is committed here; None where it may.

        As :meth:`refusal_to_answer`, but that a leader whose lease is over serves on while all who
        could lead instead still follow it: what is committed stays so, and a consumer that is
        refused while the metadata store is away has nowhere to turn. Not for share groups: who gets
        a record depends on what was acknowledged last.
        """
        if self.gone is not None or self.leading is None or self.leading.may_be_read:
            return self.gone
        return _without_lease()

    def disk_failed(self, error: StorageError) -> KafkaError:
        """Take the log directory offline; return what whoever asked is to hear."""
        self._on_storage_error(error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def append_as_follower(self, records: bytes | bytearray | memoryview) -> None:
        """Append what the leader sent, with its offsets and epochs; under the policy ``ack`` a
        flush follows, and ``following`` hears when it is done.

        CorruptLogError or KafkaError for batches that are damaged or do not follow on the log end:
        nothing is written then. KAFKA_STORAGE_ERROR when the disk says no.
        """
        try:
            before = self.log.log_end_offset
            self.log.follower_appender.append_as_follower(records, now_ms=self.clock.now_ms())
        except StorageError as error:
            raise self.disk_failed(error) from error
        flushes = self.flushes
        flushes.unflushed_records += self.log.log_end_offset - before
        if flushes.unflushed_records >= flushes.record_limit:
            flushes.request(self)
        else:
            self.counts_up_to(self.log.log_end_offset, 0)

    def wait_for_commit(self, last_offset: Offset, callback: CommitCallback) -> None:
        """Call back with None once the write is committed, or with what went wrong."""
        if last_offset < self.log.high_watermark:
            callback(None)
        elif self.gone is not None:
            callback(self.gone)
        else:
            self.commit_waiters.add(last_offset, callback)

    def wait_for_acks(self, last_offset: Offset, acks: int, callback: CommitCallback) -> None:
        """Call back once a write counts for ``acks``, 1 or -1 (all), or with what went wrong.

        With acks=1 it counts as soon as it does on this broker, as the flush policy has it.
        """
        leading = self.leading
        if leading is None:
            self.wait_for_commit(last_offset, callback)
        elif acks == 1:
            leading.wait_until_local(last_offset, callback)
        else:
            leading.wait_until_committed(last_offset, callback)

    def is_acknowledged(self, last_offset: Offset) -> bool:
        """Tell whether a write counts already, with nobody left to ask."""
        return self.leading is None and last_offset < self.log.offsets.high_watermark

    @property
    def has_followers(self) -> bool:
        """True for a leader whose writes other brokers keep too."""
        return self.leading is not None

    def read(
        self,
        fetch_offset: Offset,
        *,
        max_bytes: int,
        isolation: int,
        min_one_batch: bool,
        wait_for_disk: bool = True,
    ) -> LogRead:
        """Read whole batches that a consumer may see; OFFSET_OUT_OF_RANGE outside the log.

        Not to ``wait_for_disk`` may return what has to be read ahead, see ``LogReader.read``.
        """
        log = self.log
        if isolation == READ_ALL:
            bound = log.offsets.log_end_offset
        elif isolation == READ_COMMITTED:
            bound = log.offsets.last_stable_offset
        else:
            bound = log.offsets.high_watermark
        try:
            return log.reader.read(
                fetch_offset,
                max_bytes=max_bytes,
                upper_bound_offset=bound,
                min_one_batch=min_one_batch,
                wait_for_disk=wait_for_disk,
                with_aborted=isolation == READ_COMMITTED,
            )
        except KafkaError:
            raise
        except Exception as error:
            raise self.refusal_after(error, ErrorCode.CORRUPT_MESSAGE) from error

    def check_leader_epoch(self, current_leader_epoch: LeaderEpoch) -> None:
        """Refuse a client that believes in another leadership (KIP-320)."""
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def check_may_answer(self) -> None:
        """Raise what :meth:`refusal_to_answer` returns, if anything."""
        refusal = self.refusal_to_answer()
        if refusal is not None:
            raise refusal

    def check_may_be_read(self) -> None:
        """Raise what :meth:`refusal_to_read` returns, if anything."""
        refusal = self.refusal_to_read()
        if refusal is not None:
            raise refusal

    @property
    def low_watermark(self) -> Offset:
        """The smallest log start of all live replicas: below it nobody serves a record any more."""
        leading = self.leading
        return self.log.log_start_offset if leading is None else leading.low_watermark

    def wait_until_deleted(self, offset: Offset, callback: CommitCallback) -> None:
        """Call back once the low watermark has reached ``offset``, at once without followers, or
        with what ended the role.
        """
        if self.leading is None:
            callback(None)
        else:
            self.leading.wait_until_deleted(offset, callback)

    def fail(self, error: KafkaError) -> None:
        """Stop leading, for good: answer every waiting write, and every one that still comes, with
        ``error``, and let every reader look again.
        """
        self.gone = error
        if self.leading is not None:
            self.leading.stop(error)
        self.wake_readers()
        self.commit_waiters.fail(error)
        if self.waiting is not None:
            self.waiting.refuse_all(error)

    def wake_readers(self) -> None:
        """Let every parked fetch look again."""
        for waiter in (*self.fetch_waiters, *self.replica_waiters):
            waiter.wake()

    def counts_up_to(self, log_end_offset: Offset, readable_bytes: int) -> None:
        """Take note that the log counts up to an offset: alone, that commits it."""
        if self.leading is not None:
            self.leading.on_local_end(log_end_offset)
        elif self.following is not None:
            self.following.on_local_end(log_end_offset)
        else:
            self.commit(log_end_offset, readable_bytes)

    def commit(self, high_watermark: Offset, readable_bytes: int) -> None:
        """Move the high watermark up, which makes so many more bytes readable."""
        offsets = self.log.offsets
        if high_watermark <= offsets.high_watermark:
            return
        offsets.update_high_watermark(high_watermark)
        self.unannounced_bytes -= readable_bytes
        if self.fetch_waiters:
            # What ends a transaction, as a follower hears of it, makes more than itself readable.
            self.data_arrived(readable_bytes if self.following is None else UNLIMITED)
        self.commit_waiters.release(high_watermark)

    def data_arrived(self, readable_bytes: int) -> None:
        """Tell every fetch of a consumer that waits here."""
        for waiter in tuple(self.fetch_waiters):
            waiter.data_arrived(readable_bytes)

    def refusal_after(self, error: Exception, damaged: ErrorCode) -> KafkaError:
        """Return what a request hears of this partition when work at its log has raised ``error``;
        ``damaged`` is the answer where the log is. A disk that fails goes offline.
        """
        return refusal_of(error, self.log, damaged, self._on_storage_error)


def _without_lease() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker's session may have expired")
