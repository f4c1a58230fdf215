"""Magic 0 and 1, the message formats before Kafka 0.11: known when seen, not read.

Layout: offset i64, size i32, CRC-32 u32 (of byte 16 to the end), magic i8, attributes i8, ...
A magic byte lies outside the CRC of a version 2 batch, so a damaged one can read 0 or 1. The
older formats' own CRC tells such damage from a message of theirs.
"""

from __future__ import annotations

import struct
import zlib

from millstream.model.errors import MillstreamError
from millstream.records.crc32c import Buffer

_SIZE_CRC_MAGIC = struct.Struct(">iIb")
_MINIMUM_SIZE = 14
_LENGTH_OVERHEAD = 12
_MAGIC_POSITION = 16


class UnsupportedFormatError(MillstreamError):
    """A sound message of magic 0 or 1, which Millstream does not read."""


def check_not_legacy(buffer: Buffer) -> None:
    """Raise UnsupportedFormatError when ``buffer`` starts with a whole, sound message of magic 0
    or 1; return when it does not, or when it is not long enough to tell.
    """
    if len(buffer) < _LENGTH_OVERHEAD + _MINIMUM_SIZE:
        return
    size, crc, magic = _SIZE_CRC_MAGIC.unpack_from(buffer, 8)
    end = size + _LENGTH_OVERHEAD
    if magic not in (0, 1) or size < _MINIMUM_SIZE or end > len(buffer):
        return
    if zlib.crc32(memoryview(buffer)[_MAGIC_POSITION:end]) == crc:
        raise UnsupportedFormatError(
            f"a message in format version {magic}, older than Kafka 0.11: convert it with "
            "Apache Kafka 3.x first"
        )
