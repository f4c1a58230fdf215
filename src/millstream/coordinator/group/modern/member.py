"""What a member of any modern group has, and the states of its assignment."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol

JOINING_EPOCH: Final = 0
"""The member epoch of a heartbeat that joins, or joins again."""
LEAVING_EPOCH: Final = -1
"""The member epoch of a heartbeat that leaves for good."""
STATIC_LEAVING_EPOCH: Final = -2
"""The member epoch of a static member that leaves and means to come back."""


class MemberState(IntEnum):
    """The state of a member's assignment; the value is the one in its record (Kafka:
    ``MemberState``).
    """

    STABLE = 0
    """It has what it is meant to have."""
    UNREVOKED_PARTITIONS = 1
    """It has yet to give partitions back."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that another member has yet to give back."""
    UNKNOWN = 127
    """A state of a later version."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class ModernMember(Protocol):
    """A member as the shared parts of a group see it. Members are immutable: a change makes a
    new one.
    """

    @property
    def member_id(self) -> str:
        """The member's id."""

    @property
    def instance_id(self) -> str | None:
        """The instance id of a static member."""

    @property
    def rack_id(self) -> str | None:
        """The member's rack."""

    @property
    def subscribed_topic_names(self) -> frozenset[str]:
        """The topics that it names."""

    @property
    def member_epoch(self) -> int:
        """The epoch up to which it has followed the target assignment."""

    @property
    def state(self) -> MemberState:
        """The state of its assignment."""


def is_reconciled_to(member: ModernMember, assignment_epoch: int) -> bool:
    """True if the member has what the target assignment of an epoch gives it."""
    return member.state is MemberState.STABLE and member.member_epoch == assignment_epoch
