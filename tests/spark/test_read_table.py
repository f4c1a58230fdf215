"""Tables of loads as Spark reads them: columns that changed, paths that look like patterns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.keyed_site import KeyedSite, change
from tests.system.lakehouse.topic_site import TopicSite

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.jobs import run_load
from millstream.spark.lakehouse.reading import read_table
from millstream.spark.lakehouse.report import compute
from millstream.spark.lakehouse.table import KINDS, TableName


@pytest.fixture
def site(broker: BrokerProcess, topic: str, tmp_path: Path) -> TopicSite:
    return TopicSite(broker.bootstrap, topic, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_came_and_widened(spark: SparkSession, site: TopicSite, kind: str) -> None:
    site = site.using(table=TableName(kind, site.directory / "a {t} ä*"), format="json")
    site.write(0, [b'{"n":1,"o":{"a":1}}'])
    site.load()
    site.write(0, [b'{"n":1.5,"o":{"a":2,"b":"x"},"new":"y"}'])
    site.load()
    rows = read_table(spark, site.table).select("n", "o.a", "o.b", "new").orderBy("n").collect()
    assert [tuple(row) for row in rows] == [(1.0, 1, None, None), (1.5, 2, "x", "y")]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_of_the_present(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path, kind: str
) -> None:
    """Its changes are landed by Spark's tasks and merged by the driver."""
    site = KeyedSite(broker.bootstrap, topic, tmp_path).upserting(kind, "debezium", "id")
    site = site.using(driver_bytes=0)
    for n in (1, 2):
        rows = [{"id": i, "n": n} for i in range(4)]
        site.put(0, *(({"id": row["id"]}, change("u", None, row)) for row in rows))
        site.put(0, ({"id": n}, change("d", {"id": n}, None)), ({"id": n}, None))
        run_load(site.settings, make_session=lambda: spark, give_back=lambda _: None)
    found = read_table(spark, site.table).select("id", "n").orderBy("id").collect()
    assert [tuple(row) for row in found] == [(0, 2), (1, 2), (3, 2)]
    assert site.audit().is_clean


def test_a_report_of_nothing(spark: SparkSession, site: TopicSite) -> None:
    site = site.using(format="text", format_options={"pattern": "access_log"})
    site.load()
    assert compute(read_table(spark, site.table)).hits == 0


@pytest.mark.parametrize(
    ("sql", "kind"),
    [("select nope from source", AnalysisException), ("select offset, offset", ConfigError)],
)
def test_a_query_that_cannot_be_is_not_tried_again(
    spark: SparkSession, site: TopicSite, sql: str, kind: type[Exception]
) -> None:
    def query(rows: DataFrame) -> DataFrame:
        asked.append(sql)
        rows.createOrReplaceTempView("source")
        return rows.sparkSession.sql(sql.replace("offset, offset", "*, offset from source"))

    asked: list[str] = []
    give_back: Callable[[SparkSession], None] = lambda _: None  # noqa: E731
    with pytest.raises(kind):
        run_load(site.using(query=query).settings, make_session=lambda: spark, give_back=give_back)
    assert len(asked) == 1
