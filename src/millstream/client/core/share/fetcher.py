"""Acquires records of the assigned partitions, and sends what is said of acquired ones.

Each broker has at most one ShareFetch or ShareAcknowledge in flight, because the epoch of a share
session counts its requests. What it is next asked is, in this order:

1. acknowledgements that a commit waits for, that renew, or whose partition is no longer fetched, as
   a ShareAcknowledge with all that is queued;
2. if the user wants records, a ShareFetch that carries what is queued;
3. what is queued, as a ShareAcknowledge.

Records are fetched when a poll of the user finds none: acquisition locks begin with the fetch, and
what one consumer holds back no other can have. With ``share.acquire.mode=record_limit`` one broker
is asked at a time.

A request without an answer, and an error for all of a request, end the share session: the broker
gives up its acquisitions, so acknowledgements of them fail. Acknowledgements of one partition that
are refused for a passing reason are sent again until their deadline; not if the leader has changed,
since the acquisitions have ended with it.

Of APIs: ShareFetch and ShareAcknowledge 1 to 2; renewal and ``record_limit`` from 2 on. Kafka:
``ShareConsumeRequestManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from millstream.client.core.metadata import LeaderHint, MetadataView
from millstream.client.core.network import Network
from millstream.client.core.share.acknowledgements import Acknowledged, Source, ranges_of
from millstream.client.core.share.fetched import AcquiredRange, ShareBuffer, ShareFetched
from millstream.client.core.share.member import ShareMember
from millstream.client.core.share.session import (
    FINAL_EPOCH,
    Ranges,
    SharePartition,
    ShareSession,
    acknowledge_topics,
    fetch_topics,
    forgotten_topics,
)
from millstream.client.core.share.settings import ShareConsumerSettings
from millstream.client.core.waiting import Signal, backoff_ms, within
from millstream.client.errors import (
    AuthenticationError,
    BrokerError,
    ClientError,
    ClosedError,
    TimedOutError,
    UnsupportedVersionError,
)
from millstream.client.metadata import Broker
from millstream.client.settings import Address
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId, TopicPartition
from millstream.protocol.message import Request
from millstream.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from millstream.protocol.messages.share_fetch import (
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)

_FIRST_WITH_RENEWAL: Final = 2
"""Version of ShareFetch and ShareAcknowledge; ``share.acquire.mode`` came with it."""

_FIRST_FETCH_MS: Final = 1_000
"""How much longer than its ``fetch.max.wait.ms`` a first fetch is waited for at the end."""

_LEADER_CHANGED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
_LEARN_LEADER: Final = _LEADER_CHANGED | {
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
}
_PASSES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""Errors of a fetch that the user does not hear of."""
_NEW_SESSION_AT_ONCE: Final = frozenset(
    {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}
)

_NOTHING: Final = memoryview(b"")

_log = logging.getLogger("millstream.client.share_consumer")


@dataclass(slots=True, eq=False)
class Pending:
    """Acknowledgements on their way. ``done`` completes with the error, None if they were taken."""

    acknowledged: Acknowledged
    deadline_ms: float
    is_urgent: bool
    done: Deferred[Exception | None] = field(default_factory=Deferred)

    @property
    def source(self) -> Source:
        """Where the records were acquired."""
        return self.acknowledged.source

    @property
    def partition(self) -> SharePartition:
        """The partition as requests name it."""
        return self.source.topic_id, self.source.topic_partition.partition


@dataclass(slots=True, eq=False)
class _Node:
    """One broker, its share session, and what is to be said to it."""

    node_id: int
    session: ShareSession = field(default_factory=ShareSession)
    queue: list[Pending] = field(default_factory=list)
    is_busy: bool = False
    answered: Signal = field(default_factory=Signal)
    """Raised when a request has ended."""
    retry_at_ms: float = 0.0
    attempts: int = 0


Carried = Mapping[SharePartition, list[Pending]]


