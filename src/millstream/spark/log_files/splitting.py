"""Splits ranges by bytes, at the batches that offset indexes point to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from millstream.model.offsets import Offset
from millstream.spark.log_files.segments import IndexEntries, SegmentFile, floor, list_segments
from millstream.spark.log_files.topics import find_partition
from millstream.spark.ranges import OffsetRange


def split_by_bytes(
    ranges: Iterable[OffsetRange],
    log_dirs: Sequence[str],
    *,
    max_bytes: int | None,
    min_partitions: int | None,
) -> list[OffsetRange]:
    """Return ranges of about ``max_bytes`` of log at most, and about ``min_partitions`` of them.

    A range without local files stays whole.
    """
    logs = [_Log(find_partition(log_dirs, each.topic_partition), each) for each in ranges]
    total = sum(each.size_bytes for each in logs)
    most = max_bytes or total
    if min_partitions is not None:
        most = min(most, -(-total // min_partitions))
    return [part for each in logs for part in each.cut(max(most, 1))]


class _Log:
    """One range, and the positions of its offsets in the concatenation of its segments."""

    def __init__(self, directory: Path | None, each: OffsetRange) -> None:
        self._directory = directory
        self._range = each
        self._segments: list[SegmentFile] = []
        self.size_bytes = 0
        if directory is None:
            return
        segments = list_segments(directory)
        first = max(floor(segments, each.start), 0)
        self._segments = segments[first : floor(segments, each.end - 1) + 1]
        self._start = self._position(each.start)
        self.size_bytes = max(self._position(each.end) - self._start, 0)

    def cut(self, most_bytes: int) -> list[OffsetRange]:
        """Return the range in parts of about ``most_bytes``."""
        each, count = self._range, -(-self.size_bytes // most_bytes)
        inner = {self._offset(self._start + self.size_bytes * n // count) for n in range(1, count)}
        cuts = [each.start, *sorted(o for o in inner if each.start < o < each.end), each.end]
        return [replace(each, start=low, end=high) for low, high in pairwise(cuts)]

    def _position(self, offset: Offset) -> int:
        """Return the approximate bytes of the segments before an offset."""
        index = floor(self._segments, offset)
        if index < 0 or self._directory is None:
            return 0
        before = sum(each.size_bytes for each in self._segments[:index])
        entry = IndexEntries(self._directory, self._segments[index]).floor(offset)
        return before + (entry[1] if entry else 0)

    def _offset(self, position: int) -> Offset:
        """Return the first offset of a batch at about a position."""
        assert self._directory is not None
        for segment in self._segments:
            if position < segment.size_bytes:
                entry = IndexEntries(self._directory, segment).at_position(position)
                return entry[0] + 1 if entry else segment.base_offset
            position -= segment.size_bytes
        return self._range.end
