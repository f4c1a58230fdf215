"""Records: what goes in comes out, and damage never raises anything but what it should."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from millstream.model.errors import CorruptLogError, KafkaError
from millstream.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    Batch,
    iter_batches,
)
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.columns import decode_columns
from millstream.records.compression import Codec, decompress
from millstream.records.control import parse_marker
from millstream.records.crc32c import checksum
from millstream.records.legacy import UnsupportedFormatError
from millstream.records.limits import ProduceLimits
from millstream.records.record import Record, iter_records, read_records
from millstream.records.record_checks import plain_timestamp_delta, prepare
from millstream.records.validation import validate_produced
from millstream.records.varint import decode_varint, decode_varlong, encode_varint

NOW = 1_700_000_000_000
ALLOWED = (CorruptLogError, KafkaError, UnsupportedFormatError)
CAP = 1 << 20
LIMITS = [
    ProduceLimits(max_decompressed_bytes=CAP),
    ProduceLimits(is_compacted=True, max_decompressed_bytes=CAP),
    ProduceLimits(log_append_time=True, max_decompressed_bytes=CAP),
    ProduceLimits(codec=Codec.GZIP, max_decompressed_bytes=CAP),
]

fields = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), fields), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**40) | st.integers(NOW - 100, NOW + 100)
records = st.builds(Record, st.just(0), timestamps, fields, fields, st.just(()) | headers)
options = st.builds(
    BatchOptions,
    base_offset=st.integers(0, 2**50),
    codec=st.sampled_from(list(Codec)),
    producer_id=st.integers(-1, 2**40),
    base_sequence=st.integers(0, 2**31 - 1),
    is_transactional=st.booleans(),
    is_control=st.booleans(),
    log_append_time_ms=st.none() | st.integers(0, 2**40),
)
batches = st.builds(encode_batch, st.lists(records, min_size=1, max_size=12), options)


def expected(records: list[Record], options: BatchOptions) -> list[Record]:
    append_time = options.log_append_time_ms
    return [
        record._replace(
            offset=options.base_offset + index,
            timestamp=record.timestamp if append_time is None else append_time,
        )
        for index, record in enumerate(records)
    ]


@given(st.lists(records, min_size=1, max_size=20), options)
def test_a_batch_gives_back_its_records(written: list[Record], chosen: BatchOptions) -> None:
    (batch,) = iter_batches(encode_batch(written, chosen))
    batch.ensure_valid()
    assert read_records(batch) == expected(written, chosen)
    assert batch.attributes == chosen.attributes
    assert batch.next_offset == chosen.base_offset + len(written)


@pytest.mark.slow
@given(st.lists(batches, max_size=5), st.data())
def test_any_cut_leaves_the_whole_batches(log: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(log)
    cut = data.draw(st.integers(0, len(whole)))
    sizes, total = [], 0
    for batch in log:
        total += len(batch)
        if total <= cut:
            sizes.append(len(batch))
    assert [batch.size for batch in iter_batches(whole[:cut])] == sizes


def use_all(buffer: bytes, limits: ProduceLimits) -> None:
    """Do with the bytes all that anybody does; only the allowed errors may come."""
    for use in (read_everything, decode_all):
        with suppress(*ALLOWED):
            use(buffer)
    with suppress(KafkaError):
        batch = validate_produced(buffer, limits, version=9, now_ms=NOW)
        if limits.needs_preparation(batch):
            prepare(batch, limits)


def read_everything(buffer: bytes) -> None:
    for batch in iter_batches(buffer):
        for _ in iter_records(batch, CAP):
            pass
        parse_marker(batch)


def decode_all(buffer: bytes) -> None:
    columns = decode_columns([buffer], check_crcs=False, max_bytes=CAP)
    assert len(list(columns.iter_records())) == len(columns)


@given(batches, st.data(), st.sampled_from(LIMITS), st.booleans())
@settings(max_examples=examples(120))
def test_damage_is_answered_and_nothing_else(
    batch: bytes, data: st.DataObject, limits: ProduceLimits, mend_crc: bool
) -> None:
    damaged = bytearray(batch)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
    if mend_crc and len(damaged) >= ATTRIBUTES_POSITION:
        crc = checksum(memoryview(damaged)[ATTRIBUTES_POSITION:])
        struct.pack_into(">I", damaged, CRC_POSITION, crc)
    use_all(bytes(damaged), limits)


@given(st.binary(max_size=300), st.sampled_from(LIMITS))
def test_garbage_is_answered_and_nothing_else(garbage: bytes, limits: ProduceLimits) -> None:
    use_all(garbage, limits)


@given(st.sampled_from(list(Codec)), st.binary(max_size=200))
def test_garbage_streams_are_corrupt(codec: Codec, garbage: bytes) -> None:
    with suppress(CorruptLogError):
        assert len(decompress(codec, garbage, CAP)) <= CAP


@given(st.lists(records, min_size=1, max_size=8), st.data())
@settings(max_examples=examples(120))
def test_the_quick_walk_agrees_with_the_full_one(
    written: list[Record], data: st.DataObject
) -> None:
    buffer = bytearray(encode_batch(written))
    for _ in range(data.draw(st.integers(0, 2))):
        position = data.draw(st.integers(HEADER_SIZE, len(buffer) - 1))
        buffer[position] = data.draw(st.integers(0, 255))
    delta = plain_timestamp_delta(buffer, len(written))
    if delta is not None:
        batch = Batch(memoryview(buffer))
        latest = max(record.timestamp for record in read_records(batch))
        assert latest == batch.base_timestamp + delta


def test_the_quick_walk_takes_ordinary_batches() -> None:
    ordinary = [Record(i, NOW + i * 50, b"key" if i % 2 else None, bytes(i * 99)) for i in range(8)]
    assert plain_timestamp_delta(encode_batch(ordinary), 8) == 350
    for size in (8_180, 8_192, 1_000_000):
        large = [Record(0, NOW, b"key", bytes(size)), Record(0, NOW + 7, None, bytes(size))]
        assert plain_timestamp_delta(encode_batch(large), 2) == 7


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varlong(encoded, 0) == (value, len(encoded))


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3))
def test_varints(value: int, before: bytes) -> None:
    encoded: Any = before + encode_varint(value)
    assert decode_varint(encoded, len(before)) == (value, len(encoded))
