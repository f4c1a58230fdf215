"""The scan of many batches in C, ``native/scan.h``, and the choice between it and Python's."""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Final, cast

from millstream.model.offsets import Offset
from millstream.records import kernel
from millstream.records.batch import HEADER_SIZE
from millstream.records.kernel import Address, Pinned
from millstream.records.scan import BATCHES_KEPT, BatchScanner, IndexedBatch

ABI: Final = 2
"""The version of ``native/scan.h`` that this module describes."""

MAX_CAPACITY: Final = 4096
"""Results of one kind that a call has room for; with more it is called again."""

_ENTRY: Final = struct.Struct("=qqqq")
_EPOCH: Final = struct.Struct("=qq")
_PRODUCER: Final = struct.Struct(f"={3 + BATCHES_KEPT}q")
_MARK_BYTES: Final = 8
_SLOT_BYTES: Final = 4


class ScanState(ctypes.Structure):
    """``ms_scan``."""

    _fields_ = (
        ("next_offset", c_uint64),
        *(
            (name, c_int64)
            for name in (
                "unindexed_bytes",
                "largest_timestamp",
                "offset_of_largest",
                "latest_epoch",
                "max_offset",
                "interval_bytes",
                "producers_from",
                "epochs_grow",
            )
        ),
        *((name, c_void_p) for name in ("entries", "epochs", "marks", "producers", "slots")),
        *(
            (name, c_int64)
            for name in (
                "slot_bits",
                "capacity",
                "entry_count",
                "epoch_count",
                "mark_count",
                "producer_count",
                "is_full",
            )
        ),
    )
    next_offset: int
    unindexed_bytes: int
    largest_timestamp: int
    offset_of_largest: int
    latest_epoch: int
    max_offset: int
    interval_bytes: int
    producers_from: int
    epochs_grow: int
    entries: int
    epochs: int
    marks: int
    producers: int
    slots: int
    slot_bits: int
    capacity: int
    entry_count: int
    epoch_count: int
    mark_count: int
    producer_count: int
    is_full: int


