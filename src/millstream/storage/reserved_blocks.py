"""Disk blocks set aside beyond the end of a file: ``fallocate`` with ``FALLOC_FL_KEEP_SIZE``.

ext4 finds blocks for data when it is written back, and sets room aside for it page by page as it is
written. Where the blocks are there before, an append leaves that out. The size of the file stays
what was written, so whoever reads the directory, Kafka or a recovery, sees no difference.

Python's ``os.posix_fallocate`` changes the size, so the call is made through ctypes, which is
loaded at the first of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Final

from millstream.platform import IS_LINUX

_KEEP_SIZE: Final = 1  # FALLOC_FL_KEEP_SIZE

_EXT4: Final = 0xEF53
"""``f_type`` of ext4. Others are left alone: a tmpfs has no blocks to look for, XFS reserves ahead
by itself, Btrfs writes elsewhere and not into the blocks that it was told to allocate.
"""

_STATFS_BYTES: Final = 256
"""More than ``struct statfs`` has on any Linux; it begins with ``f_type``."""

_ROOM_LEFT: Final = 64
"""A reservation is one part in 64, at most, of what is free: those of other logs, which may never
be used, must not make a disk full.
"""

_benefits: dict[int, bool] = {}
"""By device: whether reservations are made there."""


def reserve_blocks(descriptor: int, position: int, size: int) -> None:
    """Allocate what is missing from ``position`` up to ``position + size``, without a change of the
    file's size; does nothing where the file system does not gain by it. Never fails: a full disk,
    a quota, a dying disk or a file system that cannot do it is met by the write, if it matters to
    it; a Python without ctypes reserves nothing.
    """
    with suppress(AttributeError, ImportError, OSError):
        _reserve(descriptor, position, size)


def _reserve(descriptor: int, position: int, size: int) -> None:
    device = os.fstat(descriptor).st_dev
    benefits = _benefits.get(device)
    if benefits is None:
        benefits = _benefits[device] = _is_ext4(descriptor)
    if not benefits:
        return
    volume = os.fstatvfs(descriptor)
    if size * _ROOM_LEFT <= volume.f_bavail * volume.f_frsize:
        _fallocate()(descriptor, _KEEP_SIZE, position, size)


def _is_ext4(descriptor: int) -> bool:
    """Tell whether a file lies on ext4 (or ext2 or ext3, which have the same number)."""
    if not IS_LINUX or sys.maxsize < 1 << 32:
        return False
    import ctypes

    status = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None).fstatfs(descriptor, status):
        return False
    return ctypes.c_long.from_buffer(status).value == _EXT4


@cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    import ctypes

    function = ctypes.CDLL(None).fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    typed: Callable[[int, int, int, int], int] = function
    return typed
