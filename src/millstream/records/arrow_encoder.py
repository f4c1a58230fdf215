"""Arrow columns to record batches, one partition after the other.

With the kernel each record is written once, straight from Arrow's memory; without it numpy and
Arrow's own functions do the same (``column_encoder``), on rows that are copied into order first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from millstream.model.producer import NO_SEQUENCE, next_sequence
from millstream.records import kernel
from millstream.records.arrow_layouts import (
    as_bytes,
    describe_binary,
    header_columns,
    timestamp_column,
    units_per_ms,
)
from millstream.records.batch import HEADER_SIZE
from millstream.records.builder import BatchOptions, seal
from millstream.records.column_decoder import Int64s
from millstream.records.compression import Codec, compress
from millstream.records.kernel import Library
from millstream.records.kernel_types import (
    CAPACITY,
    OK,
    REASONS,
    BatchFields,
    BinaryIn,
    Fault,
    TableIn,
    Written,
)

DEFAULT_BATCH_BYTES: Final = 256 * 1024

_OUTPUT_BYTES: Final = 4 * 1024 * 1024
"""Batches are written into memory of this size, many in one call."""

_MOST_WRITTEN: Final = 4096
_MOST_BATCH_BYTES: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One batch for one partition; ``data`` may be written to."""

    partition: int
    data: memoryview
    count: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Columns of one length: ``key`` and ``value`` binary or string, also large, ``headers`` a
    list of structs of key and value, ``timestamp`` an Arrow timestamp or int64 in milliseconds.

    A column that is None is null in all rows; records without a timestamp get
    ``default_timestamp_ms``.
    """

    rows: int
    key: pa.Array | None
    value: pa.Array | None
    headers: pa.Array | None = None
    timestamp: pa.Array | None = None
    default_timestamp_ms: int = -1

    def __post_init__(self) -> None:
        for column in (self.key, self.value, self.headers, self.timestamp):
            if column is not None and len(column) != self.rows:
                raise ValueError("columns of one table have the same number of rows")

    def timestamps_ms(self) -> Int64s:
        """Return every record's timestamp in milliseconds."""
        if self.timestamp is None:
            return np.full(self.rows, self.default_timestamp_ms, np.int64)
        column = timestamp_column(self.timestamp)
        numbers = column.cast(pa.int64()) if column.type != pa.int64() else column
        milliseconds: Int64s = numbers.fill_null(0).to_numpy(zero_copy_only=False)
        per_ms = units_per_ms(column.type)
        if per_ms > 1:
            milliseconds = milliseconds // per_ms
        if column.null_count:
            nulls = column.is_null().to_numpy(zero_copy_only=False)
            milliseconds = np.where(nulls, self.default_timestamp_ms, milliseconds)
        return milliseconds


def encode_rows(
    rows: ArrowRows,
    *,
    partition: int = 0,
    order: Int64s | None = None,
    options: BatchOptions | None = None,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
) -> Iterator[EncodedBatch]:
    """Yield batches of the rows that ``order`` names, in its order; of all without it.

    A batch takes up to ``batch_bytes`` before compression, and at least one row. Every batch has
    the options' base offset; base sequences go on from one batch to the next. Raises ValueError
    on malformed Arrow columns and on a record too large for a batch.
    """
    chosen = options if options is not None else BatchOptions()
    if rows.headers is not None:
        header_columns(rows.headers)
    library = kernel.library()
    if library is None:
        yield from _encode_with_numpy(rows, partition, order, chosen, batch_bytes)
        return
    writing = _Writing(library, rows, chosen, batch_bytes)
    for data, written in writing.batches(order):
        count, latest = written.count, written.max_timestamp
        yield EncodedBatch(partition, data, count, latest)


