"""Elections of leaders that somebody asks for, preferred or unclean, and to which brokers no
leadership is given back.

An unclean election asks brokers how far their logs reach. They are asked outside the event queue,
which must not wait for brokers that are ill. Kafka: ``ElectLeadersRequest``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from millstream.controller import reassignment
from millstream.controller.election import last_resort, preferred
from millstream.controller.reachability import Suspicions
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import NO_LEADER, PartitionState
from millstream.model.topic import TopicPartition
from millstream.runtime.controlling.controller_events import ControllerEvents
from millstream.runtime.controlling.last_resort_elections import (
    ElectionResults,
    LastResortElections,
)
from millstream.runtime.controlling.partition_writes import Changes, PartitionWrites


class ElectionType(Enum):
    """What a caller wants elected; the value is the code on the wire."""

    PREFERRED = 0
    UNCLEAN = 1


class LeaderElections:
    """Elects leaders on request."""

    def __init__(
        self,
        events: ControllerEvents,
        partitions: PartitionWrites,
        last_resort_elections: LastResortElections,
    ) -> None:
        self._events = events
        self._state = events.state
        self._partitions = partitions
        self._last_resort = last_resort_elections
        self._suspicions = Suspicions()

    def elect(
        self, election_type: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> Deferred[ElectionResults]:
        """Elect leaders for some partitions, or (None) for all that need it; None is success."""
        if election_type is ElectionType.PREFERRED:
            return self._events.submit(lambda: self._elect_preferred(partitions))
        return spawn(self._elect_unclean(partitions))

    async def _elect_preferred(
        self, partitions: Sequence[TopicPartition] | None
    ) -> ElectionResults:
        changes: Changes = {}

        def plan(topic_partition: TopicPartition, state: PartitionState) -> None:
            changes[topic_partition] = self._plan_preferred(topic_partition, state)

        results = self._plan(partitions, plan)
        await self._partitions.apply(changes)
        return results

    async def _elect_unclean(self, partitions: Sequence[TopicPartition] | None) -> ElectionResults:
        candidates: dict[TopicPartition, Sequence[BrokerId]] = {}

        def plan(topic_partition: TopicPartition, state: PartitionState) -> None:
            candidates[topic_partition] = self._plan_unclean(topic_partition, state)

        async def plan_all() -> ElectionResults:
            return self._plan(partitions, plan)

        results = await self._events.submit(plan_all)
        if not candidates:
            return results
        compared = await self._last_resort.compare(candidates, unclean=True)
        results |= compared
        changed = [each for each in candidates if each not in compared]
        if changed:
            results |= await self._events.submit(lambda: self._explain_changed(changed))
        if partitions is None:
            return {each: error for each, error in results.items() if not _is_not_needed(error)}
        return results

    async def _explain_changed(self, changed: Sequence[TopicPartition]) -> ElectionResults:
        """Say why nobody was elected for partitions whose state has changed while logs were
        compared: somebody leads them by now, or they are gone.
        """

        def explain(topic_partition: TopicPartition, state: PartitionState) -> None:
            self._plan_unclean(topic_partition, state)
            raise KafkaError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "The partition has changed meanwhile."
            )

        return self._plan(changed, explain)

    def _plan(
        self,
        partitions: Sequence[TopicPartition] | None,
        plan: Callable[[TopicPartition, PartitionState], None],
    ) -> ElectionResults:
        """Plan an election for each partition; return what became of each. Where all are meant,
        those that need none are left out.
        """
        results: ElectionResults = {}
        for each in self._partitions.all_topic_partitions() if partitions is None else partitions:
            state = self._partitions.find(each)
            if state is None:
                results[each] = self._partitions.unknown(
                    each, "No such topic as {topic}", "No such partition as {topic}-{partition}"
                )
                continue
            try:
                plan(each, state)
                results[each] = None
            except KafkaError as error:
                if partitions is not None or not _is_not_needed(error):
                    results[each] = error
        return results

    def _plan_preferred(
        self, topic_partition: TopicPartition, state: PartitionState
    ) -> PartitionState:
        after = preferred(
            state,
            self._partitions.electorate_of(topic_partition),
            controller_epoch=self._state.context.controller_epoch,
        )
        if after is state:
            raise KafkaError(
                ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
            )
        if after is None:
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                "The preferred leader was not available.",
            )
        return after

    def _plan_unclean(
        self, topic_partition: TopicPartition, state: PartitionState
    ) -> Sequence[BrokerId]:
        if state.leader != NO_LEADER:
            raise KafkaError(
                ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
            )
        electorate = self._partitions.electorate_of(topic_partition)
        found = last_resort(state, electorate, allow_unclean=True)
        if found is None:
            raise KafkaError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                "Eligible topic partition leaders are not available.",
            )
        return found.candidates

    # --- brokers out of reach --------------------------------------------------------------------

    def suspect(self, broker_id: BrokerId, broker_epoch: int) -> float:
        """Give no leadership back to a broker that its followers cannot reach; return for how many
        milliseconds. Part of an event.
        """
        now_ms = self._events.clock.monotonic_ms()
        return self._suspicions.suspect(broker_id, broker_epoch, now_ms)

    def suspected(self) -> frozenset[BrokerId]:
        """Return the live brokers to which no leadership is given back for now."""
        now_ms = self._events.clock.monotonic_ms()
        return frozenset(
            each
            for each, broker in self._state.context.brokers.items()
            if self._suspicions.is_suspected(each, broker.node.epoch, now_ms)
        )

    def forget_suspicions(self) -> None:
        """Suspect nobody: a new term begins."""
        self._suspicions.clear()

    def rebalance(self, imbalance_percentage: int) -> Deferred[None]:
        """Give leaderships back to preferred replicas that too many of have moved away, but not to
        brokers that are suspected to be out of reach.
        """
        return self._events.submit(lambda: self._rebalance(imbalance_percentage))

    async def _rebalance(self, imbalance_percentage: int) -> None:
        suspected = self.suspected()
        wanted: dict[BrokerId, list[TopicPartition]] = {}
        counts: dict[BrokerId, int] = {}
        for topic_partition in self._partitions.all_topic_partitions():
            state = self._partitions.find(topic_partition)
            assert state is not None
            first = state.replicas[0]
            counts[first] = counts.get(first, 0) + 1
            if state.leader not in (first, NO_LEADER) and not reassignment.is_moving(state):
                wanted.setdefault(first, []).append(topic_partition)
        chosen = [
            topic_partition
            for broker_id, topic_partitions in wanted.items()
            if len(topic_partitions) * 100 > imbalance_percentage * counts[broker_id]
            and broker_id not in suspected
            for topic_partition in topic_partitions
        ]
        if chosen:
            await self._elect_preferred(chosen)


def _is_not_needed(error: KafkaError | None) -> bool:
    return error is not None and error.error is ErrorCode.ELECTION_NOT_NEEDED
