"""The search for a batch by its offset in C, ``native/receive.h``."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ctypes import c_void_p
from functools import cache
from typing import Final, TypeAlias, TypeVar

from millstream.protocol.native_codec import Kind, codec_of
from millstream.records.kernel import Library
from millstream.records.kernel_types import Structure

T = TypeVar("T", bound=tuple[int, ...])

FindBatch: TypeAlias = Callable[[bytes, int, int, int, int], T | int | None]
"""(bytes, where the first batch begins in them, its position in the log, the size of the log,
offset) to the first batch whose last offset is at least that, the position at which to go on where
the bytes hold none, or None where Python has to decide.
"""


_HEADER: Final = struct.pack(">qiiB44x", 0, 49, 0, 2)
"""A header of a batch in which a batch is found."""


class Finder(Structure):
    """``ms_finder``: the type of what is found."""

    _fields_ = (("position_type", c_void_p),)


@cache
def batch_finder(library: Library | None, position_type: type[T]) -> FindBatch[T] | None:
    """Return the search; None without a kernel that has one.

    It answers with ``position_type``, a named tuple of position, size, base offset, last offset,
    leader epoch and max timestamp.
    """
    native = None if library is None else codec_of(library.path)
    if native is None:
        return None
    finder = Finder(position_type=id(position_type))
    find: FindBatch[T] = native.new(Kind.FIND_BATCH, finder, position_type)
    return find if _hashes_hold(find) else None


def _hashes_hold(find: FindBatch[T]) -> bool:
    """Tell whether what is found hashes like an equal tuple; not from Python 3.14 on, see
    :mod:`millstream.records.rows`.
    """
    found = find(_HEADER, 0, 0, len(_HEADER), 0)
    return isinstance(found, tuple) and hash(found) == hash((*found,))
