"""Batches straight to one Arrow record batch of a given schema.

With the kernel every column is written once, into memory of Arrow's own, and columns that the
schema does not name are skipped. Without it numpy decodes to :class:`RecordColumns` and Arrow
gathers.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import Offset
from millstream.records import kernel
from millstream.records.arrow_columns import as_text
from millstream.records.columns import decode_columns
from millstream.records.crc32c import Buffer
from millstream.records.kernel_decoder import Chosen, Selection, choose
from millstream.records.kernel_types import CAPACITY, BinaryOut, Columns, Fault, Sizes

_MAX_CELLS_BYTES: Final = 2**31 - 1
_MICROSECONDS: Final = 1000
_KEPT_ROWS: Final = 16384
"""More rows than a megabyte of log usually has; constant columns are slices of arrays of this
length.
"""

EVERYTHING: Final = Selection()
"""All records of all offsets."""


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """Rows in the order of their offsets; the next read begins at ``next_offset``."""

    rows: pa.RecordBatch
    next_offset: Offset


def decode_arrow(
    buffers: Iterable[Buffer],
    schema: pa.Schema,
    *,
    topic: str,
    partition: int,
    selection: Selection = EVERYTHING,
) -> DecodedBatch:
    """Return the records of one partition as columns that ``schema`` names, in its order.

    The names and types are those of ``arrow_columns``. Each buffer holds batches one after the
    other, as a fetch or a segment file gives them; one that is cut off at the end of its buffer is
    left out, and so are control batches. Raises CorruptLogError on damage, KeyError on a column of
    another name, ValueError when the keys or the values of all records take 2 GiB or more.
    """
    library = kernel.library()
    if library is None:
        columns = decode_columns(
            buffers,
            start_offset=selection.start_offset,
            end_offset=selection.end_offset,
            keep=selection.keep,
            check_crcs=selection.check_crcs,
            max_bytes=selection.max_bytes,
        )
        rows = columns.to_record_batch(schema, topic=topic, partition=partition)
        return DecodedBatch(rows, columns.next_offset)
    chosen = choose(library, buffers, selection)
    written = _write(chosen, schema, selection)
    return DecodedBatch(written.record_batch(topic, partition), chosen.next_offset)


def decode_arrow_pieces(
    buffers: Iterable[Buffer],
    schema: pa.Schema,
    *,
    topic: str,
    partition: int,
    selection: Selection,
    piece_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Yield what :func:`decode_arrow` returns in batches of about ``piece_bytes``, made one by one.

    A piece is still in the processor's cache when it is used, and its memory serves the next one.
    Empty ones are left out. ``buffers`` must stay as they are until the last one was taken.
    """
    library = kernel.library()
    if library is None:
        decoded = decode_arrow(
            buffers, schema, topic=topic, partition=partition, selection=selection
        )
        if decoded.rows.num_rows:
            yield from _slices(decoded.rows, piece_bytes)
        return
    for part in choose(library, buffers, selection).parts(piece_bytes):
        rows = _write(part, schema, selection).record_batch(topic, partition)
        if rows.num_rows:
            yield from _slices(rows, piece_bytes)


