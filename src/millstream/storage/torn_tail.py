"""Distinguishes a torn tail from corruption: does a valid batch follow a bad one?

When a machine stops in the middle of a write, the log ends in bytes that are no batch, and nothing
comes after them. When valid batches with higher offsets do come after them, records were damaged
that had been written whole.

Bytes may look like a header wherever they are: records hold what their producers like. Each of
these claims a size, so to read what each claims would take a time that grows with the square of the
tail. So the checksums up to each block are kept, and that of a batch is taken from them: every byte
is read once, and for each header no more than its own bytes and two blocks.
"""

from __future__ import annotations

import re
from array import array
from typing import Final

from millstream.model.errors import MillstreamError
from millstream.model.offsets import Offset
from millstream.records.batch import ATTRIBUTES_POSITION, HEADER_SIZE, header_at
from millstream.records.crc32c import checksum
from millstream.records.crc32c_parts import of_rest
from millstream.storage.file_records import FileRecords
from millstream.storage.files import File

_CHUNK_BYTES: Final = 1 << 20
_BLOCK_BYTES: Final = 1024


def valid_batch_follows(records: FileRecords, position: int, next_offset: Offset) -> bool:
    """Tell whether a whole batch with a good CRC and an offset of at least ``next_offset`` begins
    anywhere after ``position``, which is known to begin none.
    """
    finder = BatchFinder(records.file(), records.size, position + 1)
    return finder.next(position + 1, next_offset) is not None


class BatchFinder:
    """Finds whole batches in the first ``size`` bytes of a file, from ``start`` on."""

    def __init__(self, file: File, size: int, start: int = 0) -> None:
        self._file = file
        self._size = size
        self._start = start
        self._sums = array("I", [0])
        """The checksum from the start up to each block."""

    def next(self, position: int, next_offset: Offset) -> int | None:
        """Return the first position from ``position`` on at which a whole batch with a good CRC and
        an offset of at least ``next_offset`` begins; None where there is none. Raises OSError.

        ``position`` is not before the start.
        """
        # Base offset with the same upper half, length of up to 2**31 - 1, any epoch, magic 2, any
        # CRC, attributes of one byte.
        upper_half = re.escape(next_offset.to_bytes(8, "big")[:4])
        candidates = re.compile(
            rb"(?=" + upper_half + rb".{4}[\x00-\x7f].{7}\x02.{4}\x00)", re.DOTALL
        )
        while position + HEADER_SIZE <= self._size:
            chunk = self._file.read_at(position, _CHUNK_BYTES + HEADER_SIZE)
            for match in candidates.finditer(chunk):
                place = match.start()
                if place >= _CHUNK_BYTES:
                    break
                header = chunk[place : place + HEADER_SIZE]
                if self._is_batch(header, position + place, next_offset):
                    return position + place
            position += _CHUNK_BYTES
        return None

    def _is_batch(self, header: bytes, position: int, next_offset: Offset) -> bool:
        try:
            batch = header_at(header)
        except MillstreamError:
            return False
        end = position + batch.size
        if end > self._size or batch.base_offset < next_offset:
            return False
        return self._checksum(position + ATTRIBUTES_POSITION, end) == batch.crc

    def _checksum(self, start: int, end: int) -> int | None:
        beginning, whole = self._checksum_up_to(start), self._checksum_up_to(end)
        if beginning is None or whole is None:
            return None
        return of_rest(whole, beginning, end - start)

    def _checksum_up_to(self, position: int) -> int | None:
        """Return the checksum from the start on; None where the file has ended before."""
        number, rest = divmod(position - self._start, _BLOCK_BYTES)
        if not self._sum_up_to(number):
            return None
        data = self._file.read_at(position - rest, rest) if rest else b""
        return checksum(data, self._sums[number]) if len(data) == rest else None

    def _sum_up_to(self, number: int) -> bool:
        """Sum the blocks before one; False where the file has ended before."""
        while (known := len(self._sums) - 1) < number:
            blocks = min(number - known, max(_CHUNK_BYTES // _BLOCK_BYTES, 1))
            place = self._start + known * _BLOCK_BYTES
            data = memoryview(self._file.read_at(place, blocks * _BLOCK_BYTES))
            if len(data) < blocks * _BLOCK_BYTES:
                return False
            for first in range(0, len(data), _BLOCK_BYTES):
                block = data[first : first + _BLOCK_BYTES]
                self._sums.append(checksum(block, self._sums[-1]))
        return True
