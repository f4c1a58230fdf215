"""The deadlines of groups, by what happens when they pass."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from millstream.coordinator.deadlines import Deadlines


class Timer(IntEnum):
    """What a deadline is about."""

    SESSION = 0
    """A member, or an id given out, was not heard of for its session timeout."""
    INITIAL_JOIN = 1
    """The first rebalance of a group has waited its delay."""
    JOIN = 2
    """A rebalance has waited long enough for its members to join again."""
    SYNC = 3
    """Members have had long enough to ask for their assignment."""


class TimerKey(NamedTuple):
    """One deadline; ``member_id`` is empty for those of the whole group."""

    timer: Timer
    group_id: str
    member_id: str = ""


GroupDeadlines = Deadlines[TimerKey]
