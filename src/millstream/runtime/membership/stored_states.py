"""Reads the state of a partition from the metadata store itself.

For a broker that no controller reaches, or that a leader refuses for long: it may hold a state that
another one has followed. Implements ``isr_updates.StateReader``.
"""

from __future__ import annotations

from millstream.controller import paths, payloads
from millstream.controller.context import TopicState
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import PartitionState
from millstream.model.metadata_store import MetadataStore
from millstream.model.topic import TopicPartition
from millstream.runtime.controlling.cluster_reading import read_nodes
from millstream.runtime.metadata.broker_metadata import BrokerMetadata


class StoredStates:
    """The states of partitions in the store, and how this broker takes over one that is newer."""

    def __init__(self, store: MetadataStore, metadata: BrokerMetadata) -> None:
        self._store = store
        self._metadata = metadata

    def read_state(self, topic_partition: TopicPartition) -> Deferred[PartitionState]:
        """Return the stored state of a partition.

        Fails with UNKNOWN_TOPIC_OR_PARTITION, INCONSISTENT_TOPIC_ID when the name is another
        topic's by now, or the MetadataStoreError of a store that cannot be read.
        """
        return spawn(self._read_state(topic_partition))

    async def _read_state(self, topic_partition: TopicPartition) -> PartitionState:
        name, index = topic_partition.topic, topic_partition.partition
        topic_path, state_path = paths.topic(name), paths.state(name, index)
        nodes = await read_nodes(self._store, (topic_path, state_path))
        if topic_path not in nodes or state_path not in nodes:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assignment = payloads.read_topic(topic_path, nodes[topic_path].data)
        known = self._metadata.cache.topic(name)
        if known is None or known.topic_id != assignment.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{name} is another topic by now")
        node = nodes[state_path]
        return payloads.read_state(
            state_path,
            node.data,
            replicas=assignment.replicas[index],
            version=node.version,
            adding=assignment.adding.get(index, ()),
            removing=assignment.removing.get(index, ()),
        )

    def take_over(self, topic_partition: TopicPartition, state: PartitionState) -> None:
        """Publish a stored state to this broker, if it is newer than the one that is known. Without
        a registration nothing is taken over: it may speak of the registration before.
        """
        known = self._metadata.cache.topic(topic_partition.topic)
        index = topic_partition.partition
        if known is None or index >= len(known.partitions) or self._metadata.broker_epoch is None:
            return
        if state.partition_epoch <= known.partitions[index].partition_epoch:
            return
        partitions = list(known.partitions)
        partitions[index] = state
        overrides = self._metadata.overrides(known.name)
        self._metadata.show(TopicState(known.name, known.topic_id, tuple(partitions), overrides))
