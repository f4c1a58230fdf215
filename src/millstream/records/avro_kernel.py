"""Avro datums into Arrow columns in C, ``native/avro.c``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_int32, c_int64, c_void_p
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache, partial
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from millstream.records import kernel
from millstream.records.kernel import Pinned
from millstream.records.kernel_types import Structure
from millstream.records.out_columns import Filled, OutShape, fill

ABI: Final = 1
"""The version of ``native/avro.h`` that this module describes."""

NO_COLUMN: Final = -1
LEAST: Final = -(2**63)
MOST: Final = 2**63 - 1


class Read(IntEnum):
    """What a step reads."""

    NULL = 0
    BOOLEAN = 1
    INT_32 = 2
    INT_64 = 3
    INT_DOUBLE = 4
    FLOAT = 5
    FLOAT_DOUBLE = 6
    DOUBLE = 7
    BYTES = 8
    TEXT = 9
    UUID = 10
    FIXED = 11
    DECIMAL = 12
    FIXED_DECIMAL = 13
    ENUM = 14
    ARRAY = 15
    MAP = 16
    RECORD = 17
    UNION = 18
    ABSENT = 19


@dataclass(slots=True)
class Step:
    """``ms_avro_step``: see ``native/avro.h`` for what the numbers mean, by ``kind``.

    ``symbols`` are those of an enum, None for one that is not taken.
    """

    kind: Read
    column: int = NO_COLUMN
    low: int = LEAST
    high: int = MOST
    factor: int = 1
    size: int = 0
    symbols: Sequence[bytes | None] = ()
    inside: list[Step] = field(default_factory=list)

    def count(self) -> int:
        """Return how many steps it takes."""
        return 1 + sum(each.count() for each in self.inside)

    def all(self) -> list[Step]:
        """Return this step and all that are inside of it, in the kernel's order."""
        return [self, *(step for each in self.inside for step in each.all())]


class _Step(Structure):
    """``ms_avro_step``."""

    _fields_ = (
        ("kind", c_int32),
        ("column", c_int32),
        ("end", c_int32),
        ("unused", c_int32),
        ("low", c_int64),
        ("high", c_int64),
        ("factor", c_int64),
        ("size", c_int64),
        ("text", c_void_p),
        ("offsets", c_void_p),
    )


class AvroLibrary:
    """The functions of ``native/avro.h``."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        """Take the functions; AttributeError for a library that lacks one."""
        loaded.ms_avro_abi.restype = c_int32
        loaded.ms_avro_abi.argtypes = []
        self.abi = cast(Callable[[], int], loaded.ms_avro_abi)
        rows: Any = loaded.ms_avro_rows
        rows.restype = c_int64
        rows.argtypes = [c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_int64, *[c_void_p] * 3]
        self.rows = cast(Callable[..., int], rows)


class AvroProgram:
    """Reads the datums of one schema into columns."""

    def __init__(self, library: AvroLibrary, root: Step, shape: OutShape) -> None:
        """``root`` reads the record, whose fields go to the columns of ``shape``."""
        self._call = library.rows
        self._shape = shape
        self._pinned: list[Pinned] = []
        steps = root.all()
        self._steps = (_Step * len(steps))(*map(self._described, steps))

    def read(self, values: pa.Array) -> Filled:
        """Read a binary column. ValueError if its offsets do not fit its data."""
        return fill(self._shape, values, partial(self._call, ctypes.addressof(self._steps)))

    def _described(self, step: Step) -> _Step:
        text, offsets = 0, 0
        if step.kind is Read.ENUM:
            known = [each or b"" for each in step.symbols]
            ends = np.cumsum([len(each) for each in known])
            places = np.zeros((len(known), 2), np.int32)
            for number, (each, end) in enumerate(zip(step.symbols, ends.tolist(), strict=True)):
                places[number] = (1, 0) if each is None else (end - len(each), end)
            for buffer in (b"".join(known), places.tobytes()):
                self._pinned.append(Pinned(buffer))
            text, offsets = (each.address for each in self._pinned[-2:])
        return _Step(
            kind=step.kind,
            column=step.column,
            end=step.count(),
            low=step.low,
            high=step.high,
            factor=step.factor,
            size=len(step.symbols) if step.kind is Read.ENUM else step.size,
            text=text,
            offsets=offsets,
        )


def avro_library() -> AvroLibrary | None:
    """Return the functions, or None if they are not there."""
    found = kernel.library()
    return None if found is None else _load(str(found.path))


@cache
def _load(path: str) -> AvroLibrary | None:
    try:
        library = AvroLibrary(ctypes.CDLL(path))
    except (OSError, AttributeError):
        return None
    return library if library.abi() == ABI else None
