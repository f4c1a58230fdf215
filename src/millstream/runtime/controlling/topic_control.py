"""The controller's decisions about topics, partitions and dynamic settings, each one event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from millstream.controller import topic_changes, topic_deletion
from millstream.controller.config_changes import (
    ConfigChange,
    ResourceType,
    check_change,
    stored_change,
)
from millstream.controller.context import TopicState
from millstream.controller.internal_topics import wanted_topic
from millstream.controller.topic_changes import NewPartitions, NewTopic, PlacementContext
from millstream.controller.topic_deletion import brokers_with_replicas
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import INTERNAL_TOPICS, TopicId
from millstream.runtime.controlling.controller_events import ControllerEvents
from millstream.runtime.controlling.replica_control import ReplicaControl
from millstream.runtime.metadata.metadata_cache import TopicImage


class TopicControl:
    """Topics, partitions and dynamic settings: what may be changed, and how the change spreads.

    What a caller asks for comes back as a Deferred. A wish that a rule forbids is a KafkaError in
    its position of the result; a store that fails, and a broker that is not the controller, is a
    KafkaError of the whole call.
    """

    def __init__(self, events: ControllerEvents, replicas: ReplicaControl) -> None:
        """``replicas`` acts on what other settings make possible."""
        self._events = events
        self._state = events.state
        self._config = events.state.config
        self._cache = events.metadata.cache
        self._replicas = replicas

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
                        self._state.context, each, self._placing(), self._state.new_topic_id()
                    )
                )
            except KafkaError as error:
                planned.append(error)
        topics = [each for each in planned if isinstance(each, TopicState)]
        if topics and not validate_only:
            await self._events.write(op for topic in topics for op in topic_changes.creation(topic))
            for topic in topics:
                self._state.context.put_topic(topic)
                self._events.publish_created(topic)
        return self._images(planned)

    def ensure_topic(self, name: str) -> Deferred[TopicImage]:
        """Return a topic, created with the broker's defaults when it is not there.

        The coordinators' own topics get the settings that they need. Fails with a KafkaError when
        the topic cannot be created; NOT_CONTROLLER on a broker that is not the controller and does
        not know it.
        """
        known = self._cache.topic(name)
        if known is not None:
            return Deferred.of(known)
        return self._events.submit(lambda: self._ensure_topic(name))

    async def _ensure_topic(self, name: str) -> TopicImage:
        known = self._cache.topic(name)  # an earlier event may have made it
        if known is not None:
            return known
        limit = self._config.current.auto_create_topics_max_count
        if name not in INTERNAL_TOPICS and len(self._state.context.topics) >= limit:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                "auto.create.topics.max.count topics are there; create this one explicitly",
            )
        wanted = wanted_topic(
            name, self._config.current, at_most=None if self._state.broker_epochs() else 1
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
        context = self._state.context
        topics = [context.topic_by_id(each) for each in topic_ids]
        known = {topic.name: topic for topic in topics if topic is not None}
        in_cluster = bool(self._state.broker_epochs())
        if known:
            operations = [
                op
                for topic in known.values()
                for op in topic_changes.deletion(
                    topic, brokers_with_replicas(topic) if in_cluster else ()
                )
            ]
            await self._events.write([*operations, *topic_changes.forgetting(context)])
        deleted: dict[str, TopicImage] = {}
        for name, topic in known.items():
            context.remove_topic(name)
            if in_cluster:
                topic_deletion.remember(context, topic)
            deleted[name] = self._events.publish_deletion(topic) or self._events.metadata.image(
                topic
            )
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
        return self._events.submit(lambda: self._create_partitions(wanted, validate_only))

    async def _create_partitions(
        self, wanted: Sequence[NewPartitions], validate_only: bool
    ) -> list[TopicImage | KafkaError]:
        topic_changes.refuse_too_many(
            sum(topic_changes.growth_of(each, self._state.context) for each in wanted)
        )
        planned: list[TopicState | KafkaError] = []
        for each in wanted:
            try:
                planned.append(
                    topic_changes.plan_partitions(self._state.context, each, self._placing())
                )
            except KafkaError as error:
                planned.append(error)
        topics = [each for each in planned if isinstance(each, TopicState)]
        if topics and not validate_only:
            await self._events.write(
                op
                for topic in topics
                for op in topic_changes.growth(
                    topic, len(self._state.context.topics[topic.name].partitions)
                )
            )
            for topic in topics:
                self._state.context.put_topic(topic)
                self._events.publish_topic(topic)
        return self._images(planned)

    # --- settings --------------------------------------------------------------------------

    def alter_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Deferred[list[KafkaError | None]]:
        """Change settings of topics, brokers and groups, each resource for itself: all of its
        changes or none.
        """
        return self._events.submit(lambda: self._alter_configs(changes, validate_only))

    async def _alter_configs(
        self, changes: Sequence[ConfigChange], validate_only: bool
    ) -> list[KafkaError | None]:
        results: list[KafkaError | None] = []
        accepted: list[tuple[ConfigChange, dict[str, str]]] = []
        for change in changes:
            try:
                accepted.append((change, check_change(change, self._state.context, self._config)))
            except KafkaError as error:
                results.append(error)
            else:
                results.append(None)
        if accepted and not validate_only:
            await self._events.write(
                op
                for change, texts in accepted
                for op in stored_change(change, texts, self._state.context)
            )
            for change, texts in accepted:
                self._apply_config_change(change, texts)
            await self._replicas.settings_changed()
        return results

    def _apply_config_change(self, change: ConfigChange, texts: dict[str, str]) -> None:
        if change.type is ResourceType.TOPIC:
            topic = replace(self._state.context.topics[change.name], overrides=texts)
            self._state.context.put_topic(topic)
            self._events.publish_config(topic)
            return
        if change.type is ResourceType.GROUP:
            if texts:
                self._state.context.group_configs[change.name] = texts
            else:
                self._state.context.group_configs.pop(change.name, None)
            self._events.publish_broker_configs()
            return
        self._state.context.broker_configs[change.name] = texts
        self._events.publish_broker_configs()

    # --- what every event does -------------------------------------------------------------

    def _images(self, planned: Iterable[TopicState | KafkaError]) -> list[TopicImage | KafkaError]:
        """Return the images of planned topics: those shown, or as if they were."""
        images: list[TopicImage | KafkaError] = []
        for each in planned:
            if isinstance(each, KafkaError):
                images.append(each)
                continue
            shown = self._cache.topic(each.name)
            as_planned = shown is not None and shown.partitions == each.partitions
            images.append(
                shown if shown is not None and as_planned else self._events.metadata.image(each)
            )
        return images

    def _placing(self) -> PlacementContext:
        config = self._config.current
        brokers = max(1, len(self._state.context.live_brokers))
        return PlacementContext(
            partition_count=config.num_partitions,
            replication_factor=config.default_replication_factor,
            config=config.topic_defaults,
            broker_epochs=self._state.broker_epochs(),
            racks=self._state.racks(),
            cordoned=self._cordoned_brokers(),
            start_index=self._state.random_below(brokers),
            shift=self._state.random_below(brokers),
        )

    def _cordoned_brokers(self) -> set[BrokerId]:
        """Return the brokers known to take no new replicas: this one by its settings, others by
        their dynamic ones.
        """
        config = self._config.current
        cordoned = {
            BrokerId(int(name))
            for name, texts in self._state.context.broker_configs.items()
            if name and texts.get("cordoned.log.dirs") == "*"
        }
        cordoned.discard(config.broker)
        if set(config.log_directories) <= set(config.cordoned_directories):
            cordoned.add(config.broker)
        return cordoned
