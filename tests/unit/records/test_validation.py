"""What ``test_produce_answers.py`` does not reach: which records are looked at, and copies."""

from __future__ import annotations

import struct

import pytest

from millstream.model.errors import ErrorCode, KafkaError
from millstream.records.batch import Batch, header_at, rewrite_timestamps
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec, compress
from millstream.records.crc32c import Buffer, checksum
from millstream.records.limits import ProduceLimits, RecordsRefusedError
from millstream.records.record import Record, read_records
from millstream.records.record_checks import prepare
from millstream.records.validation import (
    WALKED_RECORDS,
    claims_transaction,
    validate_produced,
)

NOW = 1_700_000_000_000
DEFAULT = ProduceLimits()


def records(count: int, key: bytes | None = b"k") -> list[Record]:
    return [Record(i, NOW + i, key, b"value %d" % i) for i in range(count)]


def validate(data: Buffer, limits: ProduceLimits = DEFAULT) -> Batch:
    return validate_produced(data, limits, version=9, now_ms=NOW)


def error_of(data: Buffer, limits: ProduceLimits = DEFAULT) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        validate(data, limits)
    return caught.value.error


def with_crc(data: bytes) -> bytes:
    return data[:17] + struct.pack(">I", checksum(memoryview(data)[21:])) + data[21:]


def patched(data: bytes, position: int, field: bytes) -> bytes:
    return with_crc(data[:position] + field + data[position + len(field) :])


def test_a_sound_batch_is_neither_changed_nor_copied() -> None:
    request = bytearray(b"frame" + encode_batch(records(3)))
    batch = validate(memoryview(request)[5:])
    request[5:13] = (77).to_bytes(8, "big")
    assert header_at(batch.buffer).base_offset == 77


@pytest.mark.parametrize("count", [1, WALKED_RECORDS, WALKED_RECORDS + 1])
def test_the_last_record_is_looked_at_in_small_batches_only(count: int) -> None:
    # The header count of the last record says that there is a header; there is none.
    data = with_crc(encode_batch(records(count))[:-1] + b"\x02")
    if count <= WALKED_RECORDS:
        assert error_of(data) is ErrorCode.INVALID_RECORD
    else:
        assert validate(data).count == count


def test_a_rule_that_needs_records_looks_at_all_of_them() -> None:
    data = encode_batch(records(WALKED_RECORDS * 3))[:-1] + b"\x02"
    for limits in (ProduceLimits(is_compacted=True), ProduceLimits(timestamp_before_max_ms=1000)):
        assert error_of(with_crc(data), limits) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_more_records_than_the_bytes_can_hold(codec: Codec) -> None:
    data = encode_batch(records(20), BatchOptions(codec=codec))
    count = 2**31 - 1
    lie = patched(patched(data, 23, struct.pack(">i", count - 1)), 57, struct.pack(">i", count))
    assert error_of(lie) is ErrorCode.INVALID_RECORD
    assert error_of(lie, ProduceLimits(log_append_time=True)) is ErrorCode.INVALID_RECORD


def test_a_bomb_for_a_compacted_topic_is_capped() -> None:
    small = ProduceLimits(is_compacted=True, max_decompressed_bytes=100_000)
    data = encode_batch([Record(0, NOW, b"k", bytes(1 << 20))], BatchOptions(codec=Codec.ZSTD))
    assert len(data) < 1000
    assert error_of(data, small) is ErrorCode.INVALID_RECORD
    assert validate(data, ProduceLimits(is_compacted=True)).count == 1


def test_refused_records_are_named() -> None:
    mixed = [*records(2), Record(2, NOW, None, b""), Record(3, NOW + 4_000_000, b"k", b"")]
    with pytest.raises(RecordsRefusedError) as caught:
        validate(encode_batch(mixed), ProduceLimits(is_compacted=True))
    assert caught.value.error is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in caught.value.record_errors] == [2, 3]
    assert all(error.message for error in caught.value.record_errors)


def test_a_timestamp_past_64_bits_wraps_as_it_does_in_java() -> None:
    data = patched(encode_batch(records(2)), 27, struct.pack(">q", 2**63 - 1))
    read = read_records(Batch(memoryview(data)))
    assert [record.timestamp for record in read] == [2**63 - 1, -(2**63)]
    limits = ProduceLimits(timestamp_after_max_ms=2**63 - 1)
    assert error_of(data, limits) is ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_is_set_on_a_copy() -> None:
    data = encode_batch(records(30), BatchOptions(codec=Codec.GZIP))
    batch = validate(data, ProduceLimits(log_append_time=True))
    batch.ensure_valid()
    assert (batch.timestamp_type, batch.max_timestamp) == (1, NOW)
    assert {record.timestamp for record in read_records(batch)} == {NOW}
    assert Batch(memoryview(data)).timestamp_type == 0
    assert rewrite_timestamps(batch, max_timestamp=NOW + 29, log_append_time=False).buffer == data


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_recompression(source: Codec, target: Codec) -> None:
    options = BatchOptions(codec=source, producer_id=7, producer_epoch=1, base_sequence=4)
    limits = ProduceLimits(codec=target)
    batch = validate(encode_batch(records(30), options), limits)
    assert limits.needs_preparation(batch) == (source is not target)
    anew = prepare(batch, limits)
    anew.ensure_valid()
    assert anew.codec == target
    assert len(anew.buffer) == anew.size
    assert read_records(anew) == records(30)
    assert (anew.producer_id, anew.base_sequence, anew.last_sequence) == (7, 4, 33)


def test_recompression_finds_what_validation_left_closed() -> None:
    data = encode_batch(records(30))[:-1] + b"\x02"
    with pytest.raises(KafkaError) as caught:
        prepare(validate(with_crc(data)), ProduceLimits(codec=Codec.LZ4))
    assert caught.value.error is ErrorCode.INVALID_RECORD
    lie = encode_batch(records(30))
    lie = patched(lie, 35, struct.pack(">q", NOW + 1_000_000))
    anew = prepare(validate(lie), ProduceLimits(codec=Codec.LZ4))
    assert anew.max_timestamp == NOW + 29


def test_recompression_may_make_a_batch_too_large() -> None:
    zeros = encode_batch([Record(0, NOW, b"k", bytes(5000))], BatchOptions(codec=Codec.ZSTD))
    limits = ProduceLimits(max_message_bytes=1000, codec=Codec.NONE)
    batch = validate(zeros, limits)
    with pytest.raises(KafkaError) as caught:
        prepare(batch, limits)
    assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE


def test_the_transactional_bit_is_seen_without_checks() -> None:
    assert claims_transaction(encode_batch(records(1), BatchOptions(is_transactional=True)))
    assert not claims_transaction(encode_batch(records(1)))
    assert not claims_transaction(b"")


def test_sequences_wrap() -> None:
    options = BatchOptions(producer_id=1, producer_epoch=0, base_sequence=2**31 - 1)
    assert validate(encode_batch(records(3), options)).last_sequence == 1
    assert validate(encode_batch(records(3))).last_sequence == -1


def test_compressed_stream_of_another_batch() -> None:
    # A compressed batch is not opened on an ordinary topic; a reader finds out.
    data = encode_batch(records(30))[:61] + bytes(compress(Codec.LZ4, b"no records"))
    data = patched(data, 8, struct.pack(">i", len(data) - 12))
    data = patched(data, 21, struct.pack(">h", Codec.LZ4))
    assert validate(data).count == 30
