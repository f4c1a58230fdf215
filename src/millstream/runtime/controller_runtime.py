"""The controller at work: each decision is planned, stored, then shown to the broker.

Decisions are made one at a time (`event_queue`), so a plan is made from what the store holds.
Nothing is visible before it is on disk: the store comes first, then the metadata cache, then the
partitions that the broker keeps. Every write checks that `/controller_epoch` is still ours.

Start-up has two steps, because logs are opened with their topics' settings: :meth:`load` reads the
store and fills the cache, then the log directories are read, then :meth:`start` registers the
broker, adopts logs that the store does not know, and hands every topic to the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from millstream.config.dynamic import DynamicConfig
from millstream.config.topic import TopicConfig
from millstream.controller import paths, registration, topic_changes
from millstream.controller.adoption import Adoption, FoundLog, plan_adoption
from millstream.controller.config_changes import (
    ConfigChange,
    ResourceType,
    check_change,
    stored_change,
)
from millstream.controller.context import ControllerContext, TopicState
from millstream.controller.internal_topics import wanted_topic
from millstream.controller.loading import deleted_topics, load_context, stored_cluster_id
from millstream.controller.topic_changes import NewPartitions, NewTopic, Placing
from millstream.model.broker import BrokerNode
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import ConfigError, ErrorCode, KafkaError, StorageError
from millstream.model.metadata_store import (
    Check,
    MetadataStore,
    MetadataStoreError,
    Node,
    Operation,
)
from millstream.model.topic import INTERNAL_TOPICS, TopicId, TopicPartition, topic_id_to_text
from millstream.runtime.event_queue import EventQueue
from millstream.runtime.metadata_cache import MetadataCache, TopicImage

log = logging.getLogger(__name__)

RandomBytes: TypeAlias = Callable[[int], bytes]


class BrokerStateListener(Protocol):
    """Who carries out what the controller decided for this broker."""

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """Open what is new in the image; ``created`` is True for a topic made just now."""

    def topic_deleted(self, image: TopicImage) -> None:
        """Close the topic's partitions and give their directories to deletion."""

    def config_changed(self, image: TopicImage) -> None:
        """Take over a topic's changed settings."""


