"""The segments of a log in order of their base offsets; the last one is the active one.

Kafka: ``LogSegments``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from millstream.model.offsets import Offset
from millstream.storage.segment import Segment


class Segments:
    """Segments sorted by base offset."""

    __slots__ = ("_base_offsets", "_gone_bytes", "_segments")

    def __init__(self) -> None:
        self._base_offsets: list[Offset] = []
        self._segments: list[Segment] = []
        self._gone_bytes = 0
        """Bytes of the segments that were taken out, less those of what was put in."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __contains__(self, base_offset: Offset) -> bool:
        slot = bisect_left(self._base_offsets, base_offset)
        return slot < len(self._base_offsets) and self._base_offsets[slot] == base_offset

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def active(self) -> Segment:
        """The segment that appends go to."""
        return self._segments[-1]

    @property
    def base_offsets(self) -> list[Offset]:
        """The base offsets, ascending."""
        return list(self._base_offsets)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.records.size for segment in self._segments)

    @property
    def appended_bytes(self) -> int:
        """Bytes that were appended to segments since they were put in, whatever became of them;
        what was truncated away counts no more.
        """
        return self.size + self._gone_bytes

    def add(self, segment: Segment) -> None:
        """Put in a segment, in place of one with the same base offset."""
        slot = bisect_left(self._base_offsets, segment.base_offset)
        self._gone_bytes -= segment.records.size
        if segment.base_offset in self:
            self._gone_bytes += self._segments[slot].records.size
            self._segments[slot] = segment
        else:
            self._base_offsets.insert(slot, segment.base_offset)
            self._segments.insert(slot, segment)

    def remove(self, segment: Segment) -> None:
        """Take out a segment."""
        slot = self._segments.index(segment)
        self._gone_bytes += segment.records.size
        del self._base_offsets[slot]
        del self._segments[slot]

    def clear(self) -> None:
        """Take out all."""
        self._gone_bytes += self.size
        self._base_offsets.clear()
        self._segments.clear()

    def floor(self, offset: Offset) -> Segment | None:
        """Return the last segment that begins at or before ``offset``."""
        slot = bisect_right(self._base_offsets, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def higher(self, offset: Offset) -> Segment | None:
        """Return the first segment that begins after ``offset``."""
        slot = bisect_right(self._base_offsets, offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def starting_with(self, offset: Offset) -> list[Segment]:
        """Return the segments from the one that holds ``offset`` on."""
        slot = max(bisect_right(self._base_offsets, offset) - 1, 0)
        return self._segments[slot:]
