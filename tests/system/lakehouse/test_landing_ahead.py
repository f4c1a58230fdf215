"""The next batch is landed while one is committed; whatever happens to either, each record is in
the table once, and nothing is left that nobody names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite, read_rows
from tests.system.lakehouse.watched_commits import (
    CrashError,
    WatchedRunner,
    around_commits,
    nothing,
)

from millstream.client import Admin
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.landing import Landed, Landing
from millstream.spark.lakehouse.ledger import RecreatedTopicError
from millstream.spark.lakehouse.load import Loader, local_runner
from millstream.spark.lakehouse.reject_limit import TooManyRejectsError, parse_reject_limit
from millstream.spark.lakehouse.table import KINDS, ConcurrentLoadError
from millstream.spark.plan import DataLossError
from millstream.spark.ranges import OffsetRange

pytestmark = pytest.mark.system

UPSERTS = {"format": "json", "mode": "upsert", "key": ("n",)}


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
    runner = WatchedRunner()
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
    runner = WatchedRunner()

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
    runner = WatchedRunner()
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
    runner = WatchedRunner()
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
        site.load(WatchedRunner(fails))
    assert [each.batch for each in site.reports] == [2, 3]
    check(site, 300)


def test_a_fault_of_the_next_plan_does_not_stop_the_commit_before_it(site: TopicSite) -> None:
    """Spark dies after it has landed a batch: nobody tells how many tasks the next one may have."""
    answers = iter([1])

    def parallelism() -> int:
        for answer in answers:
            return answer
        raise CrashError

    loader = Loader(
        site.settings, WatchedRunner(), on_batch=site.reports.append, parallelism=parallelism
    )
    with pytest.raises(CrashError):
        loader.run()
    assert [each.batch for each in site.reports] == [2]
    check(site, 300)


def test_columns_that_change_while_the_next_batch_is_planned(
    site: TopicSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch was landed with the columns of before."""
    site.load()
    site.write(0, objects(300, 400))
    ahead = Loader._land_ahead

    def meanwhile(self: Loader, *words: Any) -> Any:
        site.table.add_columns(pa.schema([("n", pa.float64())]))
        return ahead(self, *words)

    with monkeypatch.context() as context:
        context.setattr(Loader, "_land_ahead", meanwhile)
        with pytest.raises(ConcurrentLoadError, match="columns"):
            site.load()
    check(site, 400)


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
        site.load(WatchedRunner())
    assert site.reports
    rows = site.rows("n")
    assert rows == [(n,) for n in range(len(rows))]
    assert not site.letters.exists() or not read_rows(site.letters, ["offset"])


def test_dead_letters_of_both(site: TopicSite) -> None:
    site.write(0, [b"rubbish", *objects(300, 400), b"rubbish"])
    runner = WatchedRunner()
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
    runner = WatchedRunner()
    site.load(runner)
    assert len(runner.batches) > len(set(runner.batches))  # one was landed again
    found = site.rows("n")
    assert found == [(n,) for n in range(500)]
    assert site.audit().is_clean


def test_stopping_between_batches(site: TopicSite) -> None:
    runner = WatchedRunner()
    loader = Loader(site.settings, runner, on_batch=site.reports.append)
    loader.run(lambda: len(site.reports) == 2)
    assert [each.batch for each in site.reports] == [2, 3]
    assert runner.batches == [2, 3, 4]
    assert not files_of(site, 4)
    check(site, 300)


def test_a_topic_made_anew_meanwhile(site: TopicSite, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = WatchedRunner()

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
        site.load(WatchedRunner())
    check(site, 310)
