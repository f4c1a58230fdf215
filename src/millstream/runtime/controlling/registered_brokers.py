"""Which brokers are registered in the store, and which of them live, through the controller's eyes.

Kafka: ``BrokerChange``, ``BrokerModifications`` of ``KafkaController``.
"""

from __future__ import annotations

import logging

from millstream.controller import paths
from millstream.controller.feature_changes import compatible
from millstream.controller.loading import load_brokers
from millstream.model.broker import BrokerNode
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError, MillstreamError
from millstream.model.metadata_store import Delete, MetadataStoreError, NoNodeError
from millstream.runtime.controlling.cluster_reading import read_nodes
from millstream.runtime.controlling.controller_events import ControllerEvents
from millstream.runtime.controlling.replica_control import ReplicaControl

log = logging.getLogger(__name__)


class RegisteredBrokers:
    """Has brokers that came or left taken over by ``replicas``, and deletes the registrations of
    brokers that are known to be gone.
    """

    def __init__(self, events: ControllerEvents, replicas: ReplicaControl) -> None:
        self._events = events
        self._state = events.state
        self._store = events.store
        self._replicas = replicas
        self._evicting: set[int] = set()
        """Broker epochs of registrations that are being deleted."""

    def start(self) -> None:
        """Watch the registrations from now on."""
        self._store.watch(paths.BROKER_IDS, lambda _: self.look())

    def look(self) -> None:
        """Compare the registrations with the brokers in the context, if this broker is the
        controller.
        """
        if self._state.is_active:
            self._events.submit(self._look).on_done(_log_failure)

    async def _look(self) -> None:
        store = self._store
        try:
            names = await store.children(paths.BROKER_IDS)
            nodes = await read_nodes(store, (f"{paths.BROKER_IDS}/{name}" for name in names))
        except MetadataStoreError as error:
            log.info("the registrations of brokers cannot be read: %s", error)
            self._events.on_fenced()
            return
        registered = load_brokers(nodes)
        joining = compatible(registered, self._state.context.features)
        if len(joining) < len(registered):
            refused = [each.node.broker_id for each in registered if each not in joining]
            log.warning("brokers that do not support what is finalized: %s", refused)
        await self._replicas.take_brokers(joining)

    def evict(self, node: BrokerNode) -> None:
        """Delete a broker's registration, if this broker is the controller: its address refuses
        connections, so its process has ended.
        """
        if not self._state.is_active or node.epoch in self._evicting:
            return
        self._evicting.add(node.epoch)
        done = self._events.submit(lambda: self._evict(node))
        done.on_done(lambda _: self._evicting.discard(node.epoch))
        done.on_done(_log_failure)

    async def _evict(self, node: BrokerNode) -> None:
        known = self._state.context.brokers
        if node.broker_id in known and known[node.broker_id].node == node:
            deleting = spawn(self.delete_registration(node))
            others = [each for each in known.values() if each.node != node]
            await self._replicas.take_brokers(others)
            await deleting
        await self._look()

    async def delete_registration(self, node: BrokerNode) -> None:
        """Delete the registration of this very life of a broker; part of an event."""
        path = paths.broker(node.broker_id)
        try:
            registered = await self._store.get(path)
        except NoNodeError:
            registered = None
        if registered is not None and registered.creation_id == node.epoch:
            log.warning("broker %d is gone: its address refuses connections", node.broker_id)
            await self._events.write([Delete(path, registered.version)])


def _log_failure(done: Deferred[None]) -> None:
    try:
        done.result()
    except KafkaError as error:
        log.info("registrations of brokers were not taken over: %s", error)
    except MillstreamError:
        log.exception("the metadata cannot be read")
