"""Distinguishes a torn tail from corruption: does a valid batch follow a bad one?

When a machine stops in the middle of a write, the log ends in bytes that are no batch, and nothing
comes after them. When valid batches with higher offsets do come after them, records were damaged
that had been written whole.
"""

from __future__ import annotations

import re
from typing import Final

from millstream.model.errors import MillstreamError
from millstream.model.offsets import Offset
from millstream.records.batch import HEADER_SIZE, header_at
from millstream.storage.file_records import FileRecords
from millstream.storage.files import File

_CHUNK_BYTES: Final = 1 << 20


def valid_batch_follows(records: FileRecords, position: int, next_offset: Offset) -> bool:
    """Tell whether a whole batch with a good CRC and an offset of at least ``next_offset`` begins
    anywhere after ``position``, which is known to begin none.
    """
    file, size = records.file(), records.size
    return next_valid_batch(file, size, position + 1, next_offset) is not None


def next_valid_batch(file: File, size: int, position: int, next_offset: Offset) -> int | None:
    """Return the first position from ``position`` on at which a whole batch with a good CRC and an
    offset of at least ``next_offset`` begins; None where the ``size`` bytes hold none. Raises
    OSError.
    """
    # Base offset with the same upper half, length of up to 2**31 - 1, any epoch, magic 2, any
    # CRC, attributes of one byte.
    upper_half = re.escape(next_offset.to_bytes(8, "big")[:4])
    candidates = re.compile(rb"(?=" + upper_half + rb".{4}[\x00-\x7f].{7}\x02.{4}\x00)", re.DOTALL)
    while position + HEADER_SIZE <= size:
        chunk = file.read_at(position, _CHUNK_BYTES + HEADER_SIZE)
        for match in candidates.finditer(chunk):
            if match.start() >= _CHUNK_BYTES:
                break
            if _is_batch(file, size, position + match.start(), next_offset):
                return position + match.start()
        position += _CHUNK_BYTES
    return None


def _is_batch(file: File, end: int, position: int, next_offset: Offset) -> bool:
    try:
        size = header_at(file.read_at(position, HEADER_SIZE)).size
        if position + size > end:
            return False
        batch = header_at(file.read_at(position, size))
    except MillstreamError:
        return False
    return batch.base_offset >= next_offset and batch.is_valid
