"""This broker as the controller of a cluster: what it does from its election to its resignation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from millstream.controller import paths, topic_changes
from millstream.controller.context import NOT_STORED, ControllerContext, TopicState
from millstream.controller.election import LogEnd, new_partition
from millstream.controller.loading import load_brokers, load_context
from millstream.controller.topic_deletion import load_deletions
from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError, MillstreamError
from millstream.model.metadata_store import (
    Create,
    Delete,
    MetadataStoreError,
    Node,
    NoNodeError,
    Operation,
)
from millstream.model.topic import TopicId, TopicPartition
from millstream.protocol.message import Request, Response
from millstream.runtime.controlling.cluster_reading import read_cluster, read_nodes
from millstream.runtime.controlling.controller_desk import ControllerDesk
from millstream.runtime.controlling.controller_seat import ControllerSeat
from millstream.runtime.controlling.log_ends import LogEnds
from millstream.runtime.controlling.metadata_pushes import MetadataPushes
from millstream.runtime.controlling.replica_control import ReplicaControl

log = logging.getLogger(__name__)

Send = Callable[[BrokerId, Request, float], Deferred[Response]]


class ClusterController:
    """Seat, context, decisions and pushes of a controller."""

    def __init__(
        self,
        desk: ControllerDesk,
        broker_id: BrokerId,
        send: Send,
        *,
        local_log_end: Callable[[TopicPartition], LogEnd | None],
        is_gone: Callable[[BrokerNode], bool] = lambda _: False,
    ) -> None:
        """``is_gone`` tells of a registered broker whose process is known to have ended."""
        self._desk = desk
        self._is_gone = is_gone
        self._broker_id = broker_id
        self._evicting: set[int] = set()
        desk.piecemeal = True
        self.replicas = ReplicaControl(desk, LogEnds(desk, broker_id, send, local_log_end).ask)
        self.pushes = MetadataPushes(
            desk, broker_id, send, on_refused=self.evict, on_let_go=self._let_go
        )
        self.seat = ControllerSeat(desk, broker_id, load=self._begin, on_resigned=self.pushes.stop)
        desk.audience = self.pushes

    def start(self) -> None:
        """Claim the seat if it is free, and watch who comes and goes."""
        self._desk.store.watch(paths.BROKER_IDS, lambda _: self.look_at_brokers())
        self.seat.start()

    def stop(self) -> Deferred[None]:
        """Leave the seat for good."""
        self.pushes.stop()
        return self.seat.stop()

    # --- from the election on ------------------------------------------------------------------

    async def _begin(self, epoch: int, epoch_version: int) -> None:
        """Read everything, finish what a fallen controller began, elect, and tell everybody.

        What was read may be of a life of this broker that has ended: nothing of it is shown here
        before it agrees with who lives, and that is in the store.
        """
        desk = self._desk
        nodes = await read_cluster(desk.store)
        context = load_context(nodes, piecemeal=True)
        context.controller_epoch = epoch
        context.epoch_version = epoch_version
        context.deletions = load_deletions(nodes)
        registered = load_brokers(nodes)
        gone = [each.node for each in registered if self._is_gone(each.node)]
        for broker in registered:
            if broker.node not in gone:
                context.put_broker(broker)
        desk.context = context
        desk.local.controller_epoch = max(desk.local.controller_epoch, epoch)
        desk.local.cache.controller_id = self._broker_id
        desk.local.set_broker_configs(context.broker_configs)
        desk.local.set_brokers(each.node for each in context.brokers.values())
        # Deleted meanwhile: elections need not wait for it, nor for its fsync.
        deleting = [spawn(self._delete_registration(node)) for node in gone]
        await self._finish_deletions()
        below = paths.TOPIC_CONFIGS + "/"
        await self._finish_creations(each for each in nodes if each.startswith(below))
        await self.replicas.reconcile()
        self._show_everything()
        await self.replicas.resume()
        self.pushes.start()
        for deleted in deleting:
            await deleted
        self._let_go(self._broker_id, list(context.deletions))
        self.look_at_brokers()  # somebody may have come or gone since

    def _show_everything(self) -> None:
        desk = self._desk
        for image in tuple(desk.local.cache.topics()):
            topic = desk.context.topics.get(image.name)
            if topic is None or topic.topic_id != image.topic_id:
                desk.local.remove(image.name, image.topic_id)
        for topic in tuple(desk.context.topics.values()):
            desk.local.show(topic)

    async def _finish_deletions(self) -> None:
        """Delete what is left of topics whose deletion was cut short."""
        context = self._desk.context
        for topic in [t for t in context.topics.values() if t.topic_id in context.deletions]:
            tree = await self._desk.store.tree(paths.topic(topic.name))
            config = await read_nodes(self._desk.store, (paths.topic_config(topic.name),))
            left = [*config, *sorted(tree, key=len, reverse=True)]
            await self._desk.write(Delete(path) for path in left)
            context.remove_topic(topic.name)

    async def _finish_creations(self, configs: Iterable[str]) -> None:
        """Give states to partitions that were being created when a controller fell; of a topic that
        was not even named its settings may stand there, in the way of one of that name.
        """
        context = self._desk.context
        orphans = [path for path in configs if _topic_of(path) not in context.topics]
        if left := await read_nodes(self._desk.store, orphans):  # some are deleted by now
            await self._desk.write(map(Delete, left))
        for topic in list(context.topics.values()):
            if all(state.partition_epoch != NOT_STORED for state in topic.partitions):
                continue
            tree = await self._desk.store.tree(paths.topic(topic.name))
            completed = _with_new_states(context, topic, self._desk.broker_epochs())
            await self._desk.write(_missing_nodes(completed, tree))
            context.put_topic(completed)

    # --- brokers -----------------------------------------------------------------------------

    def look_at_brokers(self) -> None:
        """Have the controller compare who is registered with who it knows."""
        if self._desk.active:
            self._desk.submit(self._look_at_brokers).on_done(_log_failure)

    async def _look_at_brokers(self) -> None:
        store = self._desk.store
        try:
            names = await store.children(paths.BROKER_IDS)
            nodes = await read_nodes(store, (f"{paths.BROKER_IDS}/{name}" for name in names))
        except MetadataStoreError as error:
            log.info("who is registered cannot be read: %s", error)
            self._desk.on_fenced()
            return
        await self.replicas.take_brokers(load_brokers(nodes))

    def evict(self, node: BrokerNode) -> None:
        """Take a broker's registration away: nobody listens where it did."""
        if not self._desk.active or node.epoch in self._evicting:
            return
        self._evicting.add(node.epoch)
        done = self._desk.submit(lambda: self._remove_registration(node))
        done.on_done(lambda _: self._evicting.discard(node.epoch))
        done.on_done(_log_failure)

    async def _remove_registration(self, node: BrokerNode) -> None:
        known = self._desk.context.brokers
        if node.broker_id in known and known[node.broker_id].node == node:
            deleting = spawn(self._delete_registration(node))
            others = [each for each in known.values() if each.node != node]
            await self.replicas.take_brokers(others)
            await deleting
        await self._look_at_brokers()

    async def _delete_registration(self, node: BrokerNode) -> None:
        path = paths.broker(node.broker_id)
        try:
            registered = await self._desk.store.get(path)
        except NoNodeError:
            registered = None
        if registered is not None and registered.creation_id == node.epoch:
            log.warning("broker %d is gone: nobody listens where it did", node.broker_id)
            await self._desk.write([Delete(path, registered.version)])

    def _let_go(self, broker_id: BrokerId, topics: list[TopicId]) -> None:
        if topics and self._desk.active:
            self.replicas.let_go(broker_id, topics).on_done(_log_failure)


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


def _log_failure(done: Deferred[None]) -> None:
    try:
        done.result()
    except KafkaError as error:
        log.info("not done: %s", error)
    except MillstreamError:
        log.exception("the metadata cannot be read")
