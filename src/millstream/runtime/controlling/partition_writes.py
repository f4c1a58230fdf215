"""New states of partitions: stored first, then put into the context, then published.

Who the replicas of a partition are stands in the node of its topic, and all else in a node of its
own. A change of both is written as a whole, whatever the store takes at once: between the two the
leader may be no replica, and brokers hear of no other replicas without a new partition epoch. So a
large move of one topic writes the topic's node several times, each time with the partitions whose
states go along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from millstream.controller import paths, payloads
from millstream.controller.context import TopicState
from millstream.controller.election import Electorate
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import PartitionState
from millstream.model.metadata_store import Operation, SetData
from millstream.model.topic import TopicPartition
from millstream.runtime.controlling.controller_events import (
    MAX_MULTI_BYTES,
    ControllerEvents,
    size_in_multi,
)

Changes: TypeAlias = dict[TopicPartition, PartitionState]

LEAST_STATES_BYTES: Final = 40_000
"""How much of states goes along with the node of a topic at least, however large that is: both are
below ZooKeeper's limit."""


class PartitionWrites:
    """The partitions of the controller's context, and how they change."""

    def __init__(self, events: ControllerEvents) -> None:
        self._events = events
        self._state = events.state

    def all_topic_partitions(self) -> list[TopicPartition]:
        """Return every partition."""
        return [
            TopicPartition(topic.name, index)
            for topic in self._state.context.topics.values()
            for index in range(len(topic.partitions))
        ]

    def find(self, topic_partition: TopicPartition) -> PartitionState | None:
        """Return a partition's state, or None."""
        topic = self._state.context.topics.get(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def unknown(
        self, topic_partition: TopicPartition, no_topic: str, no_partition: str
    ) -> KafkaError:
        """Say in Kafka's words for a request what is not there."""
        known = topic_partition.topic in self._state.context.topics
        words = no_partition if known else no_topic
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            words.format(topic=topic_partition.topic, partition=topic_partition.partition),
        )

    def electorate_of(self, topic_partition: TopicPartition) -> Electorate:
        """Return who may lead a partition that is there."""
        topic = self._state.context.topics[topic_partition.topic]
        return self._state.context.electorate_of(topic.topic_id, topic_partition.partition)

    def each(
        self, plan: Callable[[TopicState, PartitionState, Electorate], PartitionState]
    ) -> Changes:
        """Return what a rule changes over all partitions."""
        changes: Changes = {}
        context = self._state.context
        everywhere = context.electorate()
        for topic in context.topics.values():
            for index, state in enumerate(topic.partitions):
                electorate = everywhere
                if context.offline:
                    electorate = context.electorate_of(topic.topic_id, index)
                after = plan(topic, state, electorate)
                if after is not state:
                    changes[TopicPartition(topic.name, index)] = after
        return changes

    async def apply(self, changes: Changes) -> None:
        """Store new states, put them into the context, and publish them."""
        for topic, states in await self.store(changes):
            self._events.publish_topic(topic, indices=states)

    async def store(
        self, changes: Changes
    ) -> list[tuple[TopicState, Mapping[int, PartitionState]]]:
        """Store new states and put them into the context. Return the topics that have changed,
        each with its changed partitions by index.
        """
        if not changes:
            return []
        by_topic: dict[str, dict[int, PartitionState]] = {}
        for topic_partition, state in changes.items():
            by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = state
        context = self._state.context
        before = {name: context.topics[name] for name in by_topic}
        after = {name: _with_states(before[name], states) for name, states in by_topic.items()}
        await self._events.write_groups(
            group
            for name, states in by_topic.items()
            for group in _storing(before[name], after[name], states)
        )
        for topic in after.values():
            context.put_topic(topic)
        return [(topic, by_topic[name]) for name, topic in after.items()]


def _with_states(topic: TopicState, states: Mapping[int, PartitionState]) -> TopicState:
    partitions = list(topic.partitions)
    for index, state in states.items():
        partitions[index] = state
    return replace(topic, partitions=tuple(partitions))


def _storing(
    before: TopicState, after: TopicState, states: Mapping[int, PartitionState]
) -> Iterator[Sequence[Operation]]:
    """Yield what puts new states of a topic's partitions into the store, in groups that belong
    together.
    """
    moving: dict[int, SetData] = {}
    for index, state in states.items():
        known = before.partitions[index]
        path, data = paths.state(after.name, index), payloads.state(state)
        operation = SetData(path, data, known.partition_epoch)
        if _moves(known, state):
            moving[index] = operation
        else:
            yield [operation]
    written = before
    while moving:
        # The node of the topic is about as large each time.
        node = _node_of(_with_states(written, {each: states[each] for each in moving}))
        left_bytes = max(MAX_MULTI_BYTES - size_in_multi(node), LEAST_STATES_BYTES)
        together: dict[int, SetData] = {}
        for index, operation in moving.items():
            left_bytes -= size_in_multi(operation)
            if together and left_bytes < 0:
                break
            together[index] = operation
        for index in together:
            del moving[index]
        written = _with_states(written, {each: states[each] for each in together})
        yield [_node_of(written), *together.values()]


def _node_of(topic: TopicState) -> SetData:
    return SetData(paths.topic(topic.name), payloads.topic(topic.topic_id, topic.partitions))


def _moves(before: PartitionState, after: PartitionState) -> bool:
    """True when something changes that stands in the topic's node."""
    return (
        before.replicas != after.replicas
        or before.adding_replicas != after.adding_replicas
        or before.removing_replicas != after.removing_replicas
    )
