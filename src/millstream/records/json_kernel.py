"""Values that are JSON objects as lines, and the texts of some of their fields, in C:
``native/json.c``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.records.arrow_layouts import as_bytes, bytes_in, describe_binary
from millstream.records.kernel import Library, Pinned
from millstream.records.kernel_types import Fault, Structure

TEXT, INTEGER, FRACTION, BOOLEAN, OBJECT, LIST = 1, 2, 4, 8, 16, 32
"""Kinds of values, as in ``native/kernel.h``."""
ANY: Final = 0xFF

LINE, NO_OBJECT, OTHER_KIND = 0, 1, 2
"""What is said of a value."""

_ROOM: Final = 3
"""Bytes of a null, and more than a line adds to its value."""

_MOST_FIELDS: Final = 16
"""``MS_JSON_MOST_FIELDS``."""


class _Columns(Structure):
    """``ms_json_columns``."""

    _fields_ = (
        ("names", c_void_p),
        ("offsets", c_void_p),
        ("kinds", c_void_p),
        ("sorted", c_void_p),
        ("count", c_int64),
    )


@dataclass(frozen=True, slots=True)
class Lines:
    """The objects of a column: that of row i is at ``starts[i]`` up to ``starts[i + 1]``."""

    text: pa.Buffer
    starts: npt.NDArray[np.int64]
    states: npt.NDArray[np.uint8]
    """LINE, or why a row has none: NO_OBJECT, OTHER_KIND."""
    compared: int
    """How many names of columns were looked at to find those of the fields."""


class _Fields:
    """Names of outermost fields and the kinds of their values, as the kernel reads them."""

    def __init__(self, kinds: dict[str, int]) -> None:
        names = [name.encode() for name in kinds]
        self._names = b"".join(names)
        self._offsets = np.cumsum([0, *map(len, names)], dtype=np.int32)
        self._kinds = np.array([*kinds.values(), 0], np.uint8)
        order = sorted(range(len(names)), key=lambda place: (len(names[place]), names[place]))
        self._sorted = np.array([*order, 0], np.int32)
        self._pinned = Pinned(self._names)
        self._columns = _Columns(
            names=self._pinned.address,
            offsets=self._offsets.ctypes.data,
            kinds=self._kinds.ctypes.data,
            sorted=self._sorted.ctypes.data,
            count=len(names),
        )
        self.address = ctypes.addressof(self._columns)


class LineMaker:
    """Makes lines of values whose outermost fields go to columns of certain kinds."""

    def __init__(self, library: Library, kinds: dict[str, int], *, most_deep: int) -> None:
        self._call = library.json_lines
        self._most_deep = most_deep
        self._fields = _Fields(kinds)

    def lines(self, values: pa.Array) -> Lines:
        """Return the lines of a binary column. ValueError if its offsets do not fit its data."""
        column = as_bytes(values)
        rows = len(column)
        described = describe_binary(column)
        text = pa.allocate_buffer(bytes_in(column) + _ROOM * rows)
        starts = np.empty(rows + 1, np.int64)
        states = np.empty(rows, np.uint8)
        fault = Fault()
        written = self._call(
            ctypes.addressof(described),
            rows,
            self._fields.address,
            self._most_deep,
            text.address,
            text.size,
            starts.ctypes.data,
            states.ctypes.data,
            ctypes.addressof(fault),
        )
        if written < 0:
            raise ValueError(f"row {fault.index} of a column does not fit its data")
        return Lines(text.slice(0, written), starts, states, fault.position)


class FieldReader:
    """Reads the texts of some outermost fields of JSON objects, without reading what they say."""

    def __init__(self, library: Library, names: Sequence[str]) -> None:
        if len(names) > _MOST_FIELDS:
            raise ValueError(f"at most {_MOST_FIELDS} fields, not {len(names)}")
        self._call = library.json_fields
        self._names = tuple(names)
        self._fields = _Fields(dict.fromkeys(names, ANY))

    def read(self, values: pa.Array) -> tuple[dict[str, pa.Array], npt.NDArray[np.uint8]]:
        """Return a binary column for each field, null where it is absent, and the rows' states.

        Rows whose state is not LINE are null in all. ValueError if the offsets of the column do not
        fit its data, and for more than 2 GB.
        """
        column = as_bytes(values)
        rows, count = len(column), len(self._names)
        described = describe_binary(column)
        capacity = bytes_in(column)
        out = pa.allocate_buffer(capacity * count)
        offsets = np.zeros((count, rows + 1), np.int32)
        present = np.zeros((count, rows), np.uint8)
        states = np.zeros(rows, np.uint8)
        fault = Fault()
        done = self._call(
            ctypes.addressof(described),
            rows,
            self._fields.address,
            out.address,
            capacity,
            offsets.ctypes.data,
            present.ctypes.data,
            states.ctypes.data,
            ctypes.addressof(fault),
        )
        if done < 0:
            raise ValueError(f"row {fault.index} of a column does not fit its data, or this reader")
        found = {}
        for number, name in enumerate(self._names):
            validity = pa.py_buffer(np.packbits(present[number], bitorder="little"))
            data = out.slice(number * capacity, int(offsets[number, -1]))
            bounds = pa.py_buffer(offsets[number])
            found[name] = pa.Array.from_buffers(pa.binary(), rows, [validity, bounds, data])
        return found, states
