from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from millstream.client.partitioner import murmur2, partition_for_key
from millstream.records import kernel
from millstream.records.arrow_encoder import ArrowRows, EncodedBatch
from millstream.records.batch import iter_batches
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec
from millstream.records.control import ControlType, EndTransactionMarker, build_marker_batch
from millstream.records.record import Record, iter_records
from millstream.records.table_partitions import KeyPartitioner, group_rows, murmur2_column
from millstream.records.tables import (
    FetchedBatches,
    TableColumns,
    TableRules,
    batches_from_table,
    table_from_batches,
    table_schema,
)

pytestmark = pytest.mark.usefixtures("each_kernel")

HEADERS = table_schema().field("headers").type
NOW = 1_700_000_000_000


def some_table(rows: int, seed: int = 1) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "key": pa.array(
                [rng.choice([None, b"", b"key%d" % rng.randrange(50)]) for _ in range(rows)],
                pa.binary(),
            ),
            "value": pa.array(
                [rng.choice([None, rng.randbytes(rng.randrange(200))]) for _ in range(rows)],
                pa.binary(),
            ),
            "headers": pa.array(
                [
                    rng.choice([None, None, [], [{"key": "h", "value": b"%d" % i}]])
                    for i in range(rows)
                ],
                HEADERS,
            ),
            "timestamp": pa.array([NOW + i // 3 for i in range(rows)], pa.timestamp("ms", "UTC")),
        }
    )


