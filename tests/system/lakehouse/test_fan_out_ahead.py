"""The next round of several tables is landed while the tables of one are committed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite
from tests.system.lakehouse.watched_commits import PATIENCE_S, CrashError

from millstream.client import Admin
from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.batches import BatchReport
from millstream.spark.lakehouse.commits import Commits
from millstream.spark.lakehouse.fan_out import FanOut, FanOutError, settings_for
from millstream.spark.lakehouse.landing import Landed
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import KINDS, TableName
from millstream.spark.lakehouse.works import Work, land_works_locally

pytestmark = pytest.mark.system

Commit = tuple[str, int]
"""The name of a topic, and the number of its batch."""


class Lake:
    """A large topic and a small one, which are loaded together in small batches."""

    def __init__(self, bootstrap: str, prefix: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.directory = directory
        self.settings = LoadSettings(
            source={"kafka.bootstrap.servers": bootstrap, "subscribePattern": f"{prefix}-.*"},
            table=TableName("delta", directory / "{topic}"),
            format="json",
            batch_bytes=5_000,
            driver_bytes=0,
            group_id="",
        )
        self.rounds: list[BatchReport] = []
        self.landed: list[Sequence[Commit]] = []
        """What each job has landed."""
        self._changed = threading.Condition()
        self.before: Callable[[Sequence[Commit]], None] = lambda job: None

    def site(self, name: str) -> TopicSite:
        site = TopicSite(self.bootstrap, f"{self.prefix}-{name}", self.directory)
        site.settings = settings_for(self.settings, site.topic)
        return site

    def fan_out(self) -> FanOut:
        return FanOut(self.settings, self._run, on_batch=self.rounds.append)

    def _run(self, works: Sequence[Work]) -> list[Landed | Exception]:
        job = sorted({(self._name(e.topic), e.landing.files.batch) for e in works})
        self.before(job)
        outcomes = land_works_locally(works)
        with self._changed:
            self.landed.append(job)
            self._changed.notify_all()
        return outcomes

    def _name(self, topic: str) -> str:
        return topic.removeprefix(f"{self.prefix}-")

    def wait(self, name: str, batch: int) -> None:
        """Wait until a batch is landed."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: any((name, batch) in job for job in self.landed), PATIENCE_S
            ), self.landed

    @contextmanager
    def around_commits(
        self, patch: pytest.MonkeyPatch, before: Callable[[Commit], None]
    ) -> Iterator[None]:
        commit = Commits._commit

        def watched(commits: Commits, ready: Any, rules: Any) -> None:
            topic = ready.plan.ranges[0].topic_partition.topic
            before((self._name(topic), ready.plan.batch))
            commit(commits, ready, rules)

        with patch.context() as context:
            context.setattr(Commits, "_commit", watched)
            yield

    def files(self, name: str, batch: int) -> list[str]:
        """Return the files of a batch, in a table or waiting."""
        at = self.directory / f"{self.prefix}-{name}"
        return [str(e) for e in at.rglob(f"millstream-*-{batch:010d}-*.parquet")]

    def check(self, **rows: int) -> None:
        """Load what is left; then each table has each record once, and no other file."""
        self.fan_out().run()
        for name, count in rows.items():
            site = self.site(name)
            assert site.rows("n") == [(n,) for n in range(count)]
            assert site.audit().is_clean


