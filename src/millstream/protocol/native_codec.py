"""The codec in C: ``native/codec.h``, if the library is there.

It makes functions that Python calls as its own built-in ones. Each does what a function of
:mod:`millstream.protocol.compile` or :mod:`millstream.protocol.codec` does, which it is given and
calls with the same arguments whenever bytes or values are not plainly right: that one decides, and
words every error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int32, c_void_p
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.native.interpreter import Interpreter, keep_for_good, slots_of
from millstream.native.loader import find_library
from millstream.protocol.native_tables import Codec, NoTableError, Table
from millstream.protocol.outgoing import MERGE_BELOW_BYTES, Outgoing

if TYPE_CHECKING:
    from millstream.protocol.message import Message

ABI: Final = 3
"""The version of ``native/codec.h`` that this module and its neighbours describe."""


class Kind(IntEnum):
    """What a function does; its arguments and its result are in ``native/codec.h``."""

    DECODE = 0
    DECODE_REQUEST = 1
    DECODE_RESPONSE = 2
    ENCODE = 3
    ENCODE_REQUEST = 4
    ENCODE_RESPONSE = 5
    DECODE_HEADER = 6
    RECEIVE = 7
    FIND_BATCH = 8


class NativeCodec:
    """Makes the functions, which are for good: what they use is never given back."""

    def __init__(self, path: Path) -> None:
        """Load the library; OSError if there is none at ``path``, AttributeError if it has no
        codec, NotImplementedError for an interpreter that it does not know.
        """
        interpreter = Interpreter.this()
        # Nothing is looked for inside the objects of an interpreter that is not known.
        slots = None if interpreter is None else slots_of(Outgoing, ("pieces", "size"))
        if interpreter is None or slots is None:
            raise NotImplementedError("objects of this interpreter are laid out differently")
        library = ctypes.PyDLL(str(path))
        abi = library.ms_codec_abi
        abi.restype, abi.argtypes = c_int32, []
        self.abi: int = abi()
        begin = library.ms_codec_begin
        begin.restype, begin.argtypes = None, [c_void_p]
        self._new = library.ms_codec_function
        self._new.restype, self._new.argtypes = ctypes.py_object, [c_int32, c_void_p]
        self._slots = slots
        # What functions work with, which nobody sees go: they refer to it by its address.
        self._kept: list[object] = [Outgoing]
        keep_for_good(self._kept)
        self._tables: dict[tuple[type[Message], int], Table | None] = {}
        if self.abi == ABI:
            begin(ctypes.addressof(interpreter))

    def function(
        self,
        kind: Kind,
        cls: type[Message],
        version: int,
        fallback: Callable[..., Any],
        *,
        max_elements: int = 0,
        flexible_header: bool = False,
    ) -> Callable[..., Any]:
        """Return a function for a class in a version, which it has: ``fallback`` where there is no
        table for it.
        """
        table = self._table(cls, version)
        if table is None:
            return fallback
        codec = Codec(
            body=table.address,
            fallback=id(fallback),
            max_elements=max_elements,
            outgoing_type=id(Outgoing),
            pieces_slot=self._slots["pieces"],
            size_slot=self._slots["size"],
            merge_below=MERGE_BELOW_BYTES,
            flexible_header=flexible_header,
            api_key=getattr(cls, "API_KEY", 0),
            version=version,
        )
        return self.new(kind, codec, fallback, table)

    def new(
        self, kind: Kind, works_with: ctypes.Structure, *referred: object
    ) -> Callable[..., Any]:
        """Return a function that works with a structure, which is kept with what its addresses
        refer to.
        """
        self._kept += (works_with, *referred)
        made: Callable[..., Any] = self._new(kind, ctypes.addressof(works_with))
        return made

    def _table(self, cls: type[Message], version: int) -> Table | None:
        """Return the table of a class in a version, made at its first use."""
        if (cls, version) not in self._tables:
            try:
                table = Table(cls, version, flexible=cls.is_flexible(version))
            except NoTableError:
                self._tables[cls, version] = None
            else:
                self._tables[cls, version] = table
        return self._tables[cls, version]


def native_codec() -> NativeCodec | None:
    """Return the codec in C, or None if Python encodes and decodes."""
    path, _ = find_library()
    return None if path is None else codec_of(path)


@cache
def codec_of(path: Path) -> NativeCodec | None:
    """Return the codec of a library; None if it has none, or another one."""
    try:
        found = NativeCodec(path)
    except (OSError, AttributeError, NotImplementedError):
        return None
    return found if found.abi == ABI else None
