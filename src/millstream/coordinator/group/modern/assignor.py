"""What a server-side assignor is given and returns.

An assignor is pure: it maps the members of a group and what they were meant to have so far to what
they are meant to have from now on. Kafka: ``PartitionAssignor``, ``GroupSpec``,
``SubscribedTopicDescriber``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from millstream.coordinator.group.modern.topics import TopicsImage
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicId

Assignment: TypeAlias = Mapping[TopicId, frozenset[int]]
"""The partitions of a member by topic; no topic without partitions."""

NO_PARTITIONS: Final[Assignment] = MappingProxyType({})


class AssignorError(MillstreamError):
    """An assignor could not make an assignment."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """One member: its topics, those that exist, and the partitions of its present target."""

    topic_ids: frozenset[TopicId]
    rack_id: str | None = None
    instance_id: str | None = None
    target: Assignment = field(default_factory=lambda: NO_PARTITIONS)


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """The members of a group, by member id, in the order in which they joined."""

    members: Mapping[str, MemberSubscription]

    @property
    def is_homogeneous(self) -> bool:
        """True if all members subscribe to the same topics."""
        return len({member.topic_ids for member in self.members.values()}) <= 1


class SubscribedTopics(Protocol):
    """The topics that members of the group subscribe to."""

    def partitions(self, topic_id: TopicId) -> Collection[int]:
        """Return the partitions that may be assigned, in order."""

    def racks_of(self, topic_id: TopicId, partition: int) -> frozenset[str]:
        """Return the racks in which a partition has replicas; empty if unknown."""


class PartitionAssignor(Protocol):
    """One way to divide partitions among the members of a group."""

    @property
    def name(self) -> str:
        """The name by which members and settings choose it."""

    def assign(self, group: GroupSpec, topics: SubscribedTopics) -> Mapping[str, Assignment]:
        """Return the new target of every member; AssignorError if there is none."""


class AllPartitions:
    """Every partition of the topics of an image may be assigned; nothing of topics unknown."""

    def __init__(self, topics: TopicsImage) -> None:
        self._topics = topics

    def partitions(self, topic_id: TopicId) -> Collection[int]:
        """Return every partition of a topic."""
        topic = self._topics.topic_by_id(topic_id)
        return range(0 if topic is None else topic.partition_count)

    def racks_of(self, topic_id: TopicId, partition: int) -> frozenset[str]:
        """Return the racks in which a partition has replicas."""
        topic = self._topics.topic_by_id(topic_id)
        return frozenset() if topic is None else topic.racks_of(partition)
