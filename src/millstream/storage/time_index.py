"""The ``.timeindex`` file: from a timestamp to an offset.

12-byte entries, big endian::

     0                                        8                          12
     +----------------------------------------+--------------------------+
     | largest timestamp in the segment up to | last offset of the batch |
     | here                               i64 | that holds it, relative  |
     |                                        | to the base offset   i32 |
     +----------------------------------------+--------------------------+

Timestamps grow strictly from entry to entry and offsets do not fall. An entry is added with each
entry of the offset index if the largest timestamp has grown, and one when the segment closes, so
the last entry of a closed segment is its largest timestamp. Kafka: ``TimeIndex``.
"""

from __future__ import annotations

import operator
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import ClassVar, Final, NamedTuple

from millstream.model.offsets import NO_TIMESTAMP, Offset
from millstream.storage.directory import TIME_INDEX
from millstream.storage.files import Buffer
from millstream.storage.index import SegmentIndex, floor_slot, grows

_ENTRY: Final = struct.Struct(">qi")


class TimestampEntry(NamedTuple):
    """A timestamp and the last offset of the batch that holds it."""

    timestamp: int
    offset: Offset


class TimeIndex(SegmentIndex):
    """The time index of one segment."""

    extension: ClassVar[str] = TIME_INDEX
    entry: ClassVar[struct.Struct] = _ENTRY

    __slots__ = ()

    @property
    def last_entry(self) -> TimestampEntry:
        """The largest timestamp in the index; -1 and the base offset when it is empty.

        Raises CorruptIndexError, FileNotFoundError.
        """
        packed = self.read_last()
        if packed is None:
            return TimestampEntry(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = _ENTRY.unpack(packed)
        if timestamp < 0 or relative < 0:
            raise self._corrupt(f"its last entry is ({timestamp}, {relative})")
        return TimestampEntry(timestamp, self.base_offset + relative)

    def maybe_append(self, timestamp: int, offset: Offset) -> None:
        """Add an entry if ``timestamp`` is larger than the last one's."""
        data = self.entries()
        largest = _ENTRY.unpack_from(data, -_ENTRY.size)[0] if data else NO_TIMESTAMP
        if timestamp > largest:
            self._push(_ENTRY.pack(timestamp, offset - self.base_offset))

    def extend(self, entries: Iterable[tuple[int, Offset]]) -> None:
        """Add entries of (timestamp, offset) with one write, those whose timestamp grows."""
        base_offset = self.base_offset
        largest = self.last_entry.timestamp
        packed = []
        for timestamp, offset in entries:
            if timestamp > largest:
                largest = timestamp
                packed.append(_ENTRY.pack(timestamp, offset - base_offset))
        if packed:
            self._push(b"".join(packed), len(packed))

    def lookup(self, timestamp: int) -> TimestampEntry:
        """Return the last entry at or before ``timestamp``; -1 and the base offset if none is."""
        data = self.entries()
        slot = floor_slot(data, _ENTRY, self.count, timestamp)
        return TimestampEntry(NO_TIMESTAMP, self.base_offset) if slot < 0 else self.entry_at(slot)

    def entry_at(self, slot: int) -> TimestampEntry:
        """Return the entry in a slot, 0 to ``count`` - 1."""
        data = self.entries()
        assert 0 <= slot < self.count
        timestamp, relative = _ENTRY.unpack_from(data, slot * _ENTRY.size)
        return TimestampEntry(timestamp, self.base_offset + relative)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries from ``offset`` on."""
        data = self.entries()
        relative = offset - self.base_offset - 1
        self._cut(floor_slot(data, _ENTRY, self.count, relative, field=1) + 1)

    def check(self, data: Buffer) -> None:
        """Raise CorruptIndexError unless timestamps grow, and offsets neither fall nor lie before
        the segment.
        """
        numbers = array("i", bytes(data))
        if sys.byteorder == "little":
            numbers.byteswap()
        high, low, offsets = numbers[0::3], array("I", numbers[1::3].tobytes()), numbers[2::3]
        if not numbers:
            return
        timestamps: Sequence[int] = low
        if high.count(high[0]) != len(high):
            timestamps = [(above << 32) | below for above, below in zip(high, low, strict=True)]
        if high[0] < 0 or not grows(timestamps):
            raise self._corrupt("its timestamps do not grow from entry to entry")
        if offsets[0] < 0 or not all(map(operator.le, offsets, islice(offsets, 1, None))):
            raise self._corrupt("its offsets fall")
