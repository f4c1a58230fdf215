"""Follows one leader broker: fetches the partitions that it leads and appends what comes.

One connection, one request on its way, for all partitions of that leader::

    idle ──something is due──▶ asked ──answer──▶ applied ──▶ idle
                                 └──no answer──▶ paused  ──▶ idle

A partition that comes while a fetch is on its way would wait as long as that one waits for records,
after an election above all; so such a fetch is given up and begun anew with everything.

A partition is due unless it is paused by a refusal, waits for its flush, or is out of sync while
the follower's rate limit is exceeded (``replication_throttle``). An answer counts for a
partition only if the same follower asked and its log still ends where it did
(``replication.follower``); records are appended before the answer's buffer is used again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, assert_never

from millstream.model.broker import BrokerId
from millstream.model.clock import TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.epoch_end import EpochEndOffset
from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from millstream.model.leadership import PartitionState
from millstream.model.offsets import NO_LEADER_EPOCH, Offset
from millstream.model.topic import TopicId
from millstream.protocol.message import Response
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
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
from millstream.runtime.broker_channels import BrokerChannel
from millstream.runtime.replicas.leader_role import ReplicationContext
from millstream.runtime.replicas.readable_bytes import UNKNOWN_SIZE
from millstream.runtime.replicas.replica_fetch_session import (
    PartitionKey,
    ReplicaFetchSession,
    SessionFetch,
)

if TYPE_CHECKING:
    from millstream.runtime.replicas.partition import Partition

log = logging.getLogger(__name__)

PATIENCE_MS: Final = 20.0
"""How long partitions that come new wait for the answer to a fetch that does not name them, from
the last one that came: many come together, and a fetch for many takes a while."""

FLUSH_WAIT_MS: Final = 5
"""The longest poll for some partitions while others wait for their flush."""


class FollowerRole:
    """One partition that follows."""

    __slots__ = ("_context", "_is_behind", "fetcher", "machine", "partition", "waits_for_flush")

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
        self.fetcher: ReplicaFetcher | None = None
        self.waits_for_flush = False
        self._is_behind = True

    @property
    def key(self) -> PartitionKey:
        """How a fetch names the partition."""
        return self.partition.topic_id, self.partition.topic_partition.partition

    def position(self) -> FetchPosition:
        """Return what to ask for."""
        kept = self.partition.log
        end = kept.log_end_offset
        return self.machine.position(
            log_end_offset=end,
            log_start_offset=kept.log_start_offset,
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
            log.error("%s: its log is damaged: %s", self._name, error)  # noqa: TRY400
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
        view = LogView(kept.log_end_offset, kept.high_watermark, kept.end_offset_for_epoch)
        for effect in self.machine.on_answer(asked, answer, view, now_ms):
            match effect:
                case Append():
                    self._append(data, now_ms)
                case Truncate(offset, loses_committed):
                    self._truncate(offset, data, loses_committed=loses_committed)
                case RestartAt(offset):
                    log.info("%s: the leader's log begins at %d", self._name, offset)
                    kept.truncate_fully_and_start_at(offset, now_ms=self._context.clock.now_ms())
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
                log.error("%s: what the leader sent is not appended: %s", self._name, error)  # noqa: TRY400
                self.machine.on_no_answer(now_ms)
                return
            except Exception:
                # Records that are in the log must not be told to the leader before their flush.
                self.waits_for_flush &= kept.log_end_offset > end
                raise
            throttle = self._context.throttle.follower
            if throttle.names(self.partition):
                throttle.record(len(records))
        self._is_behind = kept.log_end_offset < data.high_watermark
        self.partition.has_followed |= not self._is_behind
        before = kept.high_watermark
        high_watermark = high_watermark_after(
            own=before,
            leader_high_watermark=data.high_watermark,
            log_end_offset=kept.log_end_offset,
        )
        if high_watermark > before:
            self.partition.commit(high_watermark, UNKNOWN_SIZE)
        start = min(data.log_start_offset, kept.high_watermark)
        if start > kept.log_start_offset:
            kept.increment_log_start_offset(start)

    def _truncate(self, offset: Offset, data: PartitionData, *, loses_committed: bool) -> None:
        kept = self.partition.log
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
        kept.truncate_to(offset, now_ms=self._context.clock.now_ms())
        self.partition.wake_readers()

    @property
    def _name(self) -> str:
        return str(self.partition.topic_partition)


class ReplicaFetcher:
    """Everything that this broker follows at one other broker.

    Of many partitions few move between two fetches. ``_changed`` names those whose position may be
    another than the leader was told, and those that were not due at the fetch before.
    """

    def __init__(
        self, leader: BrokerId, channel: BrokerChannel, context: ReplicationContext
    ) -> None:
        self.leader = leader
        self._channel = channel
        self._context = context
        self._session = ReplicaFetchSession()
        self._followed: dict[PartitionKey, FollowerRole] = {}
        self._changed: dict[PartitionKey, None] = {}
        self._asked: SessionFetch | None = None
        self.unanswered_since_ms: float | None = None
        """When the first fetch was sent since which the leader's broker has answered none, in the
        time of the monotonic clock; None while no fetch waits for an answer and the last one was
        answered. An answer that is an error code counts as one. A leader that is well answers
        within ``replica.fetch.wait.max.ms``."""
        self._impatient = False
        self._added_ms = 0.0
        self._pump_scheduled = False
        self._timer: TimerHandle | None = None
        self._stopped = False

    @property
    def is_idle(self) -> bool:
        """True when nothing is followed there."""
        return not self._followed

    def add(self, role: FollowerRole) -> None:
        """Begin to follow."""
        self._followed[role.key] = role
        role.fetcher = self
        self.moved(role)
        if self._asked is not None:
            self._added_ms = self._context.clock.monotonic_ms()
            if not self._impatient:
                self._impatient = True
                asked = self._asked
                self._context.clock.call_later(PATIENCE_MS, lambda: self._give_up(asked))

    def _give_up(self, asked: SessionFetch) -> None:
        """End a fetch that waits at the leader, for the sake of partitions it does not name."""
        self._impatient = False
        if self._asked is not asked or self._stopped:
            return
        left_ms = self._added_ms + PATIENCE_MS - self._context.clock.monotonic_ms()
        if left_ms > 0:
            self._impatient = True
            self._context.clock.call_later(left_ms, lambda: self._give_up(asked))
        else:
            self._asked = None
            self._session.reset()
            self._channel.close()
            self.pump()

    def remove(self, role: FollowerRole) -> None:
        """Follow no more: an answer on its way does not count."""
        if self._followed.get(role.key) is role:
            del self._followed[role.key]
            self._changed[role.key] = None
        role.fetcher = None

    def stop(self) -> None:
        """End for good."""
        self._stopped = True
        for role in self._followed.values():
            role.fetcher = None
        self._followed.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._channel.close()

    def moved(self, role: FollowerRole) -> None:
        """Fetch soon, as something other than an answer has changed what a partition asks for."""
        self._changed[role.key] = None
        self.pump()

    def pump(self) -> None:
        """Fetch what is due, after what runs now."""
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._context.clock.call_soon(self._fetch)

    def _fetch(self) -> None:
        self._pump_scheduled = False
        if self._stopped or self._asked is not None:
            return
        now_ms = self._context.clock.monotonic_ms()
        changes = self._changes(now_ms)
        if not self._session.asks_for_any(changes):
            self._wait_for_a_pause(now_ms)
            return
        asked = self._asked = self._session.build(changes)
        if self.unanswered_since_ms is None:
            self.unanswered_since_ms = now_ms
        self._changed = {
            key: None
            for key, position in changes.items()
            if position is None and key in self._followed
        }
        config = self._context.config.current
        timeout_ms = config.replica_socket_timeout_ms + config.replica_fetch_wait_max_ms
        self._channel.send(self._request(asked), timeout_ms=timeout_ms).on_done(
            lambda outcome: self._answered(asked, outcome)
        )

    def _changes(self, now_ms: float) -> dict[PartitionKey, FetchPosition | None]:
        """Return from where to read what may have changed; None for what is not due."""
        limited = self._context.throttle.follower.is_exceeded()
        looked_at = self._changed
        if limited or self._session.is_new:
            looked_at = {**looked_at, **dict.fromkeys(self._followed)}
        changes: dict[PartitionKey, FetchPosition | None] = {}
        for key in looked_at:
            role = self._followed.get(key)
            is_due = (
                role is not None
                and not role.waits_for_flush
                and role.machine.paused_until_ms <= now_ms
                and not (limited and role.is_throttled)
            )
            changes[key] = role.position() if role is not None and is_due else None
        return changes

    def _wait_for_a_pause(self, now_ms: float) -> None:
        # One that is not paused is held back by the rate limit.
        limited_until_ms = now_ms + self._context.throttle.follower.exceeded_for_ms()
        pauses = [
            max(role.machine.paused_until_ms, limited_until_ms if role.is_throttled else now_ms)
            for role in self._followed.values()
            if not role.waits_for_flush
        ]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if pauses:
            delay_ms = max(1.0, min(pauses) - now_ms)
            self._timer = self._context.clock.call_later(delay_ms, self.pump)

    def _longest_wait_ms(self) -> int:
        """Return how long the leader may keep a fetch waiting for records: not long while another
        partition waits for its flush, or that one is asked for after the long poll alone.
        """
        longest_ms = self._context.config.current.replica_fetch_wait_max_ms
        if any(self._followed[key].waits_for_flush for key in self._changed):
            return min(FLUSH_WAIT_MS, longest_ms)
        return longest_ms

    def _request(self, fetch: SessionFetch) -> FetchRequest:
        config = self._context.config.current
        topics: dict[TopicId, list[FetchPartition]] = {}
        for (topic_id, index), position in fetch.wanted.items():
            topics.setdefault(topic_id, []).append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=config.replica_fetch_max_bytes,
                )
            )
        forgotten: dict[TopicId, list[int]] = {}
        for topic_id, index in fetch.forgotten:
            forgotten.setdefault(topic_id, []).append(index)
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._context.broker_id, replica_epoch=self._context.broker_epoch
            ),
            max_wait_ms=self._longest_wait_ms(),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=fetch.session_id,
            session_epoch=fetch.epoch,
            topics=[FetchTopic(topic_id=each, partitions=one) for each, one in topics.items()],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=each, partitions=one) for each, one in forgotten.items()
            ],
        )

    def _answered(self, asked: SessionFetch, outcome: Deferred[Response]) -> None:
        if self._stopped or self._asked is not asked:
            return  # given up
        self._asked = None
        now_ms = self._context.clock.monotonic_ms()
        try:
            response = outcome.result()
            assert isinstance(response, FetchResponse)
            self.unanswered_since_ms = None
            if response.error_code:
                raise KafkaError(ErrorCode.of(response.error_code))  # noqa: TRY301
        except KafkaError as error:
            log.info("no answer to a fetch from broker %d: %s", self.leader, error)
            if error.error not in _SESSION_ERRORS:
                for role in filter(None, map(self._followed.get, self._session.told)):
                    role.on_no_answer(now_ms)
            self._session.reset()
        else:
            self._apply(response, now_ms)
            self._session.answered(response.session_id)
        self.pump()

    def _apply(self, response: FetchResponse, now_ms: float) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                position, role = self._session.told.get(key), self._followed.get(key)
                if position is None or role is None:
                    continue
                self._changed[key] = None
                try:
                    role.on_data(position, data, now_ms)
                except KafkaError as error:  # its disk has failed: the partition is gone
                    log.warning("%s is followed no more: %s", role.partition.topic_partition, error)
                except Exception:
                    # An error of one partition: it pauses, the others of this answer go on.
                    name = role.partition.topic_partition
                    log.exception("%s: the leader's answer could not be applied", name)
                    role.on_no_answer(now_ms)


_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


def _diverging(data: PartitionData) -> EpochEndOffset | None:
    diverging = data.diverging_epoch
    if diverging.epoch == NO_LEADER_EPOCH and diverging.end_offset < 0:
        return None
    return EpochEndOffset(diverging.epoch, diverging.end_offset)
