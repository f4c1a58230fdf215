"""How a broker on its own comes to be the controller: one read of its store, one write.

Everything that a start changes is one transaction of the embedded store, and one fsync.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millstream.controller import paths, registration
from millstream.controller.adoption import Adoption, FoundLog, plan_adoption
from millstream.controller.context import LiveBroker
from millstream.controller.loading import deleted_topics, load_context, stored_cluster_id
from millstream.model.broker import BrokerNode
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.metadata_store import Node, Operation
from millstream.model.topic import TopicPartition, topic_id_to_text
from millstream.runtime.controlling.controller_desk import ControllerDesk

Settle = Callable[[Adoption], None]


class StandaloneSeat:
    """Loads the store, then registers the broker and claims the controller's place at once."""

    def __init__(self, desk: ControllerDesk) -> None:
        self._desk = desk
        self._nodes: Mapping[str, Node] = {}

    async def load(self) -> None:
        """Fill context and cache from the store."""
        desk = self._desk
        self._nodes = await desk.store.tree("/")
        desk.context = load_context(self._nodes)
        desk.local.cache.cluster_id = stored_cluster_id(self._nodes) or ""
        desk.local.set_broker_configs(desk.context.broker_configs)
        for topic in desk.context.topics.values():
            desk.local.show(topic)

    async def register(
        self,
        node: BrokerNode,
        found: Mapping[TopicPartition, FoundLog],
        *,
        clean_shutdown: bool,
        cluster_id: str | None,
    ) -> Adoption:
        """Write what the start changes; return what became of the logs that were found."""
        desk, nodes = self._desk, self._nodes
        context = desk.context
        context.controller_epoch += 1
        context.put_broker(LiveBroker(node))
        cluster_id = self._agree_on_cluster_id(cluster_id)
        deleted = deleted_topics(nodes)
        changed = registration.states_after_restart(context, found, clean_shutdown=clean_shutdown)
        before = dict(context.topics)
        for topic in changed:
            context.put_topic(topic)
        adoption = plan_adoption(
            context,
            found,
            deleted=deleted,
            new_topic_id=desk.new_topic_id,
            broker_id=node.broker_id,
        )
        operations: list[Operation] = [
            *registration.registration(
                nodes, node, cluster_id=cluster_id, now_ms=desk.clock.now_ms()
            ),
            *registration.adoption_changes(adoption, deleted, found),
        ]
        for topic in changed:
            operations += registration.state_changes(before[topic.name], topic)
        await desk.store.multi(operations)
        context.epoch_version += 1 if paths.CONTROLLER_EPOCH in nodes else 0
        self._nodes = {}
        cache = desk.local.cache
        cache.cluster_id = cluster_id
        cache.controller_id = node.broker_id
        cache.brokers[node.broker_id] = node
        for topic, _ in adoption.topics:
            context.put_topic(topic)
        context.deleted.extend(registration.still_remembered(deleted, found))
        return adoption

    def _agree_on_cluster_id(self, found: str | None) -> str:
        stored = self._desk.local.cache.cluster_id
        if stored and found and stored != found:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the metadata is of cluster {stored}, the log directories are of {found}",
            )
        return stored or found or topic_id_to_text(self._desk.new_topic_id())