def records_of(batches: list[EncodedBatch]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = defaultdict(list)
    for each in batches:
        (batch,) = iter_batches(each.data)
        batch.ensure_valid()
        records = list(iter_records(batch))
        assert each.count == batch.count == len(records)
        assert each.max_timestamp == batch.max_timestamp
        found[each.partition] += records
    return found


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    return [
        (
            row["timestamp"].timestamp() * 1000,
            row["key"],
            row["value"],
            tuple((h["key"], h["value"]) for h in row["headers"] or ()),
        )
        for row in table.to_pylist()
    ]


@pytest.mark.slow
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_table_comes_back_as_it_went(codec: Codec) -> None:
    table = some_table(3000)
    rules = TableRules(1, NOW, options=BatchOptions(codec=codec), batch_bytes=10_000)
    batches = list(batches_from_table(table, rules))
    assert len(batches) > 10
    fetched, offset = [], 0
    for each in batches:
        (batch,) = iter_batches(each.data)
        batch.assign(base_offset=offset, leader_epoch=0)
        offset += each.count
        fetched.append(FetchedBatches("clicks", 7, [each.data]))
    back = table_from_batches(fetched)
    back.validate(full=True)
    assert back.schema.equals(table_schema())
    assert rows_of(back) == rows_of(table)
    assert back.column("offset").to_pylist() == list(range(3000))
    assert set(back.column("partition").to_pylist()) == {7}
    again = list(batches_from_table(back, rules))
    assert rows_of(
        table_from_batches([FetchedBatches("t", 0, [b.data]) for b in again])
    ) == rows_of(table)


def test_rows_with_keys_go_where_java_would_send_them() -> None:
    table = some_table(2000)
    batches = list(batches_from_table(table, TableRules(12, NOW, batch_bytes=2000)))
    found = records_of(batches)
    for partition, records in found.items():
        for record in records:
            if record.key is not None:
                assert partition == partition_for_key(record.key, 12)
    sent = [(r.timestamp, r.key, r.value, r.headers) for p in found for r in found[p]]
    assert sorted(sent, key=repr) == sorted(rows_of(table), key=repr)
    unkeyed = [p for p in found for r in found[p] if r.key is None]
    assert len(set(unkeyed)) == 12


def test_rows_of_one_partition_keep_their_order() -> None:
    values = pa.array([b"%06d" % i for i in range(5000)])
    partition = pa.array([i * 7 % 3 for i in range(5000)])
    table = pa.table({"value": values, "p": partition})
    columns = TableColumns(partition="p")
    rules = TableRules(3, NOW, batch_bytes=1000)
    found = records_of(list(batches_from_table(table, rules, columns)))
    assert set(found) == {0, 1, 2}
    for number, records in found.items():
        mine = [b"%06d" % i for i in range(5000) if i * 7 % 3 == number]
        assert [record.value for record in records] == mine
        assert {record.timestamp for record in records} == {NOW}


def keyed(column: pa.Array) -> ArrowRows:
    return ArrowRows(len(column), column, None)


def test_hashes_of_a_column() -> None:
    rng = random.Random(3)
    keys = [rng.randbytes(rng.randrange(20)) for _ in range(10_000)]
    column = pa.array([None, *keys, None], pa.large_binary())[1:-1]
    assert murmur2_column(column).tolist() == [murmur2(key) for key in keys]
    wanted = [partition_for_key(key, 17) for key in keys]
    for kind in (pa.binary(), pa.large_binary()):
        chosen = KeyPartitioner(17)(keyed(column.cast(kind)), batch_rows=5)
        assert chosen.tolist() == wanted
    library = kernel.library()
    if library is not None:
        assert [library.murmur2(key, len(key)) for key in keys] == [murmur2(key) for key in keys]


def test_rows_without_keys_fill_batch_after_batch() -> None:
    partitioner = KeyPartitioner(3, first=2)
    assert partitioner(ArrowRows(7, None, None), batch_rows=3).tolist() == [2, 2, 2, 0, 0, 0, 1]
    keys = pa.array([None, b"k", None, None], pa.binary())
    chosen = partitioner(keyed(keys), batch_rows=2).tolist()
    assert chosen == [2, partition_for_key(b"k", 3), 2, 0]
    assert partitioner(ArrowRows(1, None, None), batch_rows=5).tolist() == [1]
    ignoring = KeyPartitioner(3, ignore_keys=True)
    assert ignoring(keyed(keys), batch_rows=2).tolist() == [0, 0, 1, 1]


def test_some_rows_have_a_partition() -> None:
    table = pa.table({"key": ["a", "b", "c"], "value": ["1", "2", "3"], "p": [4, None, 0]})
    rules = TableRules(5, NOW)
    found = records_of(list(batches_from_table(table, rules, TableColumns(partition="p"))))
    places = {record.key: partition for partition in found for record in found[partition]}
    assert places == {b"a": 4, b"b": partition_for_key(b"b", 5), b"c": 0}


def test_partitions_that_do_not_exist() -> None:
    for wrong in (5, -1, 2**40):
        table = pa.table({"value": ["1", "2"], "p": [0, wrong]})
        with pytest.raises(ValueError, match="partition"):
            list(batches_from_table(table, TableRules(5, NOW), TableColumns(partition="p")))
    with pytest.raises(ValueError, match="row 1 is for partition 3"):
        list(group_rows(np.array([0, 3], np.int32), 3))


TEXT = ["é", None, "", "long enough to be a view's own"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
        pa.string_view(),
        pa.binary_view(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_text_and_bytes_of_every_layout(kind: pa.DataType) -> None:
    cells = [None if text is None else text.encode() for text in TEXT]
    texts = pa.types.is_dictionary(kind) or "string" in str(kind)
    array = pa.array(TEXT if texts else cells, pa.string() if texts else pa.binary()).cast(kind)
    table = pa.table({"text": array}).slice(1)
    for columns in (TableColumns(value="text"), TableColumns(key="text", value=array.slice(1))):
        found = records_of(list(batches_from_table(table, TableRules(1, NOW), columns)))
        assert [record.value for record in found[0]] == cells[1:]
        if columns.key == "text":
            assert [record.key for record in found[0]] == cells[1:]


def test_fixed_size_bytes_and_columns_of_nothing_but_null() -> None:
    table = pa.table({"k": pa.array([b"ab", None], pa.binary(2)), "v": pa.nulls(2)})
    columns = TableColumns(key="k", value="v")
    found = records_of(list(batches_from_table(table, TableRules(1, NOW), columns)))
    assert [record[1:4] for record in found[0]] == [(NOW, b"ab", None), (NOW, None, None)]


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        (TableColumns(value="n"), TypeError, "column 'n' cannot be the value: int64"),
        (TableColumns(key="l", value="v"), TypeError, "column 'l' cannot be the key: list"),
        (TableColumns(headers="v", value="v"), TypeError, "column 'v' cannot be the headers"),
        (TableColumns(timestamp="v", value="v"), TypeError, "'v' cannot be the timestamp: string"),
        (TableColumns(partition="v", value="v"), TypeError, "'v' cannot be the partition: string"),
        (TableColumns(value="w"), ValueError, "no column 'w' for the value; it has v, n, l"),
        (TableColumns(value=None), ValueError, "choose a column"),
        (TableColumns(value=pa.array(["a"])), ValueError, "1 rows, the table 2"),
    ],
)
def test_columns_that_will_not_do(columns: TableColumns, error: type[Exception], text: str) -> None:
    table = pa.table({"v": ["a", "b"], "n": [1, 2], "l": [[1], [2]]})
    with pytest.raises(error, match=text):
        list(batches_from_table(table, TableRules(1, NOW), columns))


def test_headers_without_a_key() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = [[{"key": "a", "value": b"1"}], [{"key": None, "value": b"2"}]]
    table = pa.table({"value": ["a", "b"], "headers": pa.array(rows, kind)})
    with pytest.raises(ValueError, match="header without a key"):
        list(batches_from_table(table, TableRules(1, NOW)))
    found = records_of(list(batches_from_table(table.slice(0, 1), TableRules(1, NOW))))
    assert found[0][0].headers == (("a", b"1"),)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()])
