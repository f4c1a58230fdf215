"""Reads the states of partitions from the metadata store itself.

For a broker that no controller reaches, or that a leader refuses for long: it may hold a state that
another one has followed. Implements ``isr_updates.StateReader``.

Such a broker asks for all its partitions in one moment. They are read together, up to
``MOST_AT_ONCE`` in a batch and one batch after the other, and what is taken over of a batch changes
each topic once: a change costs something for every partition of its topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, TypeAlias

from millstream.controller import paths, payloads
from millstream.controller.context import TopicState
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError
from millstream.model.leadership import PartitionState
from millstream.model.metadata_store import MetadataStore, Node
from millstream.model.topic import TopicPartition
from millstream.runtime.controlling.cluster_reading import read_nodes
from millstream.runtime.metadata.broker_metadata import BrokerMetadata

MOST_AT_ONCE: Final = 1_000
"""Partitions whose states are read together."""

_Found: TypeAlias = PartitionState | MillstreamError


class StoredStates:
    """The states of partitions in the store, and how this broker takes over one that is newer."""

    def __init__(self, store: MetadataStore, metadata: BrokerMetadata, clock: Clock) -> None:
        self._store = store
        self._metadata = metadata
        self._clock = clock
        self._waiting: dict[TopicPartition, Deferred[PartitionState]] = {}
        self._reading = False
        self._is_answering = False
        """True while a batch is answered: what is taken over meanwhile is published at its end."""
        self._taken: dict[str, dict[int, PartitionState]] = {}

    def read_state(self, topic_partition: TopicPartition) -> Deferred[PartitionState]:
        """Return the stored state of a partition.

        Fails with UNKNOWN_TOPIC_OR_PARTITION, INCONSISTENT_TOPIC_ID when the name is another
        topic's by now, or the MetadataStoreError of a store that cannot be read.
        """
        reading = self._waiting.get(topic_partition)
        if reading is None:
            reading = self._waiting[topic_partition] = Deferred()
            self._read_soon()
        return reading

    def _read_soon(self) -> None:
        if not self._reading:
            self._reading = True
            self._clock.call_soon(self._begin_batch)

    def _begin_batch(self) -> None:
        spawn(self._read_batch())

    async def _read_batch(self) -> None:
        batch = {
            each: self._waiting.pop(each) for each in tuple(islice(self._waiting, MOST_AT_ONCE))
        }
        try:
            nodes = await read_nodes(self._store, _paths(batch))
            found = self._states_in(nodes, batch)
        except MillstreamError as error:
            found = dict.fromkeys(batch, error)
        try:
            self._answer(batch, found)
        finally:
            self._reading = False
            if self._waiting:
                self._read_soon()

    def _answer(
        self,
        batch: Mapping[TopicPartition, Deferred[PartitionState]],
        found: Mapping[TopicPartition, _Found],
    ) -> None:
        self._is_answering = True
        for topic_partition, reading in batch.items():
            state = found[topic_partition]
            if isinstance(state, MillstreamError):
                reading.fail(state)
            else:
                reading.complete(state)
        self._is_answering = False
        self._publish()

    def _states_in(
        self, nodes: Mapping[str, Node], wanted: Iterable[TopicPartition]
    ) -> dict[TopicPartition, _Found]:
        assignments: dict[str, payloads.Assignment | MillstreamError] = {}
        found: dict[TopicPartition, _Found] = {}
        for topic_partition in wanted:
            name = topic_partition.topic
            if name not in assignments:
                assignments[name] = self._assignment_in(nodes, name)
            assignment = assignments[name]
            if isinstance(assignment, MillstreamError):
                found[topic_partition] = assignment
            else:
                found[topic_partition] = _state_in(nodes, topic_partition, assignment)
        return found

    def _assignment_in(
        self, nodes: Mapping[str, Node], name: str
    ) -> payloads.Assignment | MillstreamError:
        path = paths.topic(name)
        if path not in nodes:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            assignment = payloads.read_topic(path, nodes[path].data)
        except payloads.PayloadError as error:
            return error
        known = self._metadata.cache.topic(name)
        if known is None or known.topic_id != assignment.topic_id:
            return KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{name} is another topic by now")
        return assignment

    def take_over(self, topic_partition: TopicPartition, state: PartitionState) -> None:
        """Publish a stored state to this broker, if it is newer than the one that is known. Without
        a registration nothing is taken over: it may speak of the registration before.
        """
        self._taken.setdefault(topic_partition.topic, {})[topic_partition.partition] = state
        if not self._is_answering:
            self._publish()

    def _publish(self) -> None:
        taken, self._taken = self._taken, {}
        if self._metadata.broker_epoch is None:
            return
        for name, states in taken.items():
            known = self._metadata.cache.topic(name)
            if known is None:
                continue
            partitions = list(known.partitions)
            for index, state in states.items():
                if (
                    index < len(partitions)
                    and state.partition_epoch > partitions[index].partition_epoch
                ):
                    partitions[index] = state
            if any(new is not old for new, old in zip(partitions, known.partitions, strict=True)):
                overrides = self._metadata.overrides(name)
                self._metadata.show(TopicState(name, known.topic_id, tuple(partitions), overrides))


def _paths(wanted: Iterable[TopicPartition]) -> list[str]:
    """Return the nodes that states are made from, each once."""
    found: dict[str, None] = {}
    for each in wanted:
        found[paths.topic(each.topic)] = None
        found[paths.state(each.topic, each.partition)] = None
    return list(found)


def _state_in(
    nodes: Mapping[str, Node], topic_partition: TopicPartition, assignment: payloads.Assignment
) -> _Found:
    index = topic_partition.partition
    path = paths.state(topic_partition.topic, index)
    if path not in nodes or index >= len(assignment.replicas):
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    node = nodes[path]
    try:
        return payloads.read_state(
            path,
            node.data,
            replicas=assignment.replicas[index],
            version=node.version,
            adding=assignment.adding.get(index, ()),
            removing=assignment.removing.get(index, ()),
        )
    except payloads.PayloadError as error:
        return error
