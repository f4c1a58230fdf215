"""One partition that this broker keeps: its log, when a write counts, and who waits for it.

Here a log meets a role: leading alone, leading others (``leader_role``), or following
(``replica_fetcher``). With one replica, a record is committed (below the high watermark, seen by
consumers) when the flush policy says that it is safe:

============  ==============================================================================
``ack``       after an fsync; concurrent writes share one (group commit)
``interval``  once written, except that every ``flush.messages`` records one fsync comes first;
              another follows after ``flush.ms``
``os``        once written: the page cache and, in a cluster, the replicas keep it
============  ==============================================================================

With more replicas the same policy says when a record counts on this broker, and the replicas
together say when it is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from millstream.config.topic import TopicConfig
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import (
    CorruptIndexError,
    CorruptLogError,
    ErrorCode,
    KafkaError,
    StorageError,
)
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset
from millstream.model.topic import INTERNAL_TOPICS, TopicId, TopicPartition
from millstream.records.batch import LENGTH_OVERHEAD, TRANSACTIONAL_BIT, Batch
from millstream.records.control import MARKER_BATCH_SIZE, MarkerBatch
from millstream.records.crc32c import Buffer
from millstream.records.limits import ProduceLimits
from millstream.records.validation import validate_produced
from millstream.runtime.replicas.admission import AdmissionQueue, Preparer
from millstream.runtime.replicas.produce_limits import produce_limits
from millstream.runtime.replicas.waiters import CommitCallback, CommitWaiters, FetchWaiter
from millstream.storage.log import (
    ActiveProducer,
    AppendResult,
    EpochEndOffset,
    FlushPlan,
    Log,
    LogRead,
    ReadAhead,
    TimestampLookup,
    TimestampOffset,
    VerificationState,
)

if TYPE_CHECKING:
    from millstream.runtime.replicas.follower_role import FollowerRole
    from millstream.runtime.replicas.leader_role import LeaderRole
    from millstream.runtime.replicas.transactional_appends import TransactionalAppends

_log = logging.getLogger(__name__)

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
READ_ALL: Final = -1
"""What a follower reads: up to the log end, committed or not."""
UNLIMITED: Final = 2**63 - 1


class Partition:
    """One replica of one partition; a new leader or follower is a new object around the same log.

    ``request_flush`` is called with the partition when its newest records must reach the disk
    before they count; the answer is :meth:`begin_flush` and then :meth:`on_flushed` or
    :meth:`fail`. A disk that fails is told to ``on_storage_error``, which fails the partitions that
    lie there; who called gets KAFKA_STORAGE_ERROR.
    """

    __slots__ = (
        "_admission",
        "_clean_ms",
        "_clock",
        "_commit_waiters",
        "_flush_after_ms",
        "_flush_records",
        "_flush_wanted",
        "_flushing_bytes",
        "_gone",
        "_held",
        "_offload",
        "_on_storage_error",
        "_preparer",
        "_request_flush",
        "_transactional",
        "_unannounced_bytes",
        "_unflushed_records",
        "config",
        "fetch_waiters",
        "following",
        "has_followed",
        "is_internal",
        "leader_epoch",
        "leading",
        "limits",
        "log",
        "replica_waiters",
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
        preparer: Preparer,
        request_flush: Callable[[Partition], None],
        on_storage_error: Callable[[StorageError], None],
    ) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.is_internal = log.topic_partition.topic in INTERNAL_TOPICS
        self.leader_epoch = leader_epoch
        self._take_config(config)
        self.leading: LeaderRole | None = None
        """What this leader knows of its followers; None where it has none."""
        self.following: FollowerRole | None = None
        """Whom this replica follows; None on a leader."""
        self.has_followed = False
        """True once it has caught up with a leader since the log was opened."""
        self.fetch_waiters: dict[FetchWaiter, None] = {}
        self.replica_waiters: dict[FetchWaiter, None] = {}
        """Fetches of followers, which wait for the log end and not for the high watermark."""
        self._clock = clock
        self._admission: AdmissionQueue | None = None
        """Made when a batch has to wait for the first time."""
        self._transactional: TransactionalAppends | None = None
        """Made when a transaction writes here for the first time."""
        self._preparer = preparer
        self._offload = preparer.offload
        self._commit_waiters = CommitWaiters()
        self._request_flush = request_flush
        self._on_storage_error = on_storage_error
        self._gone: KafkaError | None = None
        self._held = self._flush_wanted = False
        self._unannounced_bytes = 0
        self._flushing_bytes = 0
        self._unflushed_records = 0
        self._clean_ms = 0.0

    def lead_alone(self) -> None:
        """Begin to lead a partition that has no other replica. Raises StorageError."""
        self.log.assign_epoch_start(self.leader_epoch)
        # What recovery kept is as safe as it gets: a broker on its own commits it at once.
        self.log.offsets.update_high_watermark(self.log.log_end_offset)

    def take_over(self, before: Partition) -> None:
        """Go on where another role of the same log ended."""
        self.has_followed = before.has_followed
        self._unflushed_records = before._unflushed_records
        if self._unflushed_records >= self._flush_records:
            self._request_flush(self)

    @property
    def is_gone(self) -> bool:
        """True once another object, or nothing, serves this topic partition: see :meth:`fail`."""
        return self._gone is not None

    @property
    def local_end_offset(self) -> Offset:
        """Up to where the log counts on this broker: what is flushed, where each write must be."""
        end = self.log.log_end_offset
        if self._flush_records > 1:
            return end
        return max(self.log.recovery_point, end - self._unflushed_records)

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
        self._take_config(config)
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
                self._check_write(acks)
            if self.is_internal:
                raise KafkaError(  # noqa: TRY301
                    ErrorCode.INVALID_TOPIC_EXCEPTION, "clients do not write internal topics"
                )
            limits = self.limits
            batch = validate_produced(records, limits, version=version, now_ms=now_ms)
            if batch.attributes & TRANSACTIONAL_BIT:
                return self._append_transactional(batch, acks, version, transactional_id)
            admission = self._admission
            if (admission is not None and admission.entries) or limits.needs_preparation(batch):
                return self._admit(batch, acks)
            return self.append(batch, now_ms)
        except KafkaError:
            raise
        except Exception as error:
            raise self._refusal_after(error, ErrorCode.KAFKA_STORAGE_ERROR) from error

    def _check_write(self, acks: int) -> None:
        refusal = self.refusal_to_write(acks)
        if refusal is not None:
            raise refusal

    def _admit(self, batch: Batch, acks: int) -> Deferred[AppendResult]:
        """Let a batch wait until it is prepared and all before it are appended."""
        if self._admission is None:
            self._admission = AdmissionQueue(self._preparer.budget)
        limits = self.limits

        def append(prepared: Batch) -> AppendResult:
            self._check_write(acks)
            return self.append(prepared, self._clock.now_ms())

        return self._admission.admit(
            batch.size, lambda: self._preparer.prepared(batch, limits), append
        )

    def _append_transactional(
        self, batch: Batch, acks: int, version: int, transactional_id: str | None
    ) -> AppendResult | Deferred[AppendResult]:
        if transactional_id is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction is named")
        transactions = self.transactions
        is_required = transactions.verification.verifier.is_required

        def append(
            prepared: Batch, verified: VerificationState | None, bumps_epoch: bool
        ) -> AppendResult:
            self._check_write(acks)
            if is_required:
                self.log.appender.check_verified(prepared, verified, bumps_epoch=bumps_epoch)
            return self.append(prepared, self._clock.now_ms())

        return transactions.append(batch, transactional_id, version, self.limits, append)

    @property
    def transactions(self) -> TransactionalAppends:
        """What lets transactional writes wait for their verification, made at first use.

        NOT_ENOUGH_REPLICAS where nothing verifies transactions.
        """
        if self._transactional is None:
            from millstream.runtime.replicas.transactional_appends import (
                TransactionalAppends,
                TransactionVerification,
            )

            new_verifier = self._preparer.new_verifier
            if new_verifier is None:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "nothing verifies transactions")
            verification = TransactionVerification(
                new_verifier(), self._clock, self.topic_partition, lambda: self.log.producers.state
            )
            self._transactional = TransactionalAppends(verification, self._preparer)
        return self._transactional

    def append(self, batch: Batch, now_ms: int) -> AppendResult:
        """Append one validated batch as leader, now.

        KafkaError for a broken producer sequence, KAFKA_STORAGE_ERROR when the disk says no or the
        log is damaged where it ends, what :meth:`fail` was given once the partition is gone. The
        result says where the batch lies; :meth:`wait_for_acks` says when it counts.
        """
        if self._gone is not None:
            raise self._gone
        try:
            result = self.log.appender.append_as_leader(
                batch, leader_epoch=self.leader_epoch, now_ms=now_ms
            )
        except KafkaError:
            raise
        except Exception as error:
            raise self._refusal_after(error, ErrorCode.KAFKA_STORAGE_ERROR) from error
        if result.duplicate:
            return result
        # What _wrote does, written out: a call would cost every batch that is produced.
        size = batch.length + LENGTH_OVERHEAD
        self._unannounced_bytes += size
        self._unflushed_records += batch.count
        if self.leading is not None:
            self.leading.wrote(result.last_offset + 1, size)
        if self._unflushed_records >= self._flush_records:
            self._request_flush(self)
        else:
            self._advance(result.last_offset + 1, self._unannounced_bytes)
        return result

    def _wrote(self, result: AppendResult, size: int, count: int) -> None:
        """Take note of a batch that was appended as leader."""
        self._unannounced_bytes += size
        self._unflushed_records += count
        if self.leading is not None:
            self.leading.wrote(result.last_offset + 1, size)
        if self._unflushed_records >= self._flush_records:
            self._request_flush(self)
        else:
            self._advance(result.last_offset + 1, self._unannounced_bytes)

    def refusal_to_write(self, acks: int) -> KafkaError | None:
        """Return what a write with ``acks`` would be refused with now; None where it may go on.

        NOT_LEADER_OR_FOLLOWER where another broker may lead by now and ``leader.lease`` is set, or
        this object serves the partition no more; NOT_ENOUGH_REPLICAS for acks=all under min ISR.
        Nothing is changed: who asks before preparing a write keeps its state when refused.
        """
        leading = self.leading
        if self._gone is not None or leading is None:
            return self._gone
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
        if self._gone is not None or self.leading is None or self.leading.holds_lease:
            return self._gone
        return _without_lease()

    def refusal_to_read(self) -> KafkaError | None:
        """Return why a consumer may not be served what is committed here; None where it may.

        As :meth:`refusal_to_answer`, but that a leader whose lease is over serves on while all who
        could lead instead still follow it: what is committed stays so, and a consumer that is
        refused while the metadata store is away has nowhere to turn. Not for share groups: who gets
        a record depends on what was acknowledged last.
        """
        if self._gone is not None or self.leading is None or self.leading.may_be_read:
            return self._gone
        return _without_lease()

    def append_internal(self, records: bytes) -> Deferred[Offset]:
        """Append one batch of a coordinator's own; filled with its last offset once committed, or
        with a KafkaError: NOT_ENOUGH_REPLICAS under min ISR, what :meth:`append` refuses.
        """
        outcome: Deferred[Offset] = Deferred()
        try:
            if self.leading is not None and self.leading.is_under_min_isr:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)  # noqa: TRY301
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

    def append_marker(self, marker: MarkerBatch, *, transaction_version: int) -> Deferred[Offset]:
        """Append the control batch that ends a producer's transaction here; filled with its offset
        once committed.

        Fails with a KafkaError: what :meth:`refusal_to_write` says with acks=all,
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, what :meth:`append` refuses;
        NOT_ENOUGH_REPLICAS_AFTER_APPEND where too few replicas are in sync by then: the marker is
        written, and may be written again.
        """
        outcome: Deferred[Offset] = Deferred()
        try:
            self._check_write(-1)
            result = self.log.appender.append_marker(
                marker,
                leader_epoch=self.leader_epoch,
                now_ms=self._clock.now_ms(),
                transaction_version=transaction_version,
            )
        except Exception as error:
            outcome.fail(self._refusal_after(error, ErrorCode.KAFKA_STORAGE_ERROR))
            return outcome
        self._wrote(result, MARKER_BATCH_SIZE, 1)

        def settle(error: KafkaError | None) -> None:
            # Committed readers may see a whole transaction now, whatever its bytes were.
            self._data_arrived(UNLIMITED)
            if error is None:
                outcome.complete(result.last_offset)
            else:
                outcome.fail(error)

        self.wait_for_acks(result.last_offset, -1, settle)
        return outcome

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
            self.log.follower_appender.append_as_follower(records, now_ms=self._clock.now_ms())
        except StorageError as error:
            raise self.disk_failed(error) from error
        self._unflushed_records += self.log.log_end_offset - before
        if self._unflushed_records >= self._flush_records:
            self._request_flush(self)
        else:
            self._advance(self.log.log_end_offset, 0)

    def wait_for_commit(self, last_offset: Offset, callback: CommitCallback) -> None:
        """Call back with None once the write is committed, or with what went wrong."""
        if last_offset < self.log.high_watermark:
            callback(None)
        elif self._gone is not None:
            callback(self._gone)
        else:
            self._commit_waiters.add(last_offset, callback)

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
            raise self._refusal_after(error, ErrorCode.CORRUPT_MESSAGE) from error

    def offset_for_timestamp(self, timestamp: int | None) -> Deferred[TimestampOffset | None]:
        """Look up the first record at or after ``timestamp`` in milliseconds, or for None the first
        one with the largest timestamp, committed or not; None if there is none.

        What is not in memory is read off the loop, so the answer may come later. It fails with
        CORRUPT_MESSAGE where the log is damaged, with KAFKA_STORAGE_ERROR where a disk fails, and
        with what :meth:`refusal_to_answer` says once the answer is there.
        """
        return spawn(self._look_up(TimestampLookup(timestamp)))

    def check_leader_epoch(self, current_leader_epoch: LeaderEpoch) -> None:
        """Refuse a client that believes in another leadership (KIP-320)."""
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def end_of_epoch(self, leader_epoch: LeaderEpoch) -> EpochEndOffset:
        """Return where the largest epoch at or below ``leader_epoch`` ends, as the leader knows it;
        both -1 where none is known. Refused as :meth:`refusal_to_read` says.
        """
        self.check_may_be_read()
        if leader_epoch == self.leader_epoch:
            # The current epoch ends where the log ends, written to or not.
            return EpochEndOffset(leader_epoch, self.log.log_end_offset)
        return self.log.end_offset_for_epoch(leader_epoch)

    def producers(self) -> list[ActiveProducer]:
        """Return the producers remembered, by id. Refused as :meth:`refusal_to_answer` says."""
        self.check_may_answer()
        return self.log.producers.active()

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

    # Deleting records

    def delete_records_before(self, offset: Offset) -> Offset:
        """Move the log start up (−1: to the high watermark) and return it.

        KafkaError: OFFSET_OUT_OF_RANGE beyond the high watermark, KAFKA_STORAGE_ERROR when the disk
        says no, :meth:`refusal_to_answer`: what another leader has is not deleted.
        """
        self.check_may_answer()
        target = self.log.high_watermark if offset == -1 else offset
        if not 0 <= target <= self.log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete before {target}: the high watermark is {self.log.high_watermark}",
            )
        try:
            self.log.truncation.increment_log_start_offset(target)
        except Exception as error:
            raise self._refusal_after(error, ErrorCode.KAFKA_STORAGE_ERROR) from error
        self.wake_readers()
        return self.log.log_start_offset

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

    # Flushes

    def begin_flush(self) -> FlushPlan | None:
        """Return what makes everything appended so far durable; None when it is, and then it is
        committed now. None as well while flushes are held, and once the role has ended: the next
        one flushes for itself, and says what is committed.
        """
        if self._gone is not None:
            return None
        if self._held:
            self._flush_wanted = True
            return None
        plan = self.log.flush_plan()
        self._flushing_bytes = self._unannounced_bytes
        if plan is None:
            self._flushed_up_to(self.log.log_end_offset)
        return plan

    def on_flushed(self, plan: FlushPlan) -> None:
        """Commit what an fsync has made safe."""
        is_flushed = plan.durability.flushed(plan) and plan.durability is self.log.durability
        if self._gone is not None:
            return  # another leadership says what is committed
        if is_flushed:
            self._flushed_up_to(plan.recovery_point)
        else:
            self._request_flush(self)

    def _flushed_up_to(self, offset: Offset) -> None:
        self._unflushed_records = self.log.log_end_offset - offset
        self._advance(offset, self._flushing_bytes)

    def begin_closed_flush(self) -> FlushPlan | None:
        """Return what makes closed segments durable, None when they are or while flushes are held.
        What is committed does not depend on it.
        """
        return None if self._held else self.log.closed_flush_plan()

    def flush_soon(self) -> None:
        """Ask for a flush, whatever the policy: the log was cut, or is about to be."""
        self._request_flush(self)

    def hold_flushes(self) -> None:
        """Begin no flush until :meth:`release_flushes`: nothing more becomes durable in this log,
        so that a copy of it can catch up with what is. Appends go on, and wait.
        """
        self._held = True

    def release_flushes(self, log: Log | None = None) -> None:
        """Flush again what waits for it; from now on in ``log``, which replaces ours."""
        if log is not None:
            self.log = log
        if self._held and (self._flush_wanted or log is not None):
            self._request_flush(self)
        self._held = self._flush_wanted = False

    def flush_if_due(self, now_ms: float) -> None:
        """Ask for the flush that ``flush.ms`` wants, once its time has come (monotonic clock)."""
        if not self._unflushed_records:
            self._clean_ms = now_ms
        elif now_ms - self._clean_ms >= self._flush_after_ms:
            self._clean_ms = now_ms
            self._request_flush(self)

    def fail(self, error: KafkaError) -> None:
        """Stop leading, for good: answer every waiting write, and every one that still comes, with
        ``error``, and let every reader look again.
        """
        self._gone = error
        if self.leading is not None:
            self.leading.stop(error)
        self.wake_readers()
        self._commit_waiters.fail(error)
        if self._admission is not None:
            self._admission.refuse_all(error)
        if self._transactional is not None:
            self._transactional.refuse_all(error)

    def waiting(self) -> list[str]:
        """Return what waits for this partition, for whoever looks into a broker that hangs."""
        leading, admission = self.leading, self._admission
        counts = {
            "writes wait for their commit": len(self._commit_waiters),
            "writes wait for this broker's disk": 0 if leading is None else leading.local_waits,
            "batches wait for their append": 0 if admission is None else len(admission.entries),
            "fetches of consumers wait for records": len(self.fetch_waiters),
            "fetches of followers wait for records": len(self.replica_waiters),
        }
        found = [f"{count} {what}" for what, count in counts.items() if count]
        if self._held:
            found.append("flushes are held")
        if leading is not None and leading.is_under_min_isr:
            found.append("fewer replicas are in sync than min.insync.replicas")
        return found

    def wake_readers(self) -> None:
        """Let every parked fetch look again."""
        for waiter in (*self.fetch_waiters, *self.replica_waiters):
            waiter.wake()

    def _take_config(self, config: TopicConfig) -> None:
        self.config = config
        self.limits: ProduceLimits = produce_limits(config)
        self._flush_records = self._flush_after_ms = UNLIMITED
        if config.flush_policy == "ack":
            self._flush_records = 1
        elif config.flush_policy == "interval":
            self._flush_records = config.flush_messages
            self._flush_after_ms = config.flush_ms

    def _advance(self, log_end_offset: Offset, readable_bytes: int) -> None:
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
        self._unannounced_bytes -= readable_bytes
        if self.fetch_waiters:
            # What ends a transaction, as a follower hears of it, makes more than itself readable.
            self._data_arrived(readable_bytes if self.following is None else UNLIMITED)
        self._commit_waiters.release(high_watermark)

    def _data_arrived(self, readable_bytes: int) -> None:
        for waiter in tuple(self.fetch_waiters):
            waiter.data_arrived(readable_bytes)

    async def _look_up(self, lookup: TimestampLookup) -> TimestampOffset | None:
        while True:
            try:
                found = self.log.reader.look_up(lookup, wait_for_disk=False)
                if not isinstance(found, ReadAhead):
                    return found
                await self._offload.run(f"look up {found.log_directory}", found.run)
            except Exception as error:
                if self._gone is not None:
                    raise self._gone from error
                raise self._refusal_after(error, ErrorCode.CORRUPT_MESSAGE) from error
            refusal = self.refusal_to_answer()
            if refusal is not None:
                raise refusal

    def _refusal_after(self, error: Exception, damaged: ErrorCode) -> KafkaError:
        """Return what a request hears of this partition when work at its log has raised ``error``;
        ``damaged`` is the answer where the log is.

        A disk that fails takes its log directory offline. Whatever else it is stays here: the
        other partitions of the request do not notice.
        """
        match error:
            case KafkaError():
                return error
            case StorageError():
                return self.disk_failed(error)
            case OSError():
                return self.disk_failed(_as_storage_error(self.log, error))
            case CorruptLogError() | CorruptIndexError():
                _log.error("%s is damaged: %s", self.topic_partition, error)
                return KafkaError(damaged, str(error))
            case _:
                _log.error("a request failed at %s", self.topic_partition, exc_info=error)
                return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _without_lease() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker's session may have expired")


def _as_storage_error(log: Log, error: OSError) -> StorageError:
    failure = StorageError(log.log_directory, f"{log.topic_partition}: {error}")
    failure.__cause__ = error  # says whether the disk is only full
    return failure
