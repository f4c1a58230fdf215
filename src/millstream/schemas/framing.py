"""How a record names the schema that it was written with: Confluent's wire format. Pure.

In front of the datum::

    0   magic byte 0
    1   schema id, 4 bytes, big-endian
    5   Protobuf only: message indexes
    …   the datum

or, the datum alone in the value, in a header ``__value_schema_id`` (``__key_schema_id`` for keys)::

    0   magic byte 1
    1   GUID of the schema, 16 bytes
    17  Protobuf only: message indexes

Message indexes say which message of the file it is: the number of indexes, then the place of each
message in the one around it, all as zigzag varints. The first message of a file, [0], may be
written as the single byte 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from millstream.schemas.schema import SchemaKey

ID_BYTES: Final = 5
GUID_BYTES: Final = 17
_ID_MAGIC: Final = 0
_GUID_MAGIC: Final = 1
VALUE_HEADER: Final = "__value_schema_id"
KEY_HEADER: Final = "__key_schema_id"
FIRST_MESSAGE: Final = (0,)
_MOST_INDEXES: Final = 100
"""Messages within messages; no file of people has so many."""
_LONGEST_VARINT: Final = 5


class FramingError(ValueError):
    """The bytes do not begin as the wire format says."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands before a datum. ``indexes`` are a Protobuf message's place, () for the others."""

    key: SchemaKey
    position: int
    """Where the datum begins in the value."""
    indexes: tuple[int, ...] = ()


def read_frame(value: bytes, *, has_indexes: bool, header: bytes | None = None) -> Frame:
    """Return the frame of a value, or of the header that stands for it.

    FramingError if there is none.
    """
    if header is not None:
        return _of_header(header, has_indexes=has_indexes)
    if len(value) < ID_BYTES or value[0] != _ID_MAGIC:
        raise FramingError("no zero byte and schema id in front of the datum")
    number = int.from_bytes(value[1:ID_BYTES], "big")
    if not has_indexes:
        return Frame(number, ID_BYTES)
    indexes, position = read_indexes(value, ID_BYTES)
    return Frame(number, position, indexes)


def _of_header(header: bytes, *, has_indexes: bool) -> Frame:
    if header[:1] == bytes([_ID_MAGIC]) and len(header) >= ID_BYTES:
        key: SchemaKey = int.from_bytes(header[1:ID_BYTES], "big")
        end = ID_BYTES
    elif header[:1] == bytes([_GUID_MAGIC]) and len(header) >= GUID_BYTES:
        key = UUID(bytes=header[1:GUID_BYTES])
        end = GUID_BYTES
    else:
        raise FramingError("the header with the schema's id is neither an id nor a GUID")
    return Frame(key, 0, read_indexes(header, end)[0] if has_indexes else ())


def read_indexes(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    """Return the message indexes that begin at ``position``, and where they end; FramingError."""
    count, position = _varint(data, position)
    if count == 0:
        return FIRST_MESSAGE, position
    if not 0 < count <= _MOST_INDEXES:
        raise FramingError(f"{count} message indexes in front of the message")
    found = []
    for _ in range(count):
        index, position = _varint(data, position)
        if index < 0:
            raise FramingError(f"message index {index} in front of the message")
        found.append(index)
    return tuple(found), position


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Return message indexes as they stand in front of a message."""
    if tuple(indexes) == FIRST_MESSAGE:
        return b"\x00"
    return b"".join(map(_zigzag, (len(indexes), *indexes)))


def frame(number: int, datum: bytes, indexes: Sequence[int] | None = None) -> bytes:
    """Return a datum behind the id of its schema; ``indexes`` for a Protobuf message."""
    place = b"" if indexes is None else write_indexes(indexes)
    return b"\x00" + number.to_bytes(4, "big") + place + datum


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    for byte in data[position : position + _LONGEST_VARINT]:
        number |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise FramingError("the message indexes in front of the message do not end")


def _zigzag(number: int) -> bytes:
    left = (number << 1) ^ (number >> 31)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
