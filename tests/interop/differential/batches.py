"""Record batches, sound and flawed, built byte by byte so that nothing puts a flaw right.

This builder shares no code with ``millstream.records``: what is wrong there cannot hide here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import cramjam
import lz4.frame
from crc32c import crc32c

BASE_TIMESTAMP: Final = 1_700_000_000_000
"""The time of the first record, ms: long past, so that it is never taken for the present."""

Headers = Sequence[tuple[bytes, bytes | None]]
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


@dataclass(frozen=True)
class Record:
    """One record; ``timestamp_delta`` in ms, deltas relative to the batch."""

    value: bytes | None = b"value"
    key: bytes | None = None
    headers: Headers = ()
    timestamp_delta: int = 0
    offset_delta: int | None = None


@dataclass(frozen=True)
class Batch:
    """The fields of a batch. ``None`` means the value that belongs there."""

    records: Sequence[Record] = (Record(),)
    base_offset: int = 0
    length: int | None = None
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    attributes: int = 0
    last_offset_delta: int | None = None
    base_timestamp: int = BASE_TIMESTAMP
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int | None = None
    codec: str | None = None
    payload: bytes | None = None
    trailing: bytes = b""

    def encode(self) -> bytes:
        """Return the bytes on the wire."""
        records = [_with_delta(each, index) for index, each in enumerate(self.records)]
        payload = b"".join(map(encode_record, records)) if self.payload is None else self.payload
        attributes = self.attributes
        if self.codec is not None:
            number, compress = CODECS[self.codec]
            attributes |= number
            payload = compress(payload)
        payload += self.trailing
        last_delta = self.last_offset_delta
        if last_delta is None:
            last_delta = len(records) - 1
        max_timestamp = self.max_timestamp
        if max_timestamp is None:
            max_timestamp = self.base_timestamp + max(
                (each.timestamp_delta for each in records), default=0
            )
        body = struct.pack(
            ">hiqqqhii",
            attributes,
            last_delta,
            self.base_timestamp,
            max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            len(records) if self.count is None else self.count,
        )
        crc = crc32c(body + payload) if self.crc is None else self.crc
        length = 9 + len(body) + len(payload) if self.length is None else self.length
        head = struct.pack(">qiibI", self.base_offset, length, self.leader_epoch, self.magic, crc)
        return head + body + payload


def batch(*values: bytes | str | None, **fields: object) -> bytes:
    """Encode one batch with a record per value (one record "value" when there is none)."""
    records = [Record(each.encode() if isinstance(each, str) else each) for each in values]
    return Batch(**({"records": records or [Record()]} | fields)).encode()  # type: ignore[arg-type]


def _with_delta(record: Record, index: int) -> Record:
    if record.offset_delta is not None:
        return record
    return Record(record.value, record.key, record.headers, record.timestamp_delta, index)


def varint(number: int) -> bytes:
    """Zig-zag and base 128, as records hold their numbers."""
    rest = (number << 1) ^ (number >> 63)
    rest &= (1 << 64) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _sized(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def encode_record(record: Record) -> bytes:
    """Return one record with its length in front."""
    body = (
        b"\0"
        + varint(record.timestamp_delta)
        + varint(record.offset_delta or 0)
        + _sized(record.key)
        + _sized(record.value)
        + varint(len(record.headers))
        + b"".join(_sized(key) + _sized(value) for key, value in record.headers)
    )
    return varint(len(body)) + body


def old_message(magic: int, value: bytes = b"value") -> bytes:
    """Return a message of the format before batches (magic 0 or 1) with its own kind of CRC."""
    time = struct.pack(">q", BASE_TIMESTAMP) if magic else b""
    body = struct.pack(">bb", magic, 0) + time + struct.pack(">ii", -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def _xerial_snappy(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block


CODECS: Final[dict[str, tuple[int, Callable[[bytes], bytes]]]] = {
    "gzip": (1, lambda data: bytes(cramjam.gzip.compress(data))),
    "snappy": (2, _xerial_snappy),
    "lz4": (3, lambda data: lz4.frame.compress(data, block_linked=False, store_size=False)),
    "zstd": (4, lambda data: bytes(cramjam.zstd.compress(data))),
}


def describe_batches(data: bytes) -> list[dict[str, object]]:
    """Return the header fields of every batch in ``data`` in a form that can be compared."""
    out: list[dict[str, object]] = []
    position = 0
    while len(data) - position >= _HEADER.size:
        fields = _HEADER.unpack_from(data, position)
        end = position + 12 + fields[1]
        if end > len(data):
            break
        out.append(_describe(fields, data[position:end]))
        position = end
    if position < len(data):
        out.append({"cut_off_bytes": len(data) - position})
    return out


def _describe(fields: Sequence[int], data: bytes) -> dict[str, object]:
    names = [
        "base_offset",
        "length",
        "leader_epoch",
        "magic",
        "crc",
        "attributes",
        "last_offset_delta",
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "count",
    ]
    described: dict[str, object] = dict(zip(names, fields, strict=True))
    described["crc"] = "right" if crc32c(data[21:]) == fields[4] else "wrong"
    payload = data[_HEADER.size :]
    short = payload.hex() if len(payload) <= 64 else f"crc32c {crc32c(payload):08x}"
    described["payload"] = short
    return described
