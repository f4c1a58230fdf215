from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from tests.arrow_batches import encode_columns

from millstream.model.errors import CorruptLogError
from millstream.records.arrow_decoder import decode_arrow, decode_arrow_pieces
from millstream.records.arrow_encoder import ArrowRows, encode_rows
from millstream.records.batch import iter_batches
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.columns import decode_columns
from millstream.records.compression import Codec
from millstream.records.control import ControlType, EndTransactionMarker, build_marker_batch
from millstream.records.isolation import CommittedOnly
from millstream.records.kernel_decoder import Selection
from millstream.records.record import Record, iter_records

pytestmark = pytest.mark.usefixtures("each_kernel")

ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        (
            "headers",
            pa.list_(
                pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
            ),
        ),
    ]
)


def test_the_schema_is_the_one_that_spark_derives() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    kinds = [BinaryType(), BinaryType(), StringType(), IntegerType(), LongType(), TimestampType()]
    fields = [
        StructField(name, kind) for name, kind in zip(names, [*kinds, IntegerType()], strict=True)
    ]
    schema = StructType([*fields, StructField("headers", ArrayType(header))])
    derived = to_arrow_schema(schema, timezone="UTC")
    assert derived.equals(ARROW_SCHEMA)


def some_records(count: int, seed: int, *, headers: bool = False) -> list[Record]:
    rng = random.Random(seed)
    return [
        Record(
            i,
            1_700_000_000_000 + rng.randrange(-5, 5000),
            rng.choice([None, b"", b"key%d" % i]),
            rng.choice([None, rng.randbytes(rng.choice([0, 5, 63, 64, 200]))]),
            (("h", b"%d" % i), ("", None)) if headers and rng.random() < 0.3 else (),
        )
        for i in range(count)
    ]


def log_of(counts: list[int], *, codec: Codec | None = Codec.NONE, headers: bool = False) -> bytes:
    out, offset = b"", 0
    for seed, count in enumerate(counts):
        chosen = Codec(seed % 5) if codec is None else codec
        options = BatchOptions(base_offset=offset, codec=chosen)
        out += encode_batch(some_records(count, seed, headers=headers), options)
        offset += count
    return out


def one_by_one(log: bytes) -> list[Record]:
    return [record for batch in iter_batches(log) for record in iter_records(batch)]


@pytest.mark.parametrize("codec", [*Codec, None])
@pytest.mark.parametrize("headers", [False, True])
def test_columns_hold_what_the_records_hold(codec: Codec | None, headers: bool) -> None:
    # More than 32 batches of unequal sizes go in lock-step; the last ones are walked.
    log = log_of([*range(1, 90, 2), 300, 1, 500], codec=codec, headers=headers)
    columns = decode_columns([log])
    assert list(columns.iter_records()) == one_by_one(log)
    assert columns.next_offset == len(columns)


def test_few_batches_and_no_batches() -> None:
    log = log_of([20, 1, 3])
    assert list(decode_columns([log]).iter_records()) == one_by_one(log)
    empty = decode_columns([], start_offset=5)
    assert (len(empty), empty.next_offset) == (0, 5)
    assert empty.to_record_batch(ARROW_SCHEMA, topic="t", partition=0).num_rows == 0
    assert len(decode_columns([b"", log[:70]])) == 0


def test_records_longer_than_two_bytes_of_length() -> None:
    big = [Record(i, 0, None, bytes(20_000 if i % 7 == 3 else 9)) for i in range(40)]
    log = b"".join(encode_batch(big[: 5 + i % 36]) for i in range(50))
    assert list(decode_columns([log]).iter_records()) == one_by_one(log)


def test_a_range_of_offsets_and_a_cut_end() -> None:
    log = log_of([10] * 50, headers=True)
    columns = decode_columns([log[:-3]], start_offset=13, end_offset=47)
    assert list(columns.iter_records()) == one_by_one(log)[13:47]
    assert columns.next_offset == 47
    columns = decode_columns([log[:-3]], start_offset=487)
    assert (list(columns.iter_records()), columns.next_offset) == (one_by_one(log)[487:490], 490)
    halves = [
        log[: len(log_of([10] * 20, headers=True))],
        log[len(log_of([10] * 20, headers=True)) :],
    ]
    assert list(decode_columns(halves).iter_records()) == one_by_one(log)


