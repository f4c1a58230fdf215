"""`readStream.format("millstream")`: limits, restarts, and topics that change under a query."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.broker_process import BrokerProcess
from tests.waiting import wait_until

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.records.record import Record
from millstream.spark.source_metrics import source_metrics, watch_sources

Values = Callable[..., None]
Write = Callable[..., None]


class Site:
    """One query over one topic, into files, from one checkpoint."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, directory: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.topic = topic
        self.directory = directory

    def stream(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("millstream")
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap)
        given = {"subscribe": self.topic, "startingOffsets": "earliest", **options}
        for name, text in given.items():
            reader = reader.option(name, text)
        return reader.load()

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = frame.selectExpr("topic", "partition", "offset", "cast(value as string) value")
        return (
            writer.writeStream.format("parquet")
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(**(trigger or {"availableNow": True}))
            .start(str(self.directory / "rows"))
        )

    def run(self, **options: str) -> list[int]:
        """Run until all that is there has been read; return the rows of each micro-batch."""
        query = self.start(self.stream(**options))
        query.awaitTermination()
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    def values(self) -> list[str]:
        frame = self.spark.read.parquet(str(self.directory / "rows"))
        return sorted(row.value for row in frame.select("value").collect())


@pytest.fixture
def site(spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path) -> Site:
    return Site(spark, broker.bootstrap, topic, tmp_path)


def numbers(first: int, last: int) -> list[str]:
    return [f"{number:04}" for number in range(first, last)]


def test_what_is_there_and_then_what_came(site: Site, values: Values) -> None:
    values(site.topic, 0, *numbers(0, 50))
    values(site.topic, 1, *numbers(50, 80))
    assert sum(site.run()) == 80
    assert site.run() == []
    values(site.topic, 1, *numbers(80, 90))
    assert sum(site.run()) == 10
    assert site.values() == numbers(0, 90)


def test_offsets_per_trigger(site: Site, values: Values) -> None:
    values(site.topic, 0, *numbers(0, 90))
    values(site.topic, 1, *numbers(90, 100))
    assert site.run(maxOffsetsPerTrigger="40") == [40, 40, 20]
    assert site.values() == numbers(0, 100)


def test_bytes_per_trigger(site: Site, write: Write) -> None:
    for number in range(8):
        write(site.topic, 0, [Record(0, 0, None, b"x" * 10_000 + b"%d" % number)])
    batches = site.run(maxBytesPerTrigger="25000")
    assert sum(batches) == 8
    assert len(batches) == 4


def test_available_now_does_not_wait_for_the_least(site: Site, values: Values) -> None:
    values(site.topic, 0, *numbers(0, 5))
    assert site.run(minOffsetsPerTrigger="1000", maxTriggerDelay="1h") == [5]


def test_fewer_than_the_least_are_waited_for(site: Site, values: Values) -> None:
    query = site.start(
        site.stream(minOffsetsPerTrigger="10", maxTriggerDelay="1h"),
        processingTime="50 milliseconds",
    )
    try:
        values(site.topic, 0, *numbers(0, 5))
        time.sleep(1.5)
        assert not any(each["numInputRows"] for each in query.recentProgress)
        values(site.topic, 0, *numbers(5, 12))
        wait_for(lambda: any(each["numInputRows"] == 12 for each in query.recentProgress))
    finally:
        query.stop()


def test_a_first_batch_that_fails_is_read_from_where_the_query_began(
    site: Site, values: Values, spark: SparkSession
) -> None:
    """Spark asks for the initial offset again, and "latest" has moved on by then."""
    values(site.topic, 0, *numbers(0, 10))
    poison = site.directory / "poison"
    poison.touch()
    path = str(poison)

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows and Path(path).exists():
                raise RuntimeError("poisoned")
            yield batch

    frame = site.stream(startingOffsets="latest")
    poisoned = frame.mapInArrow(fail, frame.schema)
    query = site.start(poisoned, processingTime="50 milliseconds")
    wait_for(lambda: "Waiting" in query.status["message"])
    values(site.topic, 0, *numbers(10, 20))
    with pytest.raises(PySparkException, match="poisoned"):
        query.awaitTermination(30)
    poison.unlink()
    values(site.topic, 0, *numbers(20, 30))
    again = site.stream(startingOffsets="latest")
    query = site.start(again.mapInArrow(fail, again.schema))
    query.awaitTermination()
    assert site.values() == numbers(10, 30)


def test_new_partitions_are_read_from_their_beginning(
    site: Site, values: Values, admin: Admin
) -> None:
    values(site.topic, 0, *numbers(0, 3))
    assert sum(site.run(startingOffsets="latest")) == 0
    admin.create_partitions({site.topic: 3}).get_all()
    values(site.topic, 2, *numbers(3, 8))
    assert sum(site.run()) == 5


