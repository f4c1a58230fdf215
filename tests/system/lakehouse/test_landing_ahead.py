"""The next batch is landed while one is committed; whatever happens to either, each record is in
the table once, and nothing is left that nobody names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite, read_rows

from millstream.client import Admin
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.commits import Commits
from millstream.spark.lakehouse.landing import Landed, Landing
from millstream.spark.lakehouse.ledger import RecreatedTopicError
from millstream.spark.lakehouse.load import Loader, local_runner
from millstream.spark.lakehouse.reject_limit import TooManyRejectsError, parse_reject_limit
from millstream.spark.lakehouse.table import KINDS, ConcurrentLoadError
from millstream.spark.plan import DataLossError
from millstream.spark.ranges import OffsetRange

pytestmark = pytest.mark.system

PATIENCE_S = 20.0
UPSERTS = {"format": "json", "mode": "upsert", "key": ("n",)}


class CrashError(Exception):
    """The driver dies here."""


class Runner:
    """Runs tasks, and tells which batches have been landed."""

    def __init__(self, before: Callable[[int], None] = lambda batch: None) -> None:
        self.batches: list[int] = []
        self._before = before
        self._landed = threading.Condition()

    def __call__(self, tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        self._before(landing.files.batch)
        landed = local_runner(tasks, landing)
        with self._landed:
            self.batches.append(landing.files.batch)
            self._landed.notify_all()
        return landed

    def wait(self, batch: int) -> bool:
        """Wait until a batch is landed; False where that takes too long."""
        with self._landed:
            return self._landed.wait_for(lambda: batch in self.batches, PATIENCE_S)


@contextmanager
def around_commits(
    patch: pytest.MonkeyPatch, before: Callable[[int], None], after: Callable[[int], None]
) -> Iterator[None]:
    """Call something with a batch's number before and after its commit."""
    commit = Commits._commit

    def watched(self: Commits, ready: Any, rules: Any) -> None:
        before(ready.plan.batch)
        commit(self, ready, rules)
        after(ready.plan.batch)

    with patch.context() as context:
        context.setattr(Commits, "_commit", watched)
        yield


def nothing(batch: int) -> None:
    """Do nothing."""


