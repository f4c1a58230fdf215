"""`write` and `writeStream` with `format("millstream")`: columns, errors, and replays."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.broker_process import BrokerProcess

from millstream.client import Admin, Producer
from millstream.client.core.admin.topics import NewTopic
from millstream.client.errors import FatalTransactionError
from millstream.client.partitioner import partition_for_key
from millstream.spark.sink import write_transaction
from millstream.spark.sink_journal import Journal
from millstream.spark.sink_options import SinkOptions

Load = Callable[..., DataFrame]


@pytest.fixture
def out(admin: Admin, new_topic: Callable[[], str]) -> str:
    """An empty topic of three partitions to write to."""
    name = f"{new_topic()}-out"
    admin.create_topics([NewTopic(name, 3)]).get_all()
    return name


@pytest.fixture
def save(broker: BrokerProcess) -> Callable[..., None]:
    def save(frame: DataFrame, *, mode: str = "append", **options: str) -> None:
        writer = frame.write.format("millstream").mode(mode)
        writer.option("kafka.bootstrap.servers", broker.bootstrap).options(**options).save()

    return save


def rows_of(load: Load, topic: str, more: dict[str, str] | None = None) -> list[tuple[Any, ...]]:
    rows = load(more, subscribe=topic, includeHeaders="true").collect()
    found = [
        (
            row.partition,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            tuple((h.key, None if h.value is None else bytes(h.value)) for h in row.headers or ()),
        )
        for row in rows
    ]
    return sorted(found, key=str)


def test_columns(spark: SparkSession, save: Callable[..., None], load: Load, out: str) -> None:
    schema = (
        "key binary, value string, partition int, headers array<struct<key string, value binary>>"
    )
    frame = spark.createDataFrame(
        [
            (bytearray(b"k"), "one", 2, [("h", bytearray(b"1")), ("n", None)]),
            (bytearray(b"k"), "two", 0, None),
            (bytearray(b"k2"), "by key", None, []),
            (bytearray(b"k3"), None, None, None),
        ],
        schema,
    )
    save(frame, topic=out)
    expected = [
        (2, b"k", b"one", (("h", b"1"), ("n", None))),
        (0, b"k", b"two", ()),
        (partition_for_key(b"k2", 3), b"k2", b"by key", ()),
        (partition_for_key(b"k3", 3), b"k3", None, ()),
    ]
    assert rows_of(load, out) == sorted(expected, key=str)


def test_a_topic_for_each_row(
    spark: SparkSession,
    save: Callable[..., None],
    load: Load,
    out: str,
    admin: Admin,
    new_topic: Callable[[], str],
) -> None:
    other = f"{new_topic()}-other"
    admin.create_topics([NewTopic(other, 1)]).get_all()
    frame = spark.createDataFrame(
        [(out, "a"), (other, "b"), (out, "c")], "topic string, value string"
    )
    save(frame)
    assert sorted(row[2] for row in rows_of(load, out)) == [b"a", b"c"]
    assert [row[2] for row in rows_of(load, other)] == [b"b"]


def test_many_rows(spark: SparkSession, save: Callable[..., None], load: Load, out: str) -> None:
    frame = spark.range(0, 50_000, 1, 4).selectExpr(
        "cast(id as string) value", "cast(id as string) key"
    )
    save(frame, topic=out, **{"kafka.compression.type": "zstd"})
    found = load(subscribe=out).selectExpr("count(*) n", "count(distinct value) d").collect()[0]
    assert (found.n, found.d) == (50_000, 50_000)


@pytest.mark.parametrize(
    ("sql", "options", "words"),
    [
        ("select 1 value", {}, "column value is int"),
        ("select 'a' v", {}, "need a column value"),
        ("select 'a' value, 1L partition", {}, "column partition is bigint"),
        ("select 'a' value", {"topic": ""}, "option topic"),
        ("select 'a' value", {"kafka.acks": "2"}, "acks"),
        ("select 'a' value", {"kafka.key.serializer": "x"}, "kafka.key.serializer"),
        ("select 'a' value", {"exactlyOnse": "false"}, "did you mean exactlyOnce"),
    ],
)
def test_an_error_names_the_column_or_the_option(
    spark: SparkSession,
    save: Callable[..., None],
    out: str,
    sql: str,
    options: dict[str, str],
    words: str,
) -> None:
    with pytest.raises(PySparkException, match=words):
        save(spark.sql(sql), **{"topic": out, **options})


def test_a_topic_is_not_overwritten(
    spark: SparkSession, save: Callable[..., None], out: str
) -> None:
    with pytest.raises(PySparkException, match="append"):
        save(spark.sql("select 'a' value"), mode="overwrite", topic=out)


# --- streaming -----------------------------------------------------------------------------------


class Copy:
    """A query that copies one topic to another."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, source: str, target: str, at: Path
    ) -> None:
        self.spark, self.bootstrap, self.source, self.target = spark, bootstrap, source, target
        self.checkpoint = at / "checkpoint"
        self.repartition: int | None = None
        self.where: str | None = None

    @property
    def journal(self) -> Path:
        return self.checkpoint / "millstream-sink"

    def run(self, **options: str) -> None:
        reader = self.spark.readStream.format("millstream").option("startingOffsets", "earliest")
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap)
        frame = reader.option("subscribe", self.source).load().select("key", "value")
        if self.repartition is not None:
            frame = frame.repartition(self.repartition)
        if self.where is not None:
            frame = frame.where(f"value != 'a25' or {self.where} is null")
        writer = frame.writeStream.format("millstream").option("topic", self.target)
        writer = writer.option("kafka.bootstrap.servers", self.bootstrap)
        query = (
            writer.option("checkpointLocation", str(self.checkpoint))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def pretend_batch(self, batch: int) -> None:
        """Let a micro-batch have been planned that never came to Spark's own commit."""
        offsets = self.checkpoint / "offsets"
        (offsets / str(batch)).write_bytes((offsets / str(batch - 1)).read_bytes())

    def forget_last_commit(self) -> None:
        """Make Spark run its last micro-batch again, as after a crash behind the sink's commit."""
        commits = sorted(
            (path for path in (self.checkpoint / "commits").glob("[0-9]*")),
            key=lambda path: int(path.name),
        )
        commits[-1].unlink()
        (self.checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)


@pytest.fixture
def copy(spark: SparkSession, broker: BrokerProcess, topic: str, out: str, tmp_path: Path) -> Copy:
    return Copy(spark, broker.bootstrap, topic, out, tmp_path)


def test_a_replayed_micro_batch_writes_nothing_twice(
    copy: Copy, load: Load, values: Callable[..., None]
) -> None:
    values(copy.source, 0, *(f"a{number}" for number in range(200)))
    values(copy.source, 1, "same", "same", "same")
    copy.run()
    assert len(rows_of(load, copy.target)) == 203
    copy.forget_last_commit()
    copy.run()
    found = rows_of(load, copy.target)
    assert len(found) == 203
    assert all(not headers for *_, headers in found)
    values(copy.source, 0, "later")
    copy.run()
    assert len(rows_of(load, copy.target)) == 204


def test_without_it_a_replay_doubles(copy: Copy, load: Load, values: Callable[..., None]) -> None:
    """Shows that the test above would see what it is about."""
    values(copy.source, 0, "a", "b")
    copy.run(exactlyOnce="false")
    copy.forget_last_commit()
    copy.run(exactlyOnce="false")
    found = rows_of(load, copy.target)
    assert len(found) == 4
    assert all(not headers for *_, headers in found)


def test_a_decided_micro_batch_is_committed_by_the_next_start(
    copy: Copy, load: Load, values: Callable[..., None], broker: BrokerProcess
) -> None:
    """The driver died between the commits of several tasks, or before the first of them."""
    values(copy.source, 0, *(f"a{number}" for number in range(10)))
    copy.run()
    name = Journal(copy.journal).name()
    options = SinkOptions(producer={"bootstrap.servers": broker.bootstrap}, topic=copy.target)
    prepared = []
    for task in range(3):
        written = write_transaction(rows(f"b{task}", 5), options, f"{name}-{task}-0")
        assert written.prepared is not None
        prepared.append(written.prepared)
    assert len(committed(load, copy.target)) == 10
    Journal(copy.journal).decide(1, prepared)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.end_transactions(prepared[:1], committed=True).get_all()
    assert len(committed(load, copy.target)) == 15
    copy.pretend_batch(1)
    copy.run()
    assert len(committed(load, copy.target)) == 25
    assert Journal(copy.journal).last_committed() >= 1


def test_what_was_not_decided_is_aborted(
    copy: Copy, load: Load, values: Callable[..., None], broker: BrokerProcess
) -> None:
    """Tasks of a driver that died before its commits; one of them is still at work."""
    values(copy.source, 0, "a", "b")
    copy.run()
    name = Journal(copy.journal).name()
    options = SinkOptions(producer={"bootstrap.servers": broker.bootstrap}, topic=copy.target)
    for task in (0, 7):
        write_transaction(rows("lost", 5), options, f"{name}-{task}-0")
    with Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": f"{name}-9-1"}
    ) as straggler:
        straggler.init_transactions()
        straggler.begin_transaction()
        straggler.send(copy.target, b"straggler").result(30)
        values(copy.source, 0, "c")
        copy.run()
        assert {row[2] for row in committed(load, copy.target)} == {b"a", b"b", b"c"}
        with pytest.raises(FatalTransactionError):
            straggler.commit_transaction()
    assert {row[2] for row in committed(load, copy.target)} == {b"a", b"b", b"c"}