class ControllerRuntime:
    """Topics, partitions and dynamic settings: who may change them, and how the change spreads.

    What a caller asks for comes back as a Deferred. A wish that a rule forbids is a KafkaError in
    the place of its result; a store that fails is a KafkaError of the whole call, and
    ``on_store_failed`` hears of it once.
    """

    def __init__(
        self,
        *,
        store: MetadataStore,
        metadata: MetadataCache,
        config: DynamicConfig,
        clock: Clock,
        random_bytes: RandomBytes,
        on_store_failed: Callable[[StorageError], None],
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._config = config
        self._clock = clock
        self._random_bytes = random_bytes
        self._on_store_failed = on_store_failed
        self._events = EventQueue()
        self._context = ControllerContext()
        self._nodes: Mapping[str, Node] = {}
        self._listener: BrokerStateListener | None = None

    # --- start-up --------------------------------------------------------------------------

    def load(self) -> Deferred[None]:
        """Read the store: topics and settings are in the cache when the Deferred is filled.

        Fails with PayloadError when the store holds nonsense, StorageError when it cannot be read.
        """
        return self._events.submit(self._load)

    async def _load(self) -> None:
        self._nodes = await self._store.tree("/")
        self._context = load_context(self._nodes)
        self._metadata.cluster_id = stored_cluster_id(self._nodes) or ""
        self._apply_broker_configs()
        for topic in self._context.topics.values():
            self._metadata.update(self._image(topic))

    def start(
        self,
        node: BrokerNode,
        listener: BrokerStateListener,
        *,
        found: Mapping[TopicPartition, FoundLog],
        clean_shutdown: bool,
        settle: Callable[[Adoption], None],
        cluster_id: str | None = None,
    ) -> Deferred[None]:
        """Register the broker, take over the logs that were found, open every topic.

        ``found`` holds every log on disk; ``settle`` is told what became of them before the first
        topic is opened, so that it can put strays out of the way. Without ``clean_shutdown`` every
        leader epoch rises. ``cluster_id`` is the one in the log directories; a new store takes it
        over, and KafkaError INCONSISTENT_CLUSTER_ID says that it contradicts the store.
        """
        self._listener = listener

        async def event() -> None:
            settle(await self._register(node, found, clean_shutdown, cluster_id))
            for topic in self._context.topics.values():
                self._show(topic, created=False)

        return self._events.submit(event)

    async def _register(
        self,
        node: BrokerNode,
        found: Mapping[TopicPartition, FoundLog],
        clean_shutdown: bool,
        cluster_id: str | None,
    ) -> Adoption:
        context, nodes = self._context, self._nodes
        context.controller_epoch += 1
        context.live_brokers = [node.broker_id]
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
            new_topic_id=self._new_topic_id,
            broker_id=node.broker_id,
        )
        operations: list[Operation] = [
            *registration.registration(
                nodes, node, cluster_id=cluster_id, now_ms=self._clock.now_ms()
            ),
            *registration.adoption_changes(adoption, deleted, found),
        ]
        for topic in changed:
            operations += registration.state_changes(before[topic.name], topic)
        await self._store.multi(operations)
        context.epoch_version += 1 if paths.CONTROLLER_EPOCH in nodes else 0
        self._nodes = {}
        self._metadata.cluster_id = cluster_id
        self._metadata.controller_id = node.broker_id
        self._metadata.brokers[node.broker_id] = node
        for topic, _ in adoption.topics:
            context.put_topic(topic)
        context.deleted.extend(registration.still_remembered(deleted, found))
        return adoption

    def _agree_on_cluster_id(self, found: str | None) -> str:
        stored = self._metadata.cluster_id
        if stored and found and stored != found:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the metadata is of cluster {stored}, the log directories are of {found}",
            )
        return stored or found or topic_id_to_text(self._new_topic_id())

    # --- topics ----------------------------------------------------------------------------

    def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Deferred[list[TopicImage | KafkaError]]:
        """Create topics, each for itself; the results are in the order of the wishes.

        KafkaError POLICY_VIOLATION when they come to too many partitions together. With
        ``validate_only`` the results are as if.
        """
        return self._events.submit(lambda: self._create_topics(wanted, validate_only))

    async def _create_topics(
        self, wanted: Sequence[NewTopic], validate_only: bool
    ) -> list[TopicImage | KafkaError]:
        topic_changes.refuse_too_many(
            sum(topic_changes.count_of(each, self._placing()) for each in wanted)
        )
        planned: list[TopicState | KafkaError] = []
        for each in wanted:
            try:
                planned.append(
                    topic_changes.plan_topic(
                        self._context, each, self._placing(), self._new_topic_id()
                    )
                )
            except KafkaError as error:
                planned.append(error)
        topics = [each for each in planned if isinstance(each, TopicState)]
        if topics and not validate_only:
            await self._write(op for topic in topics for op in topic_changes.creation(topic))
            for topic in topics:
                self._context.put_topic(topic)
                self._show(topic, created=True)
        return self._images(planned)

    def ensure_topic(self, name: str) -> Deferred[TopicImage]:
        """Return a topic, created with the broker's defaults when it is not there.

        The coordinators' own topics get the settings that they need. Fails with a KafkaError when
        the topic cannot be.
        """
        known = self._metadata.topic(name)
        if known is not None:
            return Deferred.of(known)
        return self._events.submit(lambda: self._ensure_topic(name))

    async def _ensure_topic(self, name: str) -> TopicImage:
        known = self._metadata.topic(name)  # an earlier event may have made it
        if known is not None:
            return known
        limit = self._config.current.auto_create_topics_max_count
        if name not in INTERNAL_TOPICS and len(self._context.topics) >= limit:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                "auto.create.topics.max.count topics are there; create this one explicitly",
            )
        wanted = wanted_topic(
            name, self._config.current, live_brokers=len(self._context.live_brokers)
        )
        (result,) = await self._create_topics([wanted], validate_only=False)
        if isinstance(result, KafkaError):
            raise result
        return result

    def delete_topics(
        self, topic_ids: Sequence[TopicId]
    ) -> Deferred[list[TopicImage | KafkaError]]:
        """Delete topics; the results (what they were) are in the order of the ids."""
        return self._events.submit(lambda: self._delete_topics(topic_ids))

    async def _delete_topics(self, topic_ids: Sequence[TopicId]) -> list[TopicImage | KafkaError]:
        topics = [self._context.topic_by_id(each) for each in topic_ids]
        known = {topic.name: topic for topic in topics if topic is not None}
        if known:
            operations = [op for topic in known.values() for op in topic_changes.deletion(topic)]
            await self._write([*operations, *topic_changes.forgetting(self._context)])
            topic_changes.remember(self._context, known.values())
        deleted: dict[str, TopicImage] = {}
        for name in known:
            self._context.remove_topic(name)
            image = self._metadata.remove(name)
            assert image is not None
            deleted[name] = image
            self._broker.topic_deleted(image)
        return [
            KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            if topic is None
            else deleted[topic.name]
            for topic in topics
        ]

    def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> Deferred[list[TopicImage | KafkaError]]:
        """Give topics more partitions; the results are in the order of the wishes."""
        return self._events.submit(lambda: self._create_partitions(wanted, validate_only))

    async def _create_partitions(
        self, wanted: Sequence[NewPartitions], validate_only: bool
    ) -> list[TopicImage | KafkaError]:
        topic_changes.refuse_too_many(
            sum(topic_changes.growth_of(each, self._context) for each in wanted)
        )
        planned: list[TopicState | KafkaError] = []
        for each in wanted:
            try:
                planned.append(topic_changes.plan_partitions(self._context, each, self._placing()))
            except KafkaError as error:
                planned.append(error)
        topics = [each for each in planned if isinstance(each, TopicState)]
        if topics and not validate_only:
            await self._write(
                op
                for topic in topics
                for op in topic_changes.growth(
                    topic, len(self._context.topics[topic.name].partitions)
                )
            )
            for topic in topics:
                self._context.put_topic(topic)
                self._show(topic, created=False)
        return self._images(planned)

    # --- settings --------------------------------------------------------------------------

    def topic_overrides(self, name: str) -> Mapping[str, str]:
        """Return the texts of the settings that a topic has of its own."""
        topic = self._context.topics.get(name)
        return {} if topic is None else topic.overrides

    def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Deferred[list[KafkaError | None]]:
        """Change settings of topics and brokers, each resource for itself: all of its changes or
        none.
        """
        return self._events.submit(lambda: self._alter_configs(changes, validate_only))

    async def _alter_configs(
        self, changes: Sequence[ConfigChange], validate_only: bool
    ) -> list[KafkaError | None]:
        results: list[KafkaError | None] = []
        accepted: list[tuple[ConfigChange, dict[str, str]]] = []
        for change in changes:
            try:
                accepted.append((change, check_change(change, self._context, self._config)))
            except KafkaError as error:
                results.append(error)
            else:
                results.append(None)
        if accepted and not validate_only:
            await self._write(
                op
                for change, texts in accepted
                for op in stored_change(change, texts, self._context)
            )
            for change, texts in accepted:
                self._apply_config_change(change, texts)
        return results

    def _apply_config_change(self, change: ConfigChange, texts: dict[str, str]) -> None:
        if change.type is ResourceType.TOPIC:
            topic = replace(self._context.topics[change.name], overrides=texts)
            self._context.put_topic(topic)
            self._show_config(topic)
            return
        self._context.broker_configs[change.name] = texts
        before = self._config.current.topic_defaults
        self._apply_broker_configs()
        if self._config.current.topic_defaults.same_values(before):
            return
        for topic in self._context.topics.values():
            self._show_config(topic)

    def _apply_broker_configs(self) -> None:
        configs = self._context.broker_configs
        mine = configs.get(str(self._config.static.broker), {})
        try:
            self._config.update(of_all_brokers=configs.get("", {}), of_this_broker=mine)
        except ConfigError:
            log.exception("the dynamic settings in the metadata store are not used")

    # --- what every event does -------------------------------------------------------------

    async def _write(self, operations: Iterable[Operation]) -> None:
        """Put a plan into the store, or raise the KafkaError that says that it could not be."""
        context = self._context
        guard = Check(paths.CONTROLLER_EPOCH, context.epoch_version)
        try:
            await self._store.multi([guard, *operations])
        except StorageError as error:
            self._on_store_failed(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except MetadataStoreError as error:
            log.exception("the metadata store is not as this controller left it")
            code = ErrorCode.NOT_CONTROLLER
            raise KafkaError(code, "another controller has taken over") from error

    def _images(self, planned: Iterable[TopicState | KafkaError]) -> list[TopicImage | KafkaError]:
        """Return the images of planned topics: those shown, or as if they were."""
        images: list[TopicImage | KafkaError] = []
        for each in planned:
            if isinstance(each, KafkaError):
                images.append(each)
                continue
            shown = self._metadata.topic(each.name)
            as_planned = shown is not None and shown.partitions is each.partitions
            images.append(shown if shown is not None and as_planned else self._image(each))
        return images

    def _show(self, topic: TopicState, *, created: bool) -> None:
        image = self._image(topic)
        self._metadata.update(image)
        self._broker.topic_changed(image, created=created)

    def _show_config(self, topic: TopicState) -> None:
        image = self._image(topic)
        self._metadata.update(image)
        self._broker.config_changed(image)

    @property
    def _broker(self) -> BrokerStateListener:
        assert self._listener is not None, "the controller has not started"
        return self._listener

    def _image(self, topic: TopicState) -> TopicImage:
        return TopicImage(topic.name, topic.topic_id, topic.partitions, self._config_of(topic))

    def _config_of(self, topic: TopicState) -> TopicConfig:
        defaults = self._config.current.topic_defaults
        if not topic.overrides:
            return defaults
        try:
            return TopicConfig(topic.overrides, defaults)
        except ConfigError:
            log.exception("topic %s: its settings in the metadata store are not used", topic.name)
            return defaults

    def _placing(self) -> Placing:
        config = self._config.current
        brokers = max(1, len(self._context.live_brokers))
        return Placing(
            partition_count=config.num_partitions,
            replication_factor=config.default_replication_factor,
            config=config.topic_defaults,
            start_index=self._random_below(brokers),
            shift=self._random_below(brokers),
        )

    def _random_below(self, limit: int) -> int:
        return 0 if limit == 1 else int.from_bytes(self._random_bytes(8), "big") % limit

    def _new_topic_id(self) -> TopicId:
        """Return a random UUID (version 4) whose text does not begin with a dash."""
        while True:
            raw = bytearray(self._random_bytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            topic_id = TopicId(bytes(raw))
            if not topic_id_to_text(topic_id).startswith("-"):
                return topic_id
