"""What others may have the controller do to topics and settings: plan, store, show.

Decisions are made one at a time at the `controller_desk`. A broker on its own takes the
controller's seat at its start, in two steps, because logs are opened with their topics' settings:
:meth:`ControllerRuntime.load` reads the store and fills the cache, then the log directories are
read, then :meth:`ControllerRuntime.start` registers the broker, adopts logs that the store does not
know, and hands every topic to the broker. In a cluster `controller_seat` gives and takes the seat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from millstream.config.dynamic import DynamicConfig
from millstream.controller import topic_changes, topic_deletion
from millstream.controller.adoption import Adoption, FoundLog
from millstream.controller.config_changes import (
    ConfigChange,
    ResourceType,
    check_change,
    stored_change,
)
from millstream.controller.context import TopicState
from millstream.controller.internal_topics import wanted_topic
from millstream.controller.topic_changes import NewPartitions, NewTopic, Placing
from millstream.controller.topic_deletion import keepers
from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.metadata_store import MetadataStore
from millstream.model.topic import INTERNAL_TOPICS, TopicId, TopicPartition
from millstream.runtime.controlling.controller_desk import ControllerDesk, RandomBytes
from millstream.runtime.controlling.last_resort_elections import LogEnds
from millstream.runtime.controlling.replica_control import ReplicaControl
from millstream.runtime.controlling.standalone_seat import StandaloneSeat
from millstream.runtime.metadata.broker_metadata import BrokerMetadata, BrokerStateListener
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage

__all__ = ["BrokerStateListener", "ControllerRuntime"]


class ControllerRuntime:
    """Topics, partitions and dynamic settings: who may change them, and how the change spreads.

    What a caller asks for comes back as a Deferred. A wish that a rule forbids is a KafkaError in
    the place of its result; a store that fails, and a broker that is not the controller, is a
    KafkaError of the whole call.
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
        self.local = BrokerMetadata(config.static.broker, metadata, config)
        """What this broker knows of the cluster, and who carries it out."""
        self.desk = ControllerDesk(
            store=store,
            local=self.local,
            config=config,
            clock=clock,
            random_bytes=random_bytes,
            on_store_failed=on_store_failed,
        )
        self.replicas = ReplicaControl(self.desk, _no_logs)
        """Leaders and replicas; in a cluster one that can ask other brokers takes its place."""
        self.forward_topic: Callable[[str], Deferred[TopicImage]] | None = None
        """In a cluster: asks the controller for a topic that is needed here."""
        self._metadata = metadata
        self._config = config
        self._seat = StandaloneSeat(self.desk)

    # --- a broker on its own -----------------------------------------------------------------

    def load(self) -> Deferred[None]:
        """Read the store: topics and settings are in the cache when the Deferred is filled.

        Fails with PayloadError when the store holds nonsense, StorageError when it cannot be read.
        """
        return self.desk.events.submit(self._seat.load)

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
        self.local.listener = listener

        async def event() -> None:
            settle(
                await self._seat.register(
                    node, found, clean_shutdown=clean_shutdown, cluster_id=cluster_id
                )
            )
            self.desk.take_seat()
            for topic in tuple(self.desk.context.topics.values()):
                self.desk.show(topic)

        return self.desk.events.submit(event)

    # --- topics ----------------------------------------------------------------------------

    def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Deferred[list[TopicImage | KafkaError]]:
        """Create topics, each for itself; the results are in the order of the wishes.

        KafkaError POLICY_VIOLATION when they come to too many partitions together. With
        ``validate_only`` the results are as if.
        """
        return self.desk.submit(lambda: self._create_topics(wanted, validate_only))

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
                        self.desk.context, each, self._placing(), self.desk.new_topic_id()
                    )
                )
            except KafkaError as error:
                planned.append(error)
        topics = [each for each in planned if isinstance(each, TopicState)]
        if topics and not validate_only:
            await self.desk.write(op for topic in topics for op in topic_changes.creation(topic))
            for topic in topics:
                self.desk.context.put_topic(topic)
                self.desk.show_created(topic)
        return self._images(planned)

    def ensure_topic(self, name: str) -> Deferred[TopicImage]:
        """Return a topic, created with the broker's defaults when it is not there.

        The coordinators' own topics get the settings that they need. Fails with a KafkaError when
        the topic cannot be.
        """
        known = self._metadata.topic(name)
        if known is not None:
            return Deferred.of(known)
        if self.forward_topic is not None and not self.desk.active:
            return self.forward_topic(name)
        return self.ensure_topic_here(name)

    def ensure_topic_here(self, name: str) -> Deferred[TopicImage]:
        """Return a topic as :meth:`ensure_topic` does, on the controller itself."""
        return self.desk.submit(lambda: self._ensure_topic(name))

    async def _ensure_topic(self, name: str) -> TopicImage:
        known = self._metadata.topic(name)  # an earlier event may have made it
        if known is not None:
            return known
        limit = self._config.current.auto_create_topics_max_count
        if name not in INTERNAL_TOPICS and len(self.desk.context.topics) >= limit:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                "auto.create.topics.max.count topics are there; create this one explicitly",
            )
        wanted = wanted_topic(
            name, self._config.current, at_most=None if self.desk.broker_epochs() else 1
        )
        (result,) = await self._create_topics([wanted], validate_only=False)
        if isinstance(result, KafkaError):
            raise result
        return result

    def delete_topics(
        self, topic_ids: Sequence[TopicId]
    ) -> Deferred[list[TopicImage | KafkaError]]:
        """Delete topics; the results (what they were) are in the order of the ids."""
        return self.desk.submit(lambda: self._delete_topics(topic_ids))

    async def _delete_topics(self, topic_ids: Sequence[TopicId]) -> list[TopicImage | KafkaError]:
        context = self.desk.context
        topics = [context.topic_by_id(each) for each in topic_ids]
        known = {topic.name: topic for topic in topics if topic is not None}
        in_cluster = bool(self.desk.broker_epochs())
        if known:
            operations = [
                op
                for topic in known.values()
                for op in topic_changes.deletion(topic, keepers(topic) if in_cluster else ())
            ]
            await self.desk.write([*operations, *topic_changes.forgetting(context)])
        deleted: dict[str, TopicImage] = {}
        for name, topic in known.items():
            context.remove_topic(name)
            if in_cluster:
                topic_deletion.remember(context, topic)
            deleted[name] = self.desk.show_deleted(topic) or self.local.image(topic)
        if not in_cluster:
            topic_changes.remember(context, known.values())
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
        return self.desk.submit(lambda: self._create_partitions(wanted, validate_only))

    async def _create_partitions(
        self, wanted: Sequence[NewPartitions], validate_only: bool
    ) -> list[TopicImage | KafkaError]:
        topic_changes.refuse_too_many(
            sum(topic_changes.growth_of(each, self.desk.context) for each in wanted)
        )
        planned: list[TopicState | KafkaError] = []
        for each in wanted:
            try:
                planned.append(
                    topic_changes.plan_partitions(self.desk.context, each, self._placing())
                )
            except KafkaError as error:
                planned.append(error)
        topics = [each for each in planned if isinstance(each, TopicState)]
        if topics and not validate_only:
            await self.desk.write(
                op
                for topic in topics
                for op in topic_changes.growth(
                    topic, len(self.desk.context.topics[topic.name].partitions)
                )
            )
            for topic in topics:
                self.desk.context.put_topic(topic)
                self.desk.show(topic)
        return self._images(planned)

    # --- settings --------------------------------------------------------------------------

    def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Deferred[list[KafkaError | None]]:
        """Change settings of topics and brokers, each resource for itself: all of its changes or
        none.
        """
        return self.desk.submit(lambda: self._alter_configs(changes, validate_only))

    async def _alter_configs(
        self, changes: Sequence[ConfigChange], validate_only: bool
    ) -> list[KafkaError | None]:
        results: list[KafkaError | None] = []
        accepted: list[tuple[ConfigChange, dict[str, str]]] = []
        for change in changes:
            try:
                accepted.append((change, check_change(change, self.desk.context, self._config)))
            except KafkaError as error:
                results.append(error)
            else:
                results.append(None)
        if accepted and not validate_only:
            await self.desk.write(
                op
                for change, texts in accepted
                for op in stored_change(change, texts, self.desk.context)
            )
            for change, texts in accepted:
                self._apply_config_change(change, texts)
            await self.replicas.settings_changed()
        return results

    def _apply_config_change(self, change: ConfigChange, texts: dict[str, str]) -> None:
        if change.type is ResourceType.TOPIC:
            topic = replace(self.desk.context.topics[change.name], overrides=texts)
            self.desk.context.put_topic(topic)
            self.desk.show_config(topic)
            return
        self.desk.context.broker_configs[change.name] = texts
        self.desk.show_broker_configs()

    # --- what every event does -------------------------------------------------------------

    def _images(self, planned: Iterable[TopicState | KafkaError]) -> list[TopicImage | KafkaError]:
        """Return the images of planned topics: those shown, or as if they were."""
        images: list[TopicImage | KafkaError] = []
        for each in planned:
            if isinstance(each, KafkaError):
                images.append(each)
                continue
            shown = self._metadata.topic(each.name)
            as_planned = shown is not None and shown.partitions == each.partitions
            images.append(shown if shown is not None and as_planned else self.local.image(each))
        return images

    def _placing(self) -> Placing:
        config = self._config.current
        brokers = max(1, len(self.desk.context.live_brokers))
        return Placing(
            partition_count=config.num_partitions,
            replication_factor=config.default_replication_factor,
            config=config.topic_defaults,
            broker_epochs=self.desk.broker_epochs(),
            racks=self.desk.racks(),
            cordoned=self._cordoned_brokers(),
            start_index=self.desk.random_below(brokers),
            shift=self.desk.random_below(brokers),
        )

    def _cordoned_brokers(self) -> set[BrokerId]:
        """Return the brokers known to take no new replicas: this one by its settings, others by
        their dynamic ones.
        """
        config = self._config.current
        cordoned = {
            BrokerId(int(name))
            for name, texts in self.desk.context.broker_configs.items()
            if name and texts.get("cordoned.log.dirs") == "*"
        }
        cordoned.discard(config.broker)
        if set(config.log_directories) <= set(config.cordoned_directories):
            cordoned.add(config.broker)
        return cordoned


def _no_logs(wanted: Mapping[TopicPartition, Sequence[BrokerId]]) -> Deferred[LogEnds]:
    """A broker on its own leads all that it keeps: nobody's logs are ever compared."""
    return Deferred.of({})
