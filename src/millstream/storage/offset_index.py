"""The ``.index`` file: from an offset to a byte position in the ``.log`` file.

8-byte entries, big endian::

     0                          4                          8
     +--------------------------+--------------------------+
     | last offset of a batch   | position where the batch |
     | less the base offset i32 | starts in the log    i32 |
     +--------------------------+--------------------------+

Both fields grow from entry to entry, and both are above zero: the first batch of a segment never
gets an entry. A look-up takes the greatest entry at or below its target, or position 0, and goes
on through the log from there. Kafka: ``OffsetIndex``.

In memory every 64th offset is kept as a fence. A look-up searches the fences, and then the 64
entries behind the one it found, both without a step of Python for each comparison, so it costs the
same in an index of a hundred entries and of a hundred thousand. Whoever reads on comes to the same
64 entries again: those of the last look-up are kept as numbers.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import ClassVar, Final, NamedTuple, Self

from millstream.model.offsets import Offset
from millstream.storage.directory import OFFSET_INDEX
from millstream.storage.files import Buffer
from millstream.storage.index import SegmentIndex, floor_slot, grows

_ENTRY: Final = struct.Struct(">ii")
_FENCE_ENTRIES: Final = 64
_FENCE_BYTES: Final = _FENCE_ENTRIES * _ENTRY.size
_IS_LITTLE_ENDIAN: Final = sys.byteorder == "little"


class OffsetPosition(NamedTuple):
    """An offset and the byte position of the batch that ends with it."""

    offset: Offset
    position: int


class _Block(NamedTuple):
    """The entries behind a fence as numbers, and the entry behind those."""

    fence: int
    entries: int
    """How many the index had when these were read."""
    offsets: array[int]
    numbers: array[int]
    """Offset and position of each, in turn."""


_NO_BLOCK: Final = _Block(-1, -1, array("i"), array("i"))


class OffsetIndex(SegmentIndex):
    """The offset index of one segment."""

    extension: ClassVar[str] = OFFSET_INDEX
    entry: ClassVar[struct.Struct] = _ENTRY

    __slots__ = ("_block", "_fences")

    _block: _Block
    """What the last look-up has read; forgotten when entries are dropped or come from elsewhere."""

    _fences: array[int]
    """The relative offset of every 64th entry, those that are at hand."""

    @property
    def last_entry(self) -> OffsetPosition | None:
        """The last entry, None in an empty index. Raises CorruptIndexError, FileNotFoundError."""
        packed = self.read_last()
        if packed is None:
            return None
        relative, position = _ENTRY.unpack(packed)
        if relative <= 0 or position <= 0:
            raise self._corrupt(f"its last entry is ({relative}, {position})")
        return OffsetPosition(self.base_offset + relative, position)

    def create(self) -> None:
        """Recreate the index, empty and of full size."""
        super().create()
        self._set_fences(array("i"))

    def collect(self) -> None:
        """Start empty, in memory only."""
        super().collect()
        self._set_fences(array("i"))

    def adopt(self, other: Self) -> None:
        """Use the entries of another object for the same file, and its fences."""
        fences = other._fences if other.is_loaded else array("i")
        super().adopt(other)
        self._set_fences(fences)

    def append(self, offset: Offset, position: int) -> None:
        """Add an entry for the batch at ``position``, whose last offset is ``offset``."""
        relative = offset - self.base_offset
        self._push(_ENTRY.pack(relative, position))
        if self.count % _FENCE_ENTRIES == 1:
            self._fences.append(relative)

    def extend(self, entries: Iterable[tuple[Offset, int]]) -> None:
        """Add entries of (last offset, position) with one write."""
        base_offset = self.base_offset
        relatives = [(offset - base_offset, position) for offset, position in entries]
        first_fence = -self.count % _FENCE_ENTRIES
        self._push(b"".join([_ENTRY.pack(*each) for each in relatives]), len(relatives))
        self._fences.extend([relative for relative, _ in relatives[first_fence::_FENCE_ENTRIES]])

    def position(self, offset: Offset) -> int:
        """Return a position at or before the batch that holds ``offset``."""
        return self.bracket(offset)[0]

    def bracket(self, offset: Offset) -> tuple[int, int]:
        """Return the same, and the position that the entry behind it has: no batch after that one
        holds ``offset``. Where there is no such entry both are the same.
        """
        relative = offset - self.base_offset
        fence = bisect_right(self._fences, relative)
        block = self._block
        if block.fence != fence or block.entries != self.count:
            block = self._read_block(fence)
        numbers = block.numbers
        behind = 2 * bisect_right(block.offsets, relative) + 1
        position = numbers[behind - 2] if behind > 1 else 0
        return position, numbers[behind] if behind < len(numbers) else position

    def _read_block(self, fence: int) -> _Block:
        """Read the entries behind the ``fence``-th fence, 0 for those before the first one."""
        start = max(0, fence - 1) * _FENCE_BYTES
        numbers = array("i", bytes(self.entries()[start : start + _FENCE_BYTES + _ENTRY.size]))
        if _IS_LITTLE_ENDIAN:
            numbers.byteswap()
        block = self._block = _Block(fence, self.count, numbers[0::2], numbers)
        return block

    def _set_fences(self, fences: array[int]) -> None:
        self._fences = fences
        self._block = _NO_BLOCK

    def upper_bound(self, position: int) -> Offset | None:
        """Return the offset of the first entry at or beyond a byte position; None if none is."""
        data = self.entries()
        slot = floor_slot(data, _ENTRY, self.count, position - 1, field=1) + 1
        return self.entry_at(slot).offset if slot < self.count else None

    def entry_at(self, slot: int) -> OffsetPosition:
        """Return the entry in a slot, 0 to ``count`` - 1."""
        data = self.entries()
        assert 0 <= slot < self.count
        relative, position = _ENTRY.unpack_from(data, slot * _ENTRY.size)
        return OffsetPosition(self.base_offset + relative, position)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries from ``offset`` on."""
        data = self.entries()
        self._cut(floor_slot(data, _ENTRY, self.count, offset - self.base_offset - 1) + 1)
        del self._fences[-(-self.count // _FENCE_ENTRIES) :]
        self._block = _NO_BLOCK

    def check(self, data: Buffer) -> None:
        """Raise CorruptIndexError unless both fields are above zero and grow; note the fences."""
        numbers = array("i", bytes(data))
        if _IS_LITTLE_ENDIAN:
            numbers.byteswap()
        for name, column in (("offsets", numbers[0::2]), ("positions", numbers[1::2])):
            if column and (column[0] <= 0 or not grows(column)):
                raise self._corrupt(f"its {name} do not grow from entry to entry")
        self._set_fences(numbers[0 :: 2 * _FENCE_ENTRIES])
