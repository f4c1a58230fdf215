"""Keeps one Fetch request in flight to every broker that leads assigned partitions.

A partition is fetched while less than one full response of it is buffered, so the broker works
while records are processed; in total at most ``fetch.buffer.bytes`` plus the responses in flight
are buffered. The order of partitions rotates from request to request, because a broker fills
responses in order.

Of APIs: Fetch 4 to 18; topics by id from 13 on; sessions from 7 (KIP-227); the closest replica
from 11 (KIP-392); a new leader in an error from 16 (KIP-951). Kafka: ``AbstractFetch``,
``FetchCollector``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from millstream.client.core.consumer.errors import OffsetsOutOfRangeError
from millstream.client.core.consumer.fetch_session import (
    FINAL_EPOCH,
    FetchSession,
    FetchTarget,
)
from millstream.client.core.consumer.fetched import FetchBuffer, Fetched, end_of_batches
from millstream.client.core.consumer.metrics import FetchMetrics
from millstream.client.core.consumer.reset import NONE
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.consumer.subscription import PartitionState, Phase, Subscription
from millstream.client.core.metadata import LeaderHint, MetadataView
from millstream.client.core.network import Network
from millstream.client.core.waiting import ignore
from millstream.client.errors import AuthenticationError, BrokerError, ClientError, ClosedError
from millstream.client.metadata import Broker, brokers_in
from millstream.model.deferred import spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData

_LAST_VERSION_WITH_NAMES: Final = 12
_LEARN_LEADER: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
_ASK_AGAIN: Final = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})
_NOTHING: Final = memoryview(b"")
_FIRST_PATIENCE_MS: Final = 5

_log = logging.getLogger("millstream.client.consumer")


class Fetcher:
    """The fetching side of one consumer. ``on_failure`` is called with errors for the user."""

    def __init__(
        self,
        network: Network,
        metadata: MetadataView,
        settings: ConsumerSettings,
        subscription: Subscription,
        metrics: FetchMetrics,
    ) -> None:
        self.buffer = FetchBuffer()
        self.on_data: Callable[[], None] = lambda: None
        self.on_failure: Callable[[Exception], None] = lambda error: None
        self.on_reset: Callable[[], None] = lambda: None
        self._network = network
        self._loop = network.loop
        self._metadata = metadata
        self._settings = settings
        self._subscription = subscription
        self._metrics = metrics
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: set[int] = set()
        self._patience_ms: dict[int, int] = {}
        self._buffered_bytes = 0
        self._round = 0
        self._poke_planned = False
        self._closed = False

    # --- when to ask -----------------------------------------------------------------------------

    def poke(self) -> None:
        """Schedule a check whether a broker can be fetched from; many calls schedule one check."""
        if not self._poke_planned and not self._closed:
            self._poke_planned = True
            self._loop.call_soon(self._look)

    def taken(self, fetched: Fetched) -> None:
        """Update the free room of the buffer, on the loop."""
        size = len(fetched.data)
        self._buffered_bytes -= size
        if fetched.is_current:
            fetched.state.buffered_bytes -= size
        self._patience_ms.clear()
        self.poke()

    def _look(self) -> None:
        self._poke_planned = False
        if self._closed or self._buffered_bytes >= self._settings.fetch_buffer_bytes:
            return
        nodes, crowded = self._fetchable()
        for node_id, states in nodes.items():
            if node_id not in self._in_flight:
                self._in_flight.add(node_id)
                spawn(self._fetch(node_id, states, is_partial=node_id in crowded))

    def _fetchable(self) -> tuple[dict[int, list[PartitionState]], set[int]]:
        """Return the partitions to fetch by broker, and the brokers that also lead full ones."""
        now = self._loop.now_ms()
        nodes: dict[int, list[PartitionState]] = {}
        crowded: set[int] = set()
        unknown = False
        for state in self._subscription.partitions.values():
            if state.phase is not Phase.FETCHING or not state.is_deliverable:
                continue
            if state.retry_at_ms > now:
                self._loop.call_at(state.retry_at_ms, self.poke)
                continue
            node_id = self._node_of(state, now)
            if node_id is None:
                unknown = True
            elif state.buffered_bytes >= self._settings.max_partition_fetch_bytes:
                crowded.add(node_id)
            else:
                nodes.setdefault(node_id, []).append(state)
        if unknown:
            self._metadata.request_update()
        return nodes, crowded

    def _node_of(self, state: PartitionState, now: float) -> int | None:
        """Return the broker to read from: the closest replica while that is known (KIP-392)."""
        replica = state.preferred_replica
        if replica is not None:
            if replica in self._network.brokers and now < state.preferred_until_ms:
                return replica
            state.preferred_replica = None
        leader = self._metadata.leader(state.topic_partition)
        return leader if leader >= 0 else None

    # --- one request -----------------------------------------------------------------------------

    async def _fetch(self, node_id: int, states: list[PartitionState], *, is_partial: bool) -> None:
        session = self._sessions.setdefault(node_id, FetchSession())
        fences = {state: state.fence for state in self._rotated(states)}
        plan = session.plan({each.topic_partition: self._target(each) for each in fences})
        settings = self._settings
        max_wait_ms = settings.fetch_max_wait_ms
        if is_partial:
            # Full partitions are left out and will have room soon: they must not wait until the
            # broker has data of the others. But the broker must not be polled continuously while
            # they are full.
            patience_ms = self._patience_ms.get(node_id, _FIRST_PATIENCE_MS)
            self._patience_ms[node_id] = patience_ms * 2
            max_wait_ms = min(max_wait_ms, patience_ms)
        else:
            self._patience_ms.pop(node_id, None)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=int(settings.read_committed),
            session_id=plan.session_id,
            session_epoch=plan.epoch,
            topics=plan.topics,
            forgotten_topics_data=plan.forgotten,
            rack_id=settings.client_rack,
        )
        asked_at = self._loop.now_ms()
        try:
            answer = await self._network.send(
                node_id,
                request,
                max_version=None if plan.uses_topic_ids else _LAST_VERSION_WITH_NAMES,
                timeout_ms=settings.request_timeout_ms + settings.fetch_max_wait_ms,
            )
        except (ClientError, KafkaError) as error:
            self._failed(node_id, session, fences, error)
            return
        assert isinstance(answer, FetchResponse)
        self._metrics.on_answer(self._loop.now_ms() - asked_at, answer.throttle_time_ms)
        self._in_flight.discard(node_id)
        if not self._closed:
            self._take(session, answer, fences)
            self.poke()

    def _rotated(self, states: list[PartitionState]) -> list[PartitionState]:
        self._round += 1
        first = self._round % len(states)
        return states[first:] + states[:first]

    def _target(self, state: PartitionState) -> FetchTarget:
        return FetchTarget(
            self._metadata.topic_id(state.topic_partition.topic),
            state.fetch_offset,
            self._settings.max_partition_fetch_bytes,
            state.leader_epoch,
        )

    def _failed(
        self,
        node_id: int,
        session: FetchSession,
        states: Iterable[PartitionState],
        error: ClientError | KafkaError,
    ) -> None:
        self._in_flight.discard(node_id)
        session.on_failure()
        if self._closed or isinstance(error, ClosedError):
            return
        _log.debug("fetch from broker %d failed: %s", node_id, error)
        if isinstance(error, AuthenticationError):
            self.on_failure(error)
        retry_at = self._loop.now_ms() + self._settings.retry_backoff_ms
        for state in states:
            state.preferred_replica = None
            state.retry_at_ms = retry_at
        self._metadata.request_update()
        self._loop.call_at(retry_at, self.poke)

    # --- one answer ------------------------------------------------------------------------------

    def _take(
        self, session: FetchSession, answer: FetchResponse, fences: dict[PartitionState, int]
    ) -> None:
        error = ErrorCode.of(answer.error_code)
        if not session.on_answer(error, answer.session_id):
            _log.debug("new fetch session after %s", error.name)
            self._back_off(fences, metadata=error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return
        endpoints = brokers_in(answer.node_endpoints)
        arrived = False
        for topic in answer.responses:
            name = topic.topic or session.name_of(topic.topic_id)
            for row in topic.partitions:
                topic_partition = TopicPartition(name or "", row.partition_index)
                state = self._subscription.partitions.get(topic_partition)
                if state is None or fences.get(state) != state.fence:
                    continue
                if row.error_code:
                    self._refused(state, row, endpoints)
                else:
                    arrived = self._accept(state, row) or arrived
        if arrived:
            self.on_data()

    def _accept(self, state: PartitionState, row: PartitionData) -> bool:
        """Put the data of a response into the buffer; return True if there are records."""
        state.high_watermark = row.high_watermark
        state.last_stable_offset = row.last_stable_offset
        if row.log_start_offset >= 0:
            state.log_start_offset = row.log_start_offset
        if row.preferred_read_replica >= 0:
            state.preferred_replica = row.preferred_read_replica
            until = self._loop.now_ms() + self._settings.metadata_max_age_ms
            state.preferred_until_ms = until
        data = row.records if isinstance(row.records, memoryview) else _NOTHING
        if not len(data):
            return False
        end = end_of_batches(data)
        if end is None:
            raise_at = state.fetch_offset
            self.on_failure(
                BrokerError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"the batch at offset {raise_at} of {state.topic_partition} does not fit "
                    "into an answer: raise max.partition.fetch.bytes and fetch.max.bytes",
                )
            )
            state.retry_at_ms = self._loop.now_ms() + self._settings.retry_backoff_max_ms
            return False
        fetched = Fetched(
            state,
            state.fence,
            data,
            state.fetch_offset,
            max(end[0], state.fetch_offset),
            end[1],
            [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()],
        )
        state.fetch_offset = fetched.next_offset
        state.buffered_bytes += len(data)
        self._buffered_bytes += len(data)
        self._metrics.on_fetched(state, len(data))
        self.buffer.append(fetched)
        return True

    def _refused(self, state: PartitionState, row: PartitionData, endpoints: list[Broker]) -> None:
        error = ErrorCode.of(row.error_code)
        topic_partition = state.topic_partition
        now = self._loop.now_ms()
        state.retry_at_ms = now + self._settings.retry_backoff_ms
        self._loop.call_at(state.retry_at_ms, self.poke)
        if error in _LEARN_LEADER:
            state.preferred_replica = None
            leader = row.current_leader
            hint = LeaderHint(topic_partition, leader.leader_id, leader.leader_epoch)
            if leader.leader_id >= 0 and self._metadata.apply_hints([hint], endpoints):
                state.retry_at_ms = now
            else:
                self._metadata.request_update()
        elif error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state)
        elif error not in _ASK_AGAIN:
            self.on_failure(BrokerError(error, f"fetch from {topic_partition}"))
        _log.debug("fetch of %s at %d: %s", topic_partition, state.fetch_offset, error.name)

    def _out_of_range(self, state: PartitionState) -> None:
        """Fetch from the leader if the error is a follower's; else reset, once all earlier records
        were returned.
        """
        if state.preferred_replica is not None:
            state.preferred_replica = None
        elif state.position == state.fetch_offset:
            strategy = self._settings.auto_offset_reset
            if strategy == NONE:
                offsets = {state.topic_partition: state.position}
                self.on_failure(OffsetsOutOfRangeError(offsets))
                return
            _log.info(
                "offset %d of %s is not in the log: reset to %s",
                state.position,
                state.topic_partition,
                strategy.kind.value,
            )
            state.await_reset(strategy)
            self.on_reset()

    def _back_off(self, states: Iterable[PartitionState], *, metadata: bool) -> None:
        if metadata:
            retry_at = self._loop.now_ms() + self._settings.retry_backoff_ms
            for state in states:
                state.retry_at_ms = retry_at
            self._loop.call_at(retry_at, self.poke)
            self._metadata.request_update()
        self.poke()

    # --- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop fetching, and close the brokers' sessions without waiting."""
        self._closed = True
        self.buffer.clear()
        for node_id, session in self._sessions.items():
            if session.is_open and node_id not in self._in_flight:
                request = FetchRequest(
                    max_wait_ms=0,
                    min_bytes=0,
                    session_id=session.session_id,
                    session_epoch=FINAL_EPOCH,
                    topics=[],
                )
                ignore(self._network.send(node_id, request))
