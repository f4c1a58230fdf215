"""Finds every field of every record of many batches with numpy, without touching records singly.

Three passes over one byte array, the *arena*, which holds the records of all batches:

1. where each record starts. A record's position depends on the length of the one before it, so all
   batches advance in lock-step, record i of every batch in one step; few or last batches are
   walked in a plain loop, which is then the cheaper way.
2. the fields, for some thousand records at a time (so that the columns stay in the cache): a
   varint is read for all of them at once.
3. headers, for the records that have any, header i of every record in one step.

The data is not trusted: reads are clipped to the arena, each pass moves forward only, and a
record's fields must end where its length says.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from millstream.model.errors import CorruptLogError
from millstream.records.record import MIN_RECORD_BYTES
from millstream.records.varint import decode_varint

Int64s: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]

_FEWEST_IN_STEP: Final = 32
"""Below this many batches a step costs more than the plain loop."""

_RECORDS_AT_ONCE: Final = 8192


@dataclass(frozen=True, slots=True)
class Payload:
    """The records of one batch: bytes [start, end) of the arena."""

    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class Cells:
    """A column of byte strings: where each starts in the arena, and its length, -1 for null."""

    start: Int64s
    length: Int64s

    def where(self, mask: NDArray[np.bool_]) -> Cells:
        """Return the cells of the rows that ``mask`` keeps."""
        return Cells(self.start[mask], self.length[mask])


@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of all records, one after the other; ``count`` says how many each has."""

    count: Int64s
    key: Cells
    value: Cells

    def where(self, mask: NDArray[np.bool_]) -> Headers:
        """Return the headers of the rows that ``mask`` keeps."""
        inner = np.repeat(mask, self.count)
        return Headers(self.count[mask], self.key.where(inner), self.value.where(inner))


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of the records, one row per record, in the order of the batches."""

    timestamp_delta: Int64s
    offset_delta: Int64s
    key: Cells
    value: Cells
    headers: Headers


def decode_fields(arena: Bytes, payloads: Sequence[Payload]) -> Fields:
    """Return the fields of the records of all ``payloads``.

    Raises CorruptLogError if a payload does not contain exactly the announced records.
    """
    for payload in payloads:
        if payload.count * MIN_RECORD_BYTES > payload.end - payload.start:
            raise CorruptLogError(f"{payload.count} records in {payload.end - payload.start} bytes")
    starts = _record_starts(arena, payloads)
    rows = len(starts)
    out = np.empty((6, rows), np.int64)
    counts = np.empty(rows, np.int64)
    header_parts: list[Int64s] = []
    for first in range(0, rows, _RECORDS_AT_ONCE):
        chunk = slice(first, first + _RECORDS_AT_ONCE)
        header_parts.append(_decode_chunk(arena, starts[chunk], out[:, chunk], counts[chunk]))
    headers = np.concatenate(header_parts, axis=1) if header_parts else np.empty((4, 0), np.int64)
    return Fields(
        timestamp_delta=out[0],
        offset_delta=out[1],
        key=Cells(out[2], out[3]),
        value=Cells(out[4], out[5]),
        headers=Headers(counts, Cells(headers[0], headers[1]), Cells(headers[2], headers[3])),
    )


def _decode_chunk(arena: Bytes, starts: Int64s, out: Int64s, header_count: Int64s) -> Int64s:
    """Fill ``out`` and ``header_count`` for these records; return their headers, 4 rows."""
    length, position = read_varints(arena, starts, 32)
    end = position + length
    out[0], position = read_varints(arena, position + 1, 64)
    out[1], position = read_varints(arena, position, 32)
    for column in (2, 4):
        length, position = read_varints(arena, position, 32)
        out[column] = position
        out[column + 1] = length
        if length.size and int(length.min()) < 0:
            np.maximum(length, 0, out=length)
            np.maximum(out[column + 1], -1, out=out[column + 1])
        position = position + length
    header_count[:], position = read_varints(arena, position, 32)
    if not header_count.any():
        if not np.array_equal(position, end):
            raise CorruptLogError("a record does not fill its length")
        return np.empty((4, 0), np.int64)
    if bool(((header_count < 0) | (header_count > end - position)).any()):
        raise CorruptLogError("a record's header count does not fit it")
    return _decode_headers(arena, position, end, header_count)


def _decode_headers(arena: Bytes, position: Int64s, end: Int64s, count: Int64s) -> Int64s:
    out = np.empty((4, int(count.sum())), np.int64)
    first_slot = np.cumsum(count) - count
    rows = np.arange(len(count))
    step = 0
    while True:
        done = count[rows] == step
        if not np.array_equal(position[done], end[rows[done]]):
            raise CorruptLogError("a record with headers does not fill its length")
        rows, position = rows[~done], position[~done]
        if not len(rows):
            return out
        slots = first_slot[rows] + step
        for column in (0, 2):
            length, position = read_varints(arena, position, 32)
            if column == 0 and int(length.min()) < 0:
                raise CorruptLogError("a header without a key")
            out[column, slots] = position
            out[column + 1, slots] = np.maximum(length, -1)
            position = position + np.maximum(length, 0)
        step += 1


def read_varints(arena: Bytes, position: Int64s, bits: int) -> tuple[Int64s, Int64s]:
    """Read a zig-zag varint at every position; return the values and the positions after them.

    Positions past the arena read its last byte. Raises CorruptLogError where a number has more
    bytes than ``bits`` (32 or 64) need.
    """
    byte = arena.take(position, mode="clip")
    value = byte.astype(np.int64)
    position = position + 1
    more = byte > 0x7F
    if more.any():
        # A second byte is common (lengths, deltas past 63), so it is read for all rows.
        byte = arena.take(position, mode="clip")
        longer = more.astype(np.int64)
        value = value & 0x7F | (byte & 0x7F) * longer << 7
        position += longer
        rows = np.flatnonzero(more & (byte > 0x7F))
        if rows.size:
            return _read_long(arena, value, position, rows, bits)
    return (value >> 1) ^ -(value & 1), position


def _read_long(
    arena: Bytes, value: Int64s, position: Int64s, rows: Int64s, bits: int
) -> tuple[Int64s, Int64s]:
    """Read the third and later bytes of the numbers of ``rows``."""
    wide = value.view(np.uint64)
    shift = 14
    while rows.size:
        if shift >= bits:
            raise CorruptLogError(f"a varint has more than {shift // 7} bytes")
        byte = arena.take(position[rows], mode="clip")
        wide[rows] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
        position[rows] += 1
        rows = rows[byte > 0x7F]
        shift += 7
    if bits == 32:
        wide &= np.uint64(0xFFFFFFFF)
    sign = -(value & 1)
    return (wide >> np.uint64(1)).view(np.int64) ^ sign, position


def _record_starts(arena: Bytes, payloads: Sequence[Payload]) -> Int64s:
    """Return where each record of each payload starts, in order."""
    count = np.array([payload.count for payload in payloads], np.int64)
    starts = np.empty(int(count.sum()), np.int64)
    next_row = np.cumsum(count)
    reached = np.array([payload.start for payload in payloads], np.int64)
    left = count.copy()
    if len(payloads) >= _FEWEST_IN_STEP:
        _step_through(arena, reached, left, next_row - count, starts)
    data = memoryview(arena.data)
    for payload, position, remaining, row in zip(
        payloads, reached.tolist(), left.tolist(), next_row.tolist(), strict=True
    ):
        if remaining:
            starts[row - remaining : row] = _walk(data, position, remaining, payload.end)
        elif position != payload.end:
            first = row - payload.count
            starts[first:row] = _walk(data, payload.start, payload.count, payload.end)
    return starts


def _step_through(
    arena: Bytes, reached: Int64s, left: Int64s, first_row: Int64s, starts: Int64s
) -> None:
    """Find the starts in all batches at once; ``reached`` and ``left`` return the progress.

    A batch with a length of more than two bytes stops there and is walked from its start
    afterwards.
    """
    pairs = np.ndarray((len(arena) - 1,), "<u2", arena, strides=(1,))
    # Longest first, so that the batches that are still going are always the first ones.
    order = np.argsort(-left, kind="stable")
    fewer = -left[order]
    position = reached[order]
    row = first_row[order]
    advance = _advances()
    step = 0
    active = int(np.count_nonzero(fewer))
    while active >= _FEWEST_IN_STEP:
        starts[row[:active]] = position[:active]
        pair = pairs[np.minimum(position[:active], len(pairs) - 1)]
        position[:active] += advance.take(pair)
        row[:active] += 1
        step += 1
        active = int(np.searchsorted(fewer[:active], -step))
    stuck = advance.take(pairs[np.minimum(position, len(pairs) - 1)]) == 0
    reached[order] = position
    left[order] = np.where(stuck, 0, np.maximum(-fewer - step, 0))


@cache
def _advances() -> Int64s:
    """Return the size of a record by the first two bytes of its length, 0 when it has a third."""
    pair = np.arange(1 << 16)
    low, high = pair & 0xFF, pair >> 8
    two_bytes = np.where(high > 0x7F, 0, 2 + ((low & 0x7F | high << 7) >> 1))
    return np.where(low > 0x7F, two_bytes, 1 + (low >> 1))


def _walk(data: memoryview, position: int, count: int, end: int) -> Int64s:
    """Return the starts of ``count`` records that lie in [position, end)."""
    starts = array("q")
    add = starts.append
    try:
        for _ in range(count):
            add(position)
            length = data[position]
            if length < 0x80:
                position += 1 + (length >> 1)
            elif data[position + 1] < 0x80:
                position += 2 + ((length & 0x7F | data[position + 1] << 7) >> 1)
            else:
                length, position = decode_varint(data, position)
                position += length
    except IndexError:
        position = -1
    if position != end:
        raise CorruptLogError("the records of a batch do not fill it")
    return np.frombuffer(starts, np.int64)