def test_a_topic_made_anew_is_data_loss(site: Site, values: Values, admin: Admin) -> None:
    values(site.topic, 0, *numbers(0, 5))
    site.run()
    admin.delete_topics([site.topic]).get_all()
    admin.create_topics([NewTopic(site.topic, 2)]).get_all()
    values(site.topic, 0, *numbers(100, 120))
    with pytest.raises(PySparkException, match="created again after offset 5"):
        site.run()
    assert sum(site.run(failOnDataLoss="false")) == 20
    assert site.values() == numbers(0, 5) + numbers(100, 120)


def test_a_topic_made_anew_before_its_micro_batch_is_run_again(
    site: Site, values: Values, admin: Admin
) -> None:
    """Spark runs what was planned before a restart without another question to the planner."""
    values(site.topic, 0, *numbers(0, 10))
    seen: list[str] = []

    def run(take: Callable[[DataFrame, int], None], **options: str) -> None:
        writer = site.stream(**options).writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(site.directory / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def fail(frame: DataFrame, batch: int) -> None:
        raise RuntimeError("poisoned")

    def collect(frame: DataFrame, batch: int) -> None:
        seen.extend(row.v for row in frame.selectExpr("cast(value as string) v").collect())

    with pytest.raises(PySparkException, match="poisoned"):
        run(fail)
    admin.delete_topics([site.topic]).get_all()
    admin.create_topics([NewTopic(site.topic, 2)]).get_all()
    values(site.topic, 0, *numbers(100, 120))
    with pytest.raises(PySparkException, match="was deleted after this micro-batch was planned"):
        run(collect)
    assert seen == []
    run(collect, failOnDataLoss="false")
    assert sorted(seen) == numbers(100, 120)


def test_a_stream_has_no_end(site: Site) -> None:
    with pytest.raises(PySparkException, match="option endingTimestamp is of batch reads"):
        site.run(endingTimestamp="5")


def test_the_offsets_are_those_of_the_stock_connector_and_more(site: Site, values: Values) -> None:
    values(site.topic, 0, *numbers(0, 5))
    site.run()
    log = sorted((site.directory / "checkpoint" / "offsets").glob("[0-9]*"))
    offset = json.loads(log[-1].read_text().splitlines()[-1])
    assert offset[site.topic] == {"0": 5, "1": 0}
    assert offset["#begin"][site.topic] == {"0": 0, "1": 0}


def test_offsets_behind_latest(site: Site, values: Values) -> None:
    values(site.topic, 0, *numbers(0, 90))
    values(site.topic, 1, *numbers(90, 100))
    told: list[dict[str, str]] = []
    listener = watch_sources(
        site.spark, lambda progress, found: told.extend(each.to_json() for each in found)
    )
    try:
        query = site.start(site.stream(maxOffsetsPerTrigger="40"))
        query.awaitTermination()
        wait_until(lambda: len(told) >= 3, "three micro-batches are told")
    finally:
        site.spark.streams.removeListener(listener)
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    assert [source_metrics(each)[0].total for each in progress] == [60, 20, 0]
    assert [each["maxOffsetsBehindLatest"] for each in told[:3]] == ["54", "18", "0"]
    assert told[0]["minOffsetsBehindLatest"] == "6"
    assert told[0]["avgOffsetsBehindLatest"] == "30.0"


def test_offsets_behind_latest_of_one_query_of_two(site: Site, values: Values) -> None:
    values(site.topic, 0, *numbers(0, 10))
    told: list[tuple[str | None, int]] = []
    listener = watch_sources(
        site.spark,
        lambda progress, found: told.append((progress.name, found[0].total)),
        query_name="watched",
    )
    try:
        for name in ("other", "watched"):
            stream = site.stream(maxOffsetsPerTrigger="6")
            writer = stream.writeStream.queryName(name).format("noop")
            writer = writer.option("checkpointLocation", str(site.directory / name))
            writer.trigger(availableNow=True).start().awaitTermination()
        wait_until(lambda: len(told) >= 2, "two micro-batches are told")
    finally:
        site.spark.streams.removeListener(listener)
    assert told == [("watched", 4), ("watched", 0)]


def test_a_wrong_option_is_named(site: Site) -> None:
    with pytest.raises(PySparkException, match="minOffsetsPerTrigger"):
        site.run(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="5")
    with pytest.raises(PySparkException, match="maxTriggerDelay"):
        site.run(maxTriggerDelay="soon")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)
