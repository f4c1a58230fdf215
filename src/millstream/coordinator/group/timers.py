"""The kinds of deadlines of groups."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from millstream.coordinator.deadlines import Deadlines


class Timer(IntEnum):
    """The kind of a deadline."""

    SESSION = 0
    """The session of a member, or of a pending member id, expires."""
    INITIAL_JOIN = 1
    """The initial rebalance delay of a group ends."""
    JOIN = 2
    """The join phase of a rebalance times out."""
    SYNC = 3
    """The sync phase of a rebalance times out."""
    REVOCATION = 4
    """A member of a consumer group has not given partitions back within its rebalance timeout."""
    MEMBER_JOIN = 5
    """A classic member of a consumer group has not joined again within its rebalance timeout."""
    MEMBER_SYNC = 6
    """A classic member of a consumer group has not sent SyncGroup within its rebalance timeout."""
    ASSIGNMENT = 7
    """The target assignment of a consumer group is due."""


class TimerKey(NamedTuple):
    """The key of a deadline; ``member_id`` is empty for deadlines of the whole group."""

    timer: Timer
    group_id: str
    member_id: str = ""


GroupDeadlines = Deadlines[TimerKey]
