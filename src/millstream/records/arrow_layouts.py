"""The layouts of Arrow columns that are read in place, and how the kernel is told of one.

A column of another layout is cast to the nearest of them; a column of another kind is a TypeError.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from millstream.records.kernel_types import BinaryIn

_PER_MILLISECOND: Final = {"ms": 1, "us": 1000, "ns": 1_000_000}


def describe_binary(column: pa.Array) -> BinaryIn:
    """Return the kernel's description of a column that :func:`as_bytes` returned; the column must
    outlive it.
    """
    validity, offsets, data = column.buffers()
    return BinaryIn(
        offsets=None if offsets is None else offsets.address,
        data=None if data is None else data.address,
        validity=None if validity is None else validity.address,
        data_size=0 if data is None else data.size,
        first=column.offset,
        wide=column.type in {pa.large_binary(), pa.large_string()},
    )


def bytes_in(column: pa.Array) -> int:
    """Return the bytes of all values of a column that :func:`as_bytes` returned."""
    _, offsets, data = column.buffers()
    if offsets is None or data is None or not len(column):
        return 0
    kind = np.int64 if column.type in {pa.large_binary(), pa.large_string()} else np.int32
    bounds = np.frombuffer(offsets, kind)
    return max(int(bounds[column.offset + len(column)]) - int(bounds[column.offset]), 0)


def as_bytes(column: pa.Array) -> pa.Array:
    """Return a column of byte strings or text in one of the layouts that the encoder reads in
    place.

    Raises TypeError on a column of another type.
    """
    kind = column.type
    if kind in {pa.binary(), pa.string(), pa.large_binary(), pa.large_string()}:
        return column
    if pa.types.is_dictionary(kind):
        return as_bytes(column.dictionary_decode())
    if pa.types.is_null(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    raise TypeError(f"{kind} is neither binary nor text")


def header_columns(headers: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the keys and the values of all headers, including those outside of a slice.

    Raises TypeError on another type than a list of structs of key and value, or a map, and
    ValueError when a key is null.
    """
    kind = headers.type
    if pa.types.is_map(kind):
        return headers.keys, headers.items
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        raise TypeError(f"{kind} is not a list of structs of key and value")
    if not pa.types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
        raise TypeError(f"{kind} is not a list of structs of key and value")
    pairs = headers.values
    # The two are found by their names or else by their order.
    key = 1 if kind.value_type.field(0).name == "value" else 0
    seen = headers.flatten() if pairs.null_count or pairs.field(key).null_count else None
    if seen is not None and (seen.null_count or seen.field(key).null_count):
        raise ValueError("a header without a key")
    return pairs.field(key), pairs.field(1 - key)


def timestamp_column(column: pa.Array) -> pa.Array:
    """Return timestamps as numbers of milliseconds or parts of them; TypeError for another type."""
    kind = column.type
    if kind == pa.int64() or (pa.types.is_timestamp(kind) and kind.unit != "s"):
        return column
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return column.cast(pa.timestamp("ms"))
    if pa.types.is_null(kind) or pa.types.is_integer(kind):
        return column.cast(pa.int64())
    raise TypeError(f"{kind} is neither a timestamp nor a number of milliseconds")


def units_per_ms(kind: pa.DataType) -> int:
    """Return how many units of a column from :func:`timestamp_column` are a millisecond."""
    return _PER_MILLISECOND[kind.unit] if pa.types.is_timestamp(kind) else 1
