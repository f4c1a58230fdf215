"""Batches that the kernel decodes: found in buffers, decompressed, located or measured.

Imports neither numpy nor pyarrow, because the client's single records are decoded here too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from millstream.model.offsets import Offset
from millstream.records.batch import CODEC_MASK, HEADER_SIZE, Batch, header_at, iter_batches
from millstream.records.compression import DEFAULT_MAX_BYTES, decompress
from millstream.records.crc32c import Buffer
from millstream.records.kernel import Library, Pinned
from millstream.records.kernel_types import BATCH_HEADER, CRC, OK, BatchEntry, Fault, Sizes, Walk
from millstream.records.legacy import check_not_legacy

FIRST_OFFSET: Final = -(2**63)
NO_END: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records of some buffers are wanted, and how they are read.

    Those with ``start_offset`` <= offset < ``end_offset``, of batches that ``keep`` does not
    refuse; it sees every batch in order, as a ``CommittedOnly`` must. ``check_crcs`` applies to
    every batch, selected or not, because damage may make a batch look unselected. A batch may
    decompress to ``max_bytes``.
    """

    start_offset: Offset = 0
    end_offset: Offset = NO_END
    keep: Callable[[Batch], bool] | None = None
    check_crcs: bool = True
    max_bytes: int = DEFAULT_MAX_BYTES


class Chosen:
    """The batches with selected records, and the memory that they point into.

    ``entries`` are passed to the kernel's functions. ``next_offset`` is where the next read begins.
    """

    def __init__(self, library: Library, next_offset: Offset) -> None:
        self.library = library
        self.next_offset = next_offset
        self.entries: ctypes.Array[BatchEntry] = (BatchEntry * 0)()
        self.rows = 0
        self.compressed = 0
        self.buffers: list[Buffer] = []
        self._parts: list[ctypes.Array[BatchEntry]] = []
        self._pins: list[Pinned] = []

    @property
    def address(self) -> int:
        """The address of the entries."""
        return ctypes.addressof(self.entries)

    def measure(self, start_offset: Offset, end_offset: Offset) -> Sizes:
        """Check all records; return the sizes of those in [start, end). Raises CorruptLogError."""
        sizes, fault = Sizes(), Fault()
        self.library.measure(
            self.address, len(self.entries), start_offset, end_offset, sizes.address, fault.address
        )
        self.check(fault)
        return sizes

    def bound(self) -> Sizes:
        """Return an upper bound of the sizes, without reading the records."""
        sizes, fault = Sizes(), Fault()
        self.library.bound(self.address, len(self.entries), sizes.address, fault.address)
        self.check(fault)
        return sizes

    def check(self, fault: Fault) -> None:
        """Raise CorruptLogError if a function of the kernel reported a fault."""
        if fault.code != OK:
            fault.raise_corrupt(self.entries[fault.index].base_offset)

    def add_found(self, buffer: Buffer, selection: Selection) -> None:
        """Add the batches of a buffer that hold selected records."""
        pin = self._pin(buffer)
        walk, fault = Walk(), Fault()

        def find(entries: ctypes.Array[BatchEntry] | None, check: bool) -> None:
            self.library.find_batches(
                pin.address,
                pin.size,
                0,
                selection.start_offset,
                selection.end_offset,
                check,
                0 if entries is None else ctypes.addressof(entries),
                0 if entries is None else len(entries),
                walk.address,
                fault.address,
            )
            if fault.code != OK:
                _raise_damage(buffer, fault)

        find(None, False)
        if not walk.at_end and pin.size - walk.position < HEADER_SIZE:
            check_not_legacy(memoryview(buffer)[walk.position :])
        found = (BatchEntry * walk.found)()
        find(found, selection.check_crcs)
        self._parts.append(found)
        self.rows += walk.rows
        self.compressed += walk.compressed
        self.next_offset = max(self.next_offset, walk.next_offset)

    def add_batches(self, batches: Sequence[Batch]) -> None:
        """Add batches that were chosen one by one."""
        part = (BatchEntry * len(batches))()
        for entry, batch in zip(part, batches, strict=True):
            pin = self._pin(batch.buffer)
            entry.records = pin.address + HEADER_SIZE
            entry.size = batch.size - HEADER_SIZE
            entry.base_offset = batch.base_offset
            entry.base_timestamp = batch.base_timestamp
            entry.max_timestamp = batch.max_timestamp
            entry.count = batch.count
            entry.attributes = batch.attributes & 0xFFFF
            self.rows += batch.count
            self.compressed += batch.codec != 0
        self._parts.append(part)

    def join(self, max_bytes: int) -> None:
        """Finish the selection: put the entries into one array, and decompress compressed
        batches.
        """
        parts = self._parts
        if len(parts) == 1:
            self.entries = parts[0]
        else:
            self.entries = (BatchEntry * sum(len(part) for part in parts))()
            at = ctypes.addressof(self.entries)
            for part in parts:
                ctypes.memmove(at, part, ctypes.sizeof(part))
                at += ctypes.sizeof(part)
        if self.compressed:
            for entry in self.entries:
                if entry.attributes & CODEC_MASK:
                    self._decompress(entry, max_bytes)

    def parts(self, size_bytes: int) -> Iterator[Chosen]:
        """Yield runs of batches whose records take about ``size_bytes`` together, up to one batch
        more.
        """
        first, size = 0, 0
        for number, entry in enumerate(self.entries, 1):
            size += entry.size
            if size >= size_bytes or number == len(self.entries):
                yield self._part(first, number)
                first, size = number, 0

    def _part(self, first: int, end: int) -> Chosen:
        part = Chosen(self.library, self.next_offset)
        at = first * ctypes.sizeof(BatchEntry)
        part.entries = (BatchEntry * (end - first)).from_buffer(self.entries, at)
        part.buffers, part._pins = self.buffers, self._pins
        return part

    def _decompress(self, entry: BatchEntry, max_bytes: int) -> None:
        compressed = (ctypes.c_char * entry.size).from_address(entry.records)
        data = decompress(
            entry.attributes & CODEC_MASK, memoryview(compressed).cast("B"), max_bytes
        )
        pin = self._pin(data)
        entry.records, entry.size = pin.address, pin.size

    def _pin(self, buffer: Buffer) -> Pinned:
        pin = Pinned(buffer)
        self.buffers.append(buffer)
        self._pins.append(pin)
        return pin


