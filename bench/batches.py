"""Record batches of a wanted size, version 2, without compression.

The layout is Kafka's: 61 bytes of header, CRC-32C over everything from byte 21 on.
"""

from __future__ import annotations

import random
import struct
import time
from dataclasses import dataclass
from itertools import product

from crc32c import crc32c

from bench.wire import zigzag_varint

HEADER_BYTES = 61
CRC_COVERS_FROM = 21


@dataclass(frozen=True)
class Batch:
    """Encoded bytes of one batch and the number of records in it."""

    data: bytes
    records: int


def batch_of(values: list[bytes]) -> Batch:
    """Encode values without keys as one batch whose time stamp is now."""
    body = b"".join(_record(index, value) for index, value in enumerate(values))
    now_ms = time.time_ns() // 1_000_000
    last = len(values) - 1
    covered = struct.pack(">hiqqqhii", 0, last, now_ms, now_ms, -1, -1, -1, len(values)) + body
    size = CRC_COVERS_FROM + len(covered) - 12
    head = struct.pack(">qiibI", 0, size, -1, 2, crc32c(covered))
    return Batch(head + covered, len(values))


def batch_of_records(*, record_bytes: int, count: int) -> Batch:
    """Encode `count` records whose values are random bytes."""
    return batch_of([_random(record_bytes, index) for index in range(count)])


def batch_near(*, total_bytes: int, record_bytes: int) -> Batch:
    """Encode as many whole records as stay within `total_bytes`, and at least one."""
    count, size = 1, HEADER_BYTES + _record_size(0, record_bytes)
    while (size := size + _record_size(count, record_bytes)) <= total_bytes:
        count += 1
    return batch_of_records(record_bytes=record_bytes, count=count)


def batch_of_exactly(*, total_bytes: int, record_bytes: int) -> Batch:
    """Encode a batch of exactly `total_bytes`; the last values are longer than `record_bytes`."""
    count = batch_near(total_bytes=total_bytes, record_bytes=record_bytes).records
    rest = total_bytes - _size_of([record_bytes] * count)
    # A longer value may need longer lengths before it, and at the sizes where one of them grows
    # by a byte no single value fits: then the first value takes one byte of the rest.
    for first, last in product((0, 1), range(max(0, rest - 6), rest + 1)):
        sizes = [record_bytes] * count
        sizes[0] += first
        sizes[-1] += last
        if _size_of(sizes) == total_bytes:
            return batch_of([_random(size, index) for index, size in enumerate(sizes)])
    raise ValueError(f"no batch of {total_bytes} bytes has records of {record_bytes}")


def _size_of(sizes: list[int]) -> int:
    return HEADER_BYTES + sum(map(_record_size, range(len(sizes)), sizes))


def _record_size(offset_delta: int, value_bytes: int) -> int:
    inner = 1 + 1 + len(zigzag_varint(offset_delta)) + 1 + len(zigzag_varint(value_bytes))
    inner += value_bytes + 1
    return len(zigzag_varint(inner)) + inner


def _record(offset_delta: int, value: bytes) -> bytes:
    # Attributes 0, time delta 0, offset delta, key null (-1 in zig-zag is 1), value, no headers.
    inner = b"".join(
        (
            b"\x00\x00",
            zigzag_varint(offset_delta),
            b"\x01",
            zigzag_varint(len(value)),
            value,
            b"\x00",
        )
    )
    return zigzag_varint(len(inner)) + inner


def _random(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)
