"""`format("millstream")` from the files of a log directory, with and without its broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.broker_process import BrokerProcess

from millstream.records.record import Record

KAFKA = Path(__file__).parents[1] / "data" / "kafka-4.3.0"
Load = Callable[..., DataFrame]
Write = Callable[..., None]


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def test_a_directory_of_kafkas_without_a_broker(spark: SparkSession) -> None:
    frame = spark.read.format("millstream").load(str(KAFKA))
    assert frame.groupBy("topic").count().count() == 4
    committed = spark.read.format("millstream").option("kafka.isolation.level", "read_committed")
    assert offsets(committed.load(str(KAFKA / "moves-0"))) == [0, 1, 2, 8, 9, 10]
    lost = committed.option("startingOffsets", '{"trimmed":{"0":2}}').option("subscribe", "trimmed")
    with pytest.raises(PySparkException, match=r"\[2, 4\) of trimmed-0"):
        lost.load(str(KAFKA)).collect()


def test_beside_a_broker_at_work(
    load: Load, broker: BrokerProcess, topic: str, write: Write
) -> None:
    """The broker tells the offsets, so records are there at once; the files give the bytes."""
    directory = str(broker.data_directory)
    for number in range(40):
        write(topic, 0, [Record(0, 0, b"k", bytes(200) + b"%d" % number)] * 10)
    write(topic, 1, [Record(0, 0, None, b"one")], codec=4)
    wire = load(subscribe=topic, includeHeaders="true")
    files = load(subscribe=topic, includeHeaders="true", logDirs=directory)
    assert wire.count() == 401
    assert wire.exceptAll(files).count() == files.exceptAll(wire).count() == 0
    parts = load(subscribe=topic, logDirs=directory, maxBytesPerPartition="16384")
    assert parts.rdd.getNumPartitions() > 2
    assert offsets(parts) == offsets(wire)
    more = load(subscribe=topic, logDirs=directory, minPartitions="5")
    assert more.rdd.getNumPartitions() >= 5
    assert offsets(more) == offsets(wire)


def test_a_directory_that_lacks_the_partition_is_passed_over(
    load: Load, topic: str, write: Write, tmp_path: Path
) -> None:
    write(topic, 0, [Record(0, 0, None, b"a")])
    assert load(subscribe=topic, logDirs=str(tmp_path)).count() == 1


def test_a_streaming_query_from_files(
    spark: SparkSession, broker: BrokerProcess, topic: str, write: Write, tmp_path: Path
) -> None:
    def run(**options: str) -> int:
        given = {"subscribe": topic, "startingOffsets": "earliest", **options}
        query = (
            spark.readStream.format("millstream")
            .options(**given)
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "rows"))
        )
        query.awaitTermination()
        return spark.read.parquet(str(tmp_path / "rows")).count()

    near = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "logDirs": str(broker.data_directory),
        "maxBytesPerTrigger": "2000",
    }
    write(topic, 0, [Record(0, 0, None, bytes(100))] * 50)
    assert run(**near) == 50
    write(topic, 1, [Record(0, 0, None, b"b")] * 5)
    assert run(**near) == 55
