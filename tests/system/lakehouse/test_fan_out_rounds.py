"""Rounds of several tables in which something does not go as planned."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.keyed_site import KeyedSite
from tests.system.lakehouse.test_fan_out import Lake

from millstream.cli.main import main
from millstream.records.compression import Codec
from millstream.spark.lakehouse import jobs
from millstream.spark.lakehouse.batches import BatchReport, Ready
from millstream.spark.lakehouse.commits import Commits
from millstream.spark.lakehouse.fan_out import FanOut, FanOutError, settings_for
from millstream.spark.lakehouse.jobs import run_load
from millstream.spark.lakehouse.landing import Landed
from millstream.spark.lakehouse.ledger import Ledger
from millstream.spark.lakehouse.load_plan import plan_loads
from millstream.spark.lakehouse.reject_limit import RejectLimit
from millstream.spark.lakehouse.table import open_table, parse_table_name
from millstream.spark.lakehouse.works import Work, land_works_locally
from millstream.spark.locations.location import StoreError

pytestmark = pytest.mark.system

LIMIT = 256 << 10


@pytest.fixture
def lake(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> Lake:
    return Lake(broker.bootstrap, new_topic(), tmp_path)


def keyed(lake: Lake, name: str, *, codec: Codec) -> KeyedSite:
    """Fill a topic with 1,000 keys of 10 KB; compressed, its log says nothing of their size."""
    site = lake.topic(name)
    made = KeyedSite(lake.bootstrap, site.topic, lake.directory)
    made.settings = site.settings
    for first in range(0, 1_000, 100):
        values = {b"%d" % n: b"x" * 10_000 for n in range(first, first + 100)}
        made.put(0, *values.items(), codec=codec)
    return made


def test_batches_that_are_planned_again_are_no_round(lake: Lake) -> None:
    """A round that landed too much was told as a batch of nothing, with nothing left to do."""
    settings = replace(lake.settings, mode="upsert", batch_bytes=LIMIT, driver_bytes=1)
    packed = keyed(lake, "packed", codec=Codec.GZIP)
    reports: list[BatchReport] = []
    planned: list[int] = []

    def runner(works: Sequence[Work]) -> list[Landed | Exception]:
        planned.append(sum(each.size for work in works for each in work.ranges))
        return land_works_locally(works)

    FanOut(settings, runner, on_batch=reports.append).run()
    assert planned[0] > reports[0].offsets  # the first round was planned again
    assert [each.batch for each in reports] == list(range(1, len(reports) + 1))
    assert all(each.rows and each.by_topic for each in reports)
    assert max(each.read_bytes for each in reports) < 3 * LIMIT
    packed = packed.using(**vars_of(settings_for(settings, packed.topic)))
    assert packed.held("key") == sorted((b"%d" % n,) for n in range(1_000))
    assert packed.audit().is_clean


def test_what_is_planned_again_is_still_behind(lake: Lake) -> None:
    """A load that follows waited before it planned again, if another table was up to date."""
    settings = replace(lake.settings, mode="upsert", batch_bytes=LIMIT, follow=True)
    keyed(lake, "packed", codec=Codec.GZIP)
    small = KeyedSite(lake.bootstrap, lake.topic("small").topic, lake.directory)
    small.put(0, (b"a", b"1"))
    reports: list[BatchReport] = []
    load = FanOut(settings, land_works_locally, on_batch=reports.append)
    load.run(lambda: len(reports) > 0)
    assert list(reports[0].by_topic) == [small.topic]
    assert reports[0].behind == 1_000


def vars_of(settings: Any) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in ("source", "table", "mode", "batch_bytes")}


def test_dead_letters_of_a_round_that_raises_are_counted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One table was committed, the next one's store was away: the first one's were forgotten."""
    monkeypatch.setattr(jobs, "_sleep", lambda *_: None)
    first, second = lake.topic("a"), lake.topic("b")
    for _ in range(5):
        first.write(0, [b"bad", *[b'{"n":1}'] * 99], batch=20)
        second.write(0, [b'{"n":1}'] * 100, batch=20)
    commit = Commits.commit

    def fails(self: Commits, ready: Ready, *more: Any) -> BatchReport:
        if second.topic in str(self._table.name) and ready.plan.batch < 6:
            commit(self, ready, *more)
            raise StoreError("the store is away")
        return commit(self, ready, *more)

    monkeypatch.setattr(Commits, "commit", fails)
    monkeypatch.setattr(jobs, "_ATTEMPTS_WITHOUT_PROGRESS", 50)
    settings = replace(
        lake.settings,
        format="json",
        batch_bytes=20_000,
        max_rejects=RejectLimit(share=None, count=3),
    )
    with pytest.raises(FanOutError, match="more than 3"):
        run_load(settings)
    letters = open_table(settings_for(settings, first.topic).table)
    assert sum(1 for _ in letters.files()) == 3


def test_dead_letters_whose_own_commit_raises_are_counted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_sleep", lambda *_: None)
    monkeypatch.setattr(jobs, "_ATTEMPTS_WITHOUT_PROGRESS", 50)
    site = lake.topic("a")
    for _ in range(5):
        site.write(0, [b"bad", *[b'{"n":1}'] * 99], batch=20)
    settle, seen = Commits.settle, set[int]()

    def fails(self: Commits, ledger: Ledger) -> None:
        if ledger.batch > 1 and ledger.batch not in seen:
            seen.add(ledger.batch)
            raise StoreError("the store is away")
        settle(self, ledger)

    monkeypatch.setattr(Commits, "settle", fails)
    limit = RejectLimit(share=None, count=3)
    settings = replace(site.settings, format="json", batch_bytes=20_000, max_rejects=limit)
    with pytest.raises(Exception, match="more than 3"):
        run_load(settings)
    assert len(open_table(settings.table).files()) == 3


def test_a_plan_of_topics_whose_tables_have_one_name(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The load refuses the second one, and the plan said that both would be made."""
    topics = [lake.topic(name).topic for name in ("a-b", "a_b")]
    for name in ("a-b", "a_b"):
        lake.site(name).write(0, [b"one"])
    warehouse = str(tmp_path / "warehouse")
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/tables.db", "warehouse": warehouse}
    table = parse_table_name("iceberg:prod.web.t_{topic}", storage_options=options)
    settings = replace(lake.settings, table=table)
    plans = plan_loads(settings)
    with pytest.raises(FanOutError) as told:
        FanOut(settings, land_works_locally).run()
    assert [each.refusal for each in plans] == [None, str(told.value)]
    words = [
        "load",
        ",".join(topics),
        "-b",
        lake.bootstrap,
        "--to",
        "iceberg:prod.web.t_{topic}",
        "--plan",
    ]
    for name, value in options.items():
        words += ["--storage-option", f"{name}={value}"]
    assert main([*words, "--json"]) == 1
    said = capsys.readouterr()
    assert [each["refused"] is None for each in json.loads(said.out)] == [True, False]
    assert "its table would be that of" in said.err
