"""The memory of columns that the kernel writes: how far its offsets of 32 bits reach."""

from __future__ import annotations

import ctypes
import json

import numpy as np
import pyarrow as pa
import pytest

from millstream.records import kernel
from millstream.records.arrow_layouts import describe_binary
from millstream.records.json_columns_kernel import JsonColumns, json_columns_library
from millstream.records.kernel_types import OK, Fault
from millstream.records.out_columns import OutColumns, OutShape

LIMIT = 2**31 - 1
TEXT = pa.schema([("s", pa.string())])


@pytest.mark.parametrize(("size", "is_left"), [(10, False), (11, True)])
@pytest.mark.parametrize("room", [2**32, LIMIT])
def test_a_text_that_ends_behind_the_largest_offset_is_left(
    size: int, is_left: bool, room: int
) -> None:
    """Also in a column that has room for it: offsets would go on below zero."""
    library = json_columns_library()
    if library is None:
        pytest.skip(kernel.describe())
    reader = JsonColumns(library, TEXT, skip_unknown=True)
    outs = OutColumns(reader._shape, rows=1, data_bytes=0)
    out = outs._outs[0]
    # As if all but ten bytes of what a column holds were written.
    written = LIMIT - 10
    assert out.values is not None
    assert out.data is not None
    offsets = (ctypes.c_int32 * 2).from_address(out.values)
    offsets[0] = out.bytes = written
    out.data -= written
    out.data_capacity = room
    values = pa.array([json.dumps({"s": "x" * size}).encode()])
    described, states = describe_binary(values), np.full(1, 9, np.uint8)
    rows, fault = ctypes.c_int64(), Fault()
    reached = library.rows(
        ctypes.addressof(reader._fields),
        1,
        described.address,
        0,
        1,
        outs.address,
        1,
        ctypes.addressof(rows),
        states.ctypes.data,
        fault.address,
    )
    assert (reached, fault.code) == (1, OK)
    assert states.tolist() == [is_left]
    assert rows.value == (not is_left)
    if not is_left:
        assert offsets[1] == LIMIT


def test_no_column_gets_more_room_than_its_offsets_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def resized(_: OutColumns, number: int, place: int, size: int) -> int:
        if place == 2:
            sizes.append(size)
        return ctypes.addressof(memory)

    memory = (ctypes.c_uint8 * 1024)()
    monkeypatch.setattr(OutColumns, "_resized", resized)
    shape = OutShape()
    shape.add(pa.string())
    outs = OutColumns(shape, rows=1, data_bytes=2**33)
    outs.grow(0, LIMIT)
    outs = OutColumns(shape, rows=1, data_bytes=2**30)
    outs.grow(0, 2**30 + 2000)
    outs.grow(0, LIMIT)
    assert sizes == [LIMIT, LIMIT, 2**30 + 1024, LIMIT, LIMIT]
