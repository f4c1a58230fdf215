"""Traps of Python data sources that need a query, or the files that come out, to be seen."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.broker_process import BrokerProcess

from millstream.records.record import Record
from millstream.spark.lakehouse.jobs import run_load
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import open_table, parse_table_name
from millstream.spark.supervisor import supervise

Write = Callable[..., None]


def planners() -> set[int]:
    """Return the processes that plan streaming queries of this test's JVM."""
    found = set()
    for each in psutil.Process().children(recursive=True):
        try:
            if "python_streaming_source_runner" in " ".join(each.cmdline()):
                found.add(each.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
def test_a_query_whose_planner_is_killed_goes_on(
    spark: SparkSession, broker: BrokerProcess, topic: str, write: Write, tmp_path: Path
) -> None:
    """Spark ends such a query and names no cause; the supervisor starts it over."""
    write(topic, 0, [Record(0, 0, None, b"before")] * 10)
    rows = tmp_path / "a path with spaces"
    starts: list[StreamingQuery] = []

    def start() -> StreamingQuery:
        reader = spark.readStream.format("millstream").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
        writer = reader.option("startingOffsets", "earliest").load().writeStream
        writer = writer.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(processingTime="100 milliseconds").start(str(rows))
        starts.append(query)
        return query

    deadline = time.monotonic() + 200
    killed: set[int] = set()

    def should_stop() -> bool:
        assert time.monotonic() < deadline
        count = spark.read.parquet(str(rows)).count() if any(rows.glob("*.parquet")) else 0
        if count == 10 and not killed:
            killed.update(planners())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            write(topic, 1, [Record(0, 0, None, b"after")] * 5)
        return count == 15 and len(starts) > 1

    supervise(start, should_stop=should_stop)
    assert killed
    assert spark.read.parquet(str(rows)).distinct().count() == 15


def test_row_groups_of_written_files_are_large(
    spark: SparkSession, broker: BrokerProcess, topic: str, write: Write, tmp_path: Path
) -> None:
    """Fed batch by batch, a writer makes groups of as many rows as a batch has."""
    for _ in range(12):
        write(topic, 0, [Record(0, 0, None, b"x" * 50)] * 5_000)
    settings = LoadSettings(
        source={"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic},
        table=parse_table_name(f"delta:{tmp_path / 'table'}"),
        group_id="",
        driver_bytes=1,
        parallelism=1,
    )
    run_load(settings, make_session=lambda: spark, give_back=lambda _: None)
    table = open_table(settings.table)
    (path,) = table.files()
    groups = pq.ParquetFile(table.data_directory / path).metadata
    assert (groups.num_row_groups, groups.num_rows) == (1, 60_000)


def test_empty_partitions_beside_full_ones(
    spark: SparkSession, broker: BrokerProcess, topic: str, write: Write
) -> None:
    """Spark gives every task a partition; the empty ones are no tasks, and nothing breaks."""
    write(topic, 1, [Record(0, 0, None, b"a")])
    reader = spark.read.format("millstream").option("subscribe", topic)
    frame = reader.option("kafka.bootstrap.servers", broker.bootstrap).load()
    assert frame.rdd.getNumPartitions() == 1
    assert [row.partition for row in frame.collect()] == [1]
    none = reader.option("startingOffsets", json.dumps({topic: {"0": -2, "1": 1}}))
    assert none.load().collect() == []