def _slices(rows: pa.RecordBatch, piece_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch of many rows, one that grew when it was decompressed; nothing is copied."""
    pieces = max(rows.nbytes // piece_bytes, 1)
    size = -(-rows.num_rows // pieces)
    for first in range(0, rows.num_rows, size):
        yield rows.slice(first, size)


def _write(chosen: Chosen, schema: pa.Schema, selection: Selection) -> _Writing:
    """Write the columns of the selected records with the kernel."""
    start_offset, end_offset = selection.start_offset, selection.end_offset
    sizes = chosen.bound()
    fits = sizes.value_bytes <= _MAX_CELLS_BYTES
    writing = _Writing(schema, sizes) if fits else None
    if writing is None or not writing.decode(chosen, start_offset, end_offset):
        # There are headers, or very much data: measure them first.
        writing = _Writing(schema, chosen.measure(start_offset, end_offset))
        if not writing.decode(chosen, start_offset, end_offset):
            raise CorruptLogError("records changed while they were decoded")
    return writing


def repeated(value: str | int, kind: pa.DataType, rows: int) -> pa.Array:
    """Return a constant column; short ones are slices of a cached array."""
    kept = _repeated(value, kind)
    if rows <= _KEPT_ROWS:
        return kept.slice(0, rows)
    whole, rest = divmod(rows, _KEPT_ROWS)
    return pa.concat_arrays([*[kept] * whole, kept.slice(0, rest)])


@lru_cache(maxsize=64)
def _repeated(value: str | int, kind: pa.DataType) -> pa.Array:
    # Not by pa.repeat or pa.array: they import pyarrow.compute, which takes as long as a hundred
    # thousand rows.
    rows = _KEPT_ROWS
    if isinstance(value, int):
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(array("i", [value]) * rows)])
    text = value.encode()
    ends = array("i", (index * len(text) for index in range(rows + 1)))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text * rows)]
    return pa.Array.from_buffers(kind, rows, buffers)


class _Writing:
    """The Arrow buffers that the kernel fills."""

    def __init__(self, schema: pa.Schema, sizes: Sizes) -> None:
        self._schema = schema
        self._rows = sizes.rows
        self._headers = sizes.headers
        self._columns = Columns(rows=sizes.rows, timestamp_factor=_MICROSECONDS)
        self._buffers: dict[str, list[pa.Buffer]] = {}
        names = set(schema.names)
        for name, size in (("offset", 8), ("timestamp", 8), ("timestampType", 4)):
            if name in names:
                buffer = pa.allocate_buffer(self._rows * size)
                field = "timestamp_type" if name == "timestampType" else name
                setattr(self._columns, field, buffer.address)
                self._buffers[name] = [buffer]
        for name, size in (("key", sizes.key_bytes), ("value", sizes.value_bytes)):
            if name in names:
                self._reserve(name, getattr(self._columns, name), self._rows, size)
        if "headers" in names:
            self._reserve_headers(sizes)

    def _reserve(self, name: str, out: BinaryOut, rows: int, size: int) -> None:
        if size > _MAX_CELLS_BYTES:
            raise ValueError("Arrow's binary type holds less than 2 GiB: decode fewer batches")
        buffers = [
            pa.allocate_buffer((rows + 7) // 8),
            pa.allocate_buffer(4 * (rows + 1)),
            pa.allocate_buffer(size, resizable=True),
        ]
        out.validity, out.offsets, out.data = (buffer.address for buffer in buffers)
        out.capacity = size
        self._buffers[name] = buffers

    def _reserve_headers(self, sizes: Sizes) -> None:
        columns = self._columns
        self._reserve("header_key", columns.header_key, sizes.headers, sizes.header_key_bytes)
        self._reserve("header_value", columns.header_value, sizes.headers, sizes.header_value_bytes)
        buffers = [
            pa.allocate_buffer((self._rows + 7) // 8),
            pa.allocate_buffer(4 * (self._rows + 1)),
        ]
        columns.header_validity, columns.header_offsets = (buffer.address for buffer in buffers)
        columns.header_capacity = sizes.headers
        self._buffers["headers"] = buffers

    def decode(self, chosen: Chosen, start_offset: Offset, end_offset: Offset) -> bool:
        """Write the columns with the kernel; return False if the buffers are too small."""
        fault = Fault()
        chosen.library.decode(
            chosen.address,
            len(chosen.entries),
            start_offset,
            end_offset,
            self._columns.address,
            fault.address,
        )
        if fault.code == CAPACITY:
            return False
        chosen.check(fault)
        self._rows = self._columns.rows
        return True

    def record_batch(self, topic: str, partition: int) -> pa.RecordBatch:
        """Return the columns as Arrow arrays, without a copy."""
        rows = self._rows
        make: dict[str, Callable[[pa.DataType], pa.Array]] = {
            "key": lambda _: self._binary("key", self._columns.key, rows),
            "value": lambda _: self._binary("value", self._columns.value, rows),
            "topic": lambda _: repeated(topic, pa.string(), rows),
            "partition": lambda _: repeated(partition, pa.int32(), rows),
            "offset": lambda _: self._numbers("offset", pa.int64()),
            "timestamp": lambda kind: self._numbers("timestamp", kind),
            "timestampType": lambda _: self._numbers("timestampType", pa.int32()),
            "headers": self._header_lists,
        }
        arrays = [make[field.name](field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _numbers(self, name: str, kind: pa.DataType) -> pa.Array:
        return pa.Array.from_buffers(kind, self._rows, [None, *self._buffers[name]], 0)

    def _binary(self, name: str, out: BinaryOut, rows: int) -> pa.BinaryArray:
        validity, offsets, data = self._buffers[name]
        data.resize(memoryview(offsets).cast("B").cast("i")[rows], shrink_to_fit=True)
        kept = validity if out.nulls else None
        return pa.BinaryArray.from_buffers(pa.binary(), rows, [kept, offsets, data], out.nulls)

    def _header_lists(self, kind: pa.DataType) -> pa.Array:
        if not self._headers:
            return pa.nulls(self._rows, kind)
        columns, pair = self._columns, kind.value_type
        keys = self._binary("header_key", columns.header_key, self._headers)
        values = self._binary("header_value", columns.header_value, self._headers)
        pairs = pa.StructArray.from_arrays([as_text(keys), values], fields=list(pair))
        validity, offsets = self._buffers["headers"]
        return pa.Array.from_buffers(
            kind,
            self._rows,
            [validity if columns.header_nulls else None, offsets],
            columns.header_nulls,
            children=[pairs],
        )
