"""Columns that the kernel writes entry by entry, ``native/arrow_out.h``.

The memory is Arrow's own: what was written becomes arrays without a copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from ctypes import c_int32, c_int64, c_void_p
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.records.arrow_layouts import as_bytes, bytes_in, describe_binary
from millstream.records.kernel_types import CAPACITY, COLUMN, Fault, Structure

_BITS, _32, _64, _128, _BYTES, _LIST, _STRUCT = range(7)
"""Layouts, as in ``native/arrow_out.h``."""

_VALUE_BITS: Final = {_BITS: 1, _32: 32, _64: 64, _128: 128, _BYTES: 32, _LIST: 32, _STRUCT: 0}
_LEAST_ENTRIES: Final = 64
_LEAST_DATA: Final = 1024
_MOST_DATA: Final = 2**31 - 1
"""As far as offsets of 32 bits reach."""


class _Out(Structure):
    """``ms_out``."""

    _fields_ = (
        ("validity", c_void_p),
        ("values", c_void_p),
        ("data", c_void_p),
        ("capacity", c_int64),
        ("data_capacity", c_int64),
        ("length", c_int64),
        ("bytes", c_int64),
        ("layout", c_int32),
        ("parent", c_int32),
        ("end", c_int32),
        ("unused", c_int32),
    )
    validity: int | None
    values: int | None
    data: int | None
    capacity: int
    data_capacity: int
    length: int
    bytes: int
    layout: int
    parent: int
    end: int


class _Node:
    """A column, and where those inside of it stand."""

    __slots__ = ("end", "has_nulls", "inside", "kind", "layout", "parent")

    def __init__(self, kind: pa.DataType, parent: int, *, has_nulls: bool) -> None:
        self.kind = kind
        self.parent = parent
        self.has_nulls = has_nulls
        self.layout = _layout(kind)
        self.inside: list[int] = []
        self.end = 0


class OutShape:
    """The columns of a table as the kernel takes them, in one list, each before those inside of it.

    A list is followed by its items, a map by its entries, a struct of key and value.
    """

    def __init__(self) -> None:
        self._nodes: list[_Node] = []

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, kind: pa.DataType, *, parent: int = -1, has_nulls: bool = False) -> int:
        """Add a column and all that are inside of it; return its number. TypeError for a type that
        the kernel does not write.
        """
        number = len(self._nodes)
        node = _Node(kind, parent, has_nulls=has_nulls)
        self._nodes.append(node)
        if parent >= 0:
            self._nodes[parent].inside.append(number)
        if pa.types.is_map(kind):
            pair = pa.struct([kind.key_field, kind.item_field])
            entry = self.add(pair, parent=number, has_nulls=has_nulls)
            for never_null in (entry, self.inside(entry)[0]):
                self._nodes[never_null].has_nulls = False
        elif pa.types.is_list(kind):
            self.add(kind.value_type, parent=number, has_nulls=has_nulls)
        elif pa.types.is_struct(kind):
            for each in kind:
                self.add(each.type, parent=number, has_nulls=has_nulls)
        node.end = len(self._nodes)
        return number

    def inside(self, number: int) -> list[int]:
        """Return the columns right inside of one."""
        return self._nodes[number].inside

    def kind(self, number: int) -> pa.DataType:
        """Return a column's type."""
        return self._nodes[number].kind

    def let_be_null(self, number: int) -> None:
        """Give a column, and all fields of a struct, room for nulls."""
        node = self._nodes[number]
        node.has_nulls = True
        if node.layout == _STRUCT:
            for each in node.inside:
                self.let_be_null(each)

    def nodes(self) -> Iterator[_Node]:
        """Yield the columns in their order."""
        return iter(self._nodes)


def _layout(kind: pa.DataType) -> int:
    types = pa.types
    if types.is_boolean(kind):
        return _BITS
    if kind in (pa.int32(), pa.float32(), pa.date32()):
        return _32
    if kind in (pa.int64(), pa.float64()) or types.is_time64(kind) or types.is_timestamp(kind):
        return _64
    if types.is_decimal128(kind):
        return _128
    if kind in (pa.string(), pa.binary()):
        return _BYTES
    if types.is_map(kind) or types.is_list(kind):
        return _LIST
    if types.is_struct(kind):
        return _STRUCT
    raise TypeError(f"the kernel does not write {kind}")


