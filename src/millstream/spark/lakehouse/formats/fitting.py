"""Columns that Arrow's JSON reader gave a wider type than the table's, as columns of the table.

The reader turns a column of whole numbers into one of doubles when one of them is a fraction, or
too large. Which values fit the table's column all the same is told for all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.spark.lakehouse.formats.format import MOST_EXACT

_BEYOND_INTEGERS: Final = 2.0**63


class InexactError(ValueError):
    """A double among the values may stand for another whole number than the one that was read."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A column of the table's type."""

    values: pa.Array
    """Null in rows that do not fit."""
    needed: pa.DataType
    """The type that all values need."""
    fits: npt.NDArray[np.bool_] | None = None
    """The rows whose values fit; None: all."""


def fit(column: pa.ChunkedArray, kind: pa.DataType) -> Fitted:
    """Return a column with the table's type, without further fields in structs.

    InexactError where only reading value by value tells what fits; ArrowInvalid and other errors
    of Arrow for values of another kind.
    """
    array = column.combine_chunks()
    if array.type == kind:
        return Fitted(array, kind)
    fits, needed = _look(array, kind)
    if fits is not None and fits.all():
        fits = None
    if pa.types.is_integer(kind) and pa.types.is_floating(array.type):
        if fits is None:
            return Fitted(array.cast(kind), kind)
        nothing = pa.scalar(None, array.type)
        return Fitted(pc.if_else(pa.array(fits), array, nothing).cast(kind), needed, fits)
    values = array.to_pylist()
    if fits is not None:
        values = [value if good else None for value, good in zip(values, fits, strict=True)]
    return Fitted(pa.array(values, kind), needed, fits)


def _look(array: pa.Array, kind: pa.DataType) -> tuple[npt.NDArray[np.bool_] | None, pa.DataType]:
    """Return the rows whose numbers fit ``kind`` (None: all), and the type that all need."""
    found = array.type
    if pa.types.is_integer(kind) and pa.types.is_float64(found):
        return _look_at_numbers(array, kind)
    if pa.types.is_list(kind) and pa.types.is_list(found):
        fits, needed = _look(array.values, kind.value_type)
        if fits is not None:
            bad = np.concatenate([[0], np.cumsum(~fits)])
            offsets = array.offsets.to_numpy()
            fits = bad[offsets[1:]] == bad[offsets[:-1]]
        return fits, pa.list_(needed)
    if not (pa.types.is_struct(kind) and pa.types.is_struct(found)):
        return None, found
    all_fit: npt.NDArray[np.bool_] | None = None
    fields = {each.name: each for each in found}
    for each in kind:
        if each.name in fields:
            fits, needed = _look(array.field(each.name), each.type)
            fields[each.name] = fields[each.name].with_type(needed)
            if fits is not None:
                all_fit = fits if all_fit is None else all_fit & fits
    return all_fit, pa.struct(list(fields.values()))


def _look_at_numbers(
    array: pa.Array, kind: pa.DataType
) -> tuple[npt.NDArray[np.bool_], pa.DataType]:
    numbers: npt.NDArray[Any] = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
    sizes = np.abs(numbers)
    if ((sizes >= MOST_EXACT) & (sizes <= _BEYOND_INTEGERS)).any():
        raise InexactError("a whole number that a double may have rounded")
    whole = (sizes < MOST_EXACT) & (numbers == np.floor(numbers))
    bounds = np.iinfo(kind.to_pandas_dtype())
    fits = whole & (numbers >= float(bounds.min)) & (numbers <= float(bounds.max))
    if fits.all():
        return fits, kind
    return fits, pa.int64() if whole.all() else array.type


def without_integers(kind: pa.DataType) -> pa.DataType | None:
    """Return a type without its 64-bit integers, at any depth, whose type the reader then infers;
    None if nothing is left.
    """
    if pa.types.is_int64(kind):
        return None
    if pa.types.is_list(kind):
        item = without_integers(kind.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(kind):
        kinds = [(each, without_integers(each.type)) for each in kind]
        fields = [each.with_type(inner) for each, inner in kinds if inner is not None]
        return pa.struct(fields) if fields else None
    return kind
