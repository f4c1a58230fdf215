"""Takes over the controller's decisions: into the metadata cache, and to what this broker keeps.

On the controller's own broker the controller calls this directly; to the others it sends pushes,
which arrive as a :class:`MetadataUpdate`. A push may arrive late, twice, or from a controller that
another one has followed. So an update is taken over only if

* its controller epoch is not older than the newest seen (STALE_CONTROLLER_EPOCH otherwise),
* it names the present registration of this broker (STALE_BROKER_EPOCH otherwise),
* it is newer than the last one of the same controller (INVALID_UPDATE_VERSION otherwise): the list
  of topics, their settings and the live brokers have no epochs of their own,
* and of each partition only a state with a higher partition epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from millstream.config.dynamic import DynamicConfig
from millstream.config.topic import TopicConfig, stored_topic_config
from millstream.controller.context import NOT_STORED, TopicState
from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.entities import EntityChanges, EntityKind, EntityValue
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.features import FinalizedFeatures
from millstream.model.leadership import PartitionState
from millstream.model.topic import TopicId
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage

log = logging.getLogger(__name__)


class BrokerStateListener(Protocol):
    """Carries out what the controller has decided for this broker."""

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """Open what is new in the image; ``created`` is True for a topic made just now."""

    def topic_deleted(self, image: TopicImage) -> None:
        """Close the topic's partitions and give their directories to deletion; without partitions
        it was never shown, and logs of its id go.
        """

    def config_changed(self, image: TopicImage) -> None:
        """Take over a topic's changed settings."""


@dataclass(frozen=True, slots=True)
class TopicUpdate:
    """A topic, and the whole states of those of its partitions that changed."""

    name: str
    topic_id: TopicId
    overrides: Mapping[str, str]
    partition_count: int
    partitions: Mapping[int, PartitionState]
    created: bool = False


@dataclass(frozen=True, slots=True)
class EntityRange:
    """The keys of a kind above ``after``, up to ``through``; None is no limit."""

    kind: EntityKind
    after: str | None
    through: str | None


@dataclass(frozen=True, slots=True)
class MetadataUpdate:
    """One push of a controller to one broker."""

    controller_id: BrokerId
    controller_epoch: int
    broker_epoch: int
    brokers: Sequence[BrokerNode]
    topics: Sequence[TopicUpdate] = ()
    deleted: Sequence[tuple[str, TopicId]] = ()
    all_topic_ids: Collection[TopicId] | None = None
    """When given: topics with other ids are gone."""
    broker_configs: Mapping[str, Mapping[str, str]] | None = None
    """When given: all dynamic settings of brokers, by id as text; ``""`` holds those of all."""
    sequence: int = 0
    """Counts the pushes of one controller; 0 where it does not."""
    features: FinalizedFeatures | None = None
    """The finalized features; None from a controller that does not know of them."""
    group_configs: Mapping[str, Mapping[str, str]] | None = None
    """When given: all settings of groups, by group id."""
    entities: Mapping[EntityKind, EntityChanges] = field(default_factory=dict)
    """Entities that have changed, or are gone."""
    entity_ranges: Sequence[EntityRange] = ()
    """Ranges of which ``entities`` has all that there are."""


@dataclass(slots=True)
class _Known:
    """What was pushed of settings: images are made anew of it when the defaults change."""

    overrides: dict[str, Mapping[str, str]] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shown: set[TopicId] = field(default_factory=set)
    """Topics that were handed to the listener."""
    last_push: tuple[int, int] = (0, 0)
    """Controller epoch and sequence of the newest push."""


