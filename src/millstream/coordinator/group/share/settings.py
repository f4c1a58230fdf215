"""The settings of share groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTimes:
    """What may be set for each share group (resource type GROUP), in milliseconds."""

    session_timeout_ms: int = 45_000
    """``share.session.timeout.ms``, ``group.share.session.timeout.ms``"""
    heartbeat_interval_ms: int = 5_000
    """``share.heartbeat.interval.ms``, ``group.share.heartbeat.interval.ms``"""
    assignment_interval_ms: int = 1_000
    """``share.assignment.interval.ms``, ``group.share.assignment.interval.ms``"""


def _default_times(group_id: str) -> ShareTimes:
    return ShareTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupSettings:
    """Kafka's settings of share groups with Kafka's defaults."""

    times_of: Callable[[str], ShareTimes] = _default_times
    """The times of a group by its id; they may change at any moment."""
    max_size: int = 200
    """``group.share.max.size``"""
    initialize_retry_interval_ms: int = 30_000
    """``group.share.initialize.retry.interval.ms``"""
