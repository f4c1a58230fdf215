"""Sums of what a batch claims go past 64 bits and wrap, as Java's do: everywhere alike."""

from __future__ import annotations

import pytest

from millstream.records.batch import Batch
from millstream.records.builder import BatchOptions, encode_batch, seal
from millstream.records.columns import decode_columns
from millstream.records.compaction import RetainedRecords, record_spans, retained_batch
from millstream.records.compression import Codec, compress
from millstream.records.limits import ProduceLimits
from millstream.records.record import Record, read_records
from millstream.records.rows import RecordShape, decode_batches, encode_rows
from millstream.records.validation import validate_produced
from millstream.records.varint import encode_varint
from millstream.storage.new_offset_map import new_offset_map

pytestmark = pytest.mark.usefixtures("each_kernel")

LARGEST = 2**63 - 1
NOW_MS = 1_700_000_000_000


def record(timestamp_delta: int, offset_delta: int, value: bytes | None = b"v") -> bytes:
    content = encode_varint(-1) if value is None else encode_varint(len(value)) + value
    body = b"\0" + encode_varint(timestamp_delta) + encode_varint(offset_delta)
    body += encode_varint(1) + b"k" + content + b"\0"
    return encode_varint(len(body)) + body


def batch_of(
    records: list[bytes], *, base_timestamp: int, base_offset: int = 0, codec: Codec = Codec.NONE
) -> Batch:
    data = seal(
        compress(codec, b"".join(records)),
        BatchOptions(base_offset=base_offset, codec=codec),
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=NOW_MS,
        count=len(records),
    )
    return Batch(memoryview(data))


def test_offsets() -> None:
    batch = batch_of([record(0, 0), record(0, 100)], base_timestamp=5, base_offset=LARGEST - 10)
    offsets = [LARGEST - 10, -(2**63) + 89]
    assert [each.offset for each in read_records(batch)] == offsets
    rows = decode_batches([batch], RecordShape(tuple, "t", 0))
    assert [row[2] for row in rows] == offsets
    columns = decode_columns([batch.buffer], start_offset=-(2**63))
    assert [each.offset for each in columns.iter_records()] == offsets


def test_the_largest_offset_is_in_no_range() -> None:
    with_headers = encode_batch(
        [Record(0, 5, None, b"v", (("k", b"v"),))] * 2, BatchOptions(base_offset=LARGEST - 1)
    )
    columns = decode_columns([with_headers])
    wanted = [Record(LARGEST - 1, 5, None, b"v", (("k", b"v"),))]
    assert list(columns.iter_records()) == wanted


def test_what_a_producer_may_write_can_be_cleaned() -> None:
    """A delta of 64 bits leads from any base timestamp to any time, so the broker takes it."""
    base = -(2**63) + 10
    delta = NOW_MS - base - 2**64
    batch = batch_of(
        [record(delta, 0), record(delta, 1, None)],
        base_timestamp=base,
        codec=Codec.GZIP,
    )
    sound = validate_produced(
        batch.buffer, ProduceLimits(is_compacted=True), version=9, now_ms=NOW_MS
    )
    assert [each.timestamp for each in read_records(sound)] == [NOW_MS, NOW_MS]
    data = record(delta, 0)
    span = next(record_spans(data, 1))
    kept = RetainedRecords(data, 1, span.timestamp_delta, False)
    for horizon_ms in (None, NOW_MS + 1000):
        left = Batch(memoryview(retained_batch(sound, kept, delete_horizon_ms=horizon_ms)))
        left.ensure_valid()
        assert left.max_timestamp == NOW_MS
        assert [each.timestamp for each in read_records(left)] == [NOW_MS]


def test_the_map_of_keys() -> None:
    found = new_offset_map(24 * 20, 0.9, bytes(16))
    data = record(0, 10) + record(0, 11)
    assert found.put_records(data, 2, LARGEST - 10, 0)
    found.latest_offset = LARGEST
    kept = found.filter_records(data, 2, LARGEST - 10, retain_tombstones=True)
    assert kept.data == record(0, 10)


@pytest.mark.parametrize(
    "timestamps",
    [[LARGEST, -(2**63)], [-(2**63), LARGEST, 0], [-5], [-7, -6], [-(2**63)], [-1], [0, -9]],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_encoding(timestamps: list[int], codec: Codec) -> None:
    options = BatchOptions(codec=codec)
    values = [b"v"] * len(timestamps)
    data = encode_rows(timestamps, None, values, options=options)
    records = [Record(0, each, None, b"v") for each in timestamps]
    assert data == encode_batch(records, options)
    batch = Batch(memoryview(data))
    assert batch.max_timestamp == max(-1, *timestamps)
    assert [each.timestamp for each in read_records(batch)] == timestamps
