"""What a controller does first: it loads the metadata and finishes what a fallen one began.

Kafka: ``KafkaController.onControllerFailover``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.controller import paths, topic_changes
from millstream.controller.context import NOT_STORED, ControllerContext, TopicState
from millstream.controller.election import new_partition
from millstream.controller.feature_changes import compatible
from millstream.controller.loading import load_brokers, load_context
from millstream.controller.topic_deletion import load_deletions
from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.metadata_store import Create, Delete, Node, Operation
from millstream.runtime.controlling.cluster_reading import read_cluster, read_nodes
from millstream.runtime.controlling.controller_events import ControllerEvents


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load found beside the context: registrations of brokers that are known to be gone, and
    the paths of all topics' settings.
    """

    gone: Sequence[BrokerNode]
    topic_configs: Sequence[str]


class ControllerFailover:
    """The first steps of a term; all are part of its first event.

    ``is_gone`` is True for a registered broker whose process is known to have ended.
    """

    def __init__(self, events: ControllerEvents, is_gone: Callable[[BrokerNode], bool]) -> None:
        self._events = events
        self._state = events.state
        self._metadata = events.metadata
        self._store = events.store
        self._is_gone = is_gone

    async def load(self, epoch: int, epoch_version: int) -> Loaded:
        """Read the store into a new context. This broker's own cache is told who the controller is,
        which brokers live, and their settings; topics are published later.

        Raises NOT_CONTROLLER where the term has ended meanwhile: what was read is old.
        """
        term = self._state.term
        nodes = await read_cluster(self._store)
        self._state.check_active(term)
        context = load_context(nodes, piecemeal=True)
        context.controller_epoch = epoch
        context.epoch_version = epoch_version
        context.deletions = load_deletions(nodes)
        registered = compatible(load_brokers(nodes), context.features)
        gone = [each.node for each in registered if self._is_gone(each.node)]
        for broker in registered:
            if broker.node not in gone:
                context.put_broker(broker)
        self._state.context = context
        metadata = self._metadata
        metadata.controller_epoch = max(metadata.controller_epoch, epoch)
        metadata.cache.controller_id = metadata.broker_id
        metadata.set_broker_configs(context.broker_configs)
        metadata.set_group_configs(context.group_configs)
        metadata.set_features(context.features)
        metadata.set_brokers(each.node for each in context.brokers.values())
        below = paths.TOPIC_CONFIGS + "/"
        return Loaded(gone, [each for each in nodes if each.startswith(below)])

    async def finish_deletions(self) -> None:
        """Delete what is left of topics whose deletion was cut short."""
        context = self._state.context
        for topic in [t for t in context.topics.values() if t.topic_id in context.deletions]:
            tree = await self._store.tree(paths.topic(topic.name))
            config = await read_nodes(self._store, (paths.topic_config(topic.name),))
            left = [*config, *sorted(tree, key=len, reverse=True)]
            await self._events.write(Delete(path) for path in left)
            context.remove_topic(topic.name)

    async def finish_creations(self, topic_configs: Iterable[str]) -> None:
        """Give states to partitions that were being created when a controller fell; of a topic that
        was not even named its settings may stand there, in the way of one of that name.
        """
        context = self._state.context
        orphans = [path for path in topic_configs if _topic_of(path) not in context.topics]
        if left := await read_nodes(self._store, orphans):  # some are deleted by now
            await self._events.write(map(Delete, left))
        for topic in list(context.topics.values()):
            if all(state.partition_epoch != NOT_STORED for state in topic.partitions):
                continue
            tree = await self._store.tree(paths.topic(topic.name))
            completed = _with_new_states(context, topic, self._state.broker_epochs())
            await self._events.write(_missing_nodes(completed, tree))
            context.put_topic(completed)


def _with_new_states(
    context: ControllerContext, topic: TopicState, epochs: Mapping[BrokerId, int]
) -> TopicState:
    partitions = tuple(
        new_partition(
            state.replicas, context.live_brokers, context.controller_epoch, broker_epochs=epochs
        )
        if state.partition_epoch == NOT_STORED
        else state
        for state in topic.partitions
    )
    return replace(topic, partitions=partitions)


def _topic_of(config_path: str) -> str:
    return config_path.removeprefix(paths.TOPIC_CONFIGS + "/")


def _missing_nodes(topic: TopicState, present: Mapping[str, Node]) -> Iterator[Operation]:
    for operation in topic_changes.creation(topic):
        if isinstance(operation, Create) and operation.path not in present:
            if operation.path == paths.topic_config(topic.name):
                continue  # it was made together with the topic's own node
            yield operation
