"""The whole share consumer on a client's loop: what the blocking and the asyncio API drive.

Each API delivers records by ``delivery``, on the user's thread, and calls this for everything else.
Everything in this class runs on the loop, except that ``user.attention`` is read on other threads,
and ``note_poll`` may be called on any.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from millstream.client.core.consumer.record import SubscriptionPattern
from millstream.client.core.consumer.user_calls import UserCall
from millstream.client.core.consumer.user_side import UserSide
from millstream.client.core.loop import ClientLoop
from millstream.client.core.metadata import MetadataView, check_names
from millstream.client.core.network import Network
from millstream.client.core.share.acknowledgements import Acknowledged
from millstream.client.core.share.errors import AcknowledgeFailedError, NotSubscribedError
from millstream.client.core.share.fetcher import ShareFetcher
from millstream.client.core.share.member import ShareMember
from millstream.client.core.share.metrics import ShareMetrics
from millstream.client.core.share.node import Pending
from millstream.client.core.share.settings import ShareConsumerSettings, check_settings
from millstream.client.core.statistics import StatisticsReports
from millstream.client.core.waiting import within
from millstream.client.errors import ClientError, ClosedError
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicPartition

_LEAVING_MS: Final = 1_000

_log = logging.getLogger("millstream.client.share_consumer")


def topic_names(topics: Iterable[str] | str) -> list[str]:
    """Return what a subscription names; TypeError for a pattern, which share groups do not have."""
    if isinstance(topics, re.Pattern | SubscriptionPattern):
        raise TypeError("a share consumer subscribes to topics by their names, not by a pattern")
    return [topics] if isinstance(topics, str) else list(topics)


class ShareConsumerCore:
    """One share consumer.

    ``on_settled`` runs on the user's side, with acknowledgements that were taken or have failed:
    of all with ``reports_all``, otherwise of those that renew.
    """

    def __init__(self, loop: ClientLoop, settings: ShareConsumerSettings) -> None:
        check_settings(settings)
        self.loop = loop
        self.settings = settings
        self.on_settled: Callable[[Acknowledged, Exception | None], object] = lambda *_: None
        self.reports_all = False
        self.network = Network(loop, settings)
        self.metadata = MetadataView(self.network, create_topics=settings.allow_auto_create_topics)
        self.member = ShareMember(self.network, settings)
        self.fetcher = ShareFetcher(self.network, self.metadata, settings, self.member)
        self.user = UserSide(loop, self._has_data)
        self._renewals = 0
        """Acknowledgements that renew and are not settled: others are delivered after them."""
        self._subscriptions = 0
        self._closed = False
        self.metrics = ShareMetrics(loop.now_ms)
        self._statistics = StatisticsReports(loop, settings, "share consumer", self.metrics.values)
        self._statistics.start()
        self.metadata.on_change(self.fetcher.poke)
        self.metadata.on_refused(self.user.fail)
        self.member.is_polling = self.fetcher.is_polling = lambda: self.user.is_waiting
        self.member.on_failure = self.fetcher.acknowledger.on_failure = self.user.fail
        self.member.on_assigned = self._on_assigned
        self.fetcher.on_data = self.user.data_came
        self.fetcher.acknowledger.on_settled = self._on_settled

    def _has_data(self) -> bool:
        return len(self.fetcher.buffer) > 0 and not self._renewals

    # --- the subscription ------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics as a member of the group; replaces an earlier subscription."""
        self._check_open()
        chosen = check_names(topics)
        self._subscriptions += 1
        self.metadata.want_only(chosen)
        self.member.subscribe(chosen)

    async def unsubscribe(self, acknowledged: Sequence[Acknowledged]) -> None:
        """Send acknowledgements, give up what is acquired, leave the group."""
        self._check_open()
        number = self._subscriptions
        await self._leave(acknowledged, self.settings.default_api_timeout_ms)
        if self._subscriptions == number:
            self.fetcher.buffer.clear()
            self.metadata.want_only(())

    @property
    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return self.member.topics

    def _on_assigned(self) -> None:
        if any(self.metadata.name_of(topic_id) is None for topic_id, _ in self.member.assigned):
            self.metadata.request_update()
        self.fetcher.poke()

    # --- polling ---------------------------------------------------------------------------------

    def note_poll(self) -> None:
        """Record a poll of the user that does not call the core; may be called on any thread."""
        self.member.last_poll_ms = self.loop.now_ms()

    def poll(
        self, acknowledged: Sequence[Acknowledged], timeout_ms: float
    ) -> Deferred[UserCall | None]:
        """Send acknowledgements, fetch, and wait until there is something for the user.

        The Deferred completes with a function to run (then poll again), or with None when there may
        be records or the time has passed; it fails with an error for the user.
        """
        self._check_open()
        self.acknowledge(acknowledged)
        if not self.member.topics:
            raise NotSubscribedError("the share consumer is not subscribed to any topics")
        self.user.attention = False
        if self.metadata.refusal is not None:
            self.metadata.request_update()
        self.member.poll()
        self.fetcher.want_records()
        return self.user.wait(timeout_ms)

    # --- acknowledgements ------------------------------------------------------------------------

    def acknowledge(self, acknowledged: Iterable[Acknowledged]) -> None:
        """Send acknowledgements, with the next fetch or apart, without waiting."""
        self._queue(acknowledged, self.settings.default_api_timeout_ms, urgent=False)

    async def commit(self, acknowledged: Iterable[Acknowledged], timeout_ms: float) -> None:
        """Send acknowledgements now; AcknowledgeFailedError if some were not taken in time."""
        self._check_open()
        queued = self._queue(acknowledged, timeout_ms, urgent=True)
        deadline = self.loop.now_ms() + timeout_ms
        errors: dict[TopicPartition, Exception] = {}
        for pending in queued:
            left_ms = max(deadline - self.loop.now_ms(), 0.0)
            try:
                where = self.network.whereabouts
                what = "acknowledgements"
                error = await within(self.loop, pending.done, left_ms, what, where=where)
            except ClientError as late:
                error = late
            if error is not None:
                errors[pending.source.topic_partition] = error
        if errors:
            raise AcknowledgeFailedError(errors) from next(iter(errors.values()))

    def _queue(
        self, acknowledged: Iterable[Acknowledged], timeout_ms: float, *, urgent: bool
    ) -> list[Pending]:
        chosen = list(acknowledged)
        self._renewals += sum(each.renews for each in chosen)
        return self.fetcher.acknowledge(chosen, timeout_ms=timeout_ms, urgent=urgent)

    def _on_settled(self, pending: Pending, error: Exception | None) -> None:
        acknowledged = pending.acknowledged
        renews = acknowledged.renews
        self._renewals -= renews
        self.metrics.on_settled(len(acknowledged.types), error)
        if error is not None:
            _log.info(
                "acknowledgements of %s were not taken: %s",
                pending.source.topic_partition,
                error,
            )
        if renews or self.reports_all:
            self.user.run(lambda: self.on_settled(acknowledged, error))

    # --- the end ---------------------------------------------------------------------------------

    async def close(self, acknowledged: Sequence[Acknowledged], timeout_ms: float) -> None:
        """Send acknowledgements, give up what else is acquired, leave the group, disconnect."""
        if self._closed:
            return
        try:
            await self._leave(acknowledged, timeout_ms)
        finally:
            self.end()

    async def _leave(self, acknowledged: Sequence[Acknowledged], timeout_ms: float) -> None:
        deadline = self.loop.now_ms() + timeout_ms

        async def attempt(
            step: Coroutine[Deferred[Any], None, None], limit_ms: float, about: str
        ) -> None:
            try:
                where = self.network.whereabouts
                await within(self.loop, spawn(step), limit_ms, about, where=where)
            except (ClientError, KafkaError) as error:
                _log.warning("closing: %s", error)

        self._queue(acknowledged, timeout_ms, urgent=True)
        # Brokers that cannot be reached must leave time for the heartbeat that leaves: otherwise
        # the group keeps this member's partitions until its session ends.
        limit_ms = max(timeout_ms - _LEAVING_MS, timeout_ms / 2)
        number = self._subscriptions
        await attempt(self.fetcher.finish(), limit_ms, "the share sessions to end")
        if self._subscriptions != number:
            # Who gave up waiting for this has subscribed again, and so stays a member.
            return
        left_ms = max(deadline - self.loop.now_ms(), 0.0)
        await attempt(self.member.leave(), left_ms, "leaving the group")

    async def abandon(self) -> None:
        """Leave the group and disconnect, without callbacks: the consumer was garbage-collected."""
        try:
            with contextlib.suppress(ClientError):
                await self._leave([], _LEAVING_MS)
        finally:
            self.end()

    def end(self) -> None:
        """Disconnect at once, without leaving the group. Further calls do nothing."""
        self._closed = True
        self._statistics.stop()
        self.member.close()
        self.fetcher.close()
        self.metadata.close()
        self.network.close()
        self.user.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the share consumer is closed")