class OutColumns:
    """The memory of the columns of one batch."""

    def __init__(self, shape: OutShape, *, rows: int, data_bytes: int) -> None:
        """Make room for so many rows and, in all texts together, about so many bytes."""
        self._nodes = list(shape.nodes())
        texts = sum(node.layout == _BYTES for node in self._nodes)
        self._memory: list[list[pa.Buffer | None]] = []
        self._outs = (_Out * max(len(self._nodes), 1))()
        for out, node in zip(self._outs, self._nodes, strict=False):
            out.layout, out.parent, out.end = node.layout, node.parent, node.end
            self._memory.append([None, None, None])
            self._make_room(len(self._memory) - 1, max(rows, _LEAST_ENTRIES))
            if node.layout == _BYTES:
                self._make_data_room(len(self._memory) - 1, data_bytes // texts + _LEAST_DATA)

    @property
    def address(self) -> int:
        """Where the columns are described."""
        return ctypes.addressof(self._outs)

    def grow(self, number: int, data_bytes: int) -> None:
        """Give a column room for ``data_bytes`` of data at least; 0: for more entries."""
        out = self._outs[number]
        if data_bytes:
            self._make_data_room(number, max(data_bytes, 2 * out.data_capacity))
        else:
            self._make_room(number, 2 * out.capacity)

    def arrays(self, rows: int) -> list[pa.Array]:
        """Return the columns of the table."""
        return [
            self._array(number, rows) for number, node in enumerate(self._nodes) if node.parent < 0
        ]

    def _make_room(self, number: int, entries: int) -> None:
        node, out = self._nodes[number], self._outs[number]
        if node.has_nulls:
            out.validity = self._resized(number, 0, (entries + 7) // 8)
        bits = _VALUE_BITS[node.layout]
        if bits:
            is_new = self._memory[number][1] is None
            out.values = self._resized(number, 1, ((entries + 1) * bits + 7) // 8)
            if is_new and node.layout in (_BYTES, _LIST):
                ctypes.memset(out.values, 0, 4)
        out.capacity = entries

    def _make_data_room(self, number: int, size: int) -> None:
        size = min(size, _MOST_DATA)
        self._outs[number].data = self._resized(number, 2, size)
        self._outs[number].data_capacity = size

    def _resized(self, number: int, place: int, size: int) -> int:
        memory = self._memory[number]
        buffer = memory[place]
        if buffer is None:
            buffer = memory[place] = pa.allocate_buffer(size, resizable=True)
        else:
            buffer.resize(size)
        address: int = buffer.address
        return address

    def _array(self, number: int, length: int) -> pa.Array:
        node = self._nodes[number]
        validity, values, data = self._memory[number]
        if node.layout == _STRUCT:
            inside = [self._array(each, length) for each in node.inside]
            return pa.Array.from_buffers(node.kind, length, [validity], children=inside)
        if node.layout == _LIST:
            items = node.inside[0]
            inside = [self._array(items, self._outs[items].length)]
            return pa.Array.from_buffers(node.kind, length, [validity, values], children=inside)
        buffers = [validity, values] if node.layout != _BYTES else [validity, values, data]
        return pa.Array.from_buffers(node.kind, length, buffers)


@dataclass(frozen=True, slots=True)
class Filled:
    """The columns of the values that were read, and the rows of the others."""

    arrays: list[pa.Array]
    left: npt.NDArray[np.int64]
    compared: int = 0
    """How many names of columns were looked at to find those of the fields, of JSON and since the
    memory last grew.
    """


def fill(shape: OutShape, values: pa.Array, read: Callable[..., int]) -> Filled:
    """Return a binary column as columns. ValueError if its offsets do not fit its data.

    ``read`` is called as ``ms_avro_rows`` is behind its first argument, until all rows are read.
    """
    column = as_bytes(values)
    rows = len(column)
    described = describe_binary(column)
    outs = OutColumns(shape, rows=rows, data_bytes=bytes_in(column))
    states = np.empty(rows, np.uint8)
    written, fault, row = c_int64(), Fault(), 0
    while True:
        row = read(
            described.address,
            row,
            rows,
            outs.address,
            len(shape),
            ctypes.addressof(written),
            states.ctypes.data,
            fault.address,
        )
        if fault.code == COLUMN:
            raise ValueError(f"row {fault.index} of a column does not fit its data")
        if fault.code != CAPACITY:
            return Filled(outs.arrays(written.value), np.flatnonzero(states), fault.position)
        outs.grow(fault.index, fault.position)
