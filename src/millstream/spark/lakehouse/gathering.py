"""Rows of a table by their positions, however many bytes they take.

Arrow's texts and bytes end at 2 GiB in one array, and ``pa.Table.take`` makes one array of all
chunks of a column first: of a larger table it gives nothing, not even one row. A file of 128 MB of
compressed logs may well hold more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

_AT_ONCE_BYTES: Final = 1 << 30
_PART_BYTES: Final = 64 << 20

Positions = np.ndarray[Any, np.dtype[np.int64]]


def take_rows(rows: pa.Table, positions: Positions, *, at_once: int = _AT_ONCE_BYTES) -> pa.Table:
    """Return the rows at these positions, in that order. Those of more than ``at_once`` bytes are
    taken in parts.
    """
    if rows.nbytes <= at_once:
        return rows.take(pa.array(positions))
    positions = positions.astype(np.int64, copy=False)  # those of Arrow are unsigned
    batches = [each for each in rows.to_batches() if len(each)]
    starts = np.cumsum([0, *map(len, batches)])
    per_part = max(min(_PART_BYTES, at_once) * rows.num_rows // rows.nbytes, 1)
    parts = [
        part
        for first in range(0, len(positions), per_part)
        for part in _parts(batches, starts, positions[first : first + per_part])
    ]
    return pa.Table.from_batches(parts, schema=rows.schema)


def _parts(
    batches: Sequence[pa.RecordBatch], starts: Positions, positions: Positions
) -> Iterator[pa.RecordBatch]:
    """Yield rows as one batch, or as halves where they are too large for one."""
    try:
        yield _part(batches, starts, positions)
    except pa.ArrowInvalid:
        half = len(positions) // 2
        if not half:
            raise
        yield from _parts(batches, starts, positions[:half])
        yield from _parts(batches, starts, positions[half:])


def _part(
    batches: Sequence[pa.RecordBatch], starts: Positions, positions: Positions
) -> pa.RecordBatch:
    numbers = np.searchsorted(starts, positions, side="right") - 1
    order = np.argsort(numbers, kind="stable")
    positions, numbers = positions[order], numbers[order]
    found = pa.concat_batches(
        [
            batches[number].take(pa.array(positions[numbers == number] - starts[number]))
            for number in np.unique(numbers)
        ]
    )
    if (np.diff(order) > 0).all():
        return found
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return found.take(pa.array(back))
