"""Spark lands the next batch while one is committed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite
from tests.system.lakehouse.watched_commits import WatchedRunner, around_commits, nothing

from millstream.spark import load
from millstream.spark.lakehouse import jobs
from millstream.spark.lakehouse.fan_out import settings_for
from millstream.spark.lakehouse.landing import land_on_spark
from millstream.spark.lakehouse.table import KINDS, TableName

ROOT = Path(__file__).parents[2]
COUNT = 300


def objects(first: int, end: int) -> list[bytes]:
    return [b'{"n":%d}' % n for n in range(first, end)]


@pytest.fixture
def site(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> TopicSite:
    made = TopicSite(broker.bootstrap, new_topic(), tmp_path)
    made.create(2)
    made = made.kind("delta").using(batch_bytes=5_000, driver_bytes=0, format="json")
    for partition in range(2):
        made.write(partition, objects(partition * COUNT // 2, (partition + 1) * COUNT // 2))
    return made


@pytest.fixture
def runner(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> WatchedRunner:
    """Loads with Spark tell it what they have landed."""
    made = WatchedRunner(run=lambda tasks, landing: land_on_spark(spark, tasks, landing))
    monkeypatch.setattr(jobs, "land_on_spark", lambda _, tasks, landing: made(tasks, landing))
    return made


@pytest.fixture
def job_group(spark: SparkSession) -> Iterator[str]:
    spark.sparkContext.setJobGroup("nightly loads", "of a test")
    yield "nightly loads"
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def check(site: TopicSite) -> None:
    """Load what is left; each record is in the table once, and no other file is there."""
    site.load()
    assert site.rows("n") == [(n,) for n in range(COUNT)]
    assert site.audit().is_clean
    named = {path.rpartition("/")[2] for path in site.table.files()}
    assert {each.name for each in site.directory.rglob("millstream-*.parquet")} == named


@pytest.mark.parametrize("kind", KINDS)
def test_each_batch_is_a_job_of_the_group_of_its_load(
    site: TopicSite,
    spark: SparkSession,
    runner: WatchedRunner,
    job_group: str,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """Who cancels the group, or gives it a pool, means those that are landed ahead too."""
    site = site.kind(kind).using(batch_bytes=5_000, driver_bytes=0, format="json")
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(job_group))
    overlaps: list[int] = []

    def slowly(batch: int) -> None:
        if batch < 4 and runner.wait(batch + 1):
            overlaps.append(batch)

    with around_commits(monkeypatch, slowly, nothing):
        load(site.settings, spark=spark, on_batch=site.reports.append)
    assert overlaps == [2, 3], runner.batches  # the first entry of the ledger was commit 1
    assert runner.batches == [each.batch for each in site.reports]
    assert len(set(tracker.getJobIdsForGroup(job_group)) - before) == len(runner.batches)
    check(site)


def test_tables_of_several_topics(
    site: TopicSite, spark: SparkSession, new_topic: Callable[[], str]
) -> None:
    other = TopicSite(site.bootstrap, new_topic(), site.directory)
    other.create(1)
    other.write(0, objects(0, COUNT))
    settings = replace(
        site.settings,
        source={**site.settings.source, "subscribe": f"{site.topic},{other.topic}"},
        table=TableName("delta", site.directory / "{topic}"),
    )
    rounds: list[Any] = []
    load(settings, spark=spark, on_batch=rounds.append)
    assert len(rounds) > 2
    assert sum(each.rows for each in rounds) == 2 * COUNT
    for each in (site, other):
        alone = each.using()
        alone.settings = settings_for(settings, each.topic)
        assert alone.rows("n") == [(n,) for n in range(COUNT)]
        assert alone.audit().is_clean


KILLED = """
import os, signal, sys
from pathlib import Path
import pytest
from tests.system.lakehouse.topic_site import TopicSite
from tests.system.lakehouse.watched_commits import WatchedRunner, around_commits, nothing
from millstream.spark import load, session
from millstream.spark.lakehouse import jobs
from millstream.spark.lakehouse.landing import land_on_spark

bootstrap, topic, directory, when = sys.argv[1:]
site = TopicSite(bootstrap, topic, Path(directory)).kind("delta")
site = site.using(batch_bytes=5_000, driver_bytes=0, format="json")
spark = session("killed", master="local[2]", settings={"spark.ui.enabled": "false"})
runner = WatchedRunner(run=lambda tasks, landing: land_on_spark(spark, tasks, landing))
jobs.land_on_spark = lambda _, tasks, landing: runner(tasks, landing)

def dies(batch):
    if batch == 3:
        assert runner.wait(4)
        os.kill(os.getpid(), signal.SIGKILL)

moments = (dies, nothing) if when == "before" else (nothing, dies)
with around_commits(pytest.MonkeyPatch(), *moments):
    load(site.settings, spark=spark)
"""


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_driver_is_killed_between_two_batches(site: TopicSite, when: str) -> None:
    """One of them is committed, or about to be, and the next one is landed."""
    words = [site.bootstrap, site.topic, str(site.directory), when]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        cwd=ROOT,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    left = {each.name.split("-")[2] for each in site.directory.rglob("millstream-*.parquet")}
    assert left == {"0000000002", "0000000003", "0000000004"}
    rows = len(site.rows("n"))
    assert 0 < rows < COUNT
    site.load()
    assert len(site.reports) > 1
    assert sum(each.rows for each in site.reports) == COUNT - rows
    check(site)
