"""Columns evolve by name; the schema file keeps what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.model.errors import ConfigError
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.columns import (
    SAMPLE_OFFSETS,
    SAMPLE_OFFSETS_IN_ALL,
    check_names,
    pinned_columns,
    sampled_ranges,
)
from millstream.spark.lakehouse.formats import FormatSpec
from millstream.spark.lakehouse.formats.avro import columns_of
from millstream.spark.lakehouse.formats.format import TIMESTAMP
from millstream.spark.lakehouse.schema_file import (
    create_schema_file,
    read_schema_file,
    write_schema_file,
)
from millstream.spark.lakehouse.widening import agree, check_same_columns, merge, wider
from millstream.spark.locations.directories import LocalPath
from millstream.spark.ranges import OffsetRange


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.float32(), pa.int64(), pa.float64()),
        (pa.float32(), pa.int16(), pa.float32()),
        (pa.null(), pa.int64(), pa.int64()),
        (pa.date32(), TIMESTAMP, TIMESTAMP),
        (pa.string(), pa.int64(), None),
        (pa.bool_(), pa.int64(), None),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (
            pa.struct([("a", pa.int32())]),
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
        ),
    ],
)
def test_wider(one: pa.DataType, other: pa.DataType, both: pa.DataType | None) -> None:
    assert wider(one, other) == both
    assert wider(other, one) is None or both is not None


def test_merging_keeps_the_order_and_adds_at_the_end() -> None:
    known = pa.schema([("b", pa.int32()), ("a", pa.string())])
    seen = pa.schema([("c", pa.bool_()), ("b", pa.int64()), ("a", pa.int64())])
    assert merge(known, seen) == pa.schema(
        [("b", pa.int64()), ("a", pa.string()), ("c", pa.bool_())]
    )
    numbers = pa.schema([("n", pa.int64())])
    texts = pa.schema([("n", pa.string())])
    assert merge(numbers, texts) == numbers
    assert agree([texts, numbers, numbers]) == numbers
    assert agree([pa.schema([("n", pa.float64())]), numbers, numbers, texts]) == pa.schema(
        [("n", pa.float64())]
    )


def test_a_table_of_other_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="no column b, a as int32, not int64"):
        check_same_columns(
            "delta:/x",
            pa.schema([("a", pa.int32())]),
            pa.schema([("b", pa.int8()), ("a", pa.int64())]),
        )


def test_the_schema_file_round_trip(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("i", pa.int64()),
            ("t", TIMESTAMP),
            ("d", pa.decimal128(20, 3)),
            ("l", pa.list_(pa.struct([("x", pa.binary())]))),
            ("m", pa.map_(pa.string(), pa.float64())),
        ]
    )
    path = LocalPath(tmp_path) / "deep" / "schema.json"
    write_schema_file(path, schema, form="json")
    assert read_schema_file(path, form="json") == schema
    with pytest.raises(ConfigError, match="of format json, not csv"):
        read_schema_file(path, form="csv")


@pytest.mark.parametrize("text", ["", "[]", '{"format":"json"}', '{"format":"json","columns":[1]}'])
def test_a_file_that_is_no_schema(tmp_path: Path, text: str) -> None:
    path = LocalPath(tmp_path) / "schema.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"schema\.json"):
        read_schema_file(path, form="json")
    path.write_text('{"format":"json","columns":[{"name":"a","type":"int"}]}')
    with pytest.raises(ConfigError, match="no type int; types are"):
        read_schema_file(path, form="json")


def avro_record(**fields: Any) -> bytes:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "R", "fields": listed}).encode()


def test_a_definition_that_has_grown(tmp_path: Path) -> None:
    """Its new fields were left out without a word, and large numbers became dead letters."""
    path = LocalPath(tmp_path) / "schema.json"
    old, new = avro_record(a="int", b="string"), avro_record(c="double", a="long", b="long")
    write_schema_file(path, columns_of(old), form="avro")
    assert pinned_columns(path, FormatSpec(kind="avro", definition=old)) == columns_of(old)
    keeps = FormatSpec(kind="avro", definition=new, options={"evolve": "false"})
    assert pinned_columns(path, keeps) == columns_of(old)
    grown = pinned_columns(path, FormatSpec(kind="avro", definition=new))
    assert grown == pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    assert read_schema_file(path, form="avro") == grown
    clash = FormatSpec(kind="avro", definition=avro_record(A="int"))
    with pytest.raises(ConfigError, match="two columns a and A"):
        pinned_columns(path, clash)


def test_two_columns_of_one_name() -> None:
    check_names(pa.schema([("a", pa.int8()), ("b", pa.int8())]))
    with pytest.raises(ConfigError, match="two columns a and a"):
        check_names(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


def test_fields_that_hold_nothing_have_no_column() -> None:
    empty = {"type": "record", "name": "E", "fields": []}
    inner = {"type": "record", "name": "I", "fields": [{"name": "e", "type": "E"}]}
    deep = {"type": "map", "values": {"type": "array", "items": "E"}}
    assert columns_of(avro_record(a="int", e=empty, i=inner, n="null", m=deep)).names == ["a"]
    with pytest.raises(ConfigError, match="there are no columns"):
        columns_of(avro_record(n="null"))


@pytest.mark.parametrize("inner", ["R", {"type": "array", "items": "R"}])
def test_a_record_inside_of_itself(inner: Any) -> None:
    with pytest.raises(ConfigError, match="the Avro record R contains itself"):
        columns_of(avro_record(a="int", next=["null", inner]))
    node = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
    with pytest.raises(ConfigError, match="the Avro record N contains itself"):
        columns_of(avro_record(node=node))


def test_of_two_loads_that_infer_at_once_the_first_one_counts(tmp_path: Path) -> None:
    """The second one's columns took the place of those that the table was made with."""
    path = LocalPath(tmp_path) / "table" / "schema.json"
    first, second = pa.schema([("a", pa.int64())]), pa.schema([("b", pa.int64())])
    assert create_schema_file(path, first, form="json")
    assert not create_schema_file(path, second, form="json")
    assert read_schema_file(path, form="json") == first
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("partitions", [1, 6, 200, 20_000])
def test_inference_looks_at_a_bounded_number_of_records(partitions: int) -> None:
    places = [TopicPartition("t", number) for number in range(partitions)]
    starts = dict.fromkeys(places, 5)
    found = sampled_ranges(starts, dict.fromkeys(places, 5000))
    assert [each.topic_partition for each in found] == places, "no partition is left out"
    assert {each.start for each in found} == {5}
    (size,) = {each.size for each in found}
    assert 1 <= size <= SAMPLE_OFFSETS
    assert size * partitions <= max(SAMPLE_OFFSETS_IN_ALL, partitions)


def test_empty_partitions_take_no_part_of_the_sample() -> None:
    places = [TopicPartition("t", number) for number in range(200)]
    starts = dict.fromkeys(places, 0)
    ends = {**starts, places[7]: 4_000, places[9]: 30}
    assert sampled_ranges(starts, ends) == [
        OffsetRange(places[7], 0, SAMPLE_OFFSETS),
        OffsetRange(places[9], 0, 30),
    ]
