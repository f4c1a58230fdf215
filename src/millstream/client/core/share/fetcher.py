"""Acquires records of the assigned partitions.

Each broker has at most one ShareFetch or ShareAcknowledge in flight, because the epoch of a share
session counts its requests. What it is next asked is, in this order:

1. acknowledgements that a commit waits for, that renew, or whose partition is no longer fetched, as
   a ShareAcknowledge with all that is queued;
2. if the user wants records, a ShareFetch that carries what is queued;
3. what is queued, as a ShareAcknowledge.

Records are fetched when a poll of the user finds none: acquisition locks begin with the fetch, and
what one consumer holds back no other can have. With ``share.acquire.mode=record_limit`` one broker
is asked at a time. ``acknowledger`` says what becomes of acknowledgements and of sessions.

ShareFetch 1 to 2; ``record_limit`` from 2 on. Kafka: ``ShareConsumeRequestManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from millstream.client.core.metadata import LeaderHint, MetadataView
from millstream.client.core.network import Network
from millstream.client.core.share.acknowledgements import Acknowledged, Source
from millstream.client.core.share.acknowledger import LEADER_CHANGED, PASSES, ShareAcknowledger
from millstream.client.core.share.fetched import AcquiredRange, ShareBuffer, ShareFetched
from millstream.client.core.share.member import ShareMember
from millstream.client.core.share.node import Carried, Pending, ShareNode, ranges_in
from millstream.client.core.share.session import (
    SharePartition,
    SharePlan,
    fetch_topics,
    forgotten_topics,
)
from millstream.client.core.share.settings import ShareConsumerSettings
from millstream.client.core.waiting import within
from millstream.client.errors import BrokerError, ClientError, ClosedError, TimedOutError
from millstream.client.metadata import Broker, brokers_in
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId, TopicPartition
from millstream.protocol.messages.share_fetch import (
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)

_FIRST_FETCH_MS: Final = 1_000
"""How much longer than its ``fetch.max.wait.ms`` a first fetch is waited for at the end."""

_LEARN_LEADER: Final = LEADER_CHANGED | {
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
}

_NOTHING: Final = memoryview(b"")

_log = logging.getLogger("millstream.client.share_consumer")


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
        self.acknowledger = ShareAcknowledger(network, metadata, settings, member)
        self.is_polling: Callable[[], bool] = lambda: False
        """Tells whether the user is waiting in a poll."""
        self.on_data: Callable[[], None] = lambda: None
        self._network = network
        self._loop = network.loop
        self._metadata = metadata
        self._settings = settings
        self._member = member
        self._nodes: dict[int, ShareNode] = {}
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
        """Send what is queued and end every share session, so that the brokers give up the rest.

        It goes on if nobody waits for it any more, and a broker is asked nothing until its session
        has ended.
        """
        self._wants_records = False
        for each in [self._ending(node) for node in self._nodes.values()]:
            await each
        for node in self._nodes.values():
            self.acknowledger.fail_stale(node)

    def close(self) -> None:
        """Ask nothing more; what is queued fails."""
        self._closed = self.acknowledger.is_closed = True
        self.buffer.clear()
        for node in self._nodes.values():
            queue, node.queue = node.queue, []
            self.acknowledger.fail_all(queue, ClosedError("the share consumer was closed"))

    # --- the end of a session --------------------------------------------------------------------

    def _ending(self, node: ShareNode) -> Deferred[None]:
        """End the session with a broker; what is being ended already is waited for."""
        if node.ending is not None:
            return node.ending
        ending: Deferred[None] = Deferred()
        node.ending = ending
        spawn(self._end_session(node)).on_done(lambda _: self._session_ended(node, ending))
        return ending

    def _session_ended(self, node: ShareNode, ending: Deferred[None]) -> None:
        node.ending = None
        self.poke()
        ending.complete(None)

    async def _end_session(self, node: ShareNode) -> None:
        """Send what is queued with the final epoch. What is in flight is answered before it, but
        a fetch that makes the session is waited for.
        """
        if node.session.is_new and node.is_busy:
            limit_ms = self._settings.fetch_max_wait_ms + _FIRST_FETCH_MS
            waited = within(self._loop, node.answered.wait(), limit_ms, "a first share fetch")
            with suppress(TimedOutError):
                await waited
            if node.session.is_new:
                # What it acquires later is nobody's, and is given back when the locks end.
                node.session.on_failure()
        if not node.session.is_new:
            await self.acknowledger.send_final(node)

    # --- whom to ask -----------------------------------------------------------------------------

    def _node(self, node_id: int) -> ShareNode:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = ShareNode(node_id)
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
            self.acknowledger.fail_stale(node)
            if node.is_busy or node.ending is not None:
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
        self, node: ShareNode, wanted: dict[SharePartition, TopicPartition], leader_count: int
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

    async def _acknowledge(self, node: ShareNode) -> None:
        try:
            await self.acknowledger.send(node)
        finally:
            self._request_ended(node)

    def _request_ended(self, node: ShareNode) -> None:
        node.is_busy = False
        self._fetching.discard(node.node_id)
        node.answered.notify()
        self.poke()

    # --- ShareFetch ------------------------------------------------------------------------------

    async def _fetch(
        self, node: ShareNode, wanted: dict[SharePartition, TopicPartition], leader_count: int
    ) -> None:
        acknowledger, session, number = self.acknowledger, node.session, node.session.number
        plan = session.plan(wanted)
        carried = node.take()
        try:
            answer = await self._ask_for_records(node, plan, carried, leader_count)
            self._wants_records = self._wants_records and self.is_polling()
            if session.number == number:
                self._on_fetched(node, answer, wanted, carried)
            else:
                acknowledger.session_ended(node, carried)
        except (ClientError, KafkaError) as error:
            self._wants_records = self._wants_records and self.is_polling()
            acknowledger.not_answered(node, carried, error)
        finally:
            self._request_ended(node)

    async def _ask_for_records(
        self, node: ShareNode, plan: SharePlan, carried: Carried, leader_count: int
    ) -> ShareFetchResponse:
        settings = self._settings
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
            topics=fetch_topics(plan.added, ranges_in(carried)),
            forgotten_topics_data=forgotten_topics(plan.forgotten),
        )
        if settings.limits_records:
            what = "share.acquire.mode=record_limit"
            await self.acknowledger.need_version(node.node_id, request, what)
        timeout_ms = settings.request_timeout_ms + max_wait_ms
        return await self._network.call(
            node.node_id, request, ShareFetchResponse, timeout_ms=timeout_ms
        )

    def _on_fetched(
        self,
        node: ShareNode,
        answer: ShareFetchResponse,
        wanted: dict[SharePartition, TopicPartition],
        carried: Carried,
    ) -> None:
        acknowledger = self.acknowledger
        error = ErrorCode.of(answer.error_code)
        if error is not ErrorCode.NONE:
            acknowledger.refused(node, carried, error, answer.error_message)
            return
        node.session.on_success()
        node.attempts = 0
        acknowledger.note_lock_timeout(answer.acquisition_lock_timeout_ms)
        if self._closed:
            acknowledger.fail_each(carried, ClosedError("the share consumer was closed"))
            return
        endpoints = brokers_in(answer.node_endpoints)
        left = dict(carried)
        arrived = False
        for topic in answer.responses:
            for row in topic.partitions:
                key = (topic.topic_id, row.partition_index)
                for pending in left.pop(key, ()):
                    code = ErrorCode.of(row.acknowledge_error_code)
                    acknowledger.answered(node, pending, code, row.acknowledge_error_message)
                topic_partition = wanted.get(key)
                if topic_partition is None:
                    continue
                if row.error_code:
                    self._on_row_refused(node, topic_partition, row, endpoints)
                else:
                    arrived = self._accept(node, topic.topic_id, topic_partition, row) or arrived
        acknowledger.left_out(node, left)
        if arrived:
            self._wants_records = False
            self.on_data()

    def _accept(
        self,
        node: ShareNode,
        topic_id: TopicId,
        topic_partition: TopicPartition,
        row: PartitionData,
    ) -> bool:
        """Put acquired records into the buffer; return False if there are none.

        With the session that is being ended they end too.
        """
        if not row.acquired_records or node.ending is not None:
            return False
        lock_ms = self.acknowledger.acquisition_lock_timeout_ms
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
        node: ShareNode,
        topic_partition: TopicPartition,
        row: PartitionData,
        endpoints: list[Broker],
    ) -> None:
        error = ErrorCode.of(row.error_code)
        _log.debug("share fetch of %s: %s", topic_partition, error.name)
        node.retry_at_ms = self._loop.now_ms() + self._settings.retry_backoff_ms
        if error in _LEARN_LEADER:
            leader = row.current_leader
            self.acknowledger.learn(
                LeaderHint(topic_partition, leader.leader_id, leader.leader_epoch), endpoints
            )
        elif error not in PASSES:
            message = row.error_message or f"share fetch from {topic_partition}"
            self.acknowledger.on_failure(BrokerError(error, message))
