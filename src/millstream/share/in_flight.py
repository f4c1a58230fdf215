"""The in-flight records of a share partition, as ranges of offsets in one state.

The ranges cover the offsets from the start offset to the end offset without a hole, in order. A
range is what one acquisition, or one run of equal acknowledgements, made of the offsets; Kafka
keeps the same in two levels, batches and, where a batch was split, one entry for each offset.

An offset at which the log has no record (compacted away between two fetched batches) is ARCHIVED
with a delivery count of 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.model.offsets import Offset
from millstream.share.dead_letters import DeadLetterCause
from millstream.share.record_state import RecordState

NO_MEMBER: Final = ""


@dataclass(frozen=True, slots=True)
class Previous:
    """What a range was before a change whose write is not decided yet."""

    state: RecordState
    delivery_count: int
    member_id: str


@dataclass(slots=True, eq=False)
class InFlightRange:
    """Consecutive offsets in one state. Compared by identity."""

    first_offset: Offset
    last_offset: Offset
    state: RecordState
    delivery_count: int
    member_id: str = NO_MEMBER
    """Who holds the lock; empty unless ACQUIRED."""
    lock_deadline_ms: float = 0.0
    """When the lock ends, on a monotonic clock; of no meaning unless ACQUIRED or undecided."""
    acquired_together: int = 0
    """How many records the first acquisition of these took at once: what throttling halves."""
    acquired_from: Offset = 0
    """The first offset of those that were acquired together."""
    cause: DeadLetterCause | None = None
    """Why the records were given up, from then on until they are taken as dead letters; None
    unless ARCHIVING.
    """
    previous: Previous | None = None
    """Set while a write decides whether the change to the present state stays. Until then nothing
    else changes the range. It is then not ACQUIRED: every change that is written leaves that state.
    """

    @property
    def record_count(self) -> int:
        """Offsets in the range; 0 or less once it was dropped."""
        return self.last_offset - self.first_offset + 1

    @property
    def is_available(self) -> bool:
        """True if its records can be acquired."""
        return self.state is RecordState.AVAILABLE and self.previous is None

    def part(self, first_offset: Offset, last_offset: Offset) -> InFlightRange:
        """Return a range of the same state over a part of the offsets."""
        return InFlightRange(
            first_offset,
            last_offset,
            self.state,
            self.delivery_count,
            self.member_id,
            self.lock_deadline_ms,
            self.acquired_together,
            self.acquired_from,
            self.cause,
        )


@dataclass(slots=True)
class InFlight:
    """The ranges from ``start_offset`` on, without holes."""

    start_offset: Offset
    ranges: list[InFlightRange] = field(default_factory=list)
    terminal_count: int = 0
    """Records in a terminal state: Kafka's ``deliveryCompleteCount``, which makes the lag."""

    @property
    def end_offset(self) -> Offset:
        """The last offset that was fetched; ``start_offset - 1`` if none."""
        return self.ranges[-1].last_offset if self.ranges else self.start_offset - 1

    @property
    def record_count(self) -> int:
        """How many offsets there are from the start to the end offset."""
        return self.end_offset - self.start_offset + 1

    def index(self, offset: Offset) -> int:
        """Return the index of the range that has the offset, or where one would begin that has."""
        index = bisect_right(self.ranges, offset, key=_first_offset) - 1
        if index >= 0 and self.ranges[index].last_offset >= offset:
            return index
        return index + 1

    def within(self, first_offset: Offset, last_offset: Offset) -> Iterator[InFlightRange]:
        """Yield the ranges that have an offset of ``first_offset`` to ``last_offset``."""
        ranges = self.ranges
        index = self.index(first_offset)
        while index < len(ranges) and ranges[index].first_offset <= last_offset:
            yield ranges[index]
            index += 1

    def append(self, added: InFlightRange) -> None:
        """Add a range behind the end offset; it begins at ``end_offset + 1``."""
        assert added.first_offset == self.end_offset + 1
        self.ranges.append(added)
        if added.state.is_terminal:
            self.terminal_count += added.record_count

    def change(
        self,
        changed: InFlightRange,
        state: RecordState,
        member_id: str = NO_MEMBER,
        *,
        cause: DeadLetterCause | None = None,
    ) -> None:
        """Give a range another state; ``cause`` where that is ARCHIVING."""
        was_terminal = changed.state.is_terminal
        if changed.record_count > 0 and state.is_terminal != was_terminal:
            self.terminal_count += -changed.record_count if was_terminal else changed.record_count
        changed.state = state
        changed.member_id = member_id
        changed.cause = cause

    def replace(self, begin: int, end: int, ranges: Sequence[InFlightRange]) -> None:
        """Put ``ranges``, which cover the same offsets in the same states, in place of the ranges
        of the indexes from ``begin`` up to ``end``.
        """
        self.ranges[begin:end] = ranges

    def isolate(self, first_offset: Offset, last_offset: Offset) -> list[InFlightRange]:
        """Split ranges so that some have exactly the offsets of these that are in flight; return
        them. A range whose change is undecided is not split and not returned.
        """
        if last_offset < first_offset:
            return []
        begin = self.index(first_offset)
        end = begin
        made: list[InFlightRange] = []
        inside: list[InFlightRange] = []
        for found in self.within(first_offset, last_offset):
            end += 1
            if found.previous is not None:
                made.append(found)
                continue
            parts = cut(found, first_offset, last_offset)
            made += parts
            inside += [part for part in parts if first_offset <= part.first_offset <= last_offset]
        self.replace(begin, end, made)
        return inside

    def move_start(self, start_offset: Offset) -> None:
        """Drop everything below a new start offset, which may be behind the end offset."""
        ranges = self.ranges
        dropped = 0
        for found in ranges:
            if found.first_offset >= start_offset:
                break
            cut_off = min(found.last_offset + 1, start_offset) - found.first_offset
            if found.state.is_terminal:
                self.terminal_count -= cut_off
            found.first_offset += cut_off
            if found.record_count > 0:
                break
            dropped += 1
        del ranges[:dropped]
        self.start_offset = start_offset


def cut(whole: InFlightRange, first_offset: Offset, last_offset: Offset) -> list[InFlightRange]:
    """Return the range in up to three parts: before, within and behind the given offsets."""
    first = max(first_offset, whole.first_offset)
    last = min(last_offset, whole.last_offset)
    if first == whole.first_offset and last == whole.last_offset:
        return [whole]
    parts = [whole.part(first, last)]
    if whole.first_offset < first:
        parts.insert(0, whole.part(whole.first_offset, first - 1))
    if last < whole.last_offset:
        parts.append(whole.part(last + 1, whole.last_offset))
    return parts


def _first_offset(found: InFlightRange) -> Offset:
    return found.first_offset