@pytest.fixture
def site(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> TopicSite:
    made = TopicSite(broker.bootstrap, new_topic(), tmp_path)
    made.create(1)
    made = made.using(batch_bytes=5_000, driver_bytes=0, format="json")
    made.write(0, objects(0, 300))
    return made


def objects(first: int, end: int) -> list[bytes]:
    return [b'{"n":%d}' % n for n in range(first, end)]


def kinds() -> Iterator[Any]:
    for kind in KINDS:
        yield pytest.param(kind, {}, id=kind)
    for kind in ("delta", "iceberg"):
        yield pytest.param(kind, UPSERTS, id=f"{kind}-upsert")


every_kind = pytest.mark.parametrize(("kind", "changes"), list(kinds()))


def files_of(site: TopicSite, batch: int) -> list[str]:
    """Return the files of a batch, in the table or waiting."""
    return [str(e) for e in site.directory.rglob(f"millstream-*-{batch:010d}-*.parquet")]


def check(site: TopicSite, end: int) -> None:
    site.load()
    assert site.rows("n") == [(n,) for n in range(end)]
    assert site.audit().is_clean


@every_kind
def test_a_batch_is_landed_while_the_one_before_it_is_committed(
    site: TopicSite, kind: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site.kind(kind).using(**changes)
    runner = Runner()
    overlaps: list[int] = []

    def slowly(batch: int) -> None:
        if batch < 4 and runner.wait(batch + 1):
            overlaps.append(batch)

    with around_commits(monkeypatch, slowly, nothing):
        site.load(runner)
    assert overlaps == [2, 3], runner.batches  # the first entry of the ledger was commit 1
    assert [each.batch for each in site.reports] == sorted({*runner.batches})
    assert len(runner.batches) == len(set(runner.batches))
    check(site, 300)


@pytest.mark.parametrize(
    ("kind", "changes", "error"),
    [
        *(pytest.param(*each.values, CrashError, id=each.id) for each in kinds()),
        pytest.param("delta", {}, KeyboardInterrupt, id="delta-interrupt"),
    ],
)
def test_a_commit_that_fails_takes_the_next_batch_with_it(
    site: TopicSite,
    kind: str,
    changes: dict[str, Any],
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = site.kind(kind).using(**changes)
    runner = Runner()

    def fails(batch: int) -> None:
        if batch == 3:
            assert runner.wait(4)
            assert files_of(site, 4)
            raise error

    with around_commits(monkeypatch, fails, nothing), pytest.raises(error):
        site.load(runner)
    assert [each.batch for each in site.reports] == [2]
    if error is CrashError:  # who interrupts does not wait; the next load takes them away
        assert not files_of(site, 4)
    check(site, 300)
    if not changes:  # upserts leave old files to readers of older states
        named = {path.rpartition("/")[2] for path in site.table.files()}
        assert {each.name for each in site.directory.rglob("millstream-*.parquet")} == named


@every_kind
def test_another_load_commits_first(
    site: TopicSite, kind: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has landed the same batches by other ranges: neither of ours is committed."""
    site = site.kind(kind).using(**changes)
    other = site.using(batch_bytes=7_000)
    runner = Runner()
    turn = iter([True])

    def overtaken(batch: int) -> None:
        if batch == 3 and next(turn, False):
            assert runner.wait(4)
            Loader(other.settings, local_runner).run()

    with around_commits(monkeypatch, overtaken, nothing), pytest.raises(ConcurrentLoadError):
        site.load(runner)
    check(site, 300)


def test_one_that_commits_between_two_of_ours(
    site: TopicSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was landed ahead follows a ledger that is not the table's any more."""
    other = site.using(batch_bytes=7_000)
    runner = Runner()
    turn = iter([True])

    def overtaken(batch: int) -> None:
        if batch == 3 and next(turn, False):
            assert runner.wait(4)
            Loader(other.settings, local_runner).run()

    with around_commits(monkeypatch, nothing, overtaken), pytest.raises(ConcurrentLoadError):
        site.load(runner)
    check(site, 300)


def test_a_landing_that_fails_does_not_stop_the_commit_before_it(site: TopicSite) -> None:
    def fails(batch: int) -> None:
        if batch == 4:
            raise CrashError

    with pytest.raises(CrashError):
        site.load(Runner(fails))
    assert [each.batch for each in site.reports] == [2, 3]
    check(site, 300)


def test_records_that_are_lost_do_not_stop_the_commit_before_them(site: TopicSite) -> None:
    """The next batch cannot be planned: that is an error of that batch."""

    def deleting(tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        landed = local_runner(tasks, landing)
        with Admin(bootstrap_servers=site.bootstrap) as admin:
            admin.delete_records({TopicPartition(site.topic, 0): 290}).get_all()
        return landed

    with pytest.raises(DataLossError):
        site.load(deleting)
    assert [each.batch for each in site.reports] == [2]
    assert len(site.rows("n")) == site.reports[0].rows > 0


def test_too_many_rejects_in_the_batch_behind(site: TopicSite) -> None:
    site.write(0, [b"rubbish"] * 2_000)
    site = site.using(max_rejects=parse_reject_limit("10"))
    with pytest.raises(TooManyRejectsError):
        site.load(Runner())
    assert site.reports
    rows = site.rows("n")
    assert rows == [(n,) for n in range(len(rows))]
    assert not site.letters.exists() or not read_rows(site.letters, ["offset"])


def test_dead_letters_of_both(site: TopicSite) -> None:
    site.write(0, [b"rubbish", *objects(300, 400), b"rubbish"])
    runner = Runner()
    site.load(runner)
    assert site.rows("n") == [(n,) for n in range(400)]
    assert read_rows(site.letters, ["offset"]) == [(300,), (401,)]
    assert site.audit().is_clean
    assert len(runner.batches) > 4


@every_kind
def test_a_column_that_the_batch_behind_needs(
    site: TopicSite, kind: str, changes: dict[str, Any]
) -> None:
    site = site.kind(kind).using(**changes)
    site.load()
    site.write(0, objects(300, 400))
    site.write(0, [b'{"n":%d,"more":"x"}' % n for n in range(400, 500)])
    runner = Runner()
    site.load(runner)
    assert len(runner.batches) > len(set(runner.batches))  # one was landed again
    found = site.rows("n")
    assert found == [(n,) for n in range(500)]
    assert site.audit().is_clean


def test_stopping_between_batches(site: TopicSite) -> None:
    runner = Runner()
    loader = Loader(site.settings, runner, on_batch=site.reports.append)
    loader.run(lambda: len(site.reports) == 2)
    assert [each.batch for each in site.reports] == [2, 3]
    assert runner.batches == [2, 3, 4]
    assert not files_of(site, 4)
    check(site, 300)


def test_a_topic_made_anew_meanwhile(site: TopicSite, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner()

    def anew(batch: int) -> None:
        if batch == 2:
            assert runner.wait(3)
            with Admin(bootstrap_servers=site.bootstrap) as admin:
                admin.delete_topics([site.topic]).get_all()
            site.create(1)
            site.write(0, objects(1_000, 1_300))

    with around_commits(monkeypatch, nothing, anew), pytest.raises(RecreatedTopicError):
        site.load(runner)
    assert [each.batch for each in site.reports] == [2]
    assert max(site.rows("n")) < (300,)


def test_a_partition_that_is_new_is_read_from_its_first_record(
    site: TopicSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = iter([True])

    def more(batch: int) -> None:
        if batch == 2 and next(turn, False):
            with Admin(bootstrap_servers=site.bootstrap) as admin:
                admin.create_partitions({site.topic: 2}).get_all()
            site.write(1, objects(300, 310))

    with around_commits(monkeypatch, more, nothing):
        site.load(Runner())
    check(site, 310)
