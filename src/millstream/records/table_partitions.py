"""Assigns a partition to each row of a table."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.records import kernel
from millstream.records.arrow_encoder import ArrowRows
from millstream.records.arrow_layouts import as_bytes, describe_binary
from millstream.records.column_decoder import Int64s
from millstream.records.kernel import Library
from millstream.records.kernel_types import OK, Fault

Int32s: TypeAlias = NDArray[np.int32]
UInt32s: TypeAlias = NDArray[np.uint32]

_MULTIPLIER = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)


class TablePartitioner(Protocol):
    """Chooses the partitions of rows without a partition column."""

    def __call__(self, rows: ArrowRows, *, batch_rows: int) -> Int32s:
        """Return a partition per row; ``batch_rows`` is the approximate number of rows in one
        batch.
        """


class KeyPartitioner:
    """Partitions rows with keys by their hash, as Java producers do; rows without a key fill batch
    after batch.

    Those of one batch stay together in one partition, and the next batch goes to the next one,
    from ``first`` on (Kafka: ``BuiltInPartitioner``, KIP-480). ``ignore_keys`` treats all rows as
    rows without a key.
    """

    def __init__(self, partitions: int, *, first: int = 0, ignore_keys: bool = False) -> None:
        if partitions <= 0:
            raise ValueError("a topic has at least one partition")
        self._partitions = partitions
        self._sticky = first % partitions
        self._ignore_keys = ignore_keys

    def __call__(self, rows: ArrowRows, *, batch_rows: int) -> Int32s:
        """Return a partition per row."""
        batch_rows = max(batch_rows, 1)
        keys = None if self._ignore_keys else rows.key
        if keys is None or keys.null_count == rows.rows:
            places = np.arange(rows.rows) // batch_rows + self._sticky
            chosen = (places % self._partitions).astype(np.int32)
            unkeyed = rows.rows
        else:
            column = as_bytes(keys)
            chosen = self._by_key(column, rows.rows, batch_rows)
            unkeyed = column.null_count
        self._sticky = (self._sticky + -(-unkeyed // batch_rows)) % self._partitions
        return chosen

    def _by_key(self, column: pa.Array, rows: int, batch_rows: int) -> Int32s:
        library = kernel.library()
        if library is None:
            return self._with_numpy(column, batch_rows)
        chosen = np.empty(rows, np.int32)
        keys, fault = describe_binary(column), Fault()
        library.partition(
            keys.address,
            rows,
            self._partitions,
            batch_rows,
            self._sticky,
            chosen.ctypes.data,
            fault.address,
        )
        if fault.code != OK:
            raise ValueError(f"row {fault.index}: the keys' offsets do not fit their data")
        return chosen

    def _with_numpy(self, column: pa.Array, batch_rows: int) -> Int32s:
        hashes = murmur2_column(column.cast(pa.large_binary()))
        chosen = ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(self._partitions)).astype(np.int32)
        if column.null_count:
            null = column.is_null().to_numpy(zero_copy_only=False)
            places = np.arange(column.null_count) // batch_rows + self._sticky
            chosen[null] = places % self._partitions
        return chosen


def murmur2_column(column: pa.LargeBinaryArray) -> UInt32s:
    """Return the murmur2 hash of every cell (of empty bytes for null), with numpy."""
    rows = len(column)
    _, offsets, data = column.buffers()
    if not rows or data is None:
        return np.full(rows, _finish(np.full(1, _SEED, np.uint32))[0], np.uint32)
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + rows + 1]
    start, length = bounds[:-1], np.diff(bounds)
    # Reads of four bytes may start at the last byte.
    padded = np.concatenate((np.frombuffer(data, np.uint8), np.zeros(4, np.uint8)))
    words = np.ndarray((len(padded) - 3,), "<u4", padded, strides=(1,))
    state: UInt32s = _SEED ^ length.astype(np.uint32)
    # Longest first, so that the cells that still have words are always the first ones.
    order = np.argsort(-length, kind="stable")
    counts = -(length[order] // 4)
    for step in range(int(length.max()) // 4):
        active = order[: int(np.searchsorted(counts, -step, side="left"))]
        word = words[start[active] + 4 * step] * _MULTIPLIER
        word = (word ^ word >> np.uint32(24)) * _MULTIPLIER
        state[active] = state[active] * _MULTIPLIER ^ word
    rest = np.flatnonzero(length % 4)
    tail = words[start[rest] + length[rest] // 4 * 4]
    tail &= (np.uint32(1) << (8 * (length[rest] % 4)).astype(np.uint32)) - np.uint32(1)
    state[rest] = (state[rest] ^ tail) * _MULTIPLIER
    return _finish(state)


def _finish(state: UInt32s) -> UInt32s:
    state = (state ^ state >> np.uint32(13)) * _MULTIPLIER
    return state ^ state >> np.uint32(15)


def group_rows(chosen: Int32s, partitions: int) -> Iterator[tuple[int, Int64s]]:
    """Yield each partition that has rows, and their numbers in order.

    Raises ValueError on a partition that does not exist.
    """
    library = kernel.library()
    if library is None:
        order, bounds = _group_with_numpy(chosen, partitions)
    else:
        order, bounds = _group(library, chosen, partitions)
    for partition in np.flatnonzero(np.diff(bounds)).tolist():
        yield partition, order[bounds[partition] : bounds[partition + 1]]


def _group(library: Library, chosen: Int32s, partitions: int) -> tuple[Int64s, Int64s]:
    chosen = np.ascontiguousarray(chosen, np.int32)
    order, bounds = np.empty(len(chosen), np.int64), np.empty(partitions + 1, np.int64)
    fault = Fault()
    library.group(
        chosen.ctypes.data,
        len(chosen),
        partitions,
        order.ctypes.data,
        bounds.ctypes.data,
        ctypes.addressof(fault),
    )
    if fault.code != OK:
        raise _no_such_partition(chosen, fault.index, partitions)
    return order, bounds


def _group_with_numpy(chosen: Int32s, partitions: int) -> tuple[Int64s, Int64s]:
    wrong = np.flatnonzero((chosen < 0) | (chosen >= partitions))
    if wrong.size:
        raise _no_such_partition(chosen, int(wrong[0]), partitions)
    order: Int64s = np.argsort(chosen, kind="stable").astype(np.int64)
    bounds = np.searchsorted(chosen[order], np.arange(partitions + 1)).astype(np.int64)
    return order, bounds


def _no_such_partition(chosen: Int32s, row: int, partitions: int) -> ValueError:
    return ValueError(
        f"row {row} is for partition {chosen[row]}; the topic has partitions 0 to {partitions - 1}"
    )
