"""The interface of assignors.

An assignor is run by one member of a group, its leader, for all of them (KIP-429 for the
cooperative ones, KIP-881 for racks). Kafka: ``ConsumerPartitionAssignor``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from millstream.model.topic import TopicPartition

NO_GENERATION = -1


class RebalanceProtocol(Enum):
    """The rebalance protocol: a member revokes all partitions, or only those it must."""

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """The subscription of one member.

    ``owned`` are the partitions that it owns while it joins, as of ``generation``; ``user_data`` is
    from its own assignor of the chosen name.
    """

    member_id: str
    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack_id: str | None = None
    user_data: bytes | None = None


TopicRacks: TypeAlias = Mapping[str, Sequence[frozenset[str]]]
"""For each topic that exists, one set per partition: the racks that hold a replica of it."""

Assignments: TypeAlias = dict[str, list[TopicPartition]]
"""For each member id the partitions it gets, none included."""


class Assignor(Protocol):
    """A way to divide partitions, under the name by which members agree on it."""

    @property
    def name(self) -> str:
        """The name of the protocol in JoinGroup; members of one group share at least one."""

    @property
    def rebalance_protocols(self) -> frozenset[RebalanceProtocol]:
        """The rebalance protocols under which the assignor works."""

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return this member's user data for the leader."""

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Store this member's assignment of ``generation``."""

    def assign(self, topics: TopicRacks, members: Sequence[GroupMember]) -> Assignments:
        """Divide the partitions of ``topics`` among ``members``; every member has an entry."""


class Memoryless:
    """The base of stateless assignors, which assign everything again in each rebalance (eager)."""

    rebalance_protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return None: the assignor has no state."""
        return None

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Do nothing."""


def in_order(members: Iterable[GroupMember]) -> list[GroupMember]:
    """Return static members by instance id, then the others by member id.

    Members that keep their identity keep their order (Kafka: ``MemberInfo.compareTo``).
    """
    return sorted(
        members,
        key=lambda member: (
            member.group_instance_id is None,
            member.group_instance_id or "",
            member.member_id,
        ),
    )


def all_partitions(topic: str, topics: TopicRacks) -> list[TopicPartition]:
    """Return the partitions of one topic; none when it does not exist."""
    return [TopicPartition(topic, number) for number in range(len(topics.get(topic, ())))]


def racks_matter(
    consumer_racks: Iterable[str | None], partitions: Sequence[frozenset[str]]
) -> bool:
    """Return True when placing by rack can change anything.

    It cannot when no consumer shares a rack with any replica, or when every partition has a
    replica in every rack (Kafka: ``useRackAwareAssignment``).
    """
    present = frozenset().union(*partitions)
    if present.isdisjoint(rack for rack in consumer_racks if rack):
        return False
    return any(racks != present for racks in partitions)
