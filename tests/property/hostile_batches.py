"""Logs that no sound writer made: lengths, counts and deltas that lie, numbers at their ends."""

from __future__ import annotations

import random

from millstream.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    CRC_POSITION,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    iter_batches,
)
from millstream.records.builder import BatchOptions, seal
from millstream.records.compression import Codec, compress
from millstream.records.crc32c import checksum
from millstream.records.limits import ProduceLimits
from millstream.records.varint import encode_varint

MOST = 2**63 - 1
LEAST = -(2**63)

NUMBERS = [0, 1, -1, 63, 64, -65, 2**31 - 1, -(2**31), MOST, LEAST, MOST // 1000, 10**13]
BASE_OFFSETS = [0, 0, 0, 5, 2**31, 2**40, MOST - 20, MOST - 3]
NULLS = [-1, -1, -1, -2, -64, -(2**31)]
LENGTHS = [2**31 - 1, -1, -(2**31), 0, 5, 6]
NOW_MS = 1_700_000_000_000


class HostileWriter:
    """Writes a log that is mostly sound; the same one for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def cell(self) -> bytes | None:
        size = self.random.choice([0, 1, 3, 10, 63, 64, 200])
        return self.random.choice([None, b"", b"k", self.random.randbytes(size)])

    def log(self) -> bytes:
        """Return some batches, whole or cut off, with garbage after them or without."""
        offset, parts = self.random.choice(BASE_OFFSETS), []
        for _ in range(self.random.choice([0, 1, 1, 2, 3, 5, 40])):
            if offset >= MOST:
                break
            batch, offset = self.batch(offset)
            parts.append(self._spoiled(batch) if self.chance(0.06) else batch)
        data = b"".join(parts)
        if self.chance(0.15):
            data = data[: self.random.randrange(len(data) + 1)]
        if self.chance(0.03):
            data += self.random.randbytes(self.random.choice([5, 61, 200]))
        return data

    def batch(self, base_offset: int) -> tuple[bytes, int]:
        """Return a batch and the offset after it."""
        draw, codec = self.random.choice, self.random.choice([Codec.NONE] * 6 + list(Codec))
        options = BatchOptions(
            base_offset=base_offset,
            codec=codec,
            leader_epoch=draw([-1, 0, 3, 5]),
            producer_id=draw([-1, -1, 5, 6, MOST]),
            base_sequence=draw([-1, 0, 5]),
            producer_epoch=0,
            is_transactional=self.chance(0.15),
            is_control=self.chance(0.1),
            log_append_time_ms=draw([None] * 6 + [5, MOST, LEAST]),
        )
        count, delta, records = draw([0, 1, 1, 2, 3, 5, 9]), -1, b""
        for _ in range(count):
            delta += draw([1, 1, 1, 5])
            records += self.record(delta)
        if self.chance(0.04):
            records = records[:-1] if self.chance(0.5) else records + self.random.randbytes(7)
        base_timestamp = draw([NOW_MS, NOW_MS, *NUMBERS])
        latest = draw([base_timestamp, draw(NUMBERS)])
        last_delta = max(delta, 0)
        data = seal(
            compress(codec, records),
            options,
            last_offset_delta=draw([0, 2**31 - 1, -1]) if self.chance(0.03) else last_delta,
            base_timestamp=base_timestamp,
            max_timestamp=options.log_append_time_ms or latest,
            count=draw([0, count + 1, 2**31 - 1, -1, 1000]) if self.chance(0.03) else count,
        )
        return data, base_offset + last_delta + 1

    def record(self, offset_delta: int) -> bytes:
        """Return the bytes of a record."""
        draw = self.random.choice
        body = bytearray(draw([b"\0", b"\0", b"\xff"]))
        body += encode_varint(draw(NUMBERS) if self.chance(0.1) else draw([0, 1, -5, 1000]))
        body += encode_varint(draw(NUMBERS[:8]) if self.chance(0.03) else offset_delta)
        body += self._field(self.cell()) + self._field(self.cell())
        headers = draw([1, 2, 3]) if self.chance(0.25) else 0
        body += encode_varint(headers)
        for _ in range(headers):
            key = draw([b"", b"h", b"\xff\xfe", "é".encode()])
            body += encode_varint(len(key)) + key + self._field(self.cell())
        if self.chance(0.03):
            body[self.random.randrange(len(body))] = self.random.randrange(256)
        if self.chance(0.97):
            return encode_varint(len(body)) + body
        length = draw([len(body) + 1, len(body) - 1, *LENGTHS])
        if self.chance(0.5):
            del body[self.random.randrange(len(body)) :]
        return encode_varint(length) + body

    def _field(self, content: bytes | None) -> bytes:
        if content is None:
            return encode_varint(self.random.choice(NULLS))
        return encode_varint(len(content)) + content

    def _spoiled(self, batch: bytes) -> bytes:
        data = bytearray(batch)
        for _ in range(self.random.choice([1, 1, 3])):
            data[self.random.randrange(len(data))] = self.random.randrange(256)
        return with_sound_crc(data) if self.chance(0.5) else bytes(data)


def spoilt_batch(writer: HostileWriter) -> bytes:
    """Return a batch as a producer sends it, spoilt or cut off now and then."""
    data = bytearray(writer.batch(0)[0])
    if writer.chance(0.9):  # no gaps in offsets, no marker, a sequence: as a producer has it
        count = int.from_bytes(data[57:61], "big", signed=True)
        data[23:27] = max(count - 1, -1).to_bytes(4, "big", signed=True)
        data[22] &= ~(CONTROL_BIT | (LOG_APPEND_TIME_BIT if writer.chance(0.8) else 0))
        data[53:57] = bytes(4)
    if writer.chance(0.2):
        del data[writer.random.randrange(len(data)) :]
        if len(data) >= HEADER_SIZE and writer.chance(0.8):
            data[8:12] = (len(data) - 12).to_bytes(4, "big")
    if data and writer.chance(0.3):
        data[writer.random.randrange(len(data))] = writer.random.randrange(256)
    return with_sound_crc(data) if writer.chance(0.95) else bytes(data)


def with_sound_crc(batch: bytes | bytearray | memoryview) -> bytes:
    """Return the bytes with the CRC-32C that a batch of them would have."""
    data = bytearray(batch)
    if len(data) >= HEADER_SIZE:
        crc = checksum(memoryview(data)[ATTRIBUTES_POSITION:])
        data[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return bytes(data)


def with_sound_crcs(log: bytes) -> bytes:
    """Return the log's whole batches, each with the CRC that it should have."""
    return b"".join(with_sound_crc(batch.buffer) for batch in iter_batches(log))


def some_limits(writer: HostileWriter, *, is_strict: bool) -> ProduceLimits:
    draw = writer.random.choice
    return ProduceLimits(
        is_strict=is_strict,
        is_compacted=draw([True, False]),
        log_append_time=writer.chance(0.2),
        timestamp_before_max_ms=draw([MOST, MOST, 3_600_000, 0]),
        timestamp_after_max_ms=draw([3_600_000, 3_600_000, 0, MOST]),
        codec=draw([None, None, None, Codec.NONE, Codec.GZIP]),
        max_decompressed_bytes=draw([2**20, 2**20, 100]),
    )