class ShareFetcher:
    """The requests of one share consumer to the leaders of its partitions."""

    def __init__(
        self,
        network: Network,
        metadata: MetadataView,
        settings: ShareConsumerSettings,
        member: ShareMember,
    ) -> None:
        self.buffer = ShareBuffer()
        self.acquisition_lock_timeout_ms: int | None = None
        """As the brokers told it last."""
        self.is_polling: Callable[[], bool] = lambda: False
        """Tells whether the user is waiting in a poll."""
        self.on_data: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Exception], None] = lambda error: None
        self.on_settled: Callable[[Pending, Exception | None], None] = lambda pending, error: None
        """Called for all acknowledgements, when they were taken or failed."""
        self._network = network
        self._loop = network.loop
        self._metadata = metadata
        self._settings = settings
        self._member = member
        self._nodes: dict[int, _Node] = {}
        self._wants_records = False
        self._fetching: set[int] = set()
        self._round = 0
        self._poke_planned = False
        self._closed = False

    # --- what the user does ----------------------------------------------------------------------

    def want_records(self) -> None:
        """Fetch, until records have come or the user no longer polls."""
        self._wants_records = True
        self.poke()

    def acknowledge(
        self, acknowledged: Iterable[Acknowledged], *, timeout_ms: float, urgent: bool = False
    ) -> list[Pending]:
        """Queue acknowledgements; ``urgent`` ones do not travel with a fetch, which may wait."""
        deadline = self._loop.now_ms() + timeout_ms
        queued = [Pending(each, deadline, urgent) for each in acknowledged if each.types]
        for pending in queued:
            self._node(pending.source.node_id).queue.append(pending)
        if queued:
            self.poke()
        return queued

    def poke(self) -> None:
        """Schedule a check of what brokers can be asked; many calls schedule one check."""
        if not self._poke_planned and not self._closed:
            self._poke_planned = True
            self._loop.call_soon(self._look)

    async def finish(self) -> None:
        """Send what is queued and end every share session, so that the brokers give up the rest."""
        self._wants_records = False
        for each in [spawn(self._end_session(node)) for node in self._nodes.values()]:
            await each
        for node in self._nodes.values():
            self._fail_all(node.queue, ClosedError("the share consumer was closed"))

    def close(self) -> None:
        """Ask nothing more; what is queued fails."""
        self._closed = True
        self.buffer.clear()
        for node in self._nodes.values():
            self._fail_all(node.queue, ClosedError("the share consumer was closed"))

    # --- whom to ask -----------------------------------------------------------------------------

    def _node(self, node_id: int) -> _Node:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = _Node(node_id)
        return node

    def _look(self) -> None:
        self._poke_planned = False
        if self._closed:
            return
        leaders = self._leaders()
        order = list(dict.fromkeys((*leaders, *self._nodes)))
        self._round += 1
        first = self._round % len(order) if order else 0
        for node_id in order[first:] + order[:first]:
            node = self._node(node_id)
            self._fail_stale(node)
            if node.is_busy:
                continue
            if node.retry_at_ms > self._loop.now_ms():
                self._loop.call_at(node.retry_at_ms, self.poke)
                continue
            self._ask(node, leaders.get(node_id, {}), len(leaders))

    def _leaders(self) -> dict[int, dict[SharePartition, TopicPartition]]:
        """Return the assigned partitions by their leaders."""
        leaders: dict[int, dict[SharePartition, TopicPartition]] = {}
        unknown = False
        for topic_id, partition in sorted(self._member.assigned):
            name = self._metadata.name_of(topic_id)
            if name is None:
                unknown = True
                continue
            topic_partition = TopicPartition(name, partition)
            leader = self._metadata.leader(topic_partition)
            if leader < 0:
                unknown = True
                continue
            leaders.setdefault(leader, {})[topic_id, partition] = topic_partition
        if unknown:
            self._metadata.request_update()
        return leaders

    def _ask(
        self, node: _Node, wanted: dict[SharePartition, TopicPartition], leader_count: int
    ) -> None:
        """Send the next request to a broker that has none in flight, if there is one to send."""
        fetches = (
            self._wants_records
            and bool(wanted)
            and not len(self.buffer)
            and not (self._settings.limits_records and self._fetching)
        )
        apart = any(
            each.is_urgent or each.acknowledged.renews or each.partition not in wanted
            for each in node.queue
        )
        if node.queue and (apart or not fetches):
            node.is_busy = True
            spawn(self._acknowledge(node))
        elif fetches:
            node.is_busy = True
            self._fetching.add(node.node_id)
            spawn(self._fetch(node, wanted, leader_count))

    # --- ShareFetch ------------------------------------------------------------------------------

    async def _fetch(
        self, node: _Node, wanted: dict[SharePartition, TopicPartition], leader_count: int
    ) -> None:
        settings = self._settings
        session, number = node.session, node.session.number
        plan = session.plan(wanted)
        carried = _take(node)
        max_wait_ms = settings.fetch_max_wait_ms
        if settings.limits_records:
            # The others wait meanwhile: they may have records.
            max_wait_ms //= leader_count
        request = ShareFetchRequest(
            group_id=self._member.group_id,
            member_id=self._member.member_id,
            share_session_epoch=plan.epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            max_records=settings.max_poll_records,
            batch_size=settings.max_poll_records,
            share_acquire_mode=int(settings.limits_records),
            topics=fetch_topics(plan.added, _ranges(carried)),
            forgotten_topics_data=forgotten_topics(plan.forgotten),
        )
        answer: ShareFetchResponse | None = None
        try:
            if settings.limits_records:
                await self._need_version(node.node_id, request, "share.acquire.mode=record_limit")
            timeout_ms = settings.request_timeout_ms + max_wait_ms
            answer = await self._network.call(
                node.node_id, request, ShareFetchResponse, timeout_ms=timeout_ms
            )
        except (ClientError, KafkaError) as error:
            self._on_failure(node, carried, error)
        node.is_busy = False
        self._fetching.discard(node.node_id)
        self._wants_records = self._wants_records and self.is_polling()
        if answer is not None and session.number == number:
            self._on_fetched(node, answer, wanted, carried)
        node.answered.notify()
        self.poke()

    def _on_fetched(
        self,
        node: _Node,
        answer: ShareFetchResponse,
        wanted: dict[SharePartition, TopicPartition],
        carried: Carried,
    ) -> None:
        error = ErrorCode.of(answer.error_code)
        if error is not ErrorCode.NONE:
            self._on_refusal(node, carried, error, answer.error_message)
            return
        node.session.on_success()
        node.attempts = 0
        if answer.acquisition_lock_timeout_ms > 0:
            self.acquisition_lock_timeout_ms = answer.acquisition_lock_timeout_ms
        if self._closed:
            self._fail_each(carried, ClosedError("the share consumer was closed"))
            return
        endpoints = [
            Broker(each.node_id, Address(each.host, each.port), each.rack)
            for each in answer.node_endpoints
        ]
        left = dict(carried)
        arrived = False
        for topic in answer.responses:
            for row in topic.partitions:
                key = (topic.topic_id, row.partition_index)
                for pending in left.pop(key, ()):
                    code = ErrorCode.of(row.acknowledge_error_code)
                    self._on_acknowledged(node, pending, code, row.acknowledge_error_message)
                topic_partition = wanted.get(key)
                if topic_partition is None:
                    continue
                if row.error_code:
                    self._on_row_refused(node, topic_partition, row, endpoints)
                else:
                    arrived = self._accept(node, topic.topic_id, topic_partition, row) or arrived
        self._fail_each(left, _not_answered(node.node_id))
        if arrived:
            self._wants_records = False
            self.on_data()

    def _accept(
        self,
        node: _Node,
        topic_id: TopicId,
        topic_partition: TopicPartition,
        row: PartitionData,
    ) -> bool:
        """Put acquired records into the buffer; return False if there are none."""
        if not row.acquired_records:
            return False
        lock_ms = self.acquisition_lock_timeout_ms
        until_ms = float("inf") if lock_ms is None else self._loop.now_ms() + lock_ms
        source = Source(node.node_id, node.session.number, topic_id, topic_partition)
        acquired = tuple(
            AcquiredRange(each.first_offset, each.last_offset, each.delivery_count)
            for each in sorted(row.acquired_records, key=lambda each: each.first_offset)
        )
        data = row.records if isinstance(row.records, memoryview) else _NOTHING
        self.buffer.append(ShareFetched(source, node.session, data, acquired, until_ms))
        return True

    def _on_row_refused(
        self,
        node: _Node,
        topic_partition: TopicPartition,
        row: PartitionData,
        endpoints: list[Broker],
    ) -> None:
        error = ErrorCode.of(row.error_code)
        _log.debug("share fetch of %s: %s", topic_partition, error.name)
        node.retry_at_ms = self._loop.now_ms() + self._settings.retry_backoff_ms
        if error in _LEARN_LEADER:
            leader = row.current_leader
            self._learn(
                LeaderHint(topic_partition, leader.leader_id, leader.leader_epoch), endpoints
            )
        elif error not in _PASSES:
            message = row.error_message or f"share fetch from {topic_partition}"
            self.on_failure(BrokerError(error, message))

    def _learn(self, hint: LeaderHint, endpoints: list[Broker]) -> None:
        if hint.leader < 0 or not self._metadata.apply_hints([hint], endpoints):
            self._metadata.request_update()

    # --- ShareAcknowledge ------------------------------------------------------------------------

    async def _acknowledge(self, node: _Node) -> None:
        session, number = node.session, node.session.number
        carried = _take(node)
        answer = await self._send_acknowledge(node, carried, session.epoch)
        node.is_busy = False
        if answer is not None and session.number == number:
            error = ErrorCode.of(answer.error_code)
            if error is ErrorCode.NONE:
                session.on_success()
                node.attempts = 0
                self._on_acknowledge(node, answer, carried)
            else:
                self._on_refusal(node, carried, error, answer.error_message)
        node.answered.notify()
        self.poke()

    async def _send_acknowledge(
        self, node: _Node, carried: Carried, epoch: int
    ) -> ShareAcknowledgeResponse | None:
        renews = any(each.acknowledged.renews for row in carried.values() for each in row)
        request = ShareAcknowledgeRequest(
            group_id=self._member.group_id,
            member_id=self._member.member_id,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=acknowledge_topics(_ranges(carried)),
        )
        try:
            if renews:
                await self._need_version(node.node_id, request, "AcknowledgeType.RENEW")
            return await self._network.call(node.node_id, request, ShareAcknowledgeResponse)
        except UnsupportedVersionError as error:
            # Nothing was sent: the session goes on.
            self._fail_each(carried, error)
        except (ClientError, KafkaError) as error:
            self._on_failure(node, carried, error)
        return None

    def _on_acknowledge(
        self, node: _Node, answer: ShareAcknowledgeResponse, carried: Carried
    ) -> None:
        if answer.acquisition_lock_timeout_ms > 0:
            self.acquisition_lock_timeout_ms = answer.acquisition_lock_timeout_ms
        endpoints = [
            Broker(each.node_id, Address(each.host, each.port), each.rack)
            for each in answer.node_endpoints
        ]
        left = dict(carried)
        for topic in answer.responses:
            for row in topic.partitions:
                code = ErrorCode.of(row.error_code)
                for pending in left.pop((topic.topic_id, row.partition_index), ()):
                    if code in _LEADER_CHANGED:
                        leader = row.current_leader
                        hint = LeaderHint(
                            pending.source.topic_partition, leader.leader_id, leader.leader_epoch
                        )
                        self._learn(hint, endpoints)
                    self._on_acknowledged(node, pending, code, row.error_message)
        self._fail_each(left, _not_answered(node.node_id))

    def _on_acknowledged(
        self, node: _Node, pending: Pending, error: ErrorCode, message: str | None
    ) -> None:
        """Settle acknowledgements of one partition, or queue them again."""
        if error is ErrorCode.NONE:
            self._settle(pending, None)
            return
        now = self._loop.now_ms()
        passes = error.retriable and error not in _LEADER_CHANGED
        if passes and now < pending.deadline_ms and not self._closed:
            node.queue.append(pending)
            node.retry_at_ms = max(node.retry_at_ms, now + self._backoff(node))
            return
        about = f"acknowledgements of {pending.source.topic_partition}"
        self._settle(pending, BrokerError(error, message or about))

    async def _end_session(self, node: _Node) -> None:
        """Send what is queued with the final epoch. What is in flight is answered before it, but
        a fetch that makes the session is waited for.
        """
        if node.session.is_new and node.is_busy:
            limit_ms = self._settings.fetch_max_wait_ms + _FIRST_FETCH_MS
            waited = within(self._loop, node.answered.wait(), limit_ms, "a first share fetch")
            with suppress(TimedOutError):  # what it acquires is given back when the locks end
                await waited
        if node.session.is_new:
            return
        self._fail_stale(node)
        carried = _take(node)
        answer = await self._send_acknowledge(node, carried, FINAL_EPOCH)
        if answer is None:
            return
        node.session.on_failure()
        error = ErrorCode.of(answer.error_code)
        if error is not ErrorCode.NONE:
            self._fail_each(carried, BrokerError(error, answer.error_message or "closing"))
            return
        for pending in (each for row in carried.values() for each in row):
            # What fails now is not sent again: there is no session to send it in.
            pending.deadline_ms = self._loop.now_ms()
        self._on_acknowledge(node, answer, carried)

    # --- what goes wrong -------------------------------------------------------------------------

    async def _need_version(self, node_id: int, request: Request, what: str) -> None:
        version = await self._network.version_for(node_id, type(request))
        if version < _FIRST_WITH_RENEWAL:
            raise UnsupportedVersionError(f"broker {node_id} does not know {what}")

    def _on_failure(self, node: _Node, carried: Carried, error: ClientError | KafkaError) -> None:
        """Handle a missing answer: whether the broker has the request is unknown."""
        node.session.on_failure()
        self._fail_each(carried, error)
        if self._closed or isinstance(error, ClosedError):
            return
        _log.debug("share request to broker %d failed: %s", node.node_id, error)
        if isinstance(error, UnsupportedVersionError | AuthenticationError):
            self.on_failure(error)
        node.retry_at_ms = self._loop.now_ms() + self._backoff(node)
        self._metadata.request_update()

    def _on_refusal(
        self, node: _Node, carried: Carried, error: ErrorCode, message: str | None
    ) -> None:
        """Handle an error for all of a request."""
        _log.info("share session with broker %d ended: %s", node.node_id, error.name)
        node.session.on_failure()
        failure = BrokerError(error, message or f"the share session with broker {node.node_id}")
        self._fail_each(carried, failure)
        if error is ErrorCode.UNKNOWN_TOPIC_ID:
            self._metadata.request_update()
        elif error not in _PASSES and not error.retriable:
            self.on_failure(failure)
        pause_ms = self._backoff(node)
        if error not in _NEW_SESSION_AT_ONCE or node.attempts > 1:
            node.retry_at_ms = self._loop.now_ms() + pause_ms

    def _backoff(self, node: _Node) -> float:
        settings = self._settings
        pause_ms = backoff_ms(
            self._loop, node.attempts, settings.retry_backoff_ms, settings.retry_backoff_max_ms
        )
        node.attempts += 1
        return pause_ms

    def _fail_stale(self, node: _Node) -> None:
        """Fail what is queued of earlier sessions: their acquisitions have ended."""
        number = node.session.number
        stale = [each for each in node.queue if each.source.session_number != number]
        if stale:
            node.queue = [each for each in node.queue if each.source.session_number == number]
            ended = BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the share session with broker {node.node_id} has ended, and with it the "
                "acquisition: the records will be delivered again",
            )
            self._fail_all(stale, ended)

    def _fail_each(self, carried: Carried, error: Exception) -> None:
        for row in carried.values():
            self._fail_all(row, error)

    def _fail_all(self, pending: list[Pending], error: Exception) -> None:
        failing, pending[:] = list(pending), []
        for each in failing:
            self._settle(each, error)

    def _settle(self, pending: Pending, error: Exception | None) -> None:
        if not pending.done.done:
            # First the callbacks, so that a commit that waits runs them before it returns.
            self.on_settled(pending, error)
            pending.done.complete(error)


def _take(node: _Node) -> Carried:
    """Take what is queued, by partition."""
    carried: dict[SharePartition, list[Pending]] = {}
    for pending in node.queue:
        carried.setdefault(pending.partition, []).append(pending)
    node.queue = []
    return carried


def _ranges(carried: Carried) -> Ranges:
    ranges = {}
    for partition, row in carried.items():
        types: dict[int, int] = {}
        for pending in row:
            types |= pending.acknowledged.types
        ranges[partition] = ranges_of(types)
    return ranges


def _not_answered(node_id: int) -> BrokerError:
    return BrokerError(
        ErrorCode.INVALID_RECORD_STATE, f"broker {node_id} said nothing of these acknowledgements"
    )
