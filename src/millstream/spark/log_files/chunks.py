"""Reads an open ``.log`` file in chunks of whole batches, some megabytes at a time."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import Offset
from millstream.platform import read_into
from millstream.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from millstream.records.legacy import check_not_legacy

_BATCH_HEADER: Final = struct.Struct(">qi4xb6xi")
"""Base offset, batch length, magic and last offset delta of a batch's header."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches: their bytes, which the next chunk overwrites, and the offsets they span."""

    data: memoryview
    base_offset: Offset
    next_offset: Offset


class ChunkReader:
    """Reads one file from ``position`` on; :meth:`read` may be called again for appended
    batches.
    """

    def __init__(self, descriptor: int, position: int, size_bytes: int) -> None:
        self._descriptor = descriptor
        self.position = position
        self._buffer = bytearray(size_bytes)

    def read(self, end_offset: Offset) -> Iterator[Chunk]:
        """Yield chunks until ``end_offset`` is reached or no whole batch is left."""
        while (chunk := self._next(end_offset)) is not None:
            yield chunk
            if chunk.next_offset >= end_offset:
                return

    def _next(self, end_offset: Offset) -> Chunk | None:
        view = memoryview(self._buffer)
        count = read_into(self._descriptor, [view], self.position)
        if count < HEADER_SIZE:
            return None
        size, first, after = _whole_batches(view[:count], end_offset)
        if not size:
            wanted = _BATCH_HEADER.unpack_from(view)[1] + LENGTH_OVERHEAD
            if wanted <= len(self._buffer):
                return None
            self._buffer = bytearray(wanted)  # one batch that is larger than a chunk
            return self._next(end_offset)
        self.position += size
        return Chunk(view[:size], first, after)


def _whole_batches(view: memoryview, end_offset: Offset) -> tuple[int, Offset, Offset]:
    """Return the bytes of the whole batches up to ``end_offset``, and the offsets they span.

    What follows is not checked: a broker may be writing there.
    """
    position, end = 0, len(view)
    first = after = -1
    while end - position >= HEADER_SIZE and after < end_offset:
        base_offset, length, magic, last_offset_delta = _BATCH_HEADER.unpack_from(view, position)
        size = length + LENGTH_OVERHEAD
        if magic != MAGIC:
            check_not_legacy(view[position:])
        if length == 0 and base_offset == 0 and magic == 0:
            break  # preallocated space
        if magic != MAGIC or size < HEADER_SIZE:
            raise CorruptLogError(f"no batch begins {position} bytes after offset {after}")
        if position + size > end:
            break
        first = base_offset if first < 0 else first
        after = base_offset + last_offset_delta + 1
        position += size
    return position, first, after