def test_a_replay_with_another_number_of_tasks(
    copy: Copy, load: Load, values: Callable[..., None]
) -> None:
    for partition in (0, 1):
        values(copy.source, partition, *(f"{partition}.{number}" for number in range(50)))
    copy.run()
    copy.forget_last_commit()
    copy.repartition = 5
    copy.run()
    assert len(committed(load, copy.target)) == 100
    values(copy.source, 0, "later")
    copy.run()
    assert len(committed(load, copy.target)) == 101


def test_a_failed_micro_batch_leaves_nothing_to_readers(
    copy: Copy, load: Load, values: Callable[..., None]
) -> None:
    values(copy.source, 0, *(f"a{number}" for number in range(50)))
    copy.where = "raise_error('stop')"
    with pytest.raises(PySparkException, match="stop"):
        copy.run()
    copy.where = None
    copy.run()
    assert len(committed(load, copy.target)) == 50


def rows(word: str, count: int) -> Iterator[pa.RecordBatch]:
    values = [f"{word}.{number}".encode() for number in range(count)]
    yield pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


def committed(load: Load, topic: str) -> list[tuple[Any, ...]]:
    """What a reader of committed records sees."""
    return rows_of(load, topic, {"kafka.isolation.level": "read_committed"})


def test_a_query_needs_a_checkpoint_that_tasks_can_write_to(
    copy: Copy, values: Callable[..., None]
) -> None:
    values(copy.source, 0, "a")
    copy.run()
    shutil.rmtree(copy.checkpoint)
    copy.checkpoint = Path("s3a:/nowhere")
    with pytest.raises(Exception, match=r"checkpoint|s3a"):
        copy.run()
