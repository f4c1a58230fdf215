"""One batch and its records one by one, for programs that give and take single records.

The kernel writes, or locates, all records of a batch in one call; Python joins the bytes before,
or slices them after. Without the kernel ``builder`` and ``record`` do the same work. Imports
neither numpy nor pyarrow.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from ctypes import Array, addressof
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from millstream.model.offsets import Offset
from millstream.records import kernel
from millstream.records.batch import HEADER_SIZE, Batch
from millstream.records.builder import BatchBuilder, BatchOptions, encode_headers, seal
from millstream.records.compression import DEFAULT_MAX_BYTES, Codec, compress, decompress
from millstream.records.kernel import Library, Pinned
from millstream.records.kernel_decoder import FIRST_OFFSET, NO_END
from millstream.records.kernel_types import (
    CAPACITY,
    CELL_COLUMNS,
    HEADER_COLUMNS,
    OK,
    REASONS,
    BatchEntry,
    BatchFields,
    CellsOut,
    Fault,
    Run,
    Sizes,
)
from millstream.records.record import MIN_RECORD_BYTES, Header, read_records

_MOST_NUMBERS_BYTES: Final = 36
"""Most that the numbers of a record without headers take."""

_MOST_BATCH_BYTES: Final = 2**31 - 1

_NO_HEADERS: Final[tuple[Header, ...]] = ()


@dataclass(frozen=True, slots=True)
class Rows:
    """The records of one batch, column by column; all lists have the same length."""

    offsets: list[Offset]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[Header, ...]]

    def __len__(self) -> int:
        return len(self.offsets)

    def extend(self, more: Rows) -> None:
        """Put the rows of ``more`` after these."""
        self.offsets.extend(more.offsets)
        self.timestamps.extend(more.timestamps)
        self.keys.extend(more.keys)
        self.values.extend(more.values)
        self.headers.extend(more.headers)


def encode_rows(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[Header]] | None = None,
    *,
    options: BatchOptions,
) -> bytearray:
    """Return one batch of these records, timestamps in milliseconds.

    Byte for byte what a ``BatchBuilder`` makes. The sequences have the same length; None for
    ``headers`` means that no record has any. Raises ValueError on a record that is too large.
    """
    for column in (keys, values, headers):
        if column is not None and len(column) != len(timestamps):
            raise ValueError("columns of one batch have the same number of records")
    library = kernel.library()
    if library is None or not timestamps:
        return _build(timestamps, keys, values, headers, options)
    tails = (
        None if headers is None else [encode_headers(each) if each else None for each in headers]
    )
    batch = _encode(library, timestamps, (keys, values, tails), options)
    if options.codec is Codec.NONE:
        return batch
    timestamp_ms = options.log_append_time_ms
    return bytearray(
        seal(
            compress(options.codec, memoryview(batch)[HEADER_SIZE:], options.level),
            options,
            last_offset_delta=len(timestamps) - 1,
            base_timestamp=timestamps[0],
            max_timestamp=max(timestamps) if timestamp_ms is None else timestamp_ms,
            count=len(timestamps),
        )
    )


def decode_rows(batch: Batch, max_bytes: int = DEFAULT_MAX_BYTES) -> Rows:
    """Return the batch's records, decompressed to at most ``max_bytes``.

    The same as ``record.read_records``, with its errors. The CRC is not looked at.
    """
    return decode_batches([batch], max_bytes)


def decode_batches(batches: Sequence[Batch], max_bytes: int = DEFAULT_MAX_BYTES) -> Rows:
    """Return the records of all batches in order, each decompressed to at most ``max_bytes``.

    As :func:`decode_rows` of one after the other, in one call of the kernel.
    """
    library = kernel.library()
    parts = [decompress(each.codec, each.records_view, max_bytes) for each in batches]
    sound = all(
        0 < batch.count * MIN_RECORD_BYTES <= len(part)
        for batch, part in zip(batches, parts, strict=True)
    )
    if library is None or not sound or not batches:
        rows = Rows([], [], [], [], [])
        for batch in batches:
            rows.extend(_read(batch, max_bytes))
        return rows
    data = b"".join(parts)
    pin = Pinned(data)
    entries = (BatchEntry * len(batches))()
    at = pin.address
    for entry, batch, part in zip(entries, batches, parts, strict=True):
        entry.records, entry.size = at, len(part)
        entry.base_offset = batch.base_offset
        entry.base_timestamp = batch.base_timestamp
        entry.max_timestamp = batch.max_timestamp
        entry.count = batch.count
        entry.attributes = batch.attributes & 0xFFFF
        at += len(part)
    return _Located(library, entries).rows(data)


class _Located:
    """Where the records of some batches lie, counted from the first record's first byte."""

    def __init__(self, library: Library, entries: Array[BatchEntry]) -> None:
        """Raises CorruptLogError on damage."""
        self._count = sum(entry.count for entry in entries)
        fault = self._locate(library, entries, 0)
        if fault.code == CAPACITY:
            sizes = Sizes()
            library.measure(
                addressof(entries),
                len(entries),
                FIRST_OFFSET,
                NO_END,
                sizes.address,
                fault.address,
            )
            if fault.code == OK:
                fault = self._locate(library, entries, sizes.headers)
        if fault.code != OK:
            fault.raise_corrupt(entries[fault.index].base_offset)

    def _locate(self, library: Library, entries: Array[BatchEntry], headers: int) -> Fault:
        rows, fault = self._count, Fault()
        cells = bytearray(8 * (len(CELL_COLUMNS) * rows + len(HEADER_COLUMNS) * headers))
        pin = Pinned(cells, writable=True)
        starts = [pin.address + 8 * rows * index for index in range(len(CELL_COLUMNS))]
        after = pin.address + 8 * rows * len(CELL_COLUMNS)
        starts += [after + 8 * headers * index for index in range(len(HEADER_COLUMNS))]
        out = CellsOut(*starts, rows, headers)
        library.locate(
            addressof(entries), len(entries), entries[0].records, out.address, fault.address
        )
        self._cells = memoryview(cells).cast("q")
        self._headers = headers
        return fault

    def rows(self, data: bytes) -> Rows:
        """Return the records, whose bytes are in ``data``."""
        column = self._columns()
        offsets, timestamps = next(column), next(column)
        keys = _slices(data, next(column), next(column))
        values = _slices(data, next(column), next(column))
        counts = next(column)
        if not self._headers:
            headers = [_NO_HEADERS] * self._count
        else:
            pairs = zip(
                _slices(data, next(column), next(column)),
                _slices(data, next(column), next(column)),
                strict=True,
            )
            headers = [
                tuple(_header(*next(pairs)) for _ in range(count)) if count else _NO_HEADERS
                for count in counts
            ]
        return Rows(offsets, timestamps, keys, values, headers)

    def _columns(self) -> Iterator[list[int]]:
        at = 0
        for columns, size in ((CELL_COLUMNS, self._count), (HEADER_COLUMNS, self._headers)):
            for _ in columns:
                yield self._cells[at : at + size].tolist()
                at += size


