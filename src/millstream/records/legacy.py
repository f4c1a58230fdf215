"""Magic 0 and 1, the message formats before Kafka 0.11: how they are recognised and read.

One message, big endian (Kafka: ``LegacyRecord``; KIP-31, KIP-32)::

     0        8      12      16    17     18                  26
     +--------+-------+-------+-----+------+-------------------+-----------+-----------+
     | offset | size  |CRC-32 |magic|attri-| timestamp i64     | key:      | value:    |
     | i64    | i32   | u32   |0, 1 |butes | (magic 1 alone)   | size i32, | size i32, |
     |        |       |       | i8  | i8   |                   | bytes     | bytes     |
     +--------+-------+-------+-----+------+-------------------+-----------+-----------+

Size counts from byte 12. The CRC-32, zlib's and not CRC-32C, covers byte 16 to the end. A size of
-1 is null. Attributes: bits 0-2 codec (0 none, 1 gzip, 2 snappy, 3 lz4), bit 3 timestamp type (of
magic 1: 1 = log append time). In a log messages lie one after the other. With a codec the value is
a message set of its own, compressed, and the message around it is called its wrapper: see
``legacy_records``.

A magic byte lies outside the CRC of a version 2 batch, so a damaged one can read 0 or 1. The older
formats' own CRC distinguishes such damage from a valid message.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from millstream.model.errors import CorruptLogError, MillstreamError
from millstream.model.offsets import NO_TIMESTAMP, Offset
from millstream.records.crc32c import Buffer

LOG_OVERHEAD: Final = 12
"""Bytes before the ones that the size counts: offset and size."""

MAGIC_POSITION: Final = 16

_HEADER = struct.Struct(">qiIbb")
_SIZE_CRC_MAGIC = struct.Struct(">iIb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_MINIMUM_SIZES: Final = (14, 22)
"""CRC, magic, attributes, two sizes; with magic 1 a timestamp more."""
_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME_BIT: Final = 0x08


class UnsupportedFormatError(MillstreamError):
    """A valid message of magic 0 or 1 in a log that a broker reads: the log has to be converted
    first.
    """


class LegacyMessage:
    """One message, read in place: a record, or the wrapper of a compressed message set.

    ``buffer`` holds it from its offset field to its end. Raises CorruptLogError when the bytes
    cannot be such a message; only :attr:`is_valid` checks the CRC.
    """

    __slots__ = ("attributes", "buffer", "crc", "key", "magic", "offset", "timestamp", "value")

    offset: Offset
    crc: int
    magic: int
    attributes: int
    timestamp: int

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer
        self.offset, size, self.crc, self.magic, self.attributes = _HEADER.unpack_from(buffer)
        position = _HEADER.size
        self.timestamp = NO_TIMESTAMP
        """Milliseconds since 1970; -1 with magic 0, which has none."""
        if self.magic:
            (self.timestamp,) = _TIMESTAMP.unpack_from(buffer, position)
            position += _TIMESTAMP.size
        self.key, position = _field(buffer, position)
        self.value, position = _field(buffer, position)
        if position != len(buffer):
            raise CorruptLogError(f"the message at offset {self.offset} does not fill its {size}")

    @property
    def size(self) -> int:
        """Bytes that the message takes in a log."""
        return len(self.buffer)

    @property
    def codec(self) -> int:
        """A ``Codec`` number; 0 when the message is a record and no wrapper."""
        return self.attributes & _CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """True when the broker set the timestamp: all records of a wrapper have its time then."""
        return self.magic > 0 and bool(self.attributes & _LOG_APPEND_TIME_BIT)

    @property
    def is_valid(self) -> bool:
        """True when the CRC over the bytes is the stored one."""
        return zlib.crc32(self.buffer[MAGIC_POSITION:]) == self.crc

    def ensure_valid(self) -> None:
        """Raise CorruptLogError unless the CRC holds."""
        if not self.is_valid:
            raise CorruptLogError(
                f"the message at offset {self.offset} ({self.size} bytes) fails its CRC-32"
            )


def legacy_size_at(buffer: Buffer, position: int) -> int | None:
    """Return the size of the message of magic 0 or 1 that begins at ``position``, by its magic and
    size alone; None if they are not valid, or if fewer than 17 bytes are left.
    """
    if len(buffer) - position < MAGIC_POSITION + 1:
        return None
    size: int
    size, _, magic = _SIZE_CRC_MAGIC.unpack_from(buffer, position + 8)
    if magic not in (0, 1) or size < _MINIMUM_SIZES[magic]:
        return None
    return size + LOG_OVERHEAD


def legacy_message_at(buffer: Buffer, position: int = 0) -> LegacyMessage:
    """Return the whole message at ``position``.

    Raises CorruptLogError when there is none, or when it is cut off.
    """
    size = legacy_size_at(buffer, position)
    view = memoryview(buffer)
    if size is None or position + size > len(view):
        raise CorruptLogError(f"no message of magic 0 or 1 at position {position}")
    return LegacyMessage(view[position : position + size])


def check_not_legacy(buffer: Buffer) -> None:
    """Raise UnsupportedFormatError when ``buffer`` starts with a whole, sound message of magic 0
    or 1; return when it does not, or when it is not long enough to tell.
    """
    size = legacy_size_at(buffer, 0)
    if size is None or size > len(buffer):
        return
    _, crc, magic = _SIZE_CRC_MAGIC.unpack_from(buffer, 8)
    if zlib.crc32(memoryview(buffer)[MAGIC_POSITION:size]) == crc:
        raise UnsupportedFormatError(
            f"a message in format version {magic}, older than Kafka 0.11: stop the broker and "
            "convert the directory with `millstream log migrate DIR`"
        )


def _field(buffer: memoryview, position: int) -> tuple[bytes | None, int]:
    if position + _LENGTH.size > len(buffer):
        raise CorruptLogError("a message ends inside the length of its key or value")
    (length,) = _LENGTH.unpack_from(buffer, position)
    position += _LENGTH.size
    if length < 0:
        return None, position
    if position + length > len(buffer):
        raise CorruptLogError(f"a key or value of {length} bytes does not fit its message")
    return bytes(buffer[position : position + length]), position + length
