"""The coordinators that this broker can run, by the internal topic that keeps their state.

A coordinator's code and its runtime are made when they are first needed: when the broker comes to
lead a partition of the topic that has records, or is asked something. A broker that coordinates
nothing starts without them. Kafka: the ``case`` over ``CoordinatorType`` in ``KafkaApis``, and
``BrokerMetadataPublisher``, which tells each coordinator what has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any, Generic, Protocol, TypeVar

from millstream.model.errors import ErrorCode, KafkaError
from millstream.runtime.metadata.metadata_cache import TopicImage
from millstream.runtime.replicas.partitions import Partitions


class CoordinatorType(IntEnum):
    """What a key of FindCoordinator names (Kafka:
    ``FindCoordinatorRequest.CoordinatorType``).
    """

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Coordinator(Protocol):
    """What the registry tells a coordinator's runtime."""

    def start(self) -> None:
        """Begin to load the partitions that are led here."""

    def stop(self) -> None:
        """Answer everybody who waits, and end."""

    def describe_shards(self) -> Iterator[str]:
        """Yield the partitions that do not serve, or have something to wait for."""

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """Take note of any topic that was created or has changed."""

    def topic_deleted(self, image: TopicImage) -> None:
        """Take note of any topic that was deleted."""


C = TypeVar("C", bound=Coordinator)


class CoordinatorEntry(Generic[C]):
    """One kind of coordinator.

    ``topic`` keeps its state; ``partition_of`` returns the partition of a key among a number of
    partitions; ``make`` makes its runtime.
    """

    def __init__(
        self,
        kind: CoordinatorType,
        topic: str,
        partition_of: Callable[[str, int], int],
        make: Callable[[], C],
    ) -> None:
        self.kind = kind
        self.topic = topic
        self.partition_of = partition_of
        self.made: C | None = None
        """The runtime, once it was needed."""
        self._make = make

    def get(self) -> C:
        """Return the runtime, which is made and started the first time."""
        if self.made is None:
            self.made = self._make()
            self.made.start()
        return self.made


class CoordinatorRegistry:
    """Starts coordinators, tells them what changes, and says which one serves a type of keys."""

    def __init__(
        self,
        entries: Sequence[CoordinatorEntry[Any]],
        partitions: Partitions,
    ) -> None:
        self._entries = tuple(entries)
        self._partitions = partitions
        self._begun = False

    def find(self, key_type: int) -> CoordinatorEntry[Any]:
        """Return who coordinates keys of a type; INVALID_REQUEST where nobody does.

        That says so for good, where COORDINATOR_NOT_AVAILABLE would keep clients asking until their
        own time-out.
        """
        for entry in self._entries:
            if entry.kind == key_type:
                return entry
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"this broker has no coordinator for keys of type {key_type}",
        )

    def made(self) -> Iterator[Coordinator]:
        """Yield the coordinators that were needed."""
        return (entry.made for entry in self._entries if entry.made is not None)

    def begin(self) -> None:
        """Run the coordinators of what is kept here already, and from now on of what comes."""
        self._begun = True
        for entry in self._entries:
            self._make_if_needed(entry)

    def stop(self) -> None:
        """End every coordinator."""
        for entry in self._entries:
            if entry.made is not None:
                entry.made.stop()

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        """Tell of a topic that was created or has changed; its partitions are taken over
        already.
        """
        if not self._begun:
            return
        for entry in self._entries:
            if entry.made is not None:
                entry.made.topic_changed(image, created=created)
            elif entry.topic == image.name:
                self._make_if_needed(entry)

    def topic_deleted(self, image: TopicImage) -> None:
        """Tell of a topic that was deleted."""
        for entry in self._entries:
            if entry.made is not None:
                entry.made.topic_deleted(image)

    def _make_if_needed(self, entry: CoordinatorEntry[Any]) -> None:
        if any(
            partition is not None and partition.log_end_offset
            for partition in self._partitions.by_name.get(entry.topic, ())
        ):
            entry.get()