def _slices(data: bytes, starts: list[int], stops: list[int]) -> list[bytes | None]:
    if min(stops) >= 0:
        return [data[start:stop] for start, stop in zip(starts, stops, strict=True)]
    if max(stops) < 0:
        return [None] * len(stops)
    return [
        None if stop < 0 else data[start:stop] for start, stop in zip(starts, stops, strict=True)
    ]


def _header(key: bytes | None, value: bytes | None) -> Header:
    return (key or b"").decode("utf-8", "replace"), value


def _read(batch: Batch, max_bytes: int) -> Rows:
    records = read_records(batch, max_bytes)
    if not records:
        return Rows([], [], [], [], [])
    columns: list[list[object]] = [list(column) for column in zip(*records, strict=True)]
    return Rows(*columns)  # type: ignore[arg-type]  # the fields of a Record, in their order


def _build(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[Header]] | None,
    options: BatchOptions,
) -> bytearray:
    builder = BatchBuilder(options)
    all_headers = repeat(()) if headers is None else headers
    for timestamp, key, value, each in zip(timestamps, keys, values, all_headers, strict=False):
        builder.append(timestamp, key, value, each)
    return bytearray(builder.build())


def _encode(
    library: Library,
    timestamps: Sequence[int],
    columns: Sequence[Sequence[bytes | None] | None],
    options: BatchOptions,
) -> bytearray:
    rows = len(timestamps)
    runs = (Run * len(columns))()
    kept: list[Pinned] = []
    size = HEADER_SIZE + rows * _MOST_NUMBERS_BYTES
    for run, column in zip(runs, columns, strict=True):
        if column is not None:
            size += _join(run, column, kept)
    if size > _MOST_BATCH_BYTES:
        raise ValueError(f"{rows} records of {size} bytes do not fit into one batch")
    times = Pinned(array("q", timestamps))
    out, fault = bytearray(size), Fault()
    pin = Pinned(out, writable=True)
    fields = BatchFields.of(options)
    written = library.encode_rows(
        times.address, addressof(runs), rows, fields.address, pin.address, size, fault.address
    )
    if written < 0:
        raise ValueError(f"record {fault.index}: {REASONS.get(fault.code, 'too large')}")
    del pin
    del out[written:]
    return out


def _join(run: Run, column: Sequence[bytes | None], kept: list[Pinned]) -> int:
    """Describe a column in ``run`` and return its bytes; ``kept`` holds what it points to."""
    try:
        joined = b"".join(column)  # type: ignore[arg-type]
        lengths = array("i", map(len, column))  # type: ignore[arg-type]
    except TypeError:
        present = [cell for cell in column if cell is not None]
        if not present:
            return 0
        joined = b"".join(present)
        lengths = array("i", [-1 if cell is None else len(cell) for cell in column])
    data, sizes = Pinned(joined), Pinned(lengths)
    run.data, run.size, run.lengths = data.address, data.size, sizes.address
    kept += (data, sizes)
    return data.size
