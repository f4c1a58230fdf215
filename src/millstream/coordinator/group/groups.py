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
    """The groups of one partition of ``__consumer_offsets``."""

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
        """Return the group with this id, or None; GROUP_ID_NOT_FOUND if it uses another protocol
        than the classic one.
        """
        group = self._groups.get(group_id)
        if group is None or isinstance(group, ClassicGroup):
            return group
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")

    def classic_or_none(self, group_id: str) -> ClassicGroup | None:
        """Return the group with this id if it is a classic one: for members of classic groups, to
        whom another kind of group is like one that is not there.
        """
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

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

    def check_room(self, *, freed: int = 0) -> None:
        """Raise POLICY_VIOLATION if the limit of groups is reached without ``freed`` of them."""
        if len(self._groups) - freed >= MAX_GROUPS_PER_SHARD:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"this coordinator has {len(self._groups)} groups, which is its limit",
            )

    def create(self, group_id: str, now: Instant) -> ClassicGroup:
        """Create an empty group; POLICY_VIOLATION if there are too many."""
        self.check_room()
        group = self._groups[group_id] = ClassicGroup(group_id, state_timestamp_ms=now.wall_ms)
        return group

    def ensure_simple(self, group_id: str) -> None:
        """Create the group of committed offsets if it does not exist: a group without a protocol
        type has consumers that only store offsets.
        """
        if group_id not in self._groups:
            self._groups[group_id] = ClassicGroup(group_id, state_timestamp_ms=NO_TIMESTAMP)

    def put(self, group: Group) -> None:
        """Add or replace a group, as a record describes it."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str) -> Group | None:
        """Remove a group and return it, or None."""
        return self._groups.pop(group_id, None)