@pytest.fixture
def lake(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> Lake:
    lake = Lake(broker.bootstrap, new_topic(), tmp_path)
    for name, count in (("large", 300), ("small", 20)):
        site = lake.site(name)
        site.create(1)
        site.write(0, objects(0, count))
    return lake


def objects(first: int, end: int) -> list[bytes]:
    return [b'{"n":%d}' % n for n in range(first, end)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_is_landed_while_the_one_before_it_is_committed(
    lake: Lake, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.settings = replace(lake.settings, table=TableName(kind, lake.directory / "{topic}"))
    overlaps: list[Commit] = []

    def slowly(commit: Commit) -> None:
        name, batch = commit
        if name == "large" and batch in (2, 3):
            lake.wait("large", batch + 1)
            overlaps.append(commit)

    with lake.around_commits(monkeypatch, slowly):
        lake.fan_out().run()
    assert overlaps == [("large", 2), ("large", 3)]  # the first entry of a ledger is commit 1
    assert lake.landed[0] == [("large", 2), ("small", 2)]
    assert len(lake.landed) == len(lake.rounds)
    assert sum(each.rows for each in lake.rounds) == 320
    lake.check(large=300, small=20)


def test_a_small_topic_does_not_wait_for_a_large_one(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had nothing in one round, and has something in the next one, which is landed ahead."""
    later = lake.site("later")

    def more(commit: Commit) -> None:
        if commit == ("large", 2):
            lake.wait("large", 3)
            lake.site("small").write(0, objects(20, 25))
            later.create(1)
            later.write(0, objects(0, 5))

    with lake.around_commits(monkeypatch, more):
        lake.settings = replace(lake.settings, follow=True, freshness_ms=100)
        lake.fan_out().run(lambda: len(lake.rounds) == 3)
    jobs = [job for job in lake.landed if ("large", 4) in job]
    assert jobs == [[("large", 4), ("later", 2), ("small", 3)]]
    lake.settings = replace(lake.settings, follow=False)
    lake.check(large=300, small=25, later=5)


def test_a_commit_that_fails_takes_the_next_round_with_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(commit: Commit) -> None:
        if commit == ("large", 3):
            lake.wait("large", 4)
            assert lake.files("large", 4)
            raise CrashError

    with lake.around_commits(monkeypatch, fails), pytest.raises(CrashError):
        lake.fan_out().run()
    assert len(lake.rounds) == 1
    assert not lake.files("large", 4)
    lake.check(large=300, small=20)


def test_a_topic_that_ends_takes_its_own_batch_with_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.site("small").write(0, objects(20, 300))

    def fails(commit: Commit) -> None:
        if commit == ("large", 3):
            lake.wait("large", 4)
            raise ConfigError("no more of it")

    with (
        lake.around_commits(monkeypatch, fails),
        pytest.raises(FanOutError, match=r"large: no more of it$"),
    ):
        lake.fan_out().run()
    assert lake.site("small").audit().is_clean
    assert lake.site("small").rows("n") == [(n,) for n in range(300)]
    large = lake.site("large").rows("n")
    assert large == [(n,) for n in range(len(large))]
    assert 0 < len(large) < 300
    lake.check(large=300, small=300)


def test_a_landing_that_fails_does_not_stop_the_commits_before_it(lake: Lake) -> None:
    def fails(job: Sequence[Commit]) -> None:
        if ("large", 4) in job:
            raise CrashError

    lake.before = fails
    with pytest.raises(CrashError):
        lake.fan_out().run()
    assert len(lake.rounds) == 2
    lake.before = lambda job: None
    lake.check(large=300, small=20)


def test_bad_records_in_the_round_behind(lake: Lake) -> None:
    lake.settings = replace(lake.settings, dead_letters=False)
    large = lake.site("large")
    large.write(0, [b"bad"])
    lake.site("small").write(0, objects(20, 300))
    with pytest.raises(FanOutError, match=f"^{large.topic}: offset 300 of [^;]*$"):
        lake.fan_out().run()
    assert len(large.rows("n")) < 300
    assert lake.site("small").rows("n") == [(n,) for n in range(300)]
    lake.settings = replace(lake.settings, dead_letters=True)
    lake.check(large=300, small=300)


def test_a_column_that_the_round_behind_needs(lake: Lake) -> None:
    large = lake.site("large")
    large.write(0, [b'{"n":%d,"more":"x"}' % n for n in range(300, 400)])
    lake.check(large=400, small=20)
    assert large.rows("n", "more")[300:] == [(n, "x") for n in range(300, 400)]


def test_a_partition_that_is_new(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    large = lake.site("large")
    large.write(0, objects(300, 600))

    def more(commit: Commit) -> None:
        if commit == ("large", 2):
            with Admin(bootstrap_servers=lake.bootstrap) as admin:
                admin.create_partitions({large.topic: 2}).get_all()
            large.write(1, objects(600, 610))

    with lake.around_commits(monkeypatch, more):
        lake.fan_out().run()
    lake.check(large=610, small=20)


def test_stopping_between_rounds(lake: Lake) -> None:
    lake.fan_out().run(lambda: len(lake.rounds) == 2)
    assert lake.landed[2:] == [[("large", 4)]]
    assert not lake.files("large", 4)
    lake.check(large=300, small=20)


def test_an_interrupt_does_not_wait(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    stalled, go_on = threading.Event(), threading.Event()

    def stalls(job: Sequence[Commit]) -> None:
        if ("large", 4) in job:
            stalled.set()
            go_on.wait(PATIENCE_S)

    def interrupted(commit: Commit) -> None:
        if commit == ("large", 3):
            assert stalled.wait(PATIENCE_S)
            raise KeyboardInterrupt

    lake.before = stalls
    try:
        with lake.around_commits(monkeypatch, interrupted), pytest.raises(KeyboardInterrupt):
            lake.fan_out().run()
        assert lake.landed[-1] == [("large", 3)]
    finally:
        go_on.set()
    lake.wait("large", 4)
    lake.check(large=300, small=20)
