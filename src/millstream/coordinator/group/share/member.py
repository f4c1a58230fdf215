"""A member of a share group. Kafka: ``ShareGroupMember``."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.coordinator.group.modern.assignor import NO_PARTITIONS, Assignment
from millstream.coordinator.group.modern.member import MemberState


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """Immutable: a change makes a new one."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: Assignment = field(default_factory=lambda: NO_PARTITIONS)

    @property
    def instance_id(self) -> str | None:
        """Members of share groups are never static."""
        return None
