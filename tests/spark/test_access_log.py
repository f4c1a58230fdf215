"""The main job's second half: a topic of access-log lines to Parquet, on Spark."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.broker_process import BrokerProcess
from tests.interop.clients.access_log import access_log_bytes

from millstream.cli.access_log import status_of
from millstream.cli.demo_spark import load_to_parquet
from millstream.cli.main import main
from millstream.client import Admin

PUBLISHED_SHA256 = "f15c31e905f86c7b4b6ab44aee74d0a2086dce89f010187d983edea7ef0364ef"
PUBLISHED_COUNTS = {
    "200": 9126,
    "304": 445,
    "404": 213,
    "301": 164,
    "206": 45,
    "500": 3,
    "416": 2,
    "403": 2,
}


@pytest.fixture(scope="module")
def filled_topic(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("access-log") / "access.log"
    path.write_bytes(access_log_bytes())
    topic = "access-log-for-spark"
    words = ["ingest", str(path), "-t", topic, "-p", "4", "-b", broker.bootstrap]
    assert main(words) == 0
    return topic


def test_the_topic_becomes_parquet(
    spark: SparkSession, broker: BrokerProcess, filled_topic: str, tmp_path: Path
) -> None:
    data = access_log_bytes()
    lines = data.removesuffix(b"\n").split(b"\n")
    counts = load_to_parquet(spark, broker.bootstrap, filled_topic, tmp_path / "parquet")
    assert counts == Counter(status_of(line) for line in lines)
    if hashlib.sha256(data).hexdigest() == PUBLISHED_SHA256:
        assert counts == PUBLISHED_COUNTS
    table = spark.read.parquet(str(tmp_path / "parquet"))
    assert table.count() == len(lines)
    found = [row.line.encode() for row in table.select("line").collect()]
    assert sorted(found) == sorted(lines)
    (unique,) = table.selectExpr("count(distinct partition, offset)").first() or (0,)
    assert unique == len(lines)


def test_every_partition_is_read_in_order(
    spark: SparkSession, broker: BrokerProcess, filled_topic: str
) -> None:
    records = (
        spark.read.format("millstream")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", filled_topic)
        .option("minPartitions", "11")
        .load()
    )
    assert records.rdd.getNumPartitions() >= 11
    offsets: dict[int, list[int]] = {}
    for row in records.select("partition", "offset").collect():
        offsets.setdefault(row.partition, []).append(row.offset)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert (
            len(admin.describe_topics([filled_topic])[filled_topic].get().partitions)
            == len(offsets)
            == 4
        )
    assert all(found == list(range(len(found))) for found in offsets.values())
