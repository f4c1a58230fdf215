"""Chooses the map of a cleaning: the kernel's where it is there, Python's elsewhere."""

from __future__ import annotations

from millstream.records.cleaner_kernel import cleaner_library
from millstream.storage.kernel_offset_map import KernelOffsetMap
from millstream.storage.offset_map import OffsetMap, PythonOffsetMap


def new_offset_map(size_bytes: int, load_factor: float, seed: bytes) -> OffsetMap:
    """Return an empty map of at most ``size_bytes`` with 16 bytes of ``seed``.

    Raises ConfigError where that is too few.
    """
    library = cleaner_library()
    if library is None:
        return PythonOffsetMap(size_bytes, load_factor, seed)
    return KernelOffsetMap(library, size_bytes, load_factor, seed)