def test_headers_whose_value_comes_first(kind: pa.DataType) -> None:
    pair = pa.struct([("value", pa.binary()), ("key", kind)])
    rows = [[{"value": b"1", "key": b"a"}, {"value": None, "key": b"b"}], None, []]
    table = pa.table({"value": ["x", "y", "z"], "headers": pa.array(rows, pa.list_(pair))})
    found = records_of(list(batches_from_table(table, TableRules(1, NOW))))
    assert [record.headers for record in found[0]] == [(("a", b"1"), ("b", None)), (), ()]


def test_header_keys_of_bytes_are_sent_as_they_are() -> None:
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.string())]))
    rows = [None, [(b"\xff\xfe", "v")], [(b"k", None)]]
    headers = pa.array([None, [], *rows], kind).slice(2)
    table = pa.table({"value": ["x", "y", "z"], "headers": headers})
    batch = next(batches_from_table(table, TableRules(1, NOW)))
    assert bytes(batch.data).count(b"\x02\x04\xff\xfe\x02v") == 1


def test_headers_of_other_layouts() -> None:
    pairs = [[("a", b"1"), ("b", None)], None, []]
    for kind in (
        pa.map_(pa.string(), pa.binary()),
        pa.large_list(pa.struct([("name", pa.large_string()), ("content", pa.large_binary())])),
    ):
        rows: list[object] = list(pairs)
        if pa.types.is_large_list(kind):
            rows = [
                None if row is None else [{"name": k, "content": v} for k, v in row]
                for row in pairs
            ]
        table = pa.table({"value": ["x", "y", "z"], "headers": pa.array(rows, kind)})
        for part in (table, table.slice(1), table.slice(0, 1)):
            found = records_of(list(batches_from_table(part, TableRules(1, NOW))))
            at = 1 if part.num_rows == 2 else 0
            wanted = [tuple(row or ()) for row in pairs[at : at + part.num_rows]]
            assert [record.headers for record in found[0]] == wanted


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit(unit: str) -> None:
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    times = pa.array([2 * factor, None, -factor, 5 * factor], pa.timestamp(unit))
    table = pa.table({"value": ["a"] * 4, "timestamp": times})
    found = records_of(list(batches_from_table(table, TableRules(1, NOW))))
    assert [record.timestamp for record in found[0]] == [2000, NOW, -1000, 5000]
    early = pa.table({"value": ["a"], "timestamp": pa.array([-1], pa.timestamp("us"))})
    found = records_of(list(batches_from_table(early, TableRules(1, NOW))))
    assert found[0][0].timestamp == -1