class ScanLibrary:
    """The functions of ``native/scan.h``; AttributeError where the library has none of them."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self._scan = loaded.ms_scan_batches
        self._scan.restype = c_int64
        self._scan.argtypes = [c_void_p, c_void_p, c_int64, c_int64]
        self._abi = loaded.ms_scan_abi
        self._abi.restype = ctypes.c_int32
        self._abi.argtypes = []

    def abi(self) -> int:
        """Return the version of the header that the library was built with."""
        return cast(int, self._abi())

    def scan(self, state: ScanState, data: Address, size: int, position: int) -> int:
        """Accept valid batches from the start of ``data``; return their size in bytes."""
        return cast(int, self._scan(ctypes.addressof(state), data, size, position))


def scan_library() -> ScanLibrary | None:
    """Return the functions, or None if the Python implementation is used."""
    found = kernel.library()
    return None if found is None else _load(found.path)


@cache
def _load(path: Path) -> ScanLibrary | None:
    try:
        library = ScanLibrary(ctypes.CDLL(str(path)))
    except (OSError, AttributeError):
        return None
    return library if library.abi() == ABI else None


def new_batch_scanner(
    base_offset: Offset,
    *,
    max_offset: Offset,
    interval_bytes: int,
    producers_from: Offset = 0,
    epochs_grow: bool = False,
    capacity: int = MAX_CAPACITY,
) -> BatchScanner:
    """Return a scanner for one segment: the kernel's if it is available, else the one in Python.

    ``capacity`` bounds its memory: 120 bytes for each result of a kind that a call has room for.
    """
    library = scan_library()
    if library is None:
        return BatchScanner(
            base_offset,
            max_offset=max_offset,
            interval_bytes=interval_bytes,
            producers_from=producers_from,
            epochs_grow=epochs_grow,
        )
    return KernelBatchScanner(
        library,
        base_offset,
        max_offset=max_offset,
        interval_bytes=interval_bytes,
        producers_from=producers_from,
        epochs_grow=epochs_grow,
        capacity=capacity,
    )


class KernelBatchScanner(BatchScanner):
    """Scans batches in C; Python collects the results per index entry and per producer."""

    __slots__ = ("_capacity", "_library", "_memory", "_pinned", "_starts", "_state")

    def __init__(
        self,
        library: ScanLibrary,
        base_offset: Offset,
        *,
        max_offset: Offset,
        interval_bytes: int,
        producers_from: Offset = 0,
        epochs_grow: bool = False,
        capacity: int = MAX_CAPACITY,
    ) -> None:
        """As its base class; ``capacity`` is the most results of a kind that a call has room
        for.
        """
        super().__init__(
            base_offset,
            max_offset=max_offset,
            interval_bytes=interval_bytes,
            producers_from=producers_from,
            epochs_grow=epochs_grow,
        )
        self._library = library
        self._capacity = capacity
        self._state = ScanState(
            producers_from=producers_from,
            epochs_grow=epochs_grow,
        )
        self._memory = memoryview(b"")
        self._starts = [0] * 4

    def scan(self, view: memoryview, position: int) -> int:
        """Accept whole, valid batches from the start of ``view``; return their size in bytes."""
        state, data = self._state, Pinned(view)
        self._make_room(min(self._capacity, data.size // HEADER_SIZE + 1))
        state.next_offset = self.next_offset
        state.unindexed_bytes = self.unindexed_bytes
        state.largest_timestamp = self.largest_timestamp
        state.offset_of_largest = self.offset_of_largest
        state.latest_epoch = self.latest_epoch
        state.max_offset = self._max_offset
        state.interval_bytes = self._interval_bytes
        done, is_full = 0, True
        while is_full:
            address, size = data.address + done, data.size - done
            taken = self._library.scan(state, address, size, position + done)
            self._collect(view[done:])
            done += taken
            is_full = bool(state.is_full)
        self.next_offset = state.next_offset
        self.unindexed_bytes = state.unindexed_bytes
        self.largest_timestamp = state.largest_timestamp
        self.offset_of_largest = state.offset_of_largest
        self.latest_epoch = state.latest_epoch
        return done

    def _make_room(self, capacity: int) -> None:
        """Allocate memory for ``capacity`` results of each kind."""
        state = self._state
        if capacity <= state.capacity:
            return
        slot_bits = capacity.bit_length() + 1
        sizes = [
            capacity * each for each in (_ENTRY.size, _EPOCH.size, _PRODUCER.size, _MARK_BYTES)
        ]
        starts = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
        memory = bytearray(starts[-1] + (_SLOT_BYTES << slot_bits))
        self._pinned = Pinned(memory, writable=True)
        self._memory = memoryview(memory)
        state.entries, state.epochs, state.producers, state.marks, state.slots = (
            self._pinned.address + start for start in starts
        )
        state.capacity, state.slot_bits = capacity, slot_bits
        self._starts = starts[:-1]

    def _collect(self, view: memoryview) -> None:
        """Collect the results of one call on ``view``."""
        state, memory = self._state, self._memory
        entries, epochs, producers, marks = self._starts
        if state.entry_count:
            found = memory[entries : entries + state.entry_count * _ENTRY.size]
            self.index_entries += map(IndexedBatch._make, _ENTRY.iter_unpack(found))
        if state.epoch_count:
            found = memory[epochs : epochs + state.epoch_count * _EPOCH.size]
            self.epochs += [(epoch, offset) for epoch, offset in _EPOCH.iter_unpack(found)]
        if state.producer_count or state.mark_count:
            found = memory[marks : marks + state.mark_count * _MARK_BYTES]
            places = set(found.cast("q"))
            found = memory[producers : producers + state.producer_count * _PRODUCER.size]
            for _, count, _, *last in _PRODUCER.iter_unpack(found):
                places.update(last[:count])
            self._keep_producers(view, places)
