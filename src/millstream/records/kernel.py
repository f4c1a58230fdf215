"""Loads the columns kernel, the C library of ``native/``, if it was built.

Where there is none (:mod:`millstream.native.loader`), :func:`library` returns None and callers
take their path in Python and numpy, which gives the same results. ``python -m
millstream.records.kernel`` prints which one is in use.

Calls go through ``ctypes.CDLL``, which releases the GIL, except for ``records``, which creates
objects. All pointers are passed as addresses; :class:`Pinned` gives the address of any buffer and
keeps it from moving.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from millstream.native.loader import find_library
from millstream.records.crc32c import Buffer

Address: TypeAlias = int
"""A memory address; 0 is null."""

ABI: Final = 7
"""The version of ``native/kernel.h`` that this module and ``kernel_types`` describe."""

_Number: TypeAlias = type[ctypes.c_int32] | type[ctypes.c_uint32] | type[ctypes.c_int64]

_WRITABLE: Final = 1  # PyBUF_WRITABLE


class Library:
    """The functions of the kernel, each described in ``native/kernel.h``."""

    def __init__(self, path: Path) -> None:
        """Load ``path``; OSError if it is not a library, AttributeError if it lacks a function."""
        self.path = path
        loaded = ctypes.CDLL(str(path))
        self.abi: Callable[[], int] = _typed(loaded, "ms_abi", ctypes.c_int32, "")
        u32, i64 = ctypes.c_uint32, ctypes.c_int64
        self.crc32c: Callable[[int, Address, int], int] = _typed(loaded, "ms_crc32c", u32, "upq")
        self.crc32c_by_tables: Callable[[int, Address, int], int] = _typed(
            loaded, "ms_crc32c_by_tables", u32, "upq"
        )
        self.murmur2: Callable[[bytes, int], int] = _typed(loaded, "ms_murmur2", u32, "sq")
        self.find_batches: Callable[
            [Address, int, int, int, int, int, Address, int, Address, Address], None
        ] = _typed(loaded, "ms_find_batches", None, "pqqqqipqpp")
        self.measure: Callable[[Address, int, int, int, Address, Address], None] = _typed(
            loaded, "ms_measure", None, "pqqqpp"
        )
        self.bound: Callable[[Address, int, Address, Address], None] = _typed(
            loaded, "ms_bound", None, "pqpp"
        )
        self.decode: Callable[[Address, int, int, int, Address, Address], None] = _typed(
            loaded, "ms_decode", None, "pqqqpp"
        )
        self.locate: Callable[[Address, int, Address, Address, Address], None] = _typed(
            loaded, "ms_locate", None, "pqppp"
        )
        self.records: Callable[
            [Address, Address, Address, int, int, type, str, int, list[Any], int, Address], int
        ] = _typed(ctypes.PyDLL(str(path)), "ms_records", i64, "pppqqooooqp")
        self.encode: Callable[
            [Address, Address, int, int, Address, Address, int, Address, int, Address, Address],
            int,
        ] = _typed(loaded, "ms_encode", i64, "ppqqppqpqpp")
        self.encode_rows: Callable[[Address, Address, int, Address, Address, int, Address], int] = (
            _typed(loaded, "ms_encode_rows", i64, "ppqppqp")
        )
        self.partition: Callable[[Address, int, int, int, int, Address, Address], None] = _typed(
            loaded, "ms_partition", None, "pqiqipp"
        )
        self.group: Callable[[Address, int, int, Address, Address, Address], None] = _typed(
            loaded, "ms_group", None, "pqippp"
        )
        self.json_lines: Callable[
            [Address, int, Address, int, Address, int, Address, Address, Address], int
        ] = _typed(loaded, "ms_json_lines", i64, "pqpqpqppp")
        self.json_fields: Callable[
            [Address, int, Address, Address, int, Address, Address, Address, Address], int
        ] = _typed(loaded, "ms_json_fields", i64, "pqppqpppp")


_ARGUMENTS: Final = {
    "o": ctypes.py_object,
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "q": ctypes.c_int64,
    "i": ctypes.c_int32,
    "u": ctypes.c_uint32,
}


def _typed(loaded: ctypes.CDLL, name: str, result: _Number | None, of: str) -> Callable[..., Any]:
    function = getattr(loaded, name)
    function.restype = result
    function.argtypes = [_ARGUMENTS[each] for each in of]
    return cast(Callable[..., Any], function)


class _PyBuffer(ctypes.Structure):
    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


class Pinned:
    """The address and the size of a buffer, which is kept alive and in place by this object.

    Raises BufferError for one that is not contiguous, or read-only if ``writable`` is set.
    """

    __slots__ = ("_view", "address", "size")

    def __init__(self, buffer: Buffer | array[int], *, writable: bool = False) -> None:
        view = _PyBuffer()
        flags = _WRITABLE if writable else 0
        ctypes.pythonapi.PyObject_GetBuffer(
            ctypes.py_object(buffer), ctypes.byref(view), ctypes.c_int(flags)
        )
        self._view: _PyBuffer | None = view
        self.address: Address = view.buf or 0
        self.size: int = view.len

    def __del__(
        self, _release: Callable[[object], None] = ctypes.pythonapi.PyBuffer_Release
    ) -> None:
        view = getattr(self, "_view", None)
        if view is not None:
            self._view = None
            _release(ctypes.byref(view))


def _load() -> tuple[Library | None, str]:
    """Return the library, or None and the reason why there is none."""
    path, reason = find_library()
    if path is None:
        return None, reason
    try:
        found = Library(path)
        if found.abi() != ABI:
            return None, f"{path} is of another version: install Millstream again"
        Pinned(b"")
    except (OSError, AttributeError) as error:
        return None, f"{path} cannot be loaded: {error}"
    return found, ""


_loaded, _reason = _load()


def library() -> Library | None:
    """Return the kernel, or None if Python and numpy are used."""
    return _loaded


def describe() -> str:
    """Return a line that names the implementation in use, and the reason if it is not the
    kernel.
    """
    if _loaded is not None:
        return f"C kernel {_loaded.path}"
    return f"Python and numpy ({_reason or 'switched off'})"


if __name__ == "__main__":
    print(describe())
