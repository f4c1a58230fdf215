from __future__ import annotations

import pytest

from millstream.model.errors import CorruptLogError
from millstream.records.batch import HEADER_SIZE, Batch
from millstream.records.builder import BatchBuilder, BatchOptions, encode_batch, seal
from millstream.records.columns import decode_columns
from millstream.records.record import Record, iter_records, read_records
from millstream.records.record_checks import plain_timestamp_delta
from millstream.records.varint import decode_varint, decode_varlong, encode_varint


def batch_of(payload: bytes, count: int) -> Batch:
    data = seal(
        payload,
        BatchOptions(),
        last_offset_delta=count - 1,
        base_timestamp=1000,
        max_timestamp=1000,
        count=count,
    )
    return Batch(memoryview(data))


def record_of(*parts: int | bytes) -> bytes:
    body = b"".join(p if isinstance(p, bytes) else encode_varint(p) for p in parts)
    return encode_varint(len(body)) + body


GOOD = record_of(b"\0", 5, 0, 1, b"k", 2, b"vv", 1, 1, b"h", -1)


def test_one_record_byte_by_byte() -> None:
    assert read_records(batch_of(GOOD, 1)) == [Record(0, 1005, b"k", b"vv", (("h", None),))]
    built = encode_batch([Record(9, 1000, None, b""), Record(9, 1005, b"k", b"vv", (("h", None),))])
    second = record_of(b"\0", 5, 1, 1, b"k", 2, b"vv", 1, 1, b"h", -1)
    assert built[HEADER_SIZE:] == record_of(b"\0", 0, 0, -1, 0, 0) + second


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        record_of(b"\0", 5, 0, -1, 2, b"vv", 0, b"x"),
        record_of(b"\0", 5, 0, -1, 2, b"vv", 1, 1, b"h", -1, b"x"),
        encode_varint(9) + record_of(b"\0", 5, 0, -1, 2, b"vv", 0)[1:],
        GOOD + b"\0",
        GOOD[:-1],
        encode_varint(-1) + GOOD[1:],
        encode_varint(2**30) + GOOD[1:],
        record_of(b"\0", 5, 0, 1, b"k", 3, b"vv", 0),
        record_of(b"\0", 5, 0, 2**31 - 1, b"k", 2, b"vv", 0),
        record_of(b"\0", 5, 0, -1, 2, b"vv", -1),
        record_of(b"\0", 5, 0, -1, 2, b"vv", 2**31 - 1),
        record_of(b"\0", 5, 0, -1, 2, b"vv", 1, -1, -1),
        record_of(b"\0", 5, 0, -1, 2, b"vv", 1, 9, b"h", -1),
        record_of(b"\0", b"\x80" * 10 + b"\0", 0, -1, -1, 0),
        record_of(b"\0", 0, b"\x80" * 5 + b"\0", -1, -1, 0),
    ],
)
def test_records_that_do_not_add_up(payload: bytes) -> None:
    batch = batch_of(payload, 1)
    with pytest.raises(CorruptLogError):
        read_records(batch)
    with pytest.raises(CorruptLogError):
        decode_columns([batch.buffer])
    assert plain_timestamp_delta(batch.buffer, 1) is None


def test_a_record_that_the_batch_cuts_off_is_not_yielded() -> None:
    whole = record_of(b"\0", 5, 0, -1, -1, 1, 1, b"h", 4, b"1234")
    with pytest.raises(CorruptLogError):
        next(iter_records(batch_of(whole[:-3], 1)))


def three_bytes_of_more(length: int) -> bytes:
    doubled = 2 * length
    return bytes((doubled & 0x7F | 0x80, doubled >> 7 & 0x7F | 0x80, doubled >> 14))


def test_what_looks_plain_to_a_walk_that_trusts_too_much() -> None:
    plain = record_of(b"\0", 5, 0, -1, 2, b"vv", 0)
    assert plain_timestamp_delta(batch_of(plain, 1).buffer, 1) == 5
    body = b"\0\x0a\0\x01"
    for payload in (
        bytes((plain[0] | 1,)) + plain[1:],  # a negative length
        record_of(b"\0", 5, 0, -2, b"\x07", 0, 0),  # a key of a negative length, and a byte
        record_of(b"\0", 5, 0, -1, -2, b"\x07", 0),
        # Three bytes of a length that has four.
        three_bytes_of_more(1_048_584) + body + b"\x80\x80\x80" + bytes(1 << 20) + b"\0",
        record_of(b"\0", b"\x80\x80", 0, -1, -1, 0),  # two bytes of a delta that has three
    ):
        assert plain_timestamp_delta(batch_of(payload, 1).buffer, 1) is None


def test_bits_that_do_not_fit_are_dropped_as_kafka_drops_them() -> None:
    assert decode_varint(b"\xfe\xff\xff\xff\x7f", 0) == (2**31 - 1, 5)
    assert decode_varlong(b"\xfe" + b"\xff" * 8 + b"\x7f", 0) == (2**63 - 1, 10)
    batch = batch_of(record_of(b"\0", 0, b"\x84\x80\x80\x80\x70", -1, -1, 0), 1)
    assert [record.offset for record in read_records(batch)] == [2]
    assert decode_columns([batch.buffer]).offset.tolist() == [2]


def test_a_count_that_is_not_the_records() -> None:
    for count in (0, 2, 2**31 - 1):
        with pytest.raises(CorruptLogError):
            read_records(batch_of(GOOD, count))
    assert read_records(batch_of(b"", 0)) == []


def test_header_keys_that_are_no_text_are_replaced() -> None:
    payload = record_of(b"\0", 0, 0, -1, -1, 1, 1, b"\xff", 0)
    assert read_records(batch_of(payload, 1))[0].headers == (("\N{REPLACEMENT CHARACTER}", b""),)


def test_offsets_with_gaps_as_compaction_leaves_them() -> None:
    builder = BatchBuilder(BatchOptions(base_offset=100))
    assert [builder.append(5, b"a", b"1"), builder.append(4, b"b", None, offset_delta=7)] == [0, 7]
    size = builder.size
    data = builder.build()
    assert len(data) == size
    batch = Batch(memoryview(data))
    assert [(r.offset, r.timestamp) for r in read_records(batch)] == [(100, 5), (107, 4)]
    assert (batch.last_offset, batch.count, batch.max_timestamp) == (107, 2, 5)


def test_log_append_time_is_every_records() -> None:
    data = encode_batch([Record(0, 5, None, b"x")] * 2, BatchOptions(log_append_time_ms=99))
    batch = Batch(memoryview(data))
    assert (batch.timestamp_type, batch.base_timestamp, batch.max_timestamp) == (1, 5, 99)
    assert [record.timestamp for record in read_records(batch)] == [99, 99]


def test_varints() -> None:
    for value, encoded in (
        (0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (8191, "fe7f"),
        (8192, "808001"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f"),
    ):  # fmt: skip
        data = bytes.fromhex(encoded)
        assert encode_varint(value) == data
        assert decode_varint(data, 0) == decode_varlong(data, 0) == (value, len(data))
    for value in (2**63 - 1, -(2**63), 2**40):
        assert decode_varlong(encode_varint(value), 0) == (value, len(encode_varint(value)))
