"""What brokers report to the controller of themselves and of each other, and what follows from it.

A report is an event like every other decision. Each kind of report names its sender by broker id
and broker epoch (STALE_BROKER_EPOCH refuses a life of a broker that has ended).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

from millstream.controller.election import after_leaving, after_unreachable
from millstream.controller.isr_changes import check_sender
from millstream.controller.reachability import ReachabilityReports
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred, spawn
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.controlling.controller_events import ControllerEvents
from millstream.runtime.controlling.partition_writes import Changes
from millstream.runtime.controlling.replica_control import ReplicaControl

log = logging.getLogger(__name__)

REPORT_VALID_MS: Final = 2_000.0
"""How old the answers of followers may be when leaderships move by them."""

AskFetchers: TypeAlias = Callable[[Iterable[BrokerId]], Deferred[ReachabilityReports]]
"""Asks brokers which leaders do not answer their fetches; who gives no answer is left out."""


class BrokerReports:
    """Takes the reports of brokers. ``replicas`` carries out the elections that they cause,
    ``ask_fetchers`` reaches the followers that a leader does not hear.
    """

    def __init__(
        self, events: ControllerEvents, replicas: ReplicaControl, ask_fetchers: AskFetchers
    ) -> None:
        self._events = events
        self._state = events.state
        self._replicas = replicas
        self._ask_fetchers = ask_fetchers

    def offline_replicas(
        self, sender: BrokerId, broker_epoch: int, replicas: Sequence[tuple[TopicId, int]]
    ) -> Deferred[None]:
        """Take note of the replicas (topic id, partition) that a broker cannot serve: it leads none
        of them, and leaves their ISRs, until it has been started again.

        Fails with STALE_BROKER_EPOCH or NOT_CONTROLLER.
        """
        return self._events.submit(lambda: self._offline_replicas(sender, broker_epoch, replicas))

    async def _offline_replicas(
        self, sender: BrokerId, broker_epoch: int, replicas: Sequence[tuple[TopicId, int]]
    ) -> None:
        context = self._state.context
        check_sender(context, sender, broker_epoch)
        # None of them comes back in this life of the broker, and an older report may come last.
        offline = context.offline.get(sender, frozenset()).union(replicas)
        if offline == context.offline.get(sender, frozenset()):
            return
        log.warning("broker %d cannot serve %d of its replicas", sender, len(offline))
        context.offline[sender] = offline
        changes: Changes = {}
        for topic_id, index in replicas:
            topic = context.topic_by_id(topic_id)
            if topic is None or not 0 <= index < len(topic.partitions):
                continue
            state = topic.partitions[index]
            after = after_leaving(
                state,
                frozenset((sender,)),
                context.electorate_of(topic_id, index),
                min_insync_replicas=self._state.min_insync_replicas(topic),
                controller_epoch=context.controller_epoch,
            )
            if after is not state:
                changes[TopicPartition(topic.name, index)] = after
        await self._replicas.apply(changes)
        self._replicas.seek_leaders()

    def silent_followers(
        self,
        sender: BrokerId,
        broker_epoch: int,
        silent: Collection[BrokerId],
        unreachable_leaders: Collection[BrokerId],
    ) -> Deferred[bool]:
        """Move leaderships from a broker whose in-sync followers have stopped to fetch from it, if
        they confirm that they cannot reach it (`controller.reachability`).

        ``unreachable_leaders`` do not answer the sender itself. The result is True when the sender
        has not acknowledged all that it was told: it may lead no more what it reports. Fails
        with STALE_BROKER_EPOCH or NOT_CONTROLLER.
        """
        return spawn(
            self._silent_followers(sender, broker_epoch, silent, frozenset(unreachable_leaders))
        )

    async def _silent_followers(
        self,
        sender: BrokerId,
        broker_epoch: int,
        silent: Collection[BrokerId],
        unreachable_leaders: frozenset[BrokerId],
    ) -> bool:
        self._state.check_active()
        context = self._state.context
        check_sender(context, sender, broker_epoch)
        asked_ms = self._events.clock.monotonic_ms()
        # Asked outside the event queue, which must not wait for brokers that are ill.
        answers = await self._ask_fetchers(each for each in silent if each in context.brokers)
        reports = ReachabilityReports({**answers.unreachable, sender: unreachable_leaders})
        if any(reports.cannot_reach(each, sender) for each in silent):
            await self._events.submit(
                lambda: self._move_leaders(sender, broker_epoch, reports, asked_ms)
            )
        return self._events.is_behind(sender)

    async def _move_leaders(
        self,
        unreachable: BrokerId,
        broker_epoch: int,
        reports: ReachabilityReports,
        asked_ms: float,
    ) -> None:
        context = self._state.context
        check_sender(context, unreachable, broker_epoch)
        if self._events.clock.monotonic_ms() - asked_ms >= REPORT_VALID_MS:
            return  # the queue was long: the leader sends another report if it is still so
        suspected = self._replicas.elections.suspected()
        changes = self._replicas.partitions.each(
            lambda _, state, electorate: (
                after_unreachable(
                    state,
                    reports,
                    electorate,
                    suspected=suspected,
                    controller_epoch=context.controller_epoch,
                )
                if state.leader == unreachable
                else state
            )
        )
        if not changes:
            return
        period_ms = self._replicas.elections.suspect(unreachable, broker_epoch)
        log.warning(
            "broker %d is out of reach of its followers: %d leaderships move, "
            "and none is given back to it for %.0f s",
            unreachable,
            len(changes),
            period_ms / 1_000,
        )
        await self._replicas.apply(changes)