class _Writing:
    """What the kernel reads and writes for one partition."""

    def __init__(
        self, library: Library, rows: ArrowRows, options: BatchOptions, batch_bytes: int
    ) -> None:
        self._library = library
        self._rows = rows
        self._options = options
        self._sequence = options.base_sequence
        self._kept: list[pa.Array] = []
        self._table = self._describe(rows)
        self._batch_bytes = min(max(batch_bytes, HEADER_SIZE), _MOST_BATCH_BYTES)
        self._fields = BatchFields.of(options, self._batch_bytes)

    def batches(self, order: Int64s | None) -> Iterator[tuple[memoryview, Written]]:
        """Yield each batch with its header fields."""
        row, last, at = 0, self._rows.rows, 0
        if order is not None:
            order = np.ascontiguousarray(order, np.int64)
            last, at = len(order), order.ctypes.data
        written, count, fault = (Written * _MOST_WRITTEN)(), ctypes.c_int64(), Fault()
        size = self._output_bytes(last / self._rows.rows if last else 0)
        while row < last:
            output = pa.allocate_buffer(size)
            self._fields.base_sequence = self._sequence
            reached = self._library.encode(
                self._table.address,
                at,
                row,
                last,
                self._fields.address,
                output.address,
                size,
                ctypes.addressof(written),
                _MOST_WRITTEN,
                ctypes.addressof(count),
                fault.address,
            )
            if fault.code == CAPACITY:
                size = max(2 * size, fault.position + HEADER_SIZE)
                continue
            if fault.code != OK:
                raise ValueError(f"row {fault.index}: {REASONS.get(fault.code, 'too large')}")
            view = memoryview(output).cast("B")
            for each in written[: count.value]:
                yield self._finish(view[each.position : each.position + each.size], each), each
                if self._sequence != NO_SEQUENCE:
                    self._sequence = next_sequence(self._sequence, each.count)
            row = reached

    def _output_bytes(self, share: float) -> int:
        """Return how much is written at once: little for a small share of few rows."""
        rows = self._rows
        columns = (rows.key, rows.value, rows.headers)
        most = sum(column.nbytes for column in columns if column is not None) + 50 * rows.rows
        return min(max(_OUTPUT_BYTES, 2 * self._batch_bytes), int(share * most) + 4 * HEADER_SIZE)

    def _finish(self, batch: memoryview, written: Written) -> memoryview:
        options = self._options
        if options.codec is Codec.NONE:
            return batch
        return memoryview(
            bytearray(
                seal(
                    compress(options.codec, batch[HEADER_SIZE:], options.level),
                    replace(options, base_sequence=self._sequence),
                    last_offset_delta=written.count - 1,
                    base_timestamp=written.base_timestamp,
                    max_timestamp=written.max_timestamp,
                    count=written.count,
                )
            )
        )

    def _describe(self, rows: ArrowRows) -> TableIn:
        table = TableIn(rows=rows.rows, default_timestamp=rows.default_timestamp_ms)
        table.timestamp_per_ms = 1
        if rows.timestamp is not None:
            column = timestamp_column(rows.timestamp)
            self._kept.append(column)
            validity, data = column.buffers()
            table.timestamp = data.address if data is not None else None
            table.timestamp_validity = validity.address if validity is not None else None
            table.timestamp_first = column.offset
            table.timestamp_per_ms = units_per_ms(column.type)
        if rows.key is not None:
            table.key = self._binary(rows.key)
        if rows.value is not None:
            table.value = self._binary(rows.value)
        if rows.headers is not None and rows.headers.null_count < rows.rows:
            self._describe_headers(table, rows.headers)
        return table

    def _binary(self, column: pa.Array) -> BinaryIn:
        column = as_bytes(column)
        self._kept.append(column)
        return describe_binary(column)

    def _describe_headers(self, table: TableIn, headers: pa.Array) -> None:
        keys, values = header_columns(headers)
        self._kept.append(headers)
        validity, offsets = headers.buffers()[:2]
        table.header_offsets = None if offsets is None else offsets.address
        table.header_validity = None if validity is None else validity.address
        table.header_first = headers.offset
        table.header_wide = pa.types.is_large_list(headers.type)
        table.header_rows = len(keys)
        table.header_key = self._binary(keys)
        table.header_value = self._binary(values)


def _encode_with_numpy(
    rows: ArrowRows,
    partition: int,
    order: Int64s | None,
    options: BatchOptions,
    batch_bytes: int,
) -> Iterator[EncodedBatch]:
    from millstream.records.column_encoder import encode_with_numpy

    def taken(column: pa.Array | None) -> pa.Array | None:
        return column if column is None or order is None else column.take(pa.array(order))

    timestamps = rows.timestamps_ms()
    batches = encode_with_numpy(
        timestamp_ms=timestamps if order is None else timestamps[order],
        value=taken(_or_nulls(rows.value, rows.rows)),
        key=taken(_or_nulls(rows.key, rows.rows)),
        headers=taken(rows.headers),
        options=options,
        max_batch_bytes=batch_bytes,
    )
    for data, count, latest in batches:
        yield EncodedBatch(partition, memoryview(bytearray(data)), count, latest)


def _or_nulls(column: pa.Array | None, rows: int) -> pa.Array:
    return pa.nulls(rows, pa.binary()) if column is None else as_bytes(column)
