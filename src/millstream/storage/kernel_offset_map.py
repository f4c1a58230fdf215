"""The cleaner's map in the kernel: what ``offset_map`` does, many batches in a call.

The GIL is released meanwhile, so the loop goes on answering.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import Final

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import NO_OFFSET, Offset
from millstream.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TRANSACTIONAL_BIT,
)
from millstream.records.cleaner_kernel import CleanerLibrary, MapState
from millstream.records.compaction import NOTHING_RETAINED, RetainedRecords
from millstream.records.kernel import Pinned
from millstream.storage.offset_map import SLOT_BYTES, slot_count

_NOT_PLAIN: Final = CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT


class KernelOffsetMap:
    """An ``OffsetMap``; arguments as those of ``PythonOffsetMap``."""

    def __init__(
        self, library: CleanerLibrary, size_bytes: int, load_factor: float, seed: bytes
    ) -> None:
        self.in_kernel: Final = True
        self._library = library
        slots = slot_count(size_bytes, load_factor)
        # The search for a key that is not there ends at a free slot.
        self._table = Pinned(bytearray(slots * SLOT_BYTES), writable=True)
        self._state = MapState(
            table=self._table.address,
            slots=slots,
            capacity=min(int(slots * load_factor), slots - 1),
            latest_offset=NO_OFFSET,
        )
        self._state.seed[0] = int.from_bytes(seed[:8], "little")
        self._state.seed[1] = int.from_bytes(seed[8:16], "little")
        self._address = ctypes.addressof(self._state)
        self._out = bytearray()

    @property
    def count(self) -> int:
        """Keys in the map."""
        return int(self._state.count)

    @property
    def latest_offset(self) -> Offset:
        """The map has the keys of the log up to this offset."""
        return int(self._state.latest_offset)

    @latest_offset.setter
    def latest_offset(self, offset: Offset) -> None:
        self._state.latest_offset = offset

    def put(self, key: bytes, offset: Offset) -> bool:
        """Note that ``offset`` is the last one of ``key``; False where there is no room."""
        return self._library.put(self._address, key, offset)

    def get(self, key: bytes) -> Offset:
        """Return the last offset of ``key``, -1 if it is not in the map."""
        return self._library.get(self._address, key)

    def put_records(
        self, data: bytes, count: int, base_offset: Offset, start_offset: Offset
    ) -> bool:
        """See ``OffsetMap``."""
        pin = Pinned(data)
        done = self._library.put_records(
            self._address, pin.address, pin.size, count, (base_offset, start_offset)
        )
        if done < 0:
            raise _misfit(count)
        return bool(done)

    def filter_records(
        self, data: bytes, count: int, base_offset: Offset, *, retain_tombstones: bool
    ) -> RetainedRecords:
        """See ``OffsetMap``."""
        pin = Pinned(data)
        out = bytearray(len(data))
        to = Pinned(out, writable=True)
        left = self._library.filter_records(
            self._address,
            pin.address,
            pin.size,
            count,
            base_offset,
            retain_tombstones=retain_tombstones,
            out=to.address,
        )
        if left.is_corrupt:
            raise _misfit(count)
        if not left.count:
            return NOTHING_RETAINED
        return RetainedRecords(
            bytes(memoryview(out)[: left.size]),
            left.count,
            left.max_timestamp_delta,
            bool(left.has_tombstones),
        )

    def put_batches(
        self, data: memoryview, position: int, start_offset: Offset
    ) -> tuple[int, bool]:
        """See ``OffsetMap``."""
        if not _is_plain(data, position):
            return position, True
        pin = Pinned(data)
        stopped, is_full = self._library.put_batches(
            self._address, pin.address, pin.size, position, start_offset
        )
        return stopped, not is_full

    def filter_batches(
        self, data: memoryview, position: int, keep_last_offsets: Sequence[Offset]
    ) -> tuple[int, bytes]:
        """See ``OffsetMap``."""
        if not _is_plain(data, position):
            return position, b""
        if len(self._out) < len(data):
            self._out = bytearray(len(data))
        pin = Pinned(data)
        keep = Pinned(array("q", keep_last_offsets))
        to = Pinned(self._out, writable=True)
        stopped, size = self._library.filter_batches(
            self._address,
            pin.address,
            pin.size,
            position,
            keep=(keep.address, len(keep_last_offsets)),
            out=to.address,
        )
        return stopped, bytes(memoryview(self._out)[:size])


def _is_plain(data: memoryview, position: int) -> bool:
    """Tell whether the kernel supports the next batch."""
    at = position + ATTRIBUTES_POSITION + 1
    return at < len(data) and not data[at] & _NOT_PLAIN


def _misfit(count: int) -> CorruptLogError:
    return CorruptLogError(f"a batch does not hold its {count} records")
