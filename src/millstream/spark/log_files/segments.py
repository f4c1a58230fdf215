"""The present segments of one partition's directory.

A broker renames files while it compacts: the old ``.log`` is renamed away, the new one is first
``.swap`` and then gets its name. Listings are repeated until two in a row agree.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import Offset
from millstream.records.batch import HEADER_SIZE, header_at
from millstream.storage.directory import LOG, OFFSET_INDEX, SWAP, file_name, parse_file_name
from millstream.storage.offset_index import OffsetIndex

_SETTLE_S: Final = 5.0
_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True, order=True)
class SegmentFile:
    """One ``.log`` file: the offset in its name, and its bytes at the listing."""

    base_offset: Offset
    size_bytes: int

    def path(self, directory: Path, extension: str = LOG) -> Path:
        """Return the path of one of the segment's files."""
        return directory / file_name(self.base_offset, extension)


def list_segments(directory: Path) -> list[SegmentFile]:
    """Return the segments in order of their offsets. Raises FileNotFoundError."""
    deadline = time.monotonic() + _SETTLE_S
    before, _ = _list(directory)
    while True:
        found, is_swapping = _list(directory)
        if not is_swapping and [s.base_offset for s in found] == [s.base_offset for s in before]:
            return found
        if time.monotonic() > deadline:
            # A broker that crashed in between leaves this state; it is repaired at its next start.
            return found
        before = found
        time.sleep(_PAUSE_S)


def _list(directory: Path) -> tuple[list[SegmentFile], bool]:
    found: list[SegmentFile] = []
    is_swapping = False
    with os.scandir(directory) as entries:
        for entry in entries:
            is_swapping = is_swapping or entry.name.endswith(LOG + SWAP)
            parsed = parse_file_name(entry.name)
            if parsed is None or parsed[1] != LOG:
                continue
            try:
                found.append(SegmentFile(parsed[0], entry.stat().st_size))
            except FileNotFoundError:
                is_swapping = True
    return sorted(found), is_swapping


def floor(segments: Sequence[SegmentFile], offset: Offset) -> int:
    """Return the index of the segment that holds ``offset``; −1 when all begin after it."""
    return bisect_right(segments, offset, key=lambda each: each.base_offset) - 1


class IndexEntries:
    """The offset index of a segment, used as a hint: a missing or torn one counts as empty."""

    def __init__(self, directory: Path, segment: SegmentFile) -> None:
        self._base_offset = segment.base_offset
        try:
            data = segment.path(directory, OFFSET_INDEX).read_bytes()
        except OSError:
            data = b""
        self._data = data
        slots = len(data) // OffsetIndex.entry.size
        # The index of the active segment is preallocated; zeros fill the rest.
        self._count = bisect_right(range(slots), 0, key=lambda slot: int(self._at(slot)[0] == 0))

    def _at(self, slot: int) -> tuple[int, int]:
        relative, position = OffsetIndex.entry.unpack_from(
            self._data, slot * OffsetIndex.entry.size
        )
        return relative, position

    def floor(self, offset: Offset) -> tuple[Offset, int] | None:
        """Return the last entry at or below ``offset``: a batch's last offset and its position."""
        relative = offset - self._base_offset
        slot = bisect_right(range(self._count), relative, key=lambda slot: self._at(slot)[0]) - 1
        return self._entry(slot)

    def at_position(self, position: int) -> tuple[Offset, int] | None:
        """Return the last entry at or before a byte position."""
        slot = bisect_right(range(self._count), position, key=lambda slot: self._at(slot)[1]) - 1
        return self._entry(slot)

    def _entry(self, slot: int) -> tuple[Offset, int] | None:
        if slot < 0:
            return None
        relative, position = self._at(slot)
        return self._base_offset + relative, position


def floor_position(descriptor: int, entry: tuple[Offset, int] | None) -> int:
    """Return the position of an index entry if its batch exists, else 0."""
    if entry is None:
        return 0
    offset, position = entry
    header = os.pread(descriptor, HEADER_SIZE, position)
    try:
        return position if header_at(header).last_offset == offset else 0
    except CorruptLogError:
        return 0
