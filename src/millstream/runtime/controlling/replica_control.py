"""The controller's decisions about replicas, each one event. Elections that somebody asks for are
in ``leader_elections``.

What is decided is pure (`controller.election`, `isr_changes`, `reassignment`); here it is stored,
shown, and followed by what it makes possible: a partition that has gained a replica may be done
moving, one that has no leader may get one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millstream.controller import paths, reassignment, topic_deletion
from millstream.controller.context import ControllerContext, LiveBroker
from millstream.controller.election import (
    after_controller_election,
    after_joining,
    after_leaving,
    after_smaller_min_isr,
    before_shutdown,
)
from millstream.controller.isr_changes import WantedIsr, check_sender, plan_isr
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import PartitionState
from millstream.model.metadata_store import Delete
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.controlling.controller_events import ControllerEvents
from millstream.runtime.controlling.last_resort_elections import (
    AskLogs,
    ElectionResults,
    LastResortElections,
)
from millstream.runtime.controlling.leader_elections import LeaderElections
from millstream.runtime.controlling.partition_writes import Changes, PartitionWrites

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Move:
    """A wish to move a partition: to which brokers, or (None) back to where it was."""

    topic_partition: TopicPartition
    target: Sequence[int] | None


class ReplicaControl:
    """Leaders, in-sync replicas and moves of all partitions. ``ask_logs`` reaches the brokers."""

    def __init__(self, events: ControllerEvents, ask_logs: AskLogs) -> None:
        self._events = events
        self._state = events.state
        self.partitions = PartitionWrites(events)
        self._last_resort = LastResortElections(events, self.partitions, ask_logs, self.apply)
        self.elections = LeaderElections(events, self.partitions, self._last_resort)
        """The elections of leaders that somebody asks for."""

    @property
    def unclean_elections(self) -> int:
        """Leaders that were elected although they may lack records."""
        return self._last_resort.count

    @property
    def _context(self) -> ControllerContext:
        return self._state.context

    # --- brokers -----------------------------------------------------------------------------

    async def take_brokers(self, registered: Sequence[LiveBroker]) -> None:
        """Take over who is registered now; part of an event."""
        from millstream.controller.broker_changes import broker_changes  # in a cluster only

        changes = broker_changes(self._context.brokers, registered)
        if not changes:
            return
        for broker_id in changes.left:
            self._context.remove_broker(broker_id)
        if changes.left:
            log.info("brokers that left: %s", sorted(changes.left))
            # Those that came again are told of it before they are told anything else.
            await self.apply(self._after_leaving(changes.left))
        for broker in changes.joined:
            self._context.put_broker(broker)
        self._events.publish_brokers()
        if changes.joined:
            log.info("brokers that came: %s", sorted(changes.joined_ids))
            await self.apply(self._after_joining(changes.joined_ids))
        self._last_resort.seek()

    async def reconcile(self) -> None:
        """Bring all partitions into agreement with who lives: a controller's first event.

        What is decided is stored and known, and shown to nobody: no broker, this one least of all,
        may hear a state that was decided for lives which have ended.
        """
        self.elections.forget_suspicions()
        await self.partitions.store(self._after_election())

    async def resume(self) -> None:
        """Go on with moves and elections that the controller before this one did not finish."""
        await self.drop_unneeded_eligible_replicas()
        await self._settle_moves(
            (TopicPartition(topic.name, index), state)
            for topic in self._context.topics.values()
            for index, state in enumerate(topic.partitions)
        )
        self._last_resort.seek()

    async def drop_unneeded_eligible_replicas(self) -> None:
        """Keep no eligible leader replicas where enough are in sync: ``min.insync.replicas`` may
        have become smaller; part of an event.
        """
        await self.partitions.apply(
            self.partitions.each(
                lambda topic, state, _: after_smaller_min_isr(
                    state,
                    min_insync_replicas=self._state.min_insync_replicas(topic),
                    controller_epoch=self._context.controller_epoch,
                )
            )
        )

    def seek_leaders(self) -> None:
        """Compare logs where no replica is known to have everything; see ``LastResortElections``.
        Part of an event; the comparison is an event of its own.
        """
        self._last_resort.seek()

    async def settings_changed(self) -> None:
        """Do what other settings make possible: fewer have to be in sync, or somebody who may lack
        records may lead; part of an event.
        """
        await self.drop_unneeded_eligible_replicas()
        if self._state.broker_epochs():
            self._last_resort.seek()

    def _after_leaving(self, gone: frozenset[BrokerId]) -> Changes:
        return self.partitions.each(
            lambda topic, state, electorate: after_leaving(
                state,
                gone,
                electorate,
                min_insync_replicas=self._state.min_insync_replicas(topic),
                controller_epoch=self._context.controller_epoch,
            )
        )

    def _after_joining(self, joined: frozenset[BrokerId]) -> Changes:
        return self.partitions.each(
            lambda topic, state, electorate: after_joining(
                state,
                joined,
                electorate,
                min_insync_replicas=self._state.min_insync_replicas(topic),
                controller_epoch=self._context.controller_epoch,
            )
        )

    def _after_election(self) -> Changes:
        context = self._context
        epochs = {each: live.node.epoch for each, live in context.brokers.items()}
        return self.partitions.each(
            lambda topic, state, electorate: after_controller_election(
                state,
                epochs,
                electorate,
                min_insync_replicas=self._state.min_insync_replicas(topic),
                controller_epoch=context.controller_epoch,
            )
        )

    def deletions_acknowledged(
        self, broker_id: BrokerId, topics: Iterable[TopicId]
    ) -> Deferred[None]:
        """Take note that a broker keeps nothing of deleted topics."""
        return self._events.submit(lambda: self._deletions_acknowledged(broker_id, topics))

    async def _deletions_acknowledged(self, broker_id: BrokerId, topics: Iterable[TopicId]) -> None:
        context = self._context
        done = [each for each in topics if topic_deletion.acknowledge(context, each, broker_id)]
        if done:
            await self._events.write(
                op for each in done for op in topic_deletion.forgetting(context, each)
            )
        for each in done:
            del context.deletions[each]

    def unregister(self, broker_id: BrokerId) -> Deferred[None]:
        """Forget a broker that is gone; INVALID_REQUEST for one that lives,
        BROKER_ID_NOT_REGISTERED for one that is not known.
        """
        return self._events.submit(lambda: self._unregister(broker_id))

    async def _unregister(self, broker_id: BrokerId) -> None:
        context = self._context
        name = str(broker_id)
        if broker_id in context.brokers:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"broker {broker_id} is alive: stop it first"
            )
        keeps = any(
            broker_id in state.replicas
            for topic in context.topics.values()
            for state in topic.partitions
        )
        waited_for = [
            topic_id for topic_id, each in context.deletions.items() if broker_id in each.brokers
        ]
        configured = name in context.broker_configs
        if not (keeps or waited_for or configured):
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not registered."
            )
        if configured:
            await self._events.write([Delete(paths.broker_config(name))])
            del context.broker_configs[name]
            self._events.publish_broker_configs()
        await self._deletions_acknowledged(broker_id, waited_for)

    # --- in-sync replicas ----------------------------------------------------------------------

    def propose(
        self, sender: BrokerId, broker_epoch: int, wanted: Sequence[WantedIsr]
    ) -> Deferred[list[PartitionState | KafkaError]]:
        """Decide about ISRs that a leader proposes; the results are in their order."""
        return self._events.submit(lambda: self._propose(sender, broker_epoch, wanted))

    async def _propose(
        self, sender: BrokerId, broker_epoch: int, wanted: Sequence[WantedIsr]
    ) -> list[PartitionState | KafkaError]:
        context = self._context
        check_sender(context, sender, broker_epoch)
        results: list[PartitionState | KafkaError] = []
        changes: Changes = {}
        for each in wanted:
            topic = context.topic_by_id(each.topic_id)
            minimum = 1 if topic is None else self._state.min_insync_replicas(topic)
            try:
                after = plan_isr(context, sender, each, min_insync_replicas=minimum)
            except KafkaError as error:
                results.append(error)
                continue
            results.append(after)
            assert topic is not None
            if after is not topic.partitions[each.index]:
                changes[TopicPartition(topic.name, each.index)] = after
        await self.apply(changes)
        return results

    # --- a broker that stops -------------------------------------------------------------------

    def stop_leading(
        self, broker_id: BrokerId, broker_epoch: int
    ) -> Deferred[list[TopicPartition]]:
        """Move leaderships off a broker that is about to stop; return what nobody else can lead."""
        return self._events.submit(lambda: self._stop_leading(broker_id, broker_epoch))

    async def _stop_leading(self, broker_id: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        context = self._context
        check_sender(context, broker_id, broker_epoch)
        if broker_id not in context.shutting_down:
            log.info("broker %d is about to stop", broker_id)
        context.shutting_down.add(broker_id)
        changes: Changes = {}
        remaining = []
        for topic in context.topics.values():
            for index, state in enumerate(topic.partitions):
                topic_partition = TopicPartition(topic.name, index)
                after = before_shutdown(
                    state,
                    broker_id,
                    context.electorate_of(topic.topic_id, index),
                    min_insync_replicas=self._state.min_insync_replicas(topic),
                    controller_epoch=context.controller_epoch,
                )
                if after is None:
                    remaining.append(topic_partition)
                elif after is not state:
                    changes[topic_partition] = after
        await self.partitions.apply(changes)
        return remaining

    # --- moves ---------------------------------------------------------------------------------

    def move(self, wanted: Sequence[Move]) -> Deferred[ElectionResults]:
        """Begin or cancel moves, each for itself; None is success."""
        return self._events.submit(lambda: self._move(wanted))

    async def _move(self, wanted: Sequence[Move]) -> ElectionResults:
        results: ElectionResults = {}
        changes: Changes = {}
        for each in wanted:
            topic_partition = each.topic_partition
            state = self.partitions.find(topic_partition)
            if state is None:
                results[topic_partition] = self.partitions.unknown(
                    topic_partition,
                    "Unable to find a topic named {topic}.",
                    "Unable to find partition {topic}:{partition}.",
                )
                continue
            try:
                after = self._plan_move(topic_partition, state, each.target)
            except KafkaError as error:
                results[topic_partition] = error
                continue
            results[topic_partition] = None
            if after is not state:
                changes[topic_partition] = after
        await self.partitions.apply(changes)
        return results

    def _plan_move(
        self, topic_partition: TopicPartition, state: PartitionState, target: Sequence[int] | None
    ) -> PartitionState:
        context = self._context
        minimum = self._state.min_insync_replicas(context.topics[topic_partition.topic])
        if target is None:
            return reassignment.cancel(
                state,
                self.partitions.electorate_of(topic_partition),
                min_insync_replicas=minimum,
                controller_epoch=context.controller_epoch,
            )
        return reassignment.start(
            state,
            target,
            context.live_brokers,
            self.partitions.electorate_of(topic_partition),
            min_insync_replicas=minimum,
            controller_epoch=context.controller_epoch,
        )

    async def apply(self, changes: Changes) -> None:
        """Store and publish new states, and those that follow where a move can end now; part of an
        event.
        """
        await self.partitions.apply(changes)
        await self._settle_moves(
            (topic_partition, state)
            for topic_partition, state in changes.items()
            if reassignment.is_moving(state)
        )

    async def _settle_moves(self, moving: Iterable[tuple[TopicPartition, PartitionState]]) -> None:
        changes: Changes = {}
        for topic_partition, state in moving:
            topic = self._context.topics[topic_partition.topic]
            after = reassignment.settle(
                state,
                self.partitions.electorate_of(topic_partition),
                min_insync_replicas=self._state.min_insync_replicas(topic),
                controller_epoch=self._context.controller_epoch,
            )
            if after is not None:
                log.info("%s: moved to %s", topic_partition, after.replicas)
                changes[topic_partition] = after
        await self.partitions.apply(changes)