def test_numbers_of_milliseconds_and_dates() -> None:
    for column in (pa.array([86_400_000]), pa.array([1], pa.date32()), pa.array([86_400_000.0])):
        table = pa.table({"value": ["a"], "timestamp": column})
        if pa.types.is_floating(column.type):
            with pytest.raises(TypeError, match="double"):
                list(batches_from_table(table, TableRules(1, NOW)))
            continue
        found = records_of(list(batches_from_table(table, TableRules(1, NOW))))
        assert found[0][0].timestamp == 86_400_000


def test_chunks_slices_and_readers() -> None:
    table = some_table(500)
    wanted = rows_of(table)
    pieces = pa.concat_tables([table.slice(i, 10) for i in range(0, 500, 10)])
    assert pieces.column("key").num_chunks == 50
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7))
    for given in (pieces, table.combine_chunks().to_batches()[0], reader):
        batches = list(batches_from_table(given, TableRules(1, NOW)))
        assert len(batches) == 1
        rows = records_of(batches)[0]
        assert [(r.timestamp, r.key, r.value, r.headers) for r in rows] == wanted
    assert list(batches_from_table(table.slice(0, 0), TableRules(1, NOW))) == []
    with pytest.raises(TypeError, match="by name"):
        list(batches_from_table(reader, TableRules(1, NOW), TableColumns(value=pa.array(["a"]))))


def test_large_rows_have_batches_of_their_own() -> None:
    values = [b"a", b"b" * 9_000_000, b"c" * 300, b"d" * 1000, b"e"]
    table = pa.table({"value": pa.array(values)})
    batches = list(batches_from_table(table, TableRules(1, NOW, batch_bytes=1000)))
    assert [each.count for each in batches] == [1, 1, 1, 1, 1]
    assert [record.value for record in records_of(batches)[0]] == values


def test_sequences_go_on() -> None:
    options = BatchOptions(producer_id=3, producer_epoch=1, base_sequence=2**31 - 3)
    table = pa.table({"value": ["x" * 100] * 40})
    rules = TableRules(1, NOW, options=options, batch_bytes=300)
    sequence = options.base_sequence
    for each in batches_from_table(table, rules):
        (batch,) = iter_batches(each.data)
        assert (batch.base_sequence, batch.producer_id) == (sequence, 3)
        sequence = (sequence + each.count) % 2**31


def test_a_fetch_with_aborted_records() -> None:
    transaction = BatchOptions(
        base_offset=0, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log = encode_batch([Record(0, 0, None, b"gone")], transaction)
    log += build_marker_batch(
        EndTransactionMarker(ControlType.ABORT, 0),
        producer_id=5,
        producer_epoch=0,
        timestamp_ms=0,
        base_offset=1,
    )
    log += encode_batch([Record(0, 0, None, b"kept")], BatchOptions(base_offset=2))
    fetched = FetchedBatches("t", 0, [log], aborted=[(5, 0)])
    assert table_from_batches([fetched]).column("value").to_pylist() == [b"kept"]
    narrow = pa.schema([table_schema().field("offset")])
    assert table_from_batches([fetched], narrow).to_pydict() == {"offset": [2]}
    assert table_from_batches([]).num_rows == 0


def test_polars_and_pandas_share_the_memory() -> None:
    import polars

    pytest.importorskip("pandas")

    table = some_table(100)
    batches = batches_from_table(table, TableRules(1, NOW))
    back = table_from_batches([FetchedBatches("t", 0, [each.data for each in batches])])
    frame = polars.from_arrow(back)
    assert isinstance(frame, polars.DataFrame)
    offsets = frame["offset"]
    polars_address = offsets.to_numpy(allow_copy=False).__array_interface__["data"][0]
    assert polars_address == back.column("offset").chunk(0).buffers()[1].address
    assert frame["value"].to_list() == back.column("value").to_pylist()
    pandas = back.select(["partition", "offset"]).to_pandas(zero_copy_only=True, split_blocks=True)
    address = pandas["offset"].to_numpy().__array_interface__["data"][0]
    assert address == back.column("offset").chunk(0).buffers()[1].address
    again = batches_from_table(frame.to_arrow(), TableRules(1, NOW))
    rows = [r for records in records_of(list(again)).values() for r in records]
    assert [record.value for record in rows] == back.column("value").to_pylist()
