"""Protobuf messages into Arrow columns in C, ``native/protobuf.c``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import c_int32, c_int64, c_void_p
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache, partial
from itertools import accumulate
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from millstream.records import kernel
from millstream.records.kernel import Pinned
from millstream.records.kernel_types import Structure
from millstream.records.out_columns import Filled, OutShape, fill

ABI: Final = 1
"""The version of ``native/protobuf.h`` that this module describes."""

NO_COLUMN: Final = -1
NO_ONEOF: Final = -1


class Holds(IntEnum):
    """What a field holds."""

    INT32 = 0
    UINT32 = 1
    SINT32 = 2
    INT64 = 3
    SINT64 = 4
    UINT64 = 5
    BOOL = 6
    ENUM = 7
    FIXED32 = 8
    SFIXED32 = 9
    FIXED64 = 10
    SFIXED64 = 11
    FLOAT = 12
    DOUBLE = 13
    TEXT = 14
    BYTES = 15
    MESSAGE = 16
    TIMESTAMP = 17
    NOTHING = 18


class Into(IntEnum):
    """What a column of integers or fractions has for each."""

    BITS_32 = 0
    BITS_64 = 1
    DOUBLE = 2


class Often(IntEnum):
    """How often a field may be there."""

    ONCE = 0
    REPEATED = 1
    MAP = 2


class Absent(IntEnum):
    """What a field is that is not there."""

    NULL = 0
    ZERO = 1
    UNCERTAIN = 2


@dataclass(slots=True, kw_only=True)
class Step:
    """``ms_protobuf_step``: see ``native/protobuf.h`` for what the numbers mean, by ``holds``.

    Those ``inside`` are in the order of their numbers. ``oneof`` is the place among its siblings of
    the first member of its oneof.
    """

    holds: Holds
    column: int = NO_COLUMN
    number: int = 0
    often: Often = Often.ONCE
    absent: Absent = Absent.NULL
    oneof: int = NO_ONEOF
    into: Into = Into.BITS_64
    low: int = -(2**63)
    high: int = 2**63 - 1
    symbols: Mapping[int, bytes] = field(default_factory=dict)
    inside: list[Step] = field(default_factory=list)


class _Step(Structure):
    """``ms_protobuf_step``."""

    _fields_ = (
        ("kind", c_int32),
        ("column", c_int32),
        ("number", c_int32),
        ("first", c_int32),
        ("count", c_int32),
        ("often", c_int32),
        ("absent", c_int32),
        ("oneof", c_int32),
        ("into", c_int32),
        ("unused", c_int32),
        ("low", c_int64),
        ("high", c_int64),
        ("size", c_int64),
        ("text", c_void_p),
        ("offsets", c_void_p),
        ("numbers", c_void_p),
    )


class ProtobufLibrary:
    """The functions of ``native/protobuf.h``."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        """Take the functions; AttributeError for a library that lacks one."""
        loaded.ms_protobuf_abi.restype = c_int32
        loaded.ms_protobuf_abi.argtypes = []
        self.abi = cast(Callable[[], int], loaded.ms_protobuf_abi)
        rows: Any = loaded.ms_protobuf_rows
        rows.restype = c_int64
        rows.argtypes = [
            *(c_void_p, c_int64, c_void_p, c_int64, c_int64, c_void_p, c_int64),
            *[c_void_p] * 3,
        ]
        self.rows = cast(Callable[..., int], rows)


class ProtobufProgram:
    """Reads the messages of one type into columns."""

    def __init__(self, library: ProtobufLibrary, root: Step, shape: OutShape) -> None:
        """``root`` reads the message, whose fields go to the columns of ``shape``."""
        self._call = library.rows
        self._shape = shape
        self._pinned: list[Pinned] = []
        # Steps that stand inside of one stand together.
        steps, first = [root], []
        for each in steps:  # which gets longer
            first.append(len(steps))
            steps += each.inside
        self._steps = (_Step * len(steps))(*map(self._described, steps, first))

    def read(self, values: pa.Array) -> Filled:
        """Read a binary column. ValueError if its offsets do not fit its data."""
        steps = ctypes.addressof(self._steps)
        return fill(self._shape, values, partial(self._call, steps, len(self._steps)))

    def _described(self, step: Step, first: int) -> _Step:
        text = offsets = numbers = 0
        if step.holds is Holds.ENUM:
            symbols = sorted(step.symbols.items())
            ends = [0, *accumulate(len(name) for _, name in symbols)]
            text = self._address(b"".join(name for _, name in symbols))
            offsets = self._address(np.array(ends, np.int32).tobytes())
            numbers = self._address(np.array([each for each, _ in symbols], np.int32).tobytes())
        return _Step(
            kind=step.holds,
            column=step.column,
            number=step.number,
            first=first,
            count=len(step.inside),
            often=step.often,
            absent=step.absent,
            oneof=step.oneof,
            into=step.into,
            low=step.low,
            high=step.high,
            size=len(step.symbols),
            text=text,
            offsets=offsets,
            numbers=numbers,
        )

    def _address(self, data: bytes) -> int:
        self._pinned.append(Pinned(data))
        return self._pinned[-1].address


def protobuf_library() -> ProtobufLibrary | None:
    """Return the functions, or None if they are not there."""
    found = kernel.library()
    return None if found is None else _load(str(found.path))


@cache
def _load(path: str) -> ProtobufLibrary | None:
    try:
        library = ProtobufLibrary(ctypes.CDLL(path))
    except (OSError, AttributeError):
        return None
    return library if library.abi() == ABI else None
