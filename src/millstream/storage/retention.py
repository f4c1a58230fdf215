"""Which segments are old enough to go. Pure.

Segments are deleted from the oldest on while one of these holds (Kafka:
``UnifiedLog.deleteOldSegments``)::

    the next segment begins at or before the log start       (always)
    the log without it still has retention.bytes or more     (cleanup.policy has delete)
    its newest record is older than retention.ms             (cleanup.policy has delete)

Never a segment that reaches beyond the committed offset, and never an empty active one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.model.offsets import Offset


@dataclass(frozen=True, slots=True)
class SegmentAge:
    """The input of retention for one segment.

    ``end_offset`` is where the next segment begins, for the active one the log end.
    ``newest_ms`` gives its largest timestamp, or when it was last written if it has none.
    """

    end_offset: Offset
    size: int
    is_active: bool
    newest_ms: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """A topic's settings; -1 sets no limit, as does ``deletes`` = False for both limits."""

    retention_ms: int
    retention_bytes: int
    deletes: bool


def count_deletable(
    segments: Sequence[SegmentAge],
    rules: RetentionRules,
    *,
    log_start_offset: Offset,
    committed_offset: Offset,
    now_ms: int,
) -> int:
    """Return how many of ``segments``, oldest first, may be deleted."""
    candidates = 0
    for segment in segments:
        if segment.end_offset > committed_offset or (segment.is_active and segment.size == 0):
            break
        candidates += 1
    count = 0
    while (
        count < candidates
        and not segments[count].is_active
        and segments[count].end_offset <= log_start_offset
    ):
        count += 1
    if not rules.deletes:
        return count
    if rules.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[count:]) - rules.retention_bytes
        while count < candidates and excess >= segments[count].size:
            excess -= segments[count].size
            count += 1
    if rules.retention_ms >= 0:
        while count < candidates and now_ms - segments[count].newest_ms() > rules.retention_ms:
            count += 1
    return count
