"""The frames of a batch: which rows name which schema, found without looking at each row.

The first bytes of the values are made a dictionary: one entry for each schema that occurs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.schemas.framing import (
    ID_BYTES,
    KEY_HEADER,
    VALUE_HEADER,
    Frame,
    FramingError,
    read_frame,
)
from millstream.schemas.schema import SchemaKey
from millstream.spark.lakehouse.formats.format import Rejected

_HEADERS: Final = "headers"
_MANY_INDEXES: Final = 0x80
"""From here on their count has a second byte."""


@dataclass(frozen=True, slots=True)
class Framed:
    """The rows of a batch that name one schema: their indexes, and the data behind the frames."""

    key: SchemaKey
    indexes: tuple[int, ...]
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]
    data: pa.Array


@dataclass(frozen=True, slots=True)
class Frames:
    """A batch by schemas. Rows without a value are in ``nulls``."""

    groups: Sequence[Framed]
    nulls: np.ndarray[tuple[int], np.dtype[np.int64]]
    rejected: Sequence[Rejected]


def read_frames(batch: pa.RecordBatch, *, has_indexes: bool, is_key: bool = False) -> Frames:
    """Return the rows of a batch of the source, by the schema that their values, or keys, name."""
    values = batch.column("key" if is_key else "value")
    headers = _schema_headers(batch, KEY_HEADER if is_key else VALUE_HEADER)
    rejected: list[Rejected] = []
    found: dict[Frame, list[np.ndarray[tuple[int], np.dtype[np.int64]]]] = {}
    prefixes = pc.binary_slice(values, 0, ID_BYTES + has_indexes).dictionary_encode()
    numbers = prefixes.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    numbers[list(headers)] = -2
    for number, prefix in enumerate(prefixes.dictionary.to_pylist()):
        rows = np.flatnonzero(numbers == number)
        if has_indexes and prefix[ID_BYTES:] not in (b"", b"\0"):
            _read_indexes(values, rows, prefix[ID_BYTES], found, rejected)
            continue
        try:
            frame = read_frame(prefix, has_indexes=has_indexes)
        except FramingError as error:
            rejected += [Rejected(int(row), str(error)) for row in rows]
        else:
            found.setdefault(frame, []).append(rows)
    with_header = np.array(sorted(headers), np.int64)
    _read_each(values, with_header, headers, found, rejected, has_indexes=has_indexes)
    groups = []
    for frame, parts in found.items():
        rows = np.sort(np.concatenate(parts))
        taken = values if len(rows) == len(values) else values.take(pa.array(rows))
        groups.append(Framed(frame.key, frame.indexes, rows, _behind(taken, frame.position)))
    rejected.sort(key=lambda each: each.row)
    return Frames(groups, np.flatnonzero(numbers == -1), rejected)


def _behind(values: pa.Array, position: int) -> pa.Array:
    """Return what stands behind a position of each value."""
    if not position:
        return values
    # Without an end, Arrow fails where one of several values ends at the position.
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    return pc.binary_slice(values, position, max(longest, position))


def _read_indexes(
    values: pa.Array,
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    count: int,
    found: dict[Frame, list[np.ndarray[tuple[int], np.dtype[np.int64]]]],
    rejected: list[Rejected],
) -> None:
    """Read the frames of rows with message indexes, of which ``count`` is the first byte.

    Indexes are of one byte each, with what a person writes; rows with others are read one by one.
    """
    least = ID_BYTES + 1 + count // 2 if count < _MANY_INDEXES else ID_BYTES + 1
    prefixes = pc.binary_slice(values.take(pa.array(rows)), 0, least).dictionary_encode()
    numbers = prefixes.indices.to_numpy(zero_copy_only=False)
    for number, prefix in enumerate(prefixes.dictionary.to_pylist()):
        chosen = rows[numbers == number]
        try:
            frame = read_frame(prefix, has_indexes=True)
        except FramingError:
            _read_each(values, chosen, {}, found, rejected, has_indexes=True)
        else:
            found.setdefault(frame, []).append(chosen)


def _read_each(
    values: pa.Array,
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    headers: dict[int, bytes],
    found: dict[Frame, list[np.ndarray[tuple[int], np.dtype[np.int64]]]],
    rejected: list[Rejected],
    *,
    has_indexes: bool,
) -> None:
    """Read the frames of some rows one by one."""
    places: dict[Frame, list[int]] = {}
    for row in rows.tolist():
        try:
            frame = read_frame(
                values[row].as_py(), has_indexes=has_indexes, header=headers.get(row)
            )
        except FramingError as error:
            rejected.append(Rejected(row, str(error)))
        else:
            places.setdefault(frame, []).append(row)
    for frame, chosen in places.items():
        found.setdefault(frame, []).append(np.array(chosen, np.int64))


def _schema_headers(batch: pa.RecordBatch, name: str) -> dict[int, bytes]:
    """Return the last header of that name of each row that has one, and a value."""
    index = batch.schema.get_field_index(_HEADERS)
    if index < 0:
        return {}
    column = batch.column(index)
    names = column.flatten().field(0)
    if not len(names) or not pc.any(pc.equal(names, name)).as_py():
        return {}
    value = batch.column("key" if name == KEY_HEADER else "value")
    found = {}
    for row, headers in enumerate(column.to_pylist()):
        for each in headers or ():
            if each["key"] == name and each["value"] is not None and value[row].is_valid:
                found[row] = each["value"]
    return found