def choose(library: Library, buffers: Iterable[Buffer], selection: Selection) -> Chosen:
    """Return the batches of ``buffers`` that hold selected records.

    Each buffer holds batches one after the other; one that is cut off at the end of its buffer is
    left out. Raises CorruptLogError on anything that is damaged.
    """
    chosen = Chosen(library, selection.start_offset)
    for buffer in buffers:
        if selection.keep is None:
            chosen.add_found(buffer, selection)
        else:
            _add_kept(chosen, buffer, selection, selection.keep)
    chosen.join(selection.max_bytes)
    return chosen


def _add_kept(
    chosen: Chosen, buffer: Buffer, selection: Selection, keep: Callable[[Batch], bool]
) -> None:
    """Add the batches of a buffer with selected records, filtering each batch by ``keep``."""
    kept = []
    for batch in walk_batches(buffer, selection.end_offset, check_crcs=selection.check_crcs):
        next_offset = min(batch.next_offset, selection.end_offset)
        chosen.next_offset = max(chosen.next_offset, next_offset)
        wanted = batch.next_offset > selection.start_offset and batch.count > 0
        if keep(batch) and wanted and not batch.is_control:
            kept.append(batch)
    chosen.add_batches(kept)


def walk_batches(buffer: Buffer, end_offset: Offset, *, check_crcs: bool) -> list[Batch]:
    """Return the whole batches that begin before ``end_offset``. Raises as ``iter_batches``, and
    CorruptLogError on a wrong CRC, if CRCs are checked.
    """
    batches = list(takewhile(lambda batch: batch.base_offset < end_offset, iter_batches(buffer)))
    if check_crcs:
        for batch in batches:
            batch.ensure_valid()
    return batches


def _raise_damage(buffer: Buffer, fault: Fault) -> None:
    """Read the batch at the fault with the Python implementation, which raises the error."""
    view = memoryview(buffer)
    if fault.code in {BATCH_HEADER, CRC}:
        header_at(view, fault.position)
        for batch in iter_batches(view, fault.position):
            batch.ensure_valid()
            break
    fault.raise_corrupt(-1)
