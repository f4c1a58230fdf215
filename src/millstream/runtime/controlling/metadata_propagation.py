"""How other brokers are told what the controller has decided; ``metadata_pushes`` does so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from millstream.controller.context import TopicState
from millstream.model.broker import BrokerId
from millstream.model.entities import EntityKind
from millstream.model.topic import TopicId


class MetadataPropagation(Protocol):
    """Tells the other brokers of a change that is in the store. No method waits or fails: who has
    not acknowledged a change is told again.
    """

    def topic_changed(self, topic: TopicState, indices: Iterable[int] | None) -> None:
        """Tell of a topic: of the partitions at ``indices``, or (None) of all of it."""

    def topic_created(self, topic: TopicState) -> None:
        """Tell of a topic that was created just now."""

    def topic_deleted(self, name: str, topic_id: TopicId) -> None:
        """Tell that a topic is deleted."""

    def brokers_changed(self) -> None:
        """Tell which brokers are alive."""

    def features_changed(self) -> None:
        """Tell which levels of features are finalized."""

    def broker_configs_changed(self) -> None:
        """Tell the dynamic settings of brokers."""

    def entities_changed(self, kind: EntityKind, keys: Iterable[str]) -> None:
        """Tell of entities that have changed, or are gone."""

    def entities_loaded(self) -> None:
        """Tell all entities."""

    def is_behind(self, broker_id: BrokerId) -> bool:
        """True while another broker has not acknowledged every change that it was told of."""


class NoPropagation:
    """The propagation of a broker on its own: there are no other brokers."""

    def topic_changed(self, topic: TopicState, indices: Iterable[int] | None) -> None:
        """Tell nobody."""

    def topic_created(self, topic: TopicState) -> None:
        """Tell nobody."""

    def topic_deleted(self, name: str, topic_id: TopicId) -> None:
        """Tell nobody."""

    def brokers_changed(self) -> None:
        """Tell nobody."""

    def features_changed(self) -> None:
        """Tell nobody."""

    def broker_configs_changed(self) -> None:
        """Tell nobody."""

    def entities_changed(self, kind: EntityKind, keys: Iterable[str]) -> None:
        """Tell nobody."""

    def entities_loaded(self) -> None:
        """Tell nobody."""

    def is_behind(self, broker_id: BrokerId) -> bool:
        """Return False: there is no other broker."""
        return False
