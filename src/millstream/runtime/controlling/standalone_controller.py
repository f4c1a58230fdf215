"""The controller of a broker on its own: its election is one read and one write of its store.

Everything that a start changes is one transaction of the embedded store, and one fsync. A start has
two steps, because logs are opened with their topics' settings: :meth:`StandaloneController.load`
reads the store and fills the cache; then the log directories are read; then
:meth:`StandaloneController.start` registers the broker, adopts logs that the store does not know,
and publishes every topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from millstream.controller import paths, registration
from millstream.controller.adoption import (
    Adoption,
    FoundLog,
    adopted_group_configs,
    plan_adoption,
)
from millstream.controller.context import LiveBroker
from millstream.controller.entity_changes import load_entities
from millstream.controller.entity_changes import plan as plan_entities
from millstream.controller.feature_changes import check_supported
from millstream.controller.leaving_out import refuse_to_leave_out
from millstream.controller.loading import deleted_topics, load_context, stored_cluster_id
from millstream.controller.reachability import ReachabilityReports
from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.entities import EntityKind, EntityValue
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.metadata_store import MetadataStore, Node, Operation
from millstream.model.topic import TopicPartition, topic_id_to_text
from millstream.runtime.controlling.controller import Controller
from millstream.runtime.controlling.controller_events import ControllerEvents
from millstream.runtime.controlling.controller_state import ControllerState
from millstream.runtime.controlling.last_resort_elections import LogEnds
from millstream.runtime.controlling.metadata_propagation import NoPropagation
from millstream.runtime.metadata.broker_metadata import BrokerMetadata

FoundEntities: TypeAlias = Mapping[EntityKind, Mapping[str, EntityValue]]
"""Entities by kind and key."""


class StandaloneController:
    """Makes a broker on its own its controller. ``controller`` decides from then on."""

    def __init__(
        self,
        state: ControllerState,
        store: MetadataStore,
        clock: Clock,
        metadata: BrokerMetadata,
        *,
        on_store_failed: Callable[[StorageError], None],
    ) -> None:
        """``on_store_failed`` is called with the error of a disk that failed under the store."""
        self._state = state
        self._store = store
        self._clock = clock
        self._metadata = metadata
        self._events = ControllerEvents(
            state,
            store,
            clock,
            metadata,
            NoPropagation(),
            splits_writes=False,
            on_store_failed=on_store_failed,
            on_fenced=_stay,
        )
        self.controller = Controller(self._events, _no_log_ends, _no_fetchers)
        self._nodes: Mapping[str, Node] = {}
        """What the store held at the start, until the broker is registered."""

    def load(self) -> Deferred[None]:
        """Read the store: topics and settings are in the cache when the Deferred is filled.

        Fails with PayloadError when the store holds nonsense, StorageError when it cannot be read,
        ConfigError when other brokers that shared it have replicas, UNSUPPORTED_VERSION where a
        feature is finalized that this broker does not support.
        """
        return self._events.submit_before_election(self._load)

    async def _load(self) -> None:
        self._nodes = await self._store.tree("/")
        context = self._state.context = load_context(self._nodes)
        refuse_to_leave_out(context, {self._metadata.broker_id})
        context.entities = load_entities(self._nodes)
        self._metadata.cache.cluster_id = stored_cluster_id(self._nodes) or ""
        check_supported(context.features)
        self._metadata.set_features(context.features)
        self._metadata.set_broker_configs(context.broker_configs)
        self._metadata.set_group_configs(context.group_configs)
        self._metadata.set_entities(context.entities.by_kind)
        for topic in context.topics.values():
            self._metadata.show(topic)

    def start(
        self,
        node: BrokerNode,
        *,
        found: Mapping[TopicPartition, FoundLog],
        clean_shutdown: bool,
        settle: Callable[[Adoption], None],
        found_group_configs: Callable[[], Mapping[str, Mapping[str, str]]] = dict,
        found_entities: Callable[[], FoundEntities] = dict,
        cluster_id: str | None = None,
    ) -> Deferred[None]:
        """Register the broker, take over the logs that were found, open every topic.

        ``found`` holds every log on disk; ``settle`` is called with what became of them before the
        first topic is opened, so that it can put strays aside. Without ``clean_shutdown`` every
        leader epoch rises. A new store takes over ``cluster_id``, the one in the log directories,
        and what another writer of the directories recorded: ``found_group_configs`` answers the
        settings of groups, ``found_entities`` rules of access and quotas. KafkaError
        INCONSISTENT_CLUSTER_ID: ``cluster_id`` contradicts the store.
        """

        async def event() -> None:
            settle(
                await self._register(
                    node,
                    found,
                    found_group_configs=found_group_configs,
                    found_entities=found_entities,
                    clean_shutdown=clean_shutdown,
                    cluster_id=cluster_id,
                )
            )
            self._metadata.start_listening()
            self._state.begin_term()
            for topic in tuple(self._state.context.topics.values()):
                self._events.publish_topic(topic)

        return self._events.submit_before_election(event)

    async def _register(
        self,
        node: BrokerNode,
        found: Mapping[TopicPartition, FoundLog],
        *,
        found_group_configs: Callable[[], Mapping[str, Mapping[str, str]]],
        found_entities: Callable[[], FoundEntities],
        clean_shutdown: bool,
        cluster_id: str | None,
    ) -> Adoption:
        """Write what the start changes; return what became of the logs that were found."""
        context, nodes = self._state.context, self._nodes
        context.controller_epoch += 1
        context.put_broker(LiveBroker(node))
        is_new = not self._metadata.cache.cluster_id
        cluster_id = self._agree_on_cluster_id(cluster_id)
        group_configs = adopted_group_configs(found_group_configs()) if is_new else {}
        entities = found_entities() if is_new else {}
        deleted = deleted_topics(nodes)
        changed = registration.states_after_restart(context, found, clean_shutdown=clean_shutdown)
        before = dict(context.topics)
        for topic in changed:
            context.put_topic(topic)
        adoption = plan_adoption(
            context,
            found,
            deleted=deleted,
            new_topic_id=self._state.new_topic_id,
            broker_id=node.broker_id,
        )
        operations: list[Operation] = [
            *registration.registration(
                nodes, node, cluster_id=cluster_id, now_ms=self._clock.now_ms()
            ),
            *registration.adoption_changes(adoption, deleted, found),
            *registration.group_config_creations(group_configs),
        ]
        for topic in changed:
            operations += registration.state_changes(before[topic.name], topic)
        assert context.entities is not None
        for kind, values in entities.items():
            creations = plan_entities(context.entities, kind, values)
            context.entities.apply(kind, values, creations)
            operations += creations
        await self._store.multi(operations)
        context.epoch_version += 1 if paths.CONTROLLER_EPOCH in nodes else 0
        self._nodes = {}
        cache = self._metadata.cache
        cache.cluster_id = cluster_id
        cache.controller_id = node.broker_id
        cache.brokers[node.broker_id] = node
        for topic, _ in adoption.topics:
            context.put_topic(topic)
        context.group_configs.update(group_configs)
        self._metadata.set_group_configs(context.group_configs)
        self._metadata.set_entities(context.entities.by_kind)
        context.deleted.extend(registration.still_remembered(deleted, found))
        return adoption

    def _agree_on_cluster_id(self, found: str | None) -> str:
        stored = self._metadata.cache.cluster_id
        if stored and found and stored != found:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the metadata is of cluster {stored}, the log directories are of {found}",
            )
        return stored or found or topic_id_to_text(self._state.new_topic_id())


def _stay() -> None:
    """Nobody else can be the controller of a broker on its own."""


def _no_log_ends(wanted: Mapping[TopicPartition, Sequence[object]]) -> Deferred[LogEnds]:
    """A broker on its own leads all that it keeps: no logs are ever compared."""
    return Deferred.of({})


def _no_fetchers(brokers: Iterable[BrokerId]) -> Deferred[ReachabilityReports]:
    """A broker on its own has no followers."""
    return Deferred.of(ReachabilityReports({}))
