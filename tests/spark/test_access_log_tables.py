"""The access log ten times over, in each kind of table; Spark and other libraries read it back."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.broker_process import BrokerProcess
from tests.interop.clients.access_log import access_log_bytes
from tests.lake_readers import iceberg_table

from millstream.cli.access_log import status_of
from millstream.cli.main import main
from millstream.spark import audit, load, read_table
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import KINDS, parse_table_name

TIMES = 10
PARTITIONS = 6
PUBLISHED_SHA256 = "f15c31e905f86c7b4b6ab44aee74d0a2086dce89f010187d983edea7ef0364ef"
PUBLISHED_COUNTS = {200: 9126, 304: 445, 404: 213, 301: 164, 206: 45, 500: 3, 416: 2, 403: 2}

Statuses = list[int | None]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return access_log_bytes() * TIMES


@pytest.fixture(scope="module")
def filled_topic(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory, log: bytes
) -> str:
    path = tmp_path_factory.mktemp("access-log") / "ten times.log"
    path.write_bytes(log)
    topic = "access-log-ten-times"
    words = ["ingest", str(path), "-t", topic, "-p", str(PARTITIONS), "-b", broker.bootstrap]
    assert main(words) == 0
    return topic


def with_deltalake(path: Path) -> Statuses:
    table = DeltaTable(str(path)).to_pyarrow_table(columns=["status"])
    found: Statuses = table["status"].to_pylist()
    return found


def with_pyiceberg(path: Path) -> Statuses:
    rows = iceberg_table(path).scan(selected_fields=("status",))
    found: Statuses = rows.to_arrow()["status"].to_pylist()
    return found


def with_pyarrow(path: Path) -> Statuses:
    """Read the directory as somebody would who knows nothing of its log."""
    found: Statuses = (
        ds.dataset(path, partitioning="hive").to_table(["status"])["status"].to_pylist()
    )
    return found


READERS: dict[str, Callable[[Path], Statuses]] = {
    "delta": with_deltalake,
    "iceberg": with_pyiceberg,
    "parquet": with_pyarrow,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_line_is_in_the_table_once(
    spark: SparkSession,
    broker: BrokerProcess,
    filled_topic: str,
    log: bytes,
    tmp_path: Path,
    kind: str,
) -> None:
    lines = log.removesuffix(b"\n").split(b"\n")
    expected = Counter(int(status_of(line)) for line in lines)
    if hashlib.sha256(access_log_bytes()).hexdigest() == PUBLISHED_SHA256:
        assert expected == {status: TIMES * n for status, n in PUBLISHED_COUNTS.items()}
    settings = LoadSettings(
        source={"kafka.bootstrap.servers": broker.bootstrap, "subscribe": filled_topic},
        table=parse_table_name(f"{kind}:{tmp_path / 'a table'}"),
        format="text",
        format_options={"pattern": "access_log"},
        event_time="time",
        driver_bytes=0,
        group_id="",
    )
    load(settings, spark=spark)

    found = audit(settings)
    assert found.is_clean
    assert len(found.partitions) == PARTITIONS
    for each in found.partitions:
        assert (each.rows, each.dead_letters, each.empty_offsets) == (each.end - each.start, 0, 0)
    assert found.rows == len(lines)

    rows = read_table(spark, str(settings.table))
    assert rows.count() == len(lines)
    by_status = rows.groupBy("status").count().collect()
    assert {row["status"]: row["count"] for row in by_status} == expected
    assert rows.selectExpr("count(distinct _partition, _offset) n").collect()[0].n == len(lines)

    assert Counter(READERS[kind](settings.table.path)) == expected
