"""The groups of one shard, by id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from millstream.coordinator.group.classic_group import NO_TIMESTAMP, ClassicGroup
from millstream.coordinator.group.group import Group
from millstream.coordinator.group.settings import MAX_GROUPS_PER_SHARD
from millstream.coordinator.result import Instant
from millstream.model.errors import ErrorCode, KafkaError


class Groups:
    """Keeps every group that a partition of ``__consumer_offsets`` knows."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def get(self, group_id: str) -> Group | None:
        """Return the group with this id, or None."""
        return self._groups.get(group_id)

    def classic(self, group_id: str) -> ClassicGroup | None:
        """Return the group with this id, or None; GROUP_ID_NOT_FOUND where its members speak
        another protocol than the classic one.
        """
        group = self._groups.get(group_id)
        if group is None or isinstance(group, ClassicGroup):
            return group
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")

    def classics(self) -> Iterator[ClassicGroup]:
        """Yield the groups of the classic protocol."""
        return (group for group in self if isinstance(group, ClassicGroup))

    def require_classic(self, group_id: str) -> ClassicGroup:
        """Return the classic group with this id; GROUP_ID_NOT_FOUND when there is none."""
        group = self.classic(group_id)
        return self._missing(group_id) if group is None else group

    def require(self, group_id: str) -> Group:
        """Return the group with this id; raise GROUP_ID_NOT_FOUND when there is none."""
        group = self._groups.get(group_id)
        return self._missing(group_id) if group is None else group

    def _missing(self, group_id: str) -> NoReturn:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")

    def check_room(self) -> None:
        """Raise POLICY_VIOLATION when no further group is taken."""
        if len(self._groups) >= MAX_GROUPS_PER_SHARD:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"this coordinator keeps {len(self._groups)} groups and takes no more",
            )

    def create(self, group_id: str, now: Instant) -> ClassicGroup:
        """Make an empty group; POLICY_VIOLATION when there are too many."""
        self.check_room()
        group = self._groups[group_id] = ClassicGroup(group_id, state_timestamp_ms=now.wall_ms)
        return group

    def ensure_simple(self, group_id: str) -> None:
        """Make sure that a group stands behind its offsets: a group without a protocol type is
        one whose consumers only store offsets here.
        """
        if group_id not in self._groups:
            self._groups[group_id] = ClassicGroup(group_id, state_timestamp_ms=NO_TIMESTAMP)

    def put(self, group: Group) -> None:
        """Put in a group as a record describes it, in place of what was known."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str) -> Group | None:
        """Take a group out and return it, or None."""
        return self._groups.pop(group_id, None)