def test_control_batches_and_aborted_ones_are_left_out() -> None:
    def data(offset: int, producer_id: int) -> bytes:
        options = BatchOptions(
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        return encode_batch([Record(0, 0, None, b"%d" % offset)], options)

    def marker(offset: int, kind: ControlType, producer_id: int) -> bytes:
        return build_marker_batch(
            EndTransactionMarker(kind, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=0,
            base_offset=offset,
        )

    log = (
        data(0, 1)
        + data(1, 2)
        + marker(2, ControlType.ABORT, 1)
        + data(3, 1)
        + marker(4, ControlType.COMMIT, 1)
        + marker(5, ControlType.COMMIT, 2)
    )
    everything = decode_columns([log])
    assert (everything.offset.tolist(), everything.next_offset) == ([0, 1, 3], 6)
    committed = decode_columns([log], keep=CommittedOnly([(1, 0)]))
    assert (committed.offset.tolist(), committed.next_offset) == ([1, 3], 6)
    arrow = decode_arrow(
        [log],
        ARROW_SCHEMA,
        topic="t",
        partition=0,
        selection=Selection(keep=CommittedOnly([(1, 0)])),
    )
    assert (arrow.rows.column("offset").to_pylist(), arrow.next_offset) == ([1, 3], 6)


@pytest.mark.parametrize(
    ("position", "bits", "aborted"),
    [
        (22, 0x20, ()),  # a control batch, whose records are nobody's
        (60, 2, ()),  # no records
        (26, 1, ()),  # one that ends before the offset that was asked for
        (50, 3, ((1, 0),)),  # another producer's, whose transaction was aborted
    ],
)
def test_a_batch_that_damage_would_hide_is_found(
    position: int, bits: int, aborted: tuple[tuple[int, int], ...]
) -> None:
    records = [Record(0, 0, None, b"a"), Record(0, 0, None, b"b")]
    options = BatchOptions(producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
    log = bytearray(encode_batch(records, options))

    def keep() -> CommittedOnly | None:
        return CommittedOnly(aborted) if aborted else None

    assert len(decode_columns([log], start_offset=1, keep=keep())) == 1
    log[position] ^= bits
    with pytest.raises(CorruptLogError, match="CRC"):
        decode_columns([log], start_offset=1, keep=keep())
    selection = Selection(start_offset=1, keep=keep())
    with pytest.raises(CorruptLogError, match="CRC"):
        decode_arrow([log], ARROW_SCHEMA, topic="t", partition=0, selection=selection)


def test_timestamps_set_by_the_broker() -> None:
    options = BatchOptions(log_append_time_ms=77)
    log = encode_batch(some_records(3, 1), options) + encode_batch([Record(0, 5, None, b"")])
    columns = decode_columns([log])
    assert columns.timestamp_ms.tolist() == [77, 77, 77, 5]
    assert columns.timestamp_type.tolist() == [1, 1, 1, 0]


def test_the_record_batch_is_the_one_that_spark_expects() -> None:
    log = log_of([40] * 40, codec=None, headers=True)
    batch = decode_columns([log]).to_record_batch(ARROW_SCHEMA, topic="clicks", partition=3)
    batch.validate(full=True)
    assert batch.schema.equals(ARROW_SCHEMA)
    rows = batch.to_pylist()
    for row, record in zip(rows, one_by_one(log), strict=True):
        headers = [{"key": key, "value": value} for key, value in record.headers] or None
        assert (row["key"], row["value"], row["headers"]) == (record.key, record.value, headers)
        assert (row["topic"], row["partition"]) == ("clicks", 3)
        assert (row["offset"], row["timestampType"]) == (record.offset, 0)
    micros = batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert micros == [record.timestamp * 1000 for record in one_by_one(log)]


@pytest.mark.parametrize("codec", [*Codec, None])
@pytest.mark.parametrize("headers", [False, True])
def test_straight_to_arrow(codec: Codec | None, headers: bool) -> None:
    log = log_of([*range(1, 60, 2), 300], codec=codec, headers=headers)
    records = one_by_one(log)
    cut = len(log_of([*range(1, 20, 2)], codec=codec, headers=headers))
    for selection in (Selection(), Selection(start_offset=33, end_offset=700)):
        found = decode_arrow(
            [log[:cut], log[cut:-1]], ARROW_SCHEMA, topic="clicks", partition=3, selection=selection
        )
        found.rows.validate(full=True)
        wanted = [
            record
            for record in records[:-300]
            if selection.start_offset <= record.offset < selection.end_offset
        ]
        assert found.next_offset == min(len(records) - 300, selection.end_offset)
        assert found.rows.schema.equals(ARROW_SCHEMA)
        columns = decode_columns([log]).to_record_batch(ARROW_SCHEMA, topic="clicks", partition=3)
        assert found.rows.equals(columns.slice(wanted[0].offset, len(wanted)))
        assert found.rows.column("value").to_pylist() == [record.value for record in wanted]


def test_straight_to_some_columns_of_arrow() -> None:
    log = log_of([5, 6], headers=True)
    for names in (["offset"], ["headers"], ["value", "key"], ["topic", "timestampType"]):
        schema = pa.schema([ARROW_SCHEMA.field(name) for name in names])
        found = decode_arrow([log], schema, topic="t", partition=0).rows
        whole = decode_arrow([log], ARROW_SCHEMA, topic="t", partition=0).rows
        assert found.equals(whole.select(names))
    empty = decode_arrow([], ARROW_SCHEMA, topic="t", partition=0)
    assert (empty.rows.num_rows, empty.next_offset) == (0, 0)
    with pytest.raises(KeyError):
        decode_arrow([log], pa.schema([("no", pa.int32())]), topic="t", partition=0)


def test_many_rows_and_a_long_topic() -> None:
    log = encode_batch([Record(0, 0, None, None)] * 20_000)
    found = decode_arrow([log], ARROW_SCHEMA, topic="t" * 249, partition=3).rows
    assert found.column("topic").unique().to_pylist() == ["t" * 249]
    assert found.num_rows == 20_000


def test_only_the_columns_of_the_schema() -> None:
    schema = pa.schema([ARROW_SCHEMA.field("offset"), ARROW_SCHEMA.field("value")])
    batch = decode_columns([log_of([2])]).to_record_batch(schema, topic="t", partition=0)
    assert batch.schema.equals(schema)
    with pytest.raises(KeyError):
        decode_columns([]).to_record_batch(pa.schema([("no", pa.int32())]), topic="t", partition=0)


def test_columns_of_wider_types_are_cast() -> None:
    wide = {"topic": pa.large_string(), "partition": pa.int64(), "key": pa.large_binary()}
    log = encode_batch([Record(0, 5, b"k", b"v")], BatchOptions())
    rows = decode_arrow([log], pa.schema(list(wide.items())), topic="t", partition=3).rows
    assert rows.to_pylist() == [{"topic": "t", "partition": 3, "key": b"k"}]
    assert rows.schema.types == list(wide.values())


def test_header_keys_that_are_no_text() -> None:
    log = bytearray(encode_batch([Record(0, 0, None, None, (("h", None),))]))
    log[log.rindex(b"h")] = 0xFF
    columns = decode_columns([bytes(log)], check_crcs=False)
    batch = columns.to_record_batch(ARROW_SCHEMA, topic="t", partition=0)
    assert batch.to_pylist()[0]["headers"] == [{"key": "�", "value": None}]
    with pytest.raises(CorruptLogError):
        decode_columns([bytes(log)])


@pytest.mark.parametrize("codec", list(Codec))
def test_encoding_is_the_way_back(codec: Codec) -> None:
    records = some_records(3000, 5, headers=True)
    options = BatchOptions(codec=codec, producer_id=4, producer_epoch=2, base_sequence=2**31 - 100)
    batches = encode_columns(
        timestamp_ms=np.array([record.timestamp for record in records]),
        key=pa.array([record.key for record in records], pa.binary()),
        value=pa.array([record.value for record in records], pa.binary()),
        headers=pa.array(
            [[{"key": k, "value": v} for k, v in r.headers] or None for r in records],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
        options=options,
        max_batch_bytes=10_000,
    )
    assert len(batches) > 10
    rows, sequence = [], 2**31 - 100
    for data in batches:
        (batch,) = iter_batches(data)
        batch.ensure_valid()
        assert (batch.base_sequence, batch.base_offset) == (sequence % 2**31, 0)
        read = list(iter_records(batch))
        assert [record.offset for record in read] == list(range(batch.count))
        assert batch.max_timestamp == max(record.timestamp for record in read)
        if codec is Codec.NONE:
            assert len(data) <= 10_000
            assert data == encode_batch(
                read,
                BatchOptions(producer_id=4, producer_epoch=2, base_sequence=batch.base_sequence),
            )
        rows += read
        sequence += batch.count
    assert [row[1:] for row in rows] == [record[1:] for record in records]


def test_encoding_strings_without_keys_and_nothing() -> None:
    (data,) = encode_columns(timestamp_ms=np.zeros(2, np.int64), value=pa.array(["é", None]))
    (batch,) = iter_batches(data)
    assert [(r.key, r.value) for r in iter_records(batch)] == [(None, "é".encode()), (None, None)]
    assert encode_columns(timestamp_ms=np.zeros(0, np.int64), value=pa.array([], pa.binary())) == []
    with pytest.raises(ValueError, match="rows"):
        encode_columns(timestamp_ms=np.zeros(2, np.int64), value=pa.array(["a"]))


def test_a_row_larger_than_a_batch_gets_its_own() -> None:
    values = pa.array([b"a", b"b" * 5000, b"c"])
    batches = encode_columns(timestamp_ms=np.zeros(3, np.int64), value=values, max_batch_bytes=1000)
    assert [next(iter_batches(data)).count for data in batches] == [1, 1, 1]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("piece_bytes", [1, 700, 1 << 20])
def test_pieces_hold_together_what_one_batch_holds(codec: Codec, piece_bytes: int) -> None:
    records = some_records(600, 4, headers=True)
    data = b"".join(
        encode_batch(records[first : first + 50], BatchOptions(base_offset=first, codec=codec))
        for first in range(0, 600, 50)
    )
    selection = Selection(start_offset=60, end_offset=577)
    asked = {"topic": "t", "partition": 3, "selection": selection}
    whole = decode_arrow([data], ARROW_SCHEMA, **asked).rows  # type: ignore[arg-type]
    pieces = list(
        decode_arrow_pieces([data], ARROW_SCHEMA, piece_bytes=piece_bytes, **asked)  # type: ignore[arg-type]
    )
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([whole]))
    assert (len(pieces) > 8) == (piece_bytes < 1000)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint16])
def test_rows_in_an_order_of_any_kind(kind: type[np.integer]) -> None:
    """Also one that lies apart in memory: the kernel reads a copy, which has to stay."""
    count = 60_000
    rows = ArrowRows(rows=count, key=None, value=pa.array(map(str, range(count))))
    order = np.arange(count, dtype=kind)[::-2]
    found: list[bytes | None] = []
    for batch in encode_rows(rows, order=order, batch_bytes=50_000):  # type: ignore[arg-type]
        np.full(count // 2, -1, np.int64)  # takes memory that was given back
        found += [record.value for record in decode_columns([batch.data]).iter_records()]
    assert found == [b"%d" % number for number in order.tolist()]


def test_a_batch_without_a_bound() -> None:
    rows = ArrowRows(rows=3, key=None, value=pa.array(["a", "b", "c"]))
    assert [batch.count for batch in encode_rows(rows, batch_bytes=2**32 + 5)] == [3]


def test_a_time_that_microseconds_do_not_hold_is_the_last_that_they_do() -> None:
    """Producers that count nanoseconds write such; a product that wraps would be any time."""
    most = (2**63 - 1) // 1000
    times = [1_700_000_000_000_000_000, -(2**63), 2**63 - 1, most + 1, most, -most, -most - 1, 5]
    log = b"".join(
        encode_batch([Record(0, each, None, b"v")], BatchOptions(base_offset=offset))
        for offset, each in enumerate(times)
    )
    found = decode_arrow([log], ARROW_SCHEMA, topic="t", partition=0).rows.column("timestamp")
    kept = [min(max(each, -most), most) for each in times]
    assert found.cast(pa.int64()).to_pylist() == [each * 1000 for each in kept]
    assert [each.timestamp for each in decode_columns([log]).iter_records()] == times
