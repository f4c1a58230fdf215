"""Batches from and to single records, for producers and consumers of single records.

The kernel writes all records of a batch in one call, from bytes that Python joined, and creates the
objects of all records of many batches in another. Without it ``builder`` and ``record`` are used.
Imports neither numpy nor pyarrow.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from ctypes import addressof
from dataclasses import dataclass
from functools import cache, partial
from itertools import repeat
from typing import Any, Final, Generic, TypeVar

from millstream.model.offsets import NO_TIMESTAMP, Offset
from millstream.records import kernel
from millstream.records.batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, Batch
from millstream.records.builder import BatchBuilder, BatchOptions, encode_headers, seal
from millstream.records.compression import DEFAULT_MAX_BYTES, Codec, compress, decompress
from millstream.records.kernel import Library, Pinned
from millstream.records.kernel_decoder import FIRST_OFFSET
from millstream.records.kernel_types import (
    OK,
    REASONS,
    BatchEntry,
    BatchFields,
    Fault,
    Interpreter,
    Run,
)
from millstream.records.record import MIN_RECORD_BYTES, Header, read_records

_MOST_NUMBERS_BYTES: Final = 36
"""The largest size of the numbers of a record without headers."""

_MOST_BATCH_BYTES: Final = 2**31 - 1

R = TypeVar("R", bound=tuple[Any, ...])


@dataclass(frozen=True, slots=True)
class RecordShape(Generic[R]):
    """The result type of records: ``kind`` is a tuple of the topic, the partition, and of each
    record

    offset, timestamp, timestamp type, key, value, headers and leader epoch.
    """

    kind: type[R]
    topic: str
    partition: int


def encode_rows(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[Header]] | None = None,
    *,
    options: BatchOptions,
) -> bytearray:
    """Return one batch of these records, timestamps in milliseconds.

    Byte for byte what a ``BatchBuilder`` makes. The sequences have the same length; None for
    ``keys`` or ``headers`` means that no record has any. Raises ValueError on a record that is too
    large.
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
    latest, append_time_ms = max(timestamps), options.log_append_time_ms
    return bytearray(
        seal(
            compress(options.codec, memoryview(batch)[HEADER_SIZE:], options.level),
            options,
            last_offset_delta=len(timestamps) - 1,
            base_timestamp=timestamps[0],
            max_timestamp=max(NO_TIMESTAMP, latest) if append_time_ms is None else append_time_ms,
            count=len(timestamps),
        )
    )


def decode_batches(
    batches: Sequence[Batch],
    shape: RecordShape[R],
    *,
    start_offset: Offset = FIRST_OFFSET,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> list[R]:
    """Return the records of all batches from ``start_offset`` on, in order.

    Each batch is decompressed to at most ``max_bytes``. The same records as ``record.read_records``
    gives, with its errors. CRCs are not checked. The tuples that the kernel creates are not tracked
    by the garbage collector.
    """
    library = kernel.library()
    if library is None:
        return [each for batch in batches for each in _read(batch, shape, start_offset, max_bytes)]
    if _hashes_hold(library):
        return _make(library, batches, shape, start_offset, max_bytes)
    plain = RecordShape(tuple, shape.topic, shape.partition)
    made = _make(library, batches, plain, start_offset, max_bytes)
    return list(map(partial(tuple.__new__, shape.kind), made))


@cache
def _hashes_hold(library: Library) -> bool:
    """Tell whether a tuple that the kernel creates hashes like an equal tuple.

    From Python 3.14 on a tuple keeps its hash, and memory that is all zeros, as the kernel gets
    it, means that the hash is known to be 0. Such tuples have to be copied.
    """
    batch = Batch(memoryview(encode_rows([1], None, [b"x"], options=BatchOptions())))
    (made,) = _make(library, [batch], RecordShape(tuple, "t", 0), FIRST_OFFSET, DEFAULT_MAX_BYTES)
    return hash(made) == hash((*made,))


def _make(
    library: Library,
    batches: Sequence[Batch],
    shape: RecordShape[R],
    start_offset: Offset,
    max_bytes: int,
) -> list[R]:
    """Create the records with the kernel."""
    parts = [decompress(each.codec, each.records_view, max_bytes) for each in batches]
    entries = (BatchEntry * len(batches))()
    epochs = array("i", [each.partition_leader_epoch for each in batches])
    pins = [Pinned(epochs)]
    rows = 0
    for entry, batch, part in zip(entries, batches, parts, strict=True):
        pin = Pinned(part)
        pins.append(pin)
        entry.records, entry.size = pin.address, pin.size
        entry.base_offset = batch.base_offset
        entry.base_timestamp = batch.base_timestamp
        entry.max_timestamp = batch.max_timestamp
        entry.count = batch.count
        entry.attributes = batch.attributes & 0xFFFF
        # The kernel detects a wrong count; no memory may be allocated for it before.
        rows += min(max(batch.count, 0), pin.size // MIN_RECORD_BYTES)
    records: list[R] = [None] * rows  # type: ignore[list-item]  # all are set or dropped
    fault = Fault()
    made = library.records(
        _interpreter().address,
        addressof(entries),
        pins[0].address,
        len(batches),
        start_offset,
        shape.kind,
        shape.topic,
        shape.partition,
        records,
        rows,
        fault.address,
    )
    if fault.code != OK:
        fault.raise_corrupt(batches[fault.index].base_offset)
    del records[made:]
    return records


@cache
def _interpreter() -> Interpreter:
    return Interpreter.this()


def _read(batch: Batch, shape: RecordShape[R], start_offset: Offset, max_bytes: int) -> Iterator[R]:
    make = partial(tuple.__new__, shape.kind)
    timestamp_type = int(batch.attributes & LOG_APPEND_TIME_BIT != 0)
    for each in read_records(batch, max_bytes):
        if each.offset >= start_offset:
            yield make(
                (
                    shape.topic,
                    shape.partition,
                    each.offset,
                    each.timestamp,
                    timestamp_type,
                    each.key,
                    each.value,
                    each.headers,
                    batch.partition_leader_epoch,
                )
            )


def _build(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[Header]] | None,
    options: BatchOptions,
) -> bytearray:
    builder = BatchBuilder(options)
    all_keys = repeat(None) if keys is None else keys
    all_headers = repeat(()) if headers is None else headers
    for timestamp, key, value, each in zip(timestamps, all_keys, values, all_headers, strict=False):
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
        joined = b"".join(column)  # type: ignore[arg-type]  # None raises TypeError
        lengths = array("i", map(len, column))  # type: ignore[arg-type]  # likewise
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
