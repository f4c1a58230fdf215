"""What ``test_produce_answers.py`` does not reach: which records are looked at, and where."""

from __future__ import annotations

import random
import struct

import pytest

from millstream.model.errors import ErrorCode, KafkaError
from millstream.records import kernel
from millstream.records.batch import Batch, header_at, rewrite_timestamps
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec, compress
from millstream.records.crc32c import Buffer, checksum
from millstream.records.limits import ProduceLimits, RecordsRefusedError, UncheckedBatch
from millstream.records.produce_kernel import produce_library, why_not
from millstream.records.record import Record, read_records
from millstream.records.record_checks import MAX_RECORD_ERRORS, prepare
from millstream.records.validation import (
    MAX_OPENED_BYTES,
    OPENED_BYTES,
    WALKED_RECORDS,
    claims_transaction,
    validate_produced,
)

NOW = 1_700_000_000_000
DEFAULT = ProduceLimits()
STRICT = ProduceLimits(is_strict=True)


def records(count: int, key: bytes | None = b"k") -> list[Record]:
    return [Record(i, NOW + i, key, b"value %d" % i) for i in range(count)]


@pytest.fixture
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_loaded", None)


@pytest.fixture(params=["kernel", "python"])
def each_path(request: pytest.FixtureRequest) -> None:
    if request.param == "python":
        request.getfixturevalue("no_kernel")


needs_kernel = pytest.mark.skipif(produce_library() is None, reason=why_not())
both_paths = pytest.mark.usefixtures("each_path")


def receive(data: Buffer, limits: ProduceLimits = DEFAULT) -> Batch:
    return validate_produced(data, limits, version=9, now_ms=NOW)


def validate(data: Buffer, limits: ProduceLimits = DEFAULT) -> Batch:
    """Return the batch as it is appended, prepared where it has to be."""
    batch = receive(data, limits)
    return prepare(batch.copy(), limits) if limits.needs_preparation(batch) else batch


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


def with_a_wrong_last_record(count: int) -> bytes:
    """The header count of the last record says that there is a header; there is none."""
    return with_crc(encode_batch(records(count))[:-1] + b"\x02")


@needs_kernel
@pytest.mark.parametrize("count", [1, WALKED_RECORDS + 1, 1000])
def test_the_kernel_looks_at_every_record(count: int) -> None:
    assert error_of(with_a_wrong_last_record(count)) is ErrorCode.INVALID_RECORD


@pytest.mark.usefixtures("no_kernel")
@pytest.mark.parametrize("count", [1, WALKED_RECORDS, WALKED_RECORDS + 1])
def test_without_a_kernel_records_are_looked_at_in_small_batches_only(count: int) -> None:
    data = with_a_wrong_last_record(count)
    assert error_of(data, STRICT) is ErrorCode.INVALID_RECORD
    if count <= WALKED_RECORDS:
        assert error_of(data) is ErrorCode.INVALID_RECORD
    else:
        assert validate(data).count == count


@both_paths
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


@both_paths
def test_refused_records_are_named() -> None:
    mixed = [*records(2), Record(2, NOW, None, b""), Record(3, NOW + 4_000_000, b"k", b"")]
    with pytest.raises(RecordsRefusedError) as caught:
        validate(encode_batch(mixed), ProduceLimits(is_compacted=True))
    assert caught.value.error is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in caught.value.record_errors] == [2, 3]
    assert all(error.message for error in caught.value.record_errors)


@both_paths
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_refusal_does_not_name_records_without_end(codec: Codec) -> None:
    nameless = records(MAX_RECORD_ERRORS + 5, key=None)
    nameless[0] = nameless[0]._replace(key=b"k")
    data = encode_batch(nameless, BatchOptions(codec=codec))
    with pytest.raises(RecordsRefusedError, match=f"at least {MAX_RECORD_ERRORS} of") as caught:
        validate(data, ProduceLimits(is_compacted=True))
    named = [error.batch_index for error in caught.value.record_errors]
    assert named == list(range(1, MAX_RECORD_ERRORS + 1))


@both_paths
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
    batch = receive(encode_batch(records(30), options), limits)
    assert limits.needs_preparation(batch) == (source is not target)
    anew = prepare(batch, limits)
    anew.ensure_valid()
    assert anew.codec == target
    assert len(anew.buffer) == anew.size
    assert read_records(anew) == records(30)
    assert (anew.producer_id, anew.base_sequence, anew.last_sequence) == (7, 4, 33)


def test_recompression_finds_what_validation_left_closed() -> None:
    limits = ProduceLimits(codec=Codec.LZ4)
    lie = encode_batch(records(30), BatchOptions(codec=Codec.GZIP))
    lie = patched(lie, 35, struct.pack(">q", NOW + 1_000_000))
    assert validate(lie).max_timestamp == NOW + 1_000_000
    assert validate(lie, limits).max_timestamp == NOW + 29
    late = [*records(29), Record(29, NOW + 4_000_000, b"k", b"")]
    lie = encode_batch(late, BatchOptions(codec=Codec.GZIP))
    lie = patched(lie, 35, struct.pack(">q", NOW + 29))
    assert validate(lie).max_timestamp == NOW + 29
    assert error_of(lie, limits) is ErrorCode.INVALID_TIMESTAMP


