"""The groups of one shard, by id."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.coordinator.group.group import NO_TIMESTAMP, ClassicGroup
from millstream.coordinator.group.settings import MAX_GROUPS_PER_SHARD
from millstream.coordinator.group.states import GroupState
from millstream.coordinator.result import Instant
from millstream.model.errors import ErrorCode, KafkaError


class Groups:
    """Keeps every group that a partition of ``__consumer_offsets`` knows."""

    def __init__(self) -> None:
        self._groups: dict[str, ClassicGroup] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(self._groups.values())

    def get(self, group_id: str) -> ClassicGroup | None:
        """Return the group with this id, or None."""
        return self._groups.get(group_id)

    def require(self, group_id: str) -> ClassicGroup:
        """Return the group with this id; raise GROUP_ID_NOT_FOUND when there is none."""
        group = self._groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def require_empty(self, group_id: str) -> None:
        """Raise GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP when the group has members."""
        if self.require(group_id).state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

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

    def put(self, group: ClassicGroup) -> None:
        """Put in a group as a record describes it, in place of what was known."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str) -> ClassicGroup | None:
        """Take a group out and return it, or None."""
        return self._groups.pop(group_id, None)
