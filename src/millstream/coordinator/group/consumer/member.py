"""One member of a consumer group (Kafka: ``ConsumerGroupMember``). Immutable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from millstream.coordinator.group.modern.assignor import Assignment
from millstream.coordinator.group.modern.member import MemberState
from millstream.model.topic import TopicId

PartitionEpochs: TypeAlias = Mapping[TopicId, Mapping[int, int]]
"""The partitions of a member by topic, each with the member epoch in which it was assigned."""

NO_EPOCHS: Final[PartitionEpochs] = MappingProxyType({})


def partitions_of(epochs: PartitionEpochs) -> Assignment:
    """Return the partitions without their epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in epochs.items()}


def contains(epochs: PartitionEpochs, topic_id: TopicId, partition: int) -> bool:
    """True if a partition is among those of a member."""
    return partition in epochs.get(topic_id, {})


@dataclass(frozen=True, slots=True)
class ClassicMembership:
    """What a member that speaks the classic protocol said when it joined: its session timeout and
    the metadata of each of its protocols, in its order of preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_name(self) -> str:
        """The protocol that it is told was chosen."""
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member. ``assigned`` is what it may have; ``pending_revocation`` what it has yet to give
    back, which no other member may have before. ``classic`` is None for a member that speaks the
    consumer protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    regex: str = ""
    """The regular expression of its subscription; empty if it has none."""
    server_assignor: str | None = None
    classic: ClassicMembership | None = None
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: PartitionEpochs = field(default_factory=lambda: NO_EPOCHS)
    pending_revocation: PartitionEpochs = field(default_factory=lambda: NO_EPOCHS)

    @property
    def is_classic(self) -> bool:
        """True if the member speaks the classic protocol."""
        return self.classic is not None

    def with_assignment(
        self,
        state: MemberState,
        epoch: int,
        assigned: PartitionEpochs,
        pending_revocation: PartitionEpochs = NO_EPOCHS,
    ) -> ConsumerMember:
        """Return the member with another assignment, in a member epoch."""
        return replace(
            self,
            state=state,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def same_metadata(self, other: ConsumerMember) -> bool:
        """True if the record of both members' metadata is the same."""
        return _metadata(self) == _metadata(other)


def _metadata(member: ConsumerMember) -> tuple[object, ...]:
    return (
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.subscribed_topic_names,
        member.regex,
        member.server_assignor,
        member.classic,
    )