@both_paths
def test_offset_deltas_are_given_anew_with_another_codec() -> None:
    # Of two records without a gap the second is said to come five later.
    one = encode_batch([Record(0, NOW, b"k", b"v", (("h", b"x"),))])[61:]
    data = encode_batch([Record(0, NOW, b"k", b"v", (("h", b"x"),))] * 2)
    gap = with_crc(data[: 61 + len(one)] + one.replace(b"\0\0\0", b"\0\0\x0a", 1))
    assert [record.offset for record in read_records(validate(gap))] == [0, 5]
    anew = validate(gap, ProduceLimits(codec=Codec.ZSTD))
    assert read_records(anew) == read_records(Batch(memoryview(data)))


def test_recompression_may_make_a_batch_too_large() -> None:
    zeros = encode_batch([Record(0, NOW, b"k", bytes(5000))], BatchOptions(codec=Codec.ZSTD))
    limits = ProduceLimits(max_message_bytes=1000, codec=Codec.NONE)
    batch = receive(zeros, limits)
    with pytest.raises(KafkaError) as caught:
        prepare(batch, limits)
    assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE


def test_the_transactional_bit_is_seen_without_checks() -> None:
    assert claims_transaction(encode_batch(records(1), BatchOptions(is_transactional=True)))
    assert not claims_transaction(encode_batch(records(1)))
    whole = encode_batch(records(1), BatchOptions(is_transactional=True))
    assert not claims_transaction(whole[:-1])
    for position, byte in ((16, 3), (8, 0xA0)):  # another magic, a negative length
        assert not claims_transaction(patched(whole, position, bytes((byte,))))
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
    assert error_of(data, STRICT) is ErrorCode.INVALID_RECORD


@both_paths
@pytest.mark.parametrize("codec", list(Codec)[1:])
@pytest.mark.parametrize("size", [5, OPENED_BYTES])
def test_strict_opens_what_is_compressed(codec: Codec, size: int) -> None:
    noise = [Record(0, NOW + 7, b"k", random.Random(1).randbytes(size)), *records(3)]
    data = encode_batch(noise, BatchOptions(codec=codec))
    assert validate(data, STRICT).buffer == data
    cut = patched(data[:-20], 8, struct.pack(">i", len(data) - 20 - 12))
    assert error_of(cut, STRICT) in {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD}
    assert validate(cut).count == 4
    lie = patched(data, 35, struct.pack(">q", NOW + 8))
    assert validate(lie, STRICT).max_timestamp == NOW + 7
    assert validate(lie).max_timestamp == NOW + 8


@both_paths
@pytest.mark.parametrize("size", [5, OPENED_BYTES])
def test_strict_refuses_offset_deltas_of_a_compressed_batch_that_are_not_in_order(
    size: int,
) -> None:
    value = random.Random(1).randbytes(size)
    data = encode_batch([Record(0, NOW, b"k", value)] * 2)
    second = encode_batch([Record(0, NOW, b"k", value)])[61:]
    twice = compress(Codec.LZ4, second + second)
    data = with_crc(data[:61] + bytes(twice))
    data = patched(data, 8, struct.pack(">i", len(data) - 12))
    data = patched(data, 21, struct.pack(">h", Codec.LZ4))
    assert error_of(data, STRICT) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert validate(data).count == 2


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_what_is_small_is_opened_at_once(codec: Codec) -> None:
    def left_for_later(value: bytes, limits: ProduceLimits) -> bool:
        data = encode_batch([Record(0, NOW, b"k", value)], BatchOptions(codec=codec))
        batch = receive(data, limits)
        assert limits.needs_preparation(batch) == isinstance(batch, UncheckedBatch)
        return isinstance(batch, UncheckedBatch)

    noise = random.Random(1).randbytes(OPENED_BYTES)
    for limits in (STRICT, ProduceLimits(is_compacted=True)):
        assert not left_for_later(noise[: OPENED_BYTES // 2], limits)
        assert left_for_later(noise, limits)
        assert not left_for_later(bytes(MAX_OPENED_BYTES - 100), limits)
        assert left_for_later(bytes(MAX_OPENED_BYTES), limits)
    assert not left_for_later(noise, DEFAULT)


@needs_kernel
def test_what_is_not_compressed_is_never_left_for_later() -> None:
    data = encode_batch([Record(0, NOW, None, bytes(MAX_OPENED_BYTES))])
    assert not isinstance(receive(data, STRICT), UncheckedBatch)
    assert error_of(data, ProduceLimits(is_compacted=True)) is ErrorCode.INVALID_RECORD


def test_a_batch_left_for_later_is_held_against_the_time_of_its_arrival() -> None:
    noise = random.Random(1).randbytes(OPENED_BYTES)
    data = encode_batch([Record(0, NOW, b"k", noise)], BatchOptions(codec=Codec.LZ4))
    request = bytearray(data)
    kept = receive(memoryview(request), ProduceLimits(is_strict=True, log_append_time=True)).copy()
    request[:] = bytes(len(request))
    anew = prepare(kept, ProduceLimits(is_strict=True, log_append_time=True))
    anew.ensure_valid()
    assert (anew.timestamp_type, anew.max_timestamp) == (1, NOW)
    hour = ProduceLimits(timestamp_before_max_ms=3_600_000)
    kept = validate_produced(data, hour, version=9, now_ms=NOW + 3_600_000)
    assert prepare(kept, hour).count == 1
    late = validate_produced(data, hour, version=9, now_ms=NOW + 3_600_001).copy()
    with pytest.raises(RecordsRefusedError) as caught:
        prepare(late, hour)
    assert caught.value.error is ErrorCode.INVALID_TIMESTAMP
