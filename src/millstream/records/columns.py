"""Many batches to columns: how Spark and the clients' tables read.

Imports numpy, and pyarrow where Arrow is asked for, so the broker never imports this module.

The columns of :class:`RecordColumns` are numpy arrays; keys and values are not copied until Arrow's
own kernels gather them in :meth:`RecordColumns.to_record_batch`, whose column names and types are
those of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from ctypes import memmove, sizeof
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from millstream.model.offsets import Offset
from millstream.records import kernel
from millstream.records.batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, Batch
from millstream.records.column_decoder import (
    Bytes,
    Cells,
    Headers,
    Int64s,
    Payload,
    decode_fields,
)
from millstream.records.compression import DEFAULT_MAX_BYTES, decompress
from millstream.records.crc32c import Buffer
from millstream.records.kernel_decoder import (
    FIRST_OFFSET,
    NO_END,
    Chosen,
    Selection,
    choose,
    walk_batches,
)
from millstream.records.kernel_types import (
    CELL_COLUMNS,
    HEADER_COLUMNS,
    BatchEntry,
    CellsOut,
    Fault,
)
from millstream.records.record import Header, Record

if TYPE_CHECKING:
    import pyarrow as pa

_ENTRY: Final = np.dtype(
    {
        "names": ["size", "count", "attributes"],
        "formats": [np.int64, np.int32, np.int32],
        "offsets": [getattr(BatchEntry, name).offset for name in ("size", "count", "attributes")],
        "itemsize": sizeof(BatchEntry),
    }
)
"""The columns that are read from the kernel's batches."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records in the order of their offsets, one row each.

    ``arena`` holds the bytes that ``key``, ``value`` and ``headers`` point into. ``next_offset``
    is where the next read begins: after the last whole batch of any kind.
    """

    arena: Bytes
    offset: Int64s
    timestamp_ms: Int64s
    timestamp_type: NDArray[np.int32]
    key: Cells
    value: Cells
    headers: Headers
    next_offset: Offset

    def __len__(self) -> int:
        return len(self.offset)

    def iter_records(self) -> Iterator[Record]:
        """Yield the rows as records."""
        keys, values = self._strings(self.key), self._strings(self.value)
        headers = self._iter_headers()
        for offset, timestamp in zip(self.offset.tolist(), self.timestamp_ms.tolist(), strict=True):
            yield Record(offset, timestamp, next(keys), next(values), next(headers))

    def to_record_batch(self, schema: pa.Schema, *, topic: str, partition: int) -> pa.RecordBatch:
        """Return the columns that ``schema`` names, in its order; see ``arrow_columns``."""
        from millstream.records.arrow_columns import to_record_batch

        return to_record_batch(self, schema, topic=topic, partition=partition)

    def _strings(self, cells: Cells) -> Iterator[bytes | None]:
        data = memoryview(self.arena.data)
        for start, length in zip(cells.start.tolist(), cells.length.tolist(), strict=True):
            yield None if length < 0 else bytes(data[start : start + length])

    def _iter_headers(self) -> Iterator[tuple[Header, ...]]:
        keys, values = self._strings(self.headers.key), self._strings(self.headers.value)
        for count in self.headers.count.tolist():
            yield tuple(
                ((next(keys) or b"").decode("utf-8", "replace"), next(values)) for _ in range(count)
            )


def decode_columns(
    buffers: Iterable[Buffer],
    *,
    start_offset: Offset = 0,
    end_offset: Offset = NO_END,
    keep: Callable[[Batch], bool] | None = None,
    check_crcs: bool = True,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> RecordColumns:
    """Return the records of ``buffers`` with ``start_offset`` <= offset < ``end_offset``.

    Each buffer holds batches one after the other, as a fetch or a segment file gives them; one
    that is cut off at the end of its buffer is left out. Control batches are left out, and
    batches that ``keep`` refuses: it sees every batch in order, as a ``CommittedOnly`` must; CRCs
    are checked of all. A batch may decompress to ``max_bytes``. Raises CorruptLogError on anything
    that is damaged.
    """
    library = kernel.library()
    if library is not None:
        found = choose(
            library,
            buffers,
            Selection(start_offset, end_offset, keep, check_crcs=check_crcs, max_bytes=max_bytes),
        )
        return _between(_locate(found), start_offset, end_offset)
    chosen: list[Batch] = []
    next_offset = start_offset
    views = [memoryview(buffer) for buffer in buffers]
    places: list[int] = []
    for view in views:
        position = 0
        for batch in walk_batches(view, end_offset, check_crcs=check_crcs):
            position, place = position + batch.size, position + HEADER_SIZE
            next_offset = max(next_offset, min(batch.next_offset, end_offset))
            if keep is not None and not keep(batch):
                continue
            if batch.next_offset > start_offset and batch.count and not batch.is_control:
                chosen.append(batch)
                places.append(place)
    if len(views) == 1 and not any(batch.codec for batch in chosen):
        arena = np.frombuffer(views[0], np.uint8)
        payloads = [
            Payload(place, place + batch.size - HEADER_SIZE, batch.count)
            for place, batch in zip(places, chosen, strict=True)
        ]
    else:
        arena, payloads = _lay_out(chosen, max_bytes)
    columns = _assemble(arena, payloads, chosen, next_offset)
    return _between(columns, start_offset, end_offset)


def _locate(chosen: Chosen) -> RecordColumns:
    """Find the fields of all records with the kernel."""
    entries = np.frombuffer(memoryview(chosen.entries).cast("B"), _ENTRY)
    if len(chosen.buffers) == 1:
        arena = np.frombuffer(chosen.buffers[0], np.uint8)
    else:
        # Cells are positions in one array, so the records of all batches go into one.
        arena = np.empty(int(entries["size"].sum()), np.uint8)
        start = arena.ctypes.data
        for entry in chosen.entries:
            memmove(start, entry.records, entry.size)
            entry.records = start
            start += entry.size
    sizes = chosen.measure(FIRST_OFFSET, NO_END)
    count, most_headers = int(entries["count"].sum()), sizes.headers
    if sizes.rows < count:
        # A record has the largest offset, which is in no range: a header takes two bytes.
        most_headers = int(entries["size"].sum()) // 2
    rows = np.empty((len(CELL_COLUMNS), count), np.int64)
    headers = np.empty((len(HEADER_COLUMNS), most_headers), np.int64)
    out = CellsOut(*(row.ctypes.data for row in (*rows, *headers)), count, most_headers)
    fault = Fault()
    chosen.library.locate(
        chosen.address, len(entries), arena.ctypes.data, out.address, fault.address
    )
    chosen.check(fault)
    headers = headers[:, : out.headers]
    append_time = (entries["attributes"] & LOG_APPEND_TIME_BIT) >> 3
    return RecordColumns(
        arena=arena,
        offset=rows[0],
        timestamp_ms=rows[1],
        timestamp_type=np.repeat(append_time, entries["count"]),
        key=_cells(rows[2], rows[3]),
        value=_cells(rows[4], rows[5]),
        headers=Headers(rows[6], _cells(headers[0], headers[1]), _cells(headers[2], headers[3])),
        next_offset=chosen.next_offset,
    )


def _cells(start: Int64s, stop: Int64s) -> Cells:
    return Cells(start, np.where(stop < 0, -1, stop - start))


def _lay_out(batches: list[Batch], max_bytes: int) -> tuple[Bytes, list[Payload]]:
    """Put the records of all batches, decompressed, one after the other into one array."""
    parts: list[Bytes] = []
    payloads: list[Payload] = []
    position = 0
    for batch in batches:
        data = decompress(batch.codec, batch.records_view, max_bytes)
        parts.append(np.frombuffer(data, np.uint8))
        payloads.append(Payload(position, position + len(data), batch.count))
        position += len(data)
    if not parts:
        return np.empty(0, np.uint8), payloads
    return parts[0] if len(parts) == 1 else np.concatenate(parts), payloads


def _assemble(
    arena: Bytes, payloads: list[Payload], batches: list[Batch], next_offset: Offset
) -> RecordColumns:
    """Decode the payloads and add the fields of their batches' headers."""
    fields = decode_fields(arena, payloads)
    counts = np.array([batch.count for batch in batches], np.int64)

    def per_record(values: list[int]) -> Int64s:
        return np.repeat(np.array(values, np.int64), counts)

    type_set = [bool(batch.attributes & LOG_APPEND_TIME_BIT) for batch in batches]
    timestamp = fields.timestamp_delta
    timestamp += per_record([batch.base_timestamp for batch in batches])
    timestamp_type = np.zeros(len(timestamp), np.int32)
    if any(type_set):
        set_by_broker = np.repeat(np.array(type_set, np.bool_), counts)
        latest = per_record([batch.max_timestamp for batch in batches])
        timestamp[set_by_broker] = latest[set_by_broker]
        timestamp_type[set_by_broker] = 1
    offset = fields.offset_delta
    offset += per_record([batch.base_offset for batch in batches])
    return RecordColumns(
        arena=arena,
        offset=offset,
        timestamp_ms=timestamp,
        timestamp_type=timestamp_type,
        key=fields.key,
        value=fields.value,
        headers=fields.headers,
        next_offset=next_offset,
    )


def _between(columns: RecordColumns, start_offset: Offset, end_offset: Offset) -> RecordColumns:
    """Leave out the records outside [start_offset, end_offset)."""
    offset = columns.offset
    if not len(offset) or (offset.min() >= start_offset and offset.max() < end_offset):
        return columns
    mask = (offset >= start_offset) & (offset < end_offset)
    return RecordColumns(
        arena=columns.arena,
        offset=offset[mask],
        timestamp_ms=columns.timestamp_ms[mask],
        timestamp_type=columns.timestamp_type[mask],
        key=columns.key.where(mask),
        value=columns.value.where(mask),
        headers=columns.headers.where(mask),
        next_offset=columns.next_offset,
    )
