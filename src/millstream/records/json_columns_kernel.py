"""JSON objects into Arrow columns in C, ``native/json_columns.c``."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from ctypes import c_int32, c_int64, c_void_p
from functools import cache, partial
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.records import kernel
from millstream.records.kernel import Pinned
from millstream.records.kernel_types import Structure
from millstream.records.out_columns import Filled, OutShape, fill

ABI: Final = 3
"""The version of ``native/json_columns.h`` that this module describes."""

_TEXT, _32, _64, _DOUBLE, _BOOLEAN, _INSTANT, _LOCAL, _OBJECT, _LIST = range(9)
_FLOAT, _DECIMAL, _DATE, _MAP = range(9, 13)
"""What a column takes, as in ``native/json_columns.h``."""

_TAKES: Final = {
    pa.string(): _TEXT,
    pa.int32(): _32,
    pa.int64(): _64,
    pa.float32(): _FLOAT,
    pa.float64(): _DOUBLE,
    pa.bool_(): _BOOLEAN,
    pa.timestamp("us", "UTC"): _INSTANT,
    pa.timestamp("us"): _LOCAL,
    pa.date32(): _DATE,
}
_DEEPEST: Final = 40
_BEHIND_A_NAME: Final = 8
"""Bytes that can be read behind a name."""

_NOT_PLAIN: Final = re.compile(rb'["\\\x00-\x1f]')
"""What a text of JSON does not hold without an escape."""


class _Field(Structure):
    """``ms_json_field``."""

    _fields_ = (
        ("name", c_void_p),
        ("name_size", c_int64),
        ("takes", c_int32),
        ("is_plain", c_int32),
        ("precision", c_int32),
        ("scale", c_int32),
        ("sorted", c_void_p),
        ("inside", c_int64),
    )
    precision: int
    scale: int
    sorted: int
    inside: int


class JsonColumnsLibrary:
    """The functions of ``native/json_columns.h``."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        """Take the functions; AttributeError for a library that lacks one."""
        loaded.ms_json_columns_abi.restype = c_int32
        loaded.ms_json_columns_abi.argtypes = []
        self.abi = cast(Callable[[], int], loaded.ms_json_columns_abi)
        rows: Any = loaded.ms_json_rows
        rows.restype = c_int64
        rows.argtypes = [
            *(c_void_p, c_int64, c_void_p, c_int64, c_int64, c_void_p, c_int64),
            *[c_void_p] * 3,
        ]
        self.rows = cast(Callable[..., int], rows)


class JsonColumns:
    """Reads objects into columns of certain names and types."""

    def __init__(
        self, library: JsonColumnsLibrary, columns: pa.Schema, *, skip_unknown: bool
    ) -> None:
        """Without ``skip_unknown`` an object with a further field is not read. TypeError for a type
        of column that the kernel does not write from JSON.
        """
        self._shape = OutShape()
        self._skip_unknown = skip_unknown
        self._kept: list[Pinned | npt.NDArray[np.int32]] = []
        self._described: list[_Field] = []
        tops = []
        for column in columns:
            self._shape.add(column.type, has_nulls=True)
            tops.append(len(self._described))
            self._add(column, _DEEPEST)
        rows = _Field()
        self._sort(rows, columns.names, tops)
        self._fields = (_Field * (len(self._described) + 1))(*self._described, rows)
        self._call = library.rows

    def read(self, values: pa.Array) -> Filled:
        """Read a binary column. ValueError if its offsets do not fit its data."""
        fields = ctypes.addressof(self._fields)
        return fill(self._shape, values, partial(self._call, fields, self._skip_unknown))

    def _add(self, column: pa.Field, left: int) -> None:
        kind = column.type
        takes = _takes(kind)
        if takes is None or not left:
            raise TypeError(f"the kernel does not read {kind} from JSON")
        name = column.name.encode()
        pinned = Pinned(name + bytes(_BEHIND_A_NAME))
        field = _Field(
            name=pinned.address,
            name_size=len(name),
            takes=takes,
            is_plain=not _NOT_PLAIN.search(name),
        )
        if takes == _DECIMAL:
            field.precision, field.scale = kind.precision, kind.scale
        self._kept.append(pinned)
        self._described.append(field)
        if takes == _LIST:
            self._add(kind.value_field, left - 1)
        elif takes == _MAP:
            self._described.append(_Field())  # an entry
            self._add(kind.key_field, left - 1)
            self._add(kind.item_field, left - 1)
        elif takes == _OBJECT:
            inside = []
            for each in kind:
                inside.append(len(self._described))
                self._add(each, left - 1)
            self._sort(field, [each.name for each in kind], inside)

    def _sort(self, field: _Field, names: Sequence[str], columns: Sequence[int]) -> None:
        """Let an object find its columns by their names."""
        if len(set(names)) != len(names):
            raise TypeError("the kernel does not read an object in which a name is there twice")
        encoded = {column: name.encode() for name, column in zip(names, columns, strict=True)}
        order = sorted(encoded, key=lambda column: (len(encoded[column]), encoded[column]))
        numbers = np.array(order, np.int32)
        self._kept.append(numbers)
        field.sorted = numbers.ctypes.data
        field.inside = len(order)


def _takes(kind: pa.DataType) -> int | None:
    """Return what a column takes; None for a type that the kernel does not write from JSON."""
    if pa.types.is_struct(kind):
        return _OBJECT
    if pa.types.is_list(kind):
        return _LIST
    if pa.types.is_map(kind):
        return _MAP if kind.key_type == pa.string() else None
    if pa.types.is_decimal128(kind):
        return _DECIMAL
    return _TAKES.get(kind)


def json_columns_library() -> JsonColumnsLibrary | None:
    """Return the functions, or None if they are not there."""
    found = kernel.library()
    return None if found is None else _load(str(found.path))


@cache
def _load(path: str) -> JsonColumnsLibrary | None:
    try:
        library = JsonColumnsLibrary(ctypes.CDLL(path))
    except (OSError, AttributeError):
        return None
    return library if library.abi() == ABI else None
