"""Follows one leader broker: fetches the partitions that it leads and appends what comes.

One connection, one request on its way, for all partitions of that leader::

    idle ──something is due──▶ asked ──answer──▶ applied ──▶ idle
                                 └──no answer──▶ paused  ──▶ idle

A partition that is added while a fetch is on its way would wait as long as that one waits for
records, after an election above all; so such a fetch is abandoned and begun anew with everything.

A partition is due unless it is paused by a refusal, waits for its flush, or is out of sync while
the follower's rate limit is exceeded (``replication_throttle``). An answer counts for a
partition only if the same follower asked and its log still ends where it did
(``replication.follower``); records are appended before the answer's buffer is used again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.model.broker import BrokerId
from millstream.model.clock import TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.message import Response
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from millstream.replication.follower import (
    FetchPosition,
)
from millstream.runtime.broker_channels import BrokerChannel
from millstream.runtime.replicas.follower_role import FollowerRole
from millstream.runtime.replicas.leader_role import ReplicationContext
from millstream.runtime.replicas.replica_fetch_session import (
    PartitionKey,
    ReplicaFetchSession,
    SessionFetch,
)

if TYPE_CHECKING:
    pass

log = logging.getLogger(__name__)

ADDED_WAIT_MS: Final = 20.0
"""How long partitions that were added wait for the answer to a fetch that does not name them, from
the last one that was added: many are added together, and a fetch for many takes a while."""

FLUSH_WAIT_MS: Final = 5
"""The longest poll for some partitions while others wait for their flush."""


class ReplicaFetcher:
    """Fetches everything that this broker follows at one other broker.

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
        """When the first fetch was sent since which the leader's broker has answered none, or when
        a part of an answer arrived, in the time of the monotonic clock. None while no fetch waits
        for an answer and the last one was answered. An answer that is an error code counts as one.
        A leader that is well begins to answer within ``replica.fetch.wait.max.ms``."""
        self._received_size = 0
        """What had arrived on the channel at the last look."""
        self._failed_fetches = 0
        """Fetches in a row that were not answered, or refused as a whole."""
        self._abandons = False
        """True while a timer runs that ends the fetch under way."""
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
            if not self._abandons:
                self._abandons = True
                asked = self._asked
                self._context.clock.call_later(ADDED_WAIT_MS, lambda: self._give_up(asked))

    def _give_up(self, asked: SessionFetch) -> None:
        """End a fetch that waits at the leader, for the sake of partitions it does not name."""
        self._abandons = False
        if self._asked is not asked or self._stopped:
            return
        left_ms = self._added_ms + ADDED_WAIT_MS - self._context.clock.monotonic_ms()
        if left_ms > 0:
            self._abandons = True
            self._context.clock.call_later(left_ms, lambda: self._give_up(asked))
        else:
            self._asked = None
            self._session.reset()
            self._channel.close()
            self.pump()

    def look_for_progress(self, now_ms: float) -> None:
        """Take note of a part of an answer that has arrived: a leader that sends is in reach,
        however long a large answer takes. Called several times a second.
        """
        before, self._received_size = self._received_size, self._channel.received_size
        if self._received_size > before and self.unanswered_since_ms is not None:
            self.unanswered_since_ms = now_ms

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
                raise KafkaError(ErrorCode.of(response.error_code))
        except KafkaError as error:
            if not self._failed_fetches:  # those that follow until one is answered say the same
                log.info("no answer to a fetch from broker %d: %s", self.leader, error)
            self._failed_fetches += 1
            if error.error not in _SESSION_ERRORS:
                for role in filter(None, map(self._followed.get, self._session.told)):
                    role.on_no_answer(now_ms)
            self._session.reset()
        else:
            self._log_end_of_failures()
            self._apply(response, now_ms)
            self._session.answered(response.session_id)
        self.pump()

    def _log_end_of_failures(self) -> None:
        failed, self._failed_fetches = self._failed_fetches, 0
        if failed:
            log.info("broker %d answers fetches again: %d failed", self.leader, failed)

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
