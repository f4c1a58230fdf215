"""The part of the kernel that compaction uses, ``native/cleaner.h``, if the kernel is available."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final, cast

from millstream.records import kernel
from millstream.records.kernel import Address

ABI: Final = 1
"""The version of ``native/cleaner.h`` that this module describes."""


class MapState(ctypes.Structure):
    """``ms_offset_map``."""

    _fields_ = (
        ("table", ctypes.c_void_p),
        ("slots", ctypes.c_int64),
        ("capacity", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("latest_offset", ctypes.c_int64),
        ("seed", ctypes.c_uint64 * 2),
    )


class Retained(ctypes.Structure):
    """``ms_retained``."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("max_timestamp_delta", ctypes.c_int64),
        ("has_tombstones", ctypes.c_int32),
        ("is_corrupt", ctypes.c_int32),
    )


_PART = {
    "p": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "q": ctypes.c_int64,
    "i": ctypes.c_int32,
}


class CleanerLibrary:
    """The functions of ``native/cleaner.h``; AttributeError where the library has none of them."""

    def __init__(self, loaded: ctypes.CDLL) -> None:
        for name, result, of in (
            ("ms_cleaner_abi", ctypes.c_int32, ""),
            ("ms_map_digest", None, "psqp"),
            ("ms_map_put", ctypes.c_int32, "psqq"),
            ("ms_map_get", ctypes.c_int64, "psq"),
            ("ms_map_put_records", ctypes.c_int32, "ppqqqq"),
            ("ms_map_put_batches", ctypes.c_int64, "ppqqqp"),
            ("ms_map_filter_records", None, "ppqqqipp"),
            ("ms_map_filter_batches", ctypes.c_int64, "ppqqpqpp"),
        ):
            function = getattr(loaded, name)
            function.restype = result
            function.argtypes = [_PART[each] for each in of]
        self._loaded = loaded

    def abi(self) -> int:
        """Return the version of the header that the library was built with."""
        return cast(int, self._loaded.ms_cleaner_abi())

    def digest(self, state: Address, key: bytes) -> bytes:
        """Return the 16 bytes that stand for a key."""
        out = ctypes.create_string_buffer(16)
        self._loaded.ms_map_digest(state, key, len(key), ctypes.addressof(out))
        return out.raw

    def put(self, state: Address, key: bytes, offset: int) -> bool:
        """Store a key's offset; False if the map is full."""
        return bool(self._loaded.ms_map_put(state, key, len(key), offset))

    def get(self, state: Address, key: bytes) -> int:
        """Return a key's offset, -1 when the map does not hold it."""
        return cast(int, self._loaded.ms_map_get(state, key, len(key)))

    def put_records(
        self, state: Address, data: Address, size: int, count: int, offsets: tuple[int, int]
    ) -> int:
        """Add keys; ``offsets`` are the batch's base offset and the first offset to add. Returns 1
        done, 0 full, -1 corrupt.
        """
        return cast(int, self._loaded.ms_map_put_records(state, data, size, count, *offsets))

    def put_batches(
        self, state: Address, data: Address, size: int, position: int, start_offset: int
    ) -> tuple[int, bool]:
        """Add the keys of plain batches; return where it stopped and whether the map was full."""
        full = ctypes.c_int32()
        stopped = self._loaded.ms_map_put_batches(
            state, data, size, position, start_offset, ctypes.addressof(full)
        )
        return cast(int, stopped), bool(full.value)

    def filter_records(
        self,
        state: Address,
        data: Address,
        size: int,
        count: int,
        base_offset: int,
        *,
        retain_tombstones: bool,
        out: Address,
    ) -> Retained:
        """Copy the retained records to ``out``, of ``size`` bytes."""
        left = Retained()
        self._loaded.ms_map_filter_records(
            state, data, size, count, base_offset, retain_tombstones, out, ctypes.addressof(left)
        )
        return left

    def filter_batches(
        self,
        state: Address,
        data: Address,
        size: int,
        position: int,
        *,
        keep: tuple[Address, int],
        out: Address,
    ) -> tuple[int, int]:
        """Copy what is retained of plain batches to ``out``; return where it stopped and how many
        bytes it wrote. ``keep`` is the address and the count of the last offsets at which it stops.
        """
        written = ctypes.c_int64()
        stopped = self._loaded.ms_map_filter_batches(
            state, data, size, position, *keep, out, ctypes.addressof(written)
        )
        return cast(int, stopped), written.value


@cache
def cleaner_library() -> CleanerLibrary | None:
    """Return the functions, or None if the Python implementation is used."""
    found = kernel.library()
    if found is None:
        return None
    try:
        library = CleanerLibrary(ctypes.CDLL(str(found.path)))
    except (OSError, AttributeError):
        return None
    return library if library.abi() == ABI else None