class BrokerMetadata:
    """Keeps a broker's `MetadataCache` at what the controller decided.

    ``listener`` carries out what changes for this broker, from :meth:`start_listening` on: the
    cache is filled before the logs are open. ``on_brokers_changed`` is called when the set of live
    brokers, or what one of them is known by, has changed.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        cache: MetadataCache,
        config: DynamicConfig,
        *,
        listener: BrokerStateListener,
        on_brokers_changed: Callable[[], None] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self._config = config
        self._known = _Known()
        self.cache = cache
        self._listener = listener
        self._listens = False
        self._on_brokers_changed = on_brokers_changed
        self.broker_epoch: int | None = None
        """The epoch of this broker's registration; None while it has none."""
        self.controller_epoch = 0
        """The newest that was seen."""

    def start_listening(self) -> None:
        """Tell the listener from now on: the logs are open."""
        self._listens = True

    # --- what the controller on this broker hands over ------------------------------------------

    def show(self, topic: TopicState, *, created: bool = False) -> TopicImage:
        """Take over a topic whole, and hand it to the listener."""
        return self._put(
            TopicUpdate(
                topic.name,
                topic.topic_id,
                topic.overrides,
                len(topic.partitions),
                dict(enumerate(topic.partitions)),
                created,
            )
        )

    def show_config(self, topic: TopicState) -> None:
        """Take over a topic's settings."""
        self._known.overrides[topic.name] = topic.overrides
        image = self.image(topic)
        self.cache.update(image)
        if topic.topic_id in self._known.shown:
            self._listener.config_changed(image)

    def remove(self, name: str, topic_id: TopicId) -> TopicImage | None:
        """Forget a topic and have the broker delete what it keeps of it; None when it is another
        one by now, or was not known.
        """
        known = self.cache.topic(name)
        if known is None:
            # It was half deleted when this broker started, and a log of it may have been found.
            if self._listens:
                self._listener.topic_deleted(
                    TopicImage(name, topic_id, (), self._config_of(name, {}))
                )
            return None
        if known.topic_id != topic_id:
            return None
        self.cache.remove(name)
        self._known.overrides.pop(name, None)
        self._known.shown.discard(topic_id)
        if self._listens:
            # Shown or not: a log of it may have been found at the start.
            self._listener.topic_deleted(known)
        return known

    def set_broker_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Take over all dynamic settings of brokers."""
        self._known.broker_configs = {name: dict(texts) for name, texts in configs.items()}
        before = self._config.current.topic_defaults
        mine = configs.get(str(self.broker_id), {})
        self._config.update_as_far_as_can_be(
            of_all_brokers=configs.get("", {}),
            of_this_broker=mine,
            on_refused=lambda error: log.error(
                "a dynamic setting in the metadata store is not used: %s", error
            ),
        )
        if self._config.current.topic_defaults.same_values(before):
            return
        for image in tuple(self.cache.topics()):
            overrides = self._known.overrides.get(image.name, {})
            self.show_config(TopicState(image.name, image.topic_id, image.partitions, overrides))

    def set_group_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Take over all settings of groups."""
        self.cache.group_configs = {name: dict(texts) for name, texts in configs.items()}

    def set_features(self, features: FinalizedFeatures) -> None:
        """Take over which levels of features are finalized."""
        if features != self.cache.features:
            self.cache.set_features(features)

    def set_entities(self, entities: Mapping[EntityKind, Mapping[str, EntityValue]]) -> None:
        """Take over all entities of all kinds."""
        for kind in EntityKind:
            self.cache.entities.replace(kind, entities.get(kind, {}))

    def change_entities(self, kind: EntityKind, changes: EntityChanges) -> None:
        """Take over entities that have changed; None stands for one that is gone."""
        self.cache.entities.change(kind, changes)

    def set_brokers(self, brokers: Iterable[BrokerNode]) -> None:
        """Take over which brokers are alive."""
        live = {broker.broker_id: broker for broker in brokers}
        if live != self.cache.brokers:
            self.cache.brokers.clear()
            self.cache.brokers.update(sorted(live.items()))
            if self._on_brokers_changed is not None:
                self._on_brokers_changed()

    def image(self, topic: TopicState) -> TopicImage:
        """Return a topic as readers see it."""
        config = self._config_of(topic.name, topic.overrides)
        return TopicImage(topic.name, topic.topic_id, topic.partitions, config)

    def overrides(self, name: str) -> Mapping[str, str]:
        """Return the texts of the settings that a topic has of its own."""
        return self._known.overrides.get(name, {})

    # --- what comes from another broker --------------------------------------------------------

    def check_controller(self, controller_epoch: int) -> None:
        """Raise STALE_CONTROLLER_EPOCH for a controller that another one has followed."""
        if controller_epoch < self.controller_epoch:
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"controller epoch {controller_epoch} is older than {self.controller_epoch}",
            )

    def find_controller(self, controller_id: BrokerId, controller_epoch: int) -> None:
        """Take over who the controller is from the metadata store, unless a later one is known."""
        if controller_epoch > self.controller_epoch:
            self.controller_epoch = controller_epoch
            self.cache.controller_id = controller_id

    def apply(self, update: MetadataUpdate) -> None:
        """Take over a push, or raise the KafkaError that says why not.

        UNKNOWN_TOPIC_OR_PARTITION says that parts are missing here: push everything.
        """
        self.check_controller(update.controller_epoch)
        if update.broker_epoch != self.broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"this broker has epoch {self.broker_epoch}, not {update.broker_epoch}",
            )
        self._check_order(update)
        self.controller_epoch = update.controller_epoch
        self.cache.controller_id = update.controller_id
        self.set_brokers(update.brokers)
        if update.features is not None:
            self.set_features(update.features)
        configs = update.broker_configs
        if configs is not None and configs != self._known.broker_configs:
            self.set_broker_configs(configs)
        if update.group_configs is not None:
            self.set_group_configs(update.group_configs)
        self._apply_entities(update)
        for name, topic_id in update.deleted:
            self.remove(name, topic_id)
        if update.all_topic_ids is not None:
            wanted = set(update.all_topic_ids)
            for image in tuple(self.cache.topics()):
                if image.topic_id not in wanted:
                    self.remove(image.name, image.topic_id)
        incomplete = [each.name for each in update.topics if not self.apply_topic(each)]
        if incomplete:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ", ".join(incomplete))

    def _apply_entities(self, update: MetadataUpdate) -> None:
        for each in update.entity_ranges:
            self.cache.entities.replace_range(
                each.kind,
                after=each.after,
                through=each.through,
                named=update.entities.get(each.kind, {}),
            )
        for kind, changes in update.entities.items():
            self.change_entities(kind, changes)

    def _check_order(self, update: MetadataUpdate) -> None:
        """Raise INVALID_UPDATE_VERSION for a push that a newer one has overtaken: a controller that
        has no answer in time connects anew, and what the old connection holds may come last.
        """
        push = (update.controller_epoch, update.sequence)
        if update.sequence and push <= self._known.last_push:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"push {push} comes after push {self._known.last_push}",
            )
        self._known.last_push = max(push, self._known.last_push)

    def apply_topic(self, update: TopicUpdate) -> bool:
        """Take over one topic; False when states of some of its partitions are missing here."""
        known = self.cache.topic(update.name)
        if known is not None and known.topic_id != update.topic_id:
            self.remove(update.name, known.topic_id)
            known = None
        have = len(known.partitions) if known is not None else 0
        if any(i not in update.partitions for i in range(have, update.partition_count)):
            return False
        changed = update.topic_id not in self._known.shown or any(
            known is None
            or i >= have
            or state.partition_epoch > known.partitions[i].partition_epoch
            for i, state in update.partitions.items()
        )
        if changed:
            self._put(update)
        elif update.overrides != self._known.overrides.get(update.name, {}):
            assert known is not None
            self.show_config(
                TopicState(update.name, update.topic_id, known.partitions, update.overrides)
            )
        return True

    def _put(self, update: TopicUpdate) -> TopicImage:
        known = self.cache.topic(update.name)
        older: Sequence[PartitionState] = ()
        if known is not None and known.topic_id == update.topic_id:
            older = known.partitions
        partitions = tuple(
            _newer(older[i] if i < len(older) else None, update.partitions.get(i))
            for i in range(max(update.partition_count, len(older)))
        )
        self._known.overrides[update.name] = update.overrides
        image = TopicImage(
            update.name,
            update.topic_id,
            partitions,
            self._config_of(update.name, update.overrides),
        )
        self.cache.update(image)
        if self._listens:
            self._known.shown.add(update.topic_id)
            self._listener.topic_changed(image, created=update.created)
        return image

    def _config_of(self, name: str, overrides: Mapping[str, str]) -> TopicConfig:
        defaults = self._config.current.topic_defaults
        if not overrides:
            return defaults
        return stored_topic_config(
            overrides,
            defaults,
            lambda error: log.error(
                "topic %s: a setting in the metadata store is not used: %s", name, error
            ),
        )


def _newer(older: PartitionState | None, pushed: PartitionState | None) -> PartitionState:
    if older is None:
        assert pushed is not None
        return pushed
    if pushed is None or older.partition_epoch > pushed.partition_epoch > NOT_STORED:
        return older
    return pushed
