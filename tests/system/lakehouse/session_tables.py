"""Loads into Delta tables by their names in the catalogue of a Spark session that knows Delta.

A program of its own, because a session keeps the jars it was started with:
``python -m tests.system.lakehouse.session_tables BOOTSTRAP TOPIC DIRECTORY``. Each step is a
function, and prints its name when it has held.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.delta_jars import delta_settings
from tests.system.lakehouse.topic_site import TopicSite

from millstream.cli.main import main as command
from millstream.model.errors import ConfigError
from millstream.spark import load, read_table, session
from millstream.spark.lakehouse.audit import Audit
from millstream.spark.lakehouse.load_plan import plan_load
from millstream.spark.lakehouse.maintain import maintain
from millstream.spark.lakehouse.table import parse_table_name


class Steps:
    def __init__(self, spark: SparkSession, site: TopicSite, directory: Path) -> None:
        self.spark = spark
        self.site = site
        self.directory = directory
        self.written = 0
        self.clicks = self.named("spark_catalog.web.clicks", event_time="at")

    def named(self, name: str, **changes: Any) -> TopicSite:
        options = changes.pop("options", {})
        table = parse_table_name(f"delta:{name}", storage_options=options)
        return self.site.using(table=table, format="json", **changes)

    def write(self, count: int) -> None:
        numbers = range(self.written, self.written + count)
        self.written += count
        values = [{"n": n, "text": "old", "at": "2024-01-31T10:00:00Z"} for n in numbers]
        self.site.write(0, [b"x" if v["n"] == 3 else json.dumps(v).encode() for v in values])

    def numbers(self, statement: str) -> list[int]:
        return [int(row[0]) for row in self.spark.sql(statement).collect()]

    def audit(self) -> Audit:
        found = self.clicks.audit()
        assert found.is_clean, found
        return found

    def a_first_load_makes_the_table_and_lists_it(self) -> None:
        self.write(100)
        assert plan_load(self.clicks.settings).is_new
        assert not self.spark.catalog.databaseExists("web")
        load(self.clicks.settings, spark=self.spark)
        good = "SELECT n FROM spark_catalog.web.clicks ORDER BY n"
        assert self.numbers(good) == [n for n in range(100) if n != 3]
        assert self.numbers("SELECT offset FROM web.clicks_dead_letters") == [3]
        assert read_table(self.spark, "delta:spark_catalog.web.clicks").count() == 99
        assert self.audit().rows == 99

    def what_spark_writes_is_read_by_the_next_load(self) -> None:
        self.spark.sql("UPDATE web.clicks SET text = 'spark' WHERE n < 10")
        self.spark.sql("ALTER TABLE web.clicks ADD COLUMNS (note STRING)")
        self.spark.sql("INSERT INTO web.clicks BY NAME SELECT * FROM web.clicks WHERE false")
        self.write(100)
        load(self.clicks.settings)  # the local engine asks the active session
        assert self.numbers("SELECT count(*) FROM web.clicks WHERE text = 'spark'") == [9]
        assert self.numbers("SELECT count(note) FROM web.clicks") == [0]
        assert self.audit().rows == 199

    def fields_that_are_new_are_columns_in_spark(self) -> None:
        more = {"n": self.written, "text": "old", "at": "2024-01-31T10:00:00Z", "new": 7}
        self.written += 1
        self.site.write(0, [json.dumps(more).encode()])
        load(self.clicks.settings, spark=self.spark)
        assert self.numbers("SELECT new FROM web.clicks WHERE new IS NOT NULL") == [7]
        assert self.audit().rows == 200

    def rows_that_spark_has_deleted_stay_deleted(self) -> None:
        self.spark.sql(
            "ALTER TABLE web.clicks SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
        self.spark.sql("DELETE FROM web.clicks WHERE n = 50")
        self.write(10)
        load(self.clicks.settings, spark=self.spark)
        assert self.numbers("SELECT count(*) FROM web.clicks") == [209]
        found = self.clicks.audit()
        assert not found.is_clean
        assert found.rows == 209
        rows = read_table(self.spark, "delta:spark_catalog.web.clicks")
        assert rows.where("n = 50").count() == 0

    def each_command_takes_the_name(self) -> None:
        name, topic = "delta:spark_catalog.web.other", self.site.topic
        where = ["--bootstrap-server", self.site.bootstrap]
        to = ["load", topic, "--to", name, "--format", "json", "--engine", "local", *where]
        for words in (
            [*to, "--plan"],
            to,
            ["audit", topic, name, *where],
            ["lag", topic, name, *where],
            ["repair", name],
            ["maintain", name],
            ["dlq", "show", name],
        ):
            assert command(words) == 0, words
        assert self.numbers("SELECT count(*) FROM web.other") == [self.written - 1]

    def a_table_of_the_present(self) -> None:
        present = self.named("spark_catalog.web.present", mode="upsert", key=("n",))
        load(present.settings, spark=self.spark)
        assert self.numbers("SELECT count(*) FROM web.present") == [self.written - 1]
        self.spark.sql("UPDATE web.present SET text = 'spark' WHERE n IN (1, 2)")
        self.site.write(0, [json.dumps({"n": 1, "text": "new"}).encode()])
        load(present.settings, spark=self.spark)
        rows = self.spark.sql("SELECT n, text FROM web.present WHERE n IN (1, 2) ORDER BY n")
        assert [(row[0], row[1]) for row in rows.collect()] == [(1, "new"), (2, "spark")]
        maintain(present.table, present.settings.load_id, target_bytes=1 << 20, keep_ms=0)
        assert self.numbers("SELECT count(*) FROM web.present") == [self.written - 1]

    def a_table_that_spark_has_made(self) -> None:
        self.spark.sql("CREATE TABLE web.made USING delta AS SELECT * FROM web.other WHERE false")
        made = self.named("spark_catalog.web.made")
        load(made.settings, spark=self.spark)
        assert made.audit().is_clean
        assert self.numbers("SELECT count(*) FROM web.made") == [self.written]

    def a_table_that_was_dropped_is_listed_again(self) -> None:
        self.spark.sql("DROP TABLE web.other")
        other = self.named("spark_catalog.web.other")
        assert not other.table.exists()
        load(other.settings, spark=self.spark)
        assert self.numbers("SELECT count(*) FROM web.other") == [self.written]

    def a_place_of_its_own(self) -> None:
        place = self.directory / "elsewhere"
        here = self.named("spark_catalog.web.far", options={"warehouse": str(place)})
        load(here.settings, spark=self.spark)
        assert (place / "web" / "far" / "_delta_log").is_dir()
        assert self.numbers("SELECT count(*) FROM web.far") == [self.written]

    def what_is_refused(self) -> None:
        self.spark.sql("CREATE TABLE web.plain (n BIGINT) USING parquet")
        self.spark.sql("CREATE VIEW web.seen AS SELECT n FROM web.clicks")
        refused: tuple[tuple[str, dict[str, str], str], ...] = (
            ("spark_catalog.web.plain", {}, "web.plain is a table of format parquet in its"),
            ("spark_catalog.web.seen", {}, "web.seen is a view in its catalogue"),
            ("lake.web.t", {}, "the Spark session has none of that name"),
            ("lake.web.t", {"type": "unity"}, "Unity Catalog needs the address of its server"),
        )
        for name, options, message in refused:
            with pytest.raises(ConfigError, match=re.escape(message)):
                load(self.named(name, options=options).settings, spark=self.spark)


STEPS: tuple[Callable[[Steps], None], ...] = (
    Steps.a_first_load_makes_the_table_and_lists_it,
    Steps.what_spark_writes_is_read_by_the_next_load,
    Steps.fields_that_are_new_are_columns_in_spark,
    Steps.rows_that_spark_has_deleted_stay_deleted,
    Steps.each_command_takes_the_name,
    Steps.a_table_of_the_present,
    Steps.a_table_that_spark_has_made,
    Steps.a_table_that_was_dropped_is_listed_again,
    Steps.a_place_of_its_own,
    Steps.what_is_refused,
)


def main(bootstrap: str, topic: str, directory: Path) -> None:
    site = TopicSite(bootstrap, topic, directory)
    spark = session(
        "tests",
        master="local[2]",
        settings={
            **delta_settings(),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.local.dir": str(directory / "local"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.driver.memory": "1g",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        steps = Steps(spark, site, directory)
        for step in STEPS:
            step(steps)
            print(f"held: {step.__name__}", flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
