"""`format("millstream")`: columns, options and the traps of Python data sources."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from tests.broker_process import BrokerProcess

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition
from millstream.records.compression import Codec
from millstream.records.record import Record
from millstream.spark.schema import COLUMN_TYPES
from millstream.spark.source import TopicReader

Load = Callable[..., DataFrame]
Values = Callable[..., None]
Write = Callable[..., None]
Topics = Callable[[], str]


def texts(frame: DataFrame) -> list[str]:
    rows = frame.selectExpr("cast(value as string) v").collect()
    return sorted(row.v for row in rows)


# --- columns -------------------------------------------------------------------------------------


def test_the_columns_of_the_stock_connector(load: Load, topic: str) -> None:
    assert load(subscribe=topic).schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    with_headers = load(subscribe=topic, includeHeaders="true").schema
    assert with_headers["headers"].dataType.simpleString() == (
        "array<struct<key:string,value:binary>>"
    )


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_every_field_of_a_record(load: Load, topic: str, write: Write, codec: Codec) -> None:
    headers = (("a", b"1"), ("b", None), ("ü", b"\xff"))
    records = [
        Record(0, 1_700_000_000_123, b"k", b"\xff\x00", headers),
        Record(0, 0, None, None),
        Record(0, 5, b"", b""),
    ]
    write(topic, 1, records, codec)
    first, second, third = load(subscribe=topic, includeHeaders="true").orderBy("offset").collect()
    assert bytes(first.key) == b"k"
    assert bytes(first.value) == b"\xff\x00"
    assert (first.topic, first.partition, first.offset, first.timestampType) == (topic, 1, 0, 0)
    expected = datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert first.timestamp.astimezone(UTC) == expected
    assert [(h.key, None if h.value is None else bytes(h.value)) for h in first.headers] == list(
        headers
    )
    assert (second.key, second.value, second.headers) == (None, None, None)
    assert (bytes(third.key), bytes(third.value)) == (b"", b"")


@pytest.mark.parametrize(
    "columns", ["value", "offset,key", "timestamp", "topic,partition,timestampType,value"]
)
def test_only_the_columns_that_are_asked_for(
    load: Load, topic: str, values: Values, columns: str
) -> None:
    values(topic, 0, "a", "b")
    frame = load(subscribe=topic, columns=columns)
    assert frame.columns == columns.split(",")
    assert len(frame.collect()) == 2


def test_a_schema_of_the_users_own(
    spark: SparkSession, broker: BrokerProcess, topic: str, values: Values
) -> None:
    values(topic, 0, "a")
    reader = spark.read.format("millstream").option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
    assert texts(reader.schema("offset long, value binary").load()) == ["a"]
    with pytest.raises(PySparkException, match="value as string; it is binary"):
        reader.schema("value string").load().collect()
    with pytest.raises(PySparkException, match="a column nope"):
        reader.schema("nope string").load().collect()


def test_the_arrow_types_are_exactly_those_that_spark_asks_for(spark: SparkSession) -> None:
    ddl = ", ".join(f"{name} {kind}" for name, kind in COLUMN_TYPES.items())
    schema = to_arrow_schema(StructType.fromDDL(ddl), timezone="UTC")
    assert {field.name: str(field.type) for field in schema} == {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int32",
        "offset": "int64",
        "timestamp": "timestamp[us, tz=UTC]",
        "timestampType": "int32",
        "headers": str(schema.field("headers").type),
    }


# --- what is read --------------------------------------------------------------------------------


def test_offsets(load: Load, topic: str, values: Values) -> None:
    values(topic, 0, "a0", "a1", "a2", "a3")
    values(topic, 1, "b0", "b1")
    starting = json.dumps({topic: {"0": 1, "1": -2}})
    ending = json.dumps({topic: {"0": 3, "1": -1}})
    frame = load(subscribe=topic, startingOffsets=starting, endingOffsets=ending)
    assert texts(frame) == ["a1", "a2", "b0", "b1"]
    only = load(assign=json.dumps({topic: [1]}))
    assert texts(only) == ["b0", "b1"]


def test_a_batch_is_cut_where_a_range_ends(load: Load, topic: str, values: Values) -> None:
    values(topic, 0, *(f"{number:03}" for number in range(100)))
    frame = load(assign=json.dumps({topic: [0]}), maxRecordsPerPartition="7")
    assert frame.rdd.getNumPartitions() == 15
    assert texts(frame) == [f"{number:03}" for number in range(100)]


def test_timestamps(load: Load, topic: str, values: Values) -> None:
    values(topic, 0, "a0", "a1", "a2", first_ms=1000)
    values(topic, 1, "b0", "b1", first_ms=2000)
    assert texts(load(subscribe=topic, startingTimestamp="1001", endingTimestamp="2001")) == [
        "a1",
        "a2",
        "b0",
    ]
    for_each = json.dumps({topic: {"0": 1002, "1": 2001}})
    assert texts(load(subscribe=topic, startingOffsetsByTimestamp=for_each)) == ["a2", "b1"]
    with pytest.raises(PySparkException, match=r"startingTimestamp: .* has no record"):
        load(subscribe=topic, startingTimestamp="1500").collect()
    latest = {"startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": "1500"}
    assert texts(load(latest, subscribe=topic)) == ["b0", "b1"]


def test_a_pattern(load: Load, admin: Admin, topic: str, values: Values) -> None:
    values(topic, 0, "a")
    assert texts(load(subscribePattern=topic[:-1] + ".")) == ["a"]
    assert load(subscribePattern="no-topic-has-this-name.*").count() == 0


def test_several_topics(
    load: Load, topic: str, values: Values, admin: Admin, new_topic: Topics
) -> None:

    other = new_topic()
    admin.create_topics([NewTopic(other, 1)]).get_all()
    values(topic, 0, "a")
    values(other, 0, "b")
    frame = load(subscribe=f"{topic}, {other}")
    assert {(row.topic, bytes(row.value)) for row in frame.collect()} == {
        (topic, b"a"),
        (other, b"b"),
    }


# --- traps ---------------------------------------------------------------------------------------


def test_an_empty_topic_has_no_rows(load: Load, topic: str) -> None:
    """Spark calls `read` once even when there is no partition."""
    assert load(subscribe=topic).count() == 0
    assert load(subscribe=topic).collect() == []


def test_one_frame_with_different_filters_counts_right(
    load: Load, topic: str, values: Values
) -> None:
    """Pushed filters would make a union of both halves lose rows."""
    values(topic, 0, *(str(number) for number in range(1000)))
    frame = load(subscribe=topic)
    few, all_of_them = frame.filter("offset < 10"), frame.filter("offset >= 0")
    assert few.union(all_of_them).count() == 1010
    assert frame.filter("partition = 0").count() == 1000
    assert TopicReader.pushFilters is DataSourceReader.pushFilters


def test_a_frame_stays_what_it_was_when_it_was_loaded(
    load: Load, topic: str, values: Values
) -> None:
    """The plan is made once per load: a join of a frame with itself sees one state."""
    values(topic, 0, "a", "b")
    frame = load(subscribe=topic)
    assert frame.count() == 2
    values(topic, 0, "c")
    assert frame.count() == 2
    assert load(subscribe=topic).count() == 3


def test_records_larger_than_a_fetch(load: Load, topic: str, write: Write) -> None:
    write(topic, 0, [Record(0, 0, None, bytes(900_000))])
    write(topic, 0, [Record(0, 0, None, b"small")])
    frame = load({"kafka.max.partition.fetch.bytes": "1000"}, subscribe=topic)
    assert sorted(len(row.value) for row in frame.collect()) == [5, 900_000]


def test_lost_offsets(load: Load, topic: str, values: Values, admin: Admin) -> None:
    values(topic, 0, "0", "1", "2", "3", "4")
    admin.delete_records({TopicPartition(topic, 0): 2}).get_all()
    assert texts(load(subscribe=topic)) == ["2", "3", "4"]
    starting = json.dumps({topic: {"0": 1, "1": 0}})
    with pytest.raises(PySparkException, match=rf"\[1, 2\) of {topic}-0 are not in the log"):
        load(subscribe=topic, startingOffsets=starting).collect()
    rest = load(subscribe=topic, startingOffsets=starting, failOnDataLoss="false")
    assert texts(rest) == ["2", "3", "4"]
    ending = json.dumps({topic: {"0": 9, "1": 0}})
    with pytest.raises(PySparkException, match=rf"\[5, 9\) of {topic}-0 are not in the log"):
        load(subscribe=topic, endingOffsets=ending).collect()


def test_offsets_that_are_lost_after_the_plan_was_made(
    load: Load, topic: str, values: Values, admin: Admin
) -> None:
    values(topic, 0, "0", "1")
    values(topic, 0, "2", "3")
    strict = load(subscribe=topic)
    lenient = load(subscribe=topic, failOnDataLoss="false")
    assert (strict.count(), lenient.count()) == (4, 4)
    admin.delete_records({TopicPartition(topic, 0): 2}).get_all()
    with pytest.raises(PySparkException, match=r"\[0, 2\)"):
        strict.count()
    assert texts(lenient) == ["2", "3"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"subscribe": "no-such-topic"}, "option subscribe: topic 'no-such-topic' does not exist"),
        ({"startingOffsets": "latest"}, "option startingOffsets"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": '{"nope":{"0":1}}'}, "option startingOffsets must name every"),
        ({"kafka.security.protocol": "SASL_SSL"}, "option kafka.sasl.mechanism is missing"),
        ({"kafka.security.protocol": "SSLL"}, "option kafka.security.protocol"),
    ],
)
def test_an_error_names_the_option(
    load: Load, topic: str, options: dict[str, str], named: str
) -> None:
    with pytest.raises(PySparkException, match=named):
        load({"subscribe": topic} | options).collect()


def test_no_broker(spark: SparkSession) -> None:
    frame = (
        spark.read.format("millstream")
        .option("kafka.bootstrap.servers", "127.0.0.1:1")
        .option("subscribe", "t")
        .option("fetchOffset.numRetries", "1")
        .load()
    )
    with pytest.raises(PySparkException, match=r"could not reach the broker at 127\.0\.0\.1:1"):
        frame.collect()
