"""A load is interrupted, repeated, contradicted; its table holds every record once."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.broker_process import BrokerProcess
from tests.lake_readers import iceberg_table
from tests.system.lakehouse.topic_site import TopicSite, read_rows

from millstream.cli.main import main
from millstream.client import Admin, Producer
from millstream.client.core.admin.topics import NewTopic
from millstream.model.errors import ConfigError
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse import columns, jobs, ledger
from millstream.spark.lakehouse.audit import sentences
from millstream.spark.lakehouse.batches import BatchReport
from millstream.spark.lakehouse.commits import Commits
from millstream.spark.lakehouse.dead_letter_commits import DeadLetterCommits
from millstream.spark.lakehouse.dead_letters import Replay, replay
from millstream.spark.lakehouse.fan_out import FanOutError
from millstream.spark.lakehouse.iceberg import IcebergTableFiles
from millstream.spark.lakehouse.jobs import run_load
from millstream.spark.lakehouse.landing import Landed, Landing, UnreadableRecordError
from millstream.spark.lakehouse.ledger import REJECTS, Ledger, RecreatedTopicError
from millstream.spark.lakehouse.load import Loader, local_runner, source_options_of
from millstream.spark.lakehouse.load_plan import plan_load
from millstream.spark.lakehouse.maintain import maintain
from millstream.spark.lakehouse.partitioning import parse_partition_by
from millstream.spark.lakehouse.reject_limit import RejectLimit, TooManyRejectsError
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import KINDS, ConcurrentLoadError, TableName, open_table
from millstream.spark.lakehouse.topic_reader import ReplacedRecordsError, TopicReader
from millstream.spark.lakehouse.written_files import WrittenFileError
from millstream.spark.locations.location import StoreError
from millstream.spark.plan import DataLossError
from millstream.spark.ranges import OffsetRange
from millstream.spark.topics import open_topics

pytestmark = pytest.mark.system


class CrashError(Exception):
    """The driver dies here."""


@pytest.fixture
def site(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> TopicSite:
    made = TopicSite(broker.bootstrap, new_topic(), tmp_path)
    made.create(2)
    return made


def numbers(count: int, *, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


@pytest.mark.parametrize("kind", KINDS)
def test_past_and_tail(site: TopicSite, kind: str) -> None:
    site = site.kind(kind)
    site.write(0, numbers(300))
    site.write(1, numbers(200))
    site.load()
    assert site.audit().is_clean
    assert site.audit().rows == 500
    site.write(1, numbers(50, first=200))
    site.load()
    site.load()
    found = site.audit()
    assert found.is_clean
    assert [each.end for each in found.partitions] == [300, 250]
    assert [row[1] for row in site.rows("partition", "value") if row[0] == 0] == sorted(
        numbers(300)
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", ["before files", "after files", "after commit"])
def test_a_driver_that_dies(
    site: TopicSite, kind: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site.kind(kind).using(batch_bytes=5_000, driver_bytes=0)
    site.write(0, numbers(400))
    deaths = iter([True, False, True, True, False, True])

    def dying(tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        if moment == "before files" and next(deaths, False):
            raise CrashError
        landed = local_runner(tasks, landing)
        if moment == "after files" and next(deaths, False):
            raise CrashError
        return landed

    def crash_after(self: Commits, *arguments: Any) -> None:
        if moment == "after commit" and next(deaths, False):
            raise CrashError

    monkeypatch.setattr(Commits, "_after_commit", crash_after)
    for _ in range(20):
        try:
            site.load(dying)
        except CrashError:
            continue
        break
    monkeypatch.undo()
    site.write(0, numbers(1, first=400))
    site.load()
    assert site.audit().is_clean
    assert site.rows("offset", "value") == [(n, b"%d" % n) for n in range(401)]
    named = set(site.table.files())
    on_disk = site.table.data_directory.rglob("millstream-*.parquet")
    assert {str(p.relative_to(site.table.data_directory)) for p in on_disk} == named


@pytest.mark.parametrize("kind", KINDS)
def test_two_drivers_at_once(site: TopicSite, kind: str) -> None:
    site = site.kind(kind)
    site.write(0, numbers(100))
    site.load()
    site.write(0, numbers(100, first=100))
    rival = site.using()

    def overtaken(tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        landed = local_runner(tasks, landing)
        rival.load()
        return landed

    with pytest.raises(ConcurrentLoadError):
        site.using(driver_bytes=0).load(overtaken)
    assert site.audit().is_clean
    assert site.audit().rows == 200


def test_two_drivers_at_once_with_dead_letters(site: TopicSite) -> None:
    site = site.using(format="json")
    site.write(0, [b'{"n":1}', b"bad"])
    rival = site.using()

    def overtaken(tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        landed = local_runner(tasks, landing)
        rival.load()
        return landed

    with pytest.raises(ConcurrentLoadError):
        site.using(driver_bytes=0).load(overtaken)
    assert site.audit().is_clean
    assert read_rows(site.letters, ["offset"]) == [(1,)]


@pytest.mark.parametrize("fault", ["no result", "twice", "no letters"])
def test_what_tasks_report_is_looked_at(site: TopicSite, fault: str) -> None:
    """A result that is missing, or files that nobody else sees, move no offset."""
    site = site.using(format="json", driver_bytes=0)
    site.write(0, [b'{"n":1}', b"bad"])

    def faulty(tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        landed = local_runner(tasks, landing)
        if fault == "no letters":
            for file in landed[0].dead_letters:
                (site.letters.staging_directory / file.path).unlink()
        return {"no result": [], "twice": [*landed, *landed]}.get(fault, landed)

    with pytest.raises(WrittenFileError):
        site.load(faulty)
    assert not site.rows("_offset")
    site.load()
    assert site.rows("_offset") == [(0,)]
    assert site.audit().is_clean


def test_a_load_that_reads_rubbish_ends(
    site: TopicSite, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every record in the dead letters was a clean audit and an exit code of 0."""
    site.write(0, [b'{"n":1}'] * 900 + [b"rubbish"] * 200, batch=1100)
    words = ["load", site.topic, "--to", f"delta:{site.directory}/cli", "--format", "json"]
    words += ["--engine", "local", "-b", site.bootstrap, "--group", ""]
    assert main(words) == 1
    said = capsys.readouterr()
    assert "200 of 1,100 records of a batch cannot be read, more than 0.05 of them" in said.err
    assert "200 × " in said.err
    table = open_table(TableName("delta", site.directory / "cli"))
    assert not table.files()
    assert main([*words, "--max-rejects", "20%,199"]) == 1
    assert "more than 199" in capsys.readouterr().err
    assert main([*words, "--max-rejects", "20%"]) == 0
    said = capsys.readouterr()
    table_name, _, *figures = said.out.split("\t")
    assert (table_name, figures[:2]) == (f"delta:{site.directory}/cli", ["900", "200"])
    assert "not read: 200 × " in said.err
    assert main([*words, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["deadLetters"], summary["reasons"]) == (0, {})


def test_dead_letters_of_all_batches_of_a_run_are_counted(site: TopicSite) -> None:
    limit = RejectLimit(share=None, count=3)
    site = site.using(format="json", batch_bytes=5_000, max_rejects=limit)
    for _ in range(5):
        site.write(0, [b"bad", *[b'{"n":1}'] * 99], batch=20)
    with pytest.raises(TooManyRejectsError, match="more than 3"):
        site.load()
    assert len(site.reports) > 1
    assert [each.dead_letters for each in site.reports if each.dead_letters] == [1, 1, 1]
    assert read_rows(site.letters, ["offset"]) == [(0,), (100,), (200,)]


def test_a_new_partition_whose_first_records_are_gone(site: TopicSite) -> None:
    """They were left out without a word, and the audit was clean."""
    site.write(0, [b"1"])
    site.load()
    added = TopicPartition(site.topic, 2)
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        admin.create_partitions({site.topic: 3}).get_all()
        site.write(2, [b"2", b"3", b"4"], batch=1)
        admin.delete_records({added: 2}).get_all()
    with pytest.raises(DataLossError, match=rf"\[0, 2\) of {site.topic}-2, new here"):
        site.load()
    assert "new here" in (plan_load(site.settings).refusal or "")
    allowed = {**site.settings.source, "failOnDataLoss": "false"}
    site.using(source=allowed).load()
    assert site.rows("partition", "offset") == [(0, 0), (2, 2)]


def test_an_emptied_partition_of_a_topic_that_joins_is_no_loss(site: TopicSite) -> None:
    """It was there when the load came to know its topic, and had nothing left to be loaded."""
    later = f"{site.topic}-later"
    where = {"kafka.bootstrap.servers": site.bootstrap, "subscribePattern": f"{site.topic}.*"}
    site = site.using(source=where)
    site.write(0, [b"1"])
    site.load()
    with (
        Admin(bootstrap_servers=site.bootstrap) as admin,
        Producer(bootstrap_servers=site.bootstrap) as producer,
    ):
        admin.create_topics([NewTopic(later, 2)]).get_all()
        producer.send(later, b"2", partition=1)
        producer.flush()
        admin.delete_records({TopicPartition(later, 1): 1}).get_all()
        producer.send(later, b"3", partition=0)
        producer.flush()
        site.load()
        producer.send(later, b"4", partition=1)
        producer.flush()
        site.load()
    assert site.rows("topic", "partition", "offset") == [
        (site.topic, 0, 0),
        (later, 0, 0),
        (later, 1, 1),
    ]


@pytest.mark.parametrize("name", ["t", "{topic}"])
def test_dead_letters_are_counted_through_restarts(
    site: TopicSite, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each restart of a load that follows for weeks began to count anew."""
    monkeypatch.setattr(jobs, "_sleep", lambda *_: None)
    site = site.using(
        format="json",
        batch_bytes=20_000,
        max_rejects=RejectLimit(share=None, count=3),
        table=TableName("parquet", site.directory / name),
    )
    for _ in range(5):
        site.write(0, [b"bad", *[b'{"n":1}'] * 99], batch=20)

    def fails(report: BatchReport) -> None:
        site.reports.append(report)
        if report.rows:
            raise StoreError("the store is away")

    with pytest.raises((TooManyRejectsError, FanOutError), match="more than 3"):
        run_load(site.settings, on_batch=fails)
    assert sum(each.dead_letters for each in site.reports) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_bad_records_go_to_the_dead_letters(site: TopicSite, kind: str) -> None:
    site = site.kind(kind).using(format="json")
    site.write(0, [b'{"n":1}', b"bad", b'{"n":2}', None, b'{"n":"x"}'])
    site.load()
    assert site.rows("_offset", "n") == [(0, 1), (2, 2), (3, None)]
    letters = read_rows(site.letters, ["offset", "value", "reason"])
    assert [(offset, value) for offset, value, _ in letters] == [(1, b"bad"), (4, b'{"n":"x"}')]
    assert all(reason for _, _, reason in letters)
    found = site.audit()
    assert found.is_clean
    assert (found.partitions[0].rows, found.partitions[0].dead_letters) == (3, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", ["before rows", "after rows", "after letters"])
def test_a_crash_around_the_commit_of_dead_letters(
    site: TopicSite, kind: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and dead letters are both there or both not, whatever comes next: an audit, a load."""
    site = site.kind(kind).using(format="json")
    site.write(0, [b'{"n":1}', b"bad"])
    commit, settle = Commits._commit, DeadLetterCommits.settle

    def dying_commit(self: Commits, *arguments: Any) -> None:
        if moment == "before rows":
            raise CrashError
        commit(self, *arguments)

    def dying_settle(self: DeadLetterCommits, ledger: Ledger) -> list[str]:
        if ledger.entries.get(REJECTS) and moment == "after rows":
            raise CrashError
        paths = settle(self, ledger)
        if paths:
            raise CrashError
        return paths

    with monkeypatch.context() as patch:
        patch.setattr(Commits, "_commit", dying_commit)
        patch.setattr(DeadLetterCommits, "settle", dying_settle)
        with pytest.raises(CrashError):
            site.load()
    found = site.audit()
    assert found.is_clean
    assert [each.dead_letters for each in found.partitions] == [0 if moment[0] == "b" else 1, 0]
    site.write(0, [b"bad too", b'{"n":2}'])
    site.load()
    assert site.rows("_offset", "n") == [(0, 1), (3, 2)]
    assert read_rows(site.letters, ["offset"]) == [(1,), (2,)]
    assert site.audit().is_clean
    assert not list(site.letters.name.path.rglob("rejected/*"))


@pytest.mark.parametrize("kind", KINDS)
def test_dead_letters_of_a_table_that_was_deleted(site: TopicSite, kind: str) -> None:
    """Its records are judged anew, by the columns of the new table."""
    site = site.kind(kind).using(format="json")
    site.write(0, [b'{"n":1}'] * 10 + [b'{"n":"x"}', b"bad", b'{"n":"y"}'])
    site.load()
    assert read_rows(site.letters, ["offset"]) == [(10,), (11,), (12,)]
    shutil.rmtree(site.settings.table.path)
    schema = site.directory / "schema.json"
    schema.write_text('{"format": "json", "columns": [{"name": "n", "type": "string"}]}')
    site = site.using(schema_file=schema)
    site.load()
    assert read_rows(site.letters, ["offset"]) == [*((n,) for n in range(10)), (11,)]
    assert site.rows("_offset", "n") == [(10, "x"), (12, "y")]
    assert site.audit().is_clean
    site.write(0, [b"worse"])
    site.load()
    assert read_rows(site.letters, ["offset"])[-2:] == [(11,), (13,)]
    assert site.audit().is_clean


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_that_was_set_back(site: TopicSite, kind: str) -> None:
    """Its ledger is not set back with it: without a word the records in between would be gone."""
    site = site.kind(kind).using(format="json")
    for number in range(3):
        site.write(0, [b'{"n":%d}' % number])
        site.load()
    path = str(site.settings.table.path)
    if kind == "delta":
        DeltaTable(path).restore(DeltaTable(path).version() - 1)
    else:
        table = IcebergTableFiles(site.settings.table)._load()
        last = table.current_snapshot()
        assert last is not None
        table.manage_snapshots().rollback_to_snapshot(last.parent_snapshot_id or 0).commit()
    assert site.rows("_offset") == [(0,), (1,)]
    site.write(0, [b'{"n":3}'])
    with pytest.raises(DataLossError, match="set back"):
        site.load()
    assert site.rows("_offset") == [(0,), (1,)]
    lost = site.using(source={**site.settings.source, "failOnDataLoss": "false"})
    lost.load()
    assert site.rows("_offset") == [(0,), (1,), (3,)]
    assert not site.audit().is_clean
    site.write(0, [b'{"n":4}'])
    open_table(site.settings.table).compact(target_bytes=1 << 20)
    site.load()
    assert site.rows("_offset") == [(0,), (1,), (3,), (4,)]


def test_a_replay_leaves_what_the_load_has_not_come_to(site: TopicSite) -> None:
    """Otherwise the load would write the same records once more."""
    site = site.using(format="json")
    site.write(0, [b'{"n":1}'] * 3 + [b'{"n":"x"}', b"bad"])
    site.load()
    shutil.rmtree(site.settings.table.path)
    with pytest.raises(ConfigError, match="there is no table"):
        replay(site.settings)
    text = {"pattern": "(?P<n>.*)"}
    late = site.using(format="text", format_options=text, app_id="late")
    late.settings = replace(
        late.settings, source={**late.settings.source, "startingOffsets": "latest"}
    )
    late.load()
    with pytest.raises(ConfigError, match="no load of the name other"):
        replay(late.using(app_id="other").settings)
    ahead = late.using(app_id="from-2")
    offsets = json.dumps({site.topic: {"0": 2, "1": 0}})
    ahead.settings = replace(
        ahead.settings, source={**site.settings.source, "startingOffsets": offsets}
    )
    with open_topics(source_options_of(ahead.settings.source)) as topics:
        loader = Loader(ahead.settings, local_runner)
        reader = TopicReader(topics, loader._options)
        loader.prepare(topics, reader, reader.ends())  # and it dies before its first batch
    assert replay(ahead.settings) == Replay()  # it will read both records itself
    assert replay(late.settings) == Replay(tried=2, written=2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_that_wakes_up_late(site: TopicSite, kind: str) -> None:
    """It commits its rows and stalls; another one carries on: each dead letter is there once."""
    site = site.kind(kind).using(format="json")
    site.write(0, [b'{"n":1}', b"bad"])
    loader = Loader(site.settings, local_runner)
    with open_topics(loader._options) as topics:
        reader = TopicReader(topics, loader._options)
        assert loader.prepare(topics, reader, reader.ends())
        plan = loader.plan(reader, reader.ends(), None)
        assert plan is not None
        landed = loader._land(plan, None)
        assert landed is not None
        settle = loader._commits._rejects.settle

        def stalls(ledger: Ledger) -> list[str]:
            site.write(0, [b"worse", b'{"n":2}'])
            site.load()
            return settle(ledger)

        loader._commits._rejects.settle = stalls  # type: ignore[method-assign]
        loader.commit(loader.check(plan, landed, reader), reader)
    assert site.rows("_offset", "n") == [(0, 1), (3, 2)]
    assert read_rows(site.letters, ["offset"]) == [(1,), (2,)]
    assert site.audit().is_clean


@pytest.mark.parametrize("kind", KINDS)
def test_event_times_that_are_missing_and_columns_that_come(site: TopicSite, kind: str) -> None:
    """A partitioned table takes rows without a time, new columns and wider types."""
    site = site.kind(kind).using(format="json", event_time="t")
    site.write(0, [b'{"t":"2026-05-17T10:00:00Z","n":1}', b'{"t":null,"n":2}', b'{"n":3}'])
    site.load()
    site.write(0, [b'{"t":"2026-05-18T10:00:00Z","n":4.5,"s":"x"}', b'{"n":5,"s":"y"}'])
    site.load()
    assert site.audit().is_clean
    assert site.audit().rows == 5
    assert [row[1] for row in site.rows("_offset", "n")] == [1, 2, 3, 4.5, 5]
    assert "s" in site.table.schema().names


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_an_iceberg_table_in_many_partitions(site: TopicSite, mode: str) -> None:
    """Rows stay in their partitions through loads, new columns, merges and upkeep."""
    fields = parse_partition_by("hour(t), bucket(4, id), region")
    more = {"mode": mode, "key": ("id",)} if mode == "upsert" else {}
    site = site.kind("iceberg").using(format="json", partition_by=fields, **more)
    hours = [b"2026-05-17T%02d:00:00Z" % hour for hour in range(3)]
    line = b'{"t":"%s","id":%d,"region":"%s"}'
    site.write(0, [line % (hours[n % 3], n, b"eu" if n % 2 else b"us") for n in range(60)])
    site.load()
    later = [b'{"t":"%s","id":%d,"region":null,"s":"x"}' % (hours[0], n) for n in range(60, 80)]
    site.write(0, [*later, b'{"id":7,"region":"eu","t":null}', b'{"id":"seven"}'])
    site.load()
    maintain(site.table, site.settings.load_id, target_bytes=1 << 20, keep_ms=0)
    assert site.audit().is_clean
    assert len(site.rows("_offset")) == (81 if mode == "append" else 80)
    assert read_rows(site.letters, ["offset"]) == [(81,)], "a partition's column keeps its type"
    if mode == "append":
        assert replay(site.settings).still_unreadable == 1
    found = iceberg_table(site.table.name.path).scan().plan_files()
    seen = [tuple(task.file.partition) for task in found]
    assert len(set(seen)) == len(seen) > 20
    with pytest.raises(ConfigError, match=r"is split by hour\(t\)"):
        site.using(partition_by=fields[:2]).load()


def test_without_dead_letters_the_first_bad_record_ends_the_load(site: TopicSite) -> None:
    site = site.using(format="json", dead_letters=False)
    site.write(1, [b'{"n":1}', b"bad"])
    with pytest.raises(UnreadableRecordError, match=rf"offset 1 of {site.topic}-1"):
        site.load()


def test_what_only_needs_a_wider_column_ends_no_load_without_dead_letters(site: TopicSite) -> None:
    site = site.using(format="json", dead_letters=False)
    site.write(0, [b'{"n":1}'])
    site.load()
    site.write(0, [b'{"n":2.5}'])
    site.load()
    assert site.rows("_offset", "n") == [(0, 1.0), (1, 2.5)]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_evolve(site: TopicSite, kind: str) -> None:
    site = site.kind(kind).using(format="json")
    site.write(0, [b'{"n":1}'])
    site.load()
    site.write(0, [b'{"n":2.5,"s":"x"}'])
    site.load()
    assert site.table.schema().names[:1] == ["n"]
    assert "s" in site.table.schema().names
    assert site.audit().is_clean
    pinned = json.loads((site.settings.table.path / "_millstream" / "schema.json").read_text())
    assert pinned["columns"] == [
        {"name": "n", "type": "double"},
        {"name": "s", "type": "string"},
    ]
    newest = [
        row
        for path in site.table.files()
        for row in _rows_with(site.table.data_directory / path, "s")
    ]
    assert {"n": 2.5, "s": "x"} in newest


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_somebody_else_put_into_the_table(site: TopicSite, kind: str) -> None:
    """A new field of that name was another type's: Delta's and Parquet's load ended, and Iceberg's
    turned the column into numbers.
    """
    site = site.kind(kind).using(format="json")
    site.write(0, [b'{"a":1}'])
    site.load()
    site.table.add_columns(pa.schema([("note", pa.string()), ("size", pa.float64())]))
    site.write(0, [b'{"a":2,"note":5}', b'{"a":3,"note":"x"}', b'{"a":4,"size":7}'])
    site.load()
    found = site.audit()
    assert (found.is_clean, found.rows) == (True, 3)
    assert site.table.schema().field("note").type == pa.string()
    assert read_rows(site.table, ["a"]) == [(1,), (3,), (4,)]


def test_two_loads_that_make_one_table_at_once(
    site: TopicSite, new_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had inferred columns of its own, and one of them never got into the table."""
    other = TopicSite(site.bootstrap, new_topic(), site.directory).using(format="json")
    other.settings = replace(
        other.settings, source={**other.settings.source, "subscribe": other.topic}
    )
    other.create(1)
    site = site.using(format="json")
    site.write(0, [b'{"a":1}'])
    other.write(0, [b'{"b":1}'])
    infer = columns.infer_columns

    def overtaken(*arguments: Any) -> pa.Schema:
        monkeypatch.setattr(columns, "infer_columns", infer)
        inferred = infer(*arguments)
        other.load()
        return inferred

    monkeypatch.setattr(columns, "infer_columns", overtaken)
    site.load()
    assert site.audit().is_clean
    assert other.audit().is_clean
    assert {"a", "b"} <= set(site.table.schema().names)


def test_dead_letters_of_a_topic_that_is_gone(site: TopicSite) -> None:
    """The table was removed and its dead letters were not: the load waited for their offsets."""
    site = site.using(format="json")
    site.write(0, [b'{"a":1}'] * 50 + [b"bad"])
    site.load()
    shutil.rmtree(site.settings.table.path)
    site.load()
    assert site.audit().is_clean
    shutil.rmtree(site.settings.table.path)
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        admin.delete_topics([site.topic]).get_all()
    site.create(2)
    site.write(0, [b'{"a":1}'] * 10)
    with pytest.raises(RecreatedTopicError, match=r"table_dead_letters.*another table"):
        site.load()


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_several_sorts_change_at_once(site: TopicSite, kind: str) -> None:
    site = site.kind(kind).using(format="json")
    site.write(0, [b'{"n":1,"o":{"a":1}}'])
    site.load()
    site.write(0, [b'{"n":1.5,"o":{"a":2,"b":"x"},"new":"y"}'])
    site.load()
    found = [dict(row[1]) for row in site.rows("_offset", "o")]
    assert found[-1] == {"a": 2, "b": "x"}
    assert site.audit().is_clean
    assert site.audit().rows == 2


@pytest.mark.parametrize("kind", KINDS)
def test_one_record_stops_no_load(site: TopicSite, kind: str) -> None:
    """A fraction among identifiers, a name that is taken: dead letters, and the load goes on."""
    site = site.kind(kind).using(format="json", event_time="_timestamp")
    large = 2**60 + 1
    site.write(0, [b'{"id":%d}' % large, b'{"id":1.5}'])
    site.load()
    site.write(0, [b'{"id":2.5}', b'{"ID":3}', b'{"_key":4}', b'{"date":"x"}', b'{"s":"\xff"}'])
    site.write(0, [b'{"id":5,"new":null}'])
    site.load()
    assert site.rows("_offset", "id") == [(0, large), (7, 5)]
    assert [row[0] for row in read_rows(site.letters, ["offset"])] == [1, 2, 3, 4, 5, 6]
    assert site.audit().is_clean


def test_a_column_of_the_days_own_name(site: TopicSite) -> None:
    site = site.using(format="json", event_time="_timestamp")
    site.write(0, [b'{"date":"x"}'])
    with pytest.raises(ConfigError, match="a column date already"):
        site.load()
    site = site.using(partition_column="day")
    site.load()
    assert site.rows("_offset", "date") == [(0, "x")]


def _rows_with(path: Path, column: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    table = pq.ParquetFile(path).read()
    return table.select(["n", "s"]).to_pylist() if column in table.column_names else []


# --- the topic changes ---------------------------------------------------------------------------


def test_new_partitions_are_read_from_their_beginning(site: TopicSite) -> None:
    site = site.using(source={**site.settings.source, "startingOffsets": "latest"})
    site.write(0, numbers(10))
    site.load()
    assert site.audit().rows == 0
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        admin.create_partitions({site.topic: 3}).get_all()
    site.write(2, numbers(7))
    site.write(0, numbers(3))
    site.load()
    found = site.audit()
    assert found.is_clean
    assert [(each.start, each.end) for each in found.partitions] == [(10, 13), (0, 0), (0, 7)]


def test_where_a_load_starts_is_remembered(site: TopicSite) -> None:
    """ "latest" is another place when a first batch that failed is planned again."""
    site = site.using(source={**site.settings.source, "startingOffsets": "latest"})
    site.write(0, numbers(10))
    site.load()
    site.write(0, numbers(5, first=10))

    def dying(tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        raise CrashError

    with pytest.raises(CrashError):
        site.using(driver_bytes=0).load(dying)
    site.write(0, numbers(5, first=15))
    site.load()
    assert [row[0] for row in site.rows("offset")] == list(range(10, 20))


def test_a_topic_made_anew_is_refused(site: TopicSite) -> None:
    site.write(0, numbers(10))
    site.load()
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        admin.delete_topics([site.topic]).get_all()
    site.create(2)
    site.write(0, numbers(20))
    with pytest.raises(RecreatedTopicError, match="created again after offset 10"):
        site.load()


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_made_anew_while_it_is_read(site: TopicSite, kind: str) -> None:
    """Its offsets are there again, with other records: none of them is taken for an old one."""
    site = site.kind(kind).using(driver_bytes=0)
    site.write(0, numbers(100))
    site.load()
    site.write(0, numbers(100, first=100))

    def anew(tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        with Admin(bootstrap_servers=site.bootstrap) as admin:
            admin.delete_topics([site.topic]).get_all()
        site.create(2)
        site.write(0, [b"other"] * 300)
        return local_runner(tasks, landing)

    with pytest.raises(RecreatedTopicError, match="since its offsets were planned"):
        site.load(anew)
    assert len(site.rows("offset")) == 100

    def after_reading(tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        landed = local_runner(tasks, landing)
        anew([], landing)
        return landed

    other = site.using(table=TableName(kind, site.directory / "other"))
    with pytest.raises(RecreatedTopicError, match="while it was loaded"):
        other.load(after_reading)
    assert not other.table.files()


def test_records_that_an_unclean_election_replaced(site: TopicSite) -> None:
    """The leader knows no epoch of what the table holds, or says that it ended before that."""
    site.write(0, numbers(100))
    site.load()
    place = TopicPartition(site.topic, 0)
    known = Ledger(site.table.ledger(site.settings.load_id, ledger.keys([place])))
    assert known.epoch(place) == 0
    site.write(0, numbers(100, first=100))
    changed = {f"{site.topic}/0/epoch": 6}
    expected = {key: known.entries[key] for key in changed}
    site.table.commit(site.settings.load_id, changed, [], expected=expected)
    with pytest.raises(DataLossError, match=r"unclean leader.*has the old ones, up to 100"):
        site.load()
    assert len(site.rows("offset")) == 100
    site.settings = replace(
        site.settings, source={**site.settings.source, "failOnDataLoss": "false"}
    )
    site.load()
    assert len(site.rows("offset")) == 200
    known = Ledger(site.table.ledger(site.settings.load_id, ledger.keys([place])))
    assert known.epoch(place) == 0


@pytest.mark.parametrize(
    ("leader", "read", "replaced"), [(1, 5, True), (1, 0, False), (0, 5, False)]
)
def test_records_replaced_while_they_are_read(
    site: TopicSite, leader: int, read: int, replaced: bool
) -> None:
    """What was read is compared with the leader's log if it is another leader than planned."""
    site.write(0, numbers(100))
    loader = Loader(site.settings, local_runner)
    place = TopicPartition(site.topic, 0)
    with open_topics(loader._options) as topics:
        reader = TopicReader(topics, loader._options)
        assert loader.prepare(topics, reader, reader.ends())
        plan = loader.plan(reader, reader.ends(), None)
        assert plan is not None
        landed = [
            replace(each, epochs={place: [(read, 100)]}) for each in loader._land(plan, None) or ()
        ]
        plan = replace(plan, ends=replace(plan.ends, leader_epochs={place: leader}))
        if replaced:
            with pytest.raises(ReplacedRecordsError):
                loader.commit(loader.check(plan, landed, reader), reader)
        else:
            loader.commit(loader.check(plan, landed, reader), reader)
    assert len(site.rows("offset")) == (0 if replaced else 100)


def test_lost_offsets_are_named(site: TopicSite) -> None:
    site.write(0, numbers(10))
    site.load()
    site.write(0, numbers(10, first=10))
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        admin.delete_records({TopicPartition(site.topic, 0): 15}).get_all()
    with pytest.raises(DataLossError, match=rf"\[10, 15\) of {site.topic}-0"):
        site.load()
    lenient = site.using(source={**site.settings.source, "failOnDataLoss": "false"})
    lenient.load()
    found = lenient.audit().partitions[0]
    assert (found.rows, list(found.unverifiable), list(found.missing)) == (15, [(10, 15)], [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_is_not_loaded_twice_without_a_word(
    site: TopicSite, new_topic: Callable[[], str], kind: str
) -> None:
    """The name of a load is made of its topics: with one more it is another load."""
    site = site.kind(kind)
    site.write(0, numbers(3))
    site.load()
    more = TopicSite(site.bootstrap, f"{site.topic}-more", site.directory)
    more.create(1)
    more.write(0, numbers(2))
    both = site.using(source={**site.settings.source, "subscribe": f"{more.topic},{site.topic}"})
    with pytest.raises(ConfigError, match=f"already has records of {site.topic}"):
        both.load()
    assert len(site.rows("offset")) == 3
    both.using(app_id=site.settings.load_id).load()
    assert len(site.rows("offset")) == 5
    assert both.using(app_id=site.settings.load_id).audit().is_clean
    site.using(app_id="once more").load()
    assert len(site.rows("offset")) == 8


def test_the_first_batch_is_no_larger_than_the_others(site: TopicSite) -> None:
    """Brokers tell the sizes of logs: nothing is learnt yet of how large records are."""
    site = site.using(batch_bytes=1 << 20)
    site.write(0, [b"x" * 100_000] * 40, batch=1)
    site.load()
    assert sum(each.rows for each in site.reports) == 40
    assert max(each.read_bytes for each in site.reports) < 1.5 * (1 << 20)


def test_times_that_no_calendar_has(site: TopicSite) -> None:
    site = site.using(format="json", event_time="t")
    columns = [{"name": "t", "type": "timestamp"}]
    schema = site.directory / "schema.json"
    schema.write_text(json.dumps({"format": "json", "columns": columns}))
    site.write(0, [b'{"t":"2023-11-14T22:13:20Z"}', b'{"t":"65346-01-01T00:00:00Z"}'])
    site.using(schema_file=schema).load()
    assert site.audit().is_clean
    assert site.audit().rows == 1
    assert len(read_rows(site.letters, ["offset"])) == 1


# --- audit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_audit_sees_what_is_wrong(site: TopicSite, kind: str) -> None:
    site = site.kind(kind)
    site.write(0, numbers(100))
    site.load()
    (path,) = site.table.files()
    lost = site.table.data_directory / path
    kept = lost.read_bytes()
    lost.unlink()
    found = site.audit()
    assert list(found.missing_files) == [path]
    assert list(found.partitions[0].missing) == [(0, 100)]
    lost.write_bytes(kept)
    assert site.audit().is_clean


@pytest.mark.parametrize("damage", ["cut off", "overwritten"])
def test_the_audit_names_files_that_cannot_be_read(site: TopicSite, damage: str) -> None:
    site.write(0, numbers(10))
    site.load()
    site.write(0, numbers(10, first=10))
    site.load()
    path = sorted(site.table.files())[0]
    file = site.table.data_directory / path
    content = file.read_bytes()
    middle = len(content) // 2
    file.write_bytes(
        content[:middle] if damage == "cut off" else b"\xff" * middle + content[middle:]
    )
    found = site.audit()
    assert list(found.damaged_files) == [path]
    assert not found.is_clean
    assert list(found.partitions[0].missing) == [(0, 10)]
    assert f"{path} is referenced and cannot be read" in sentences(found)


def test_two_loads_in_one_table_are_audited_each(
    site: TopicSite, new_topic: Callable[[], str]
) -> None:
    other = TopicSite(site.bootstrap, f"{site.topic}-other", site.directory)
    other.create(1)
    site.write(0, numbers(10))
    other.write(0, numbers(5))
    site.load()
    found = other.audit()
    assert not found.is_clean
    (said,) = sentences(found)
    assert said.startswith(f"no load of the name load:{other.topic} has written to this table")
    other.load()
    audits = [site.audit(), other.audit()]
    assert [(each.is_clean, each.rows, each.other_rows) for each in audits] == [
        (True, 10, 5),
        (True, 5, 10),
    ]


def test_a_table_does_not_become_one_of_another_format(site: TopicSite) -> None:
    site.write(0, [b'{"n":1}'])
    site.using(format="json").load()
    with pytest.raises(ConfigError, match="no column key"):
        site.load()
    raw = site.kind("delta")
    raw.load()
    with pytest.raises(ConfigError, match="no column n"):
        raw.using(format="json").load()
    with pytest.raises(ConfigError, match="No such file"):
        site.using(format="avro", format_options={"definition": "/nowhere"}).load()
    with pytest.raises(ConfigError, match="Is a directory"):
        site.using(format="json", schema_file=site.directory).load()


def test_the_audit_sees_that_a_topic_is_another(site: TopicSite) -> None:
    site.write(0, numbers(10))
    site.load()
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        admin.delete_topics([site.topic]).get_all()
    site.create(2)
    site.write(0, numbers(20))
    found = site.audit()
    assert not found.is_clean
    assert any("created again after it was loaded" in each for each in sentences(found))


def test_records_of_aborted_transactions_are_no_rows(site: TopicSite) -> None:
    """Loads read committed records unless told otherwise, and do not pass an open transaction."""
    with Producer(bootstrap_servers=site.bootstrap, transactional_id=site.topic) as producer:
        producer.init_transactions()
        for number, commits in enumerate((True, False, True)):
            producer.begin_transaction()
            producer.send(site.topic, b"%d" % number, partition=0).result()
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        producer.begin_transaction()
        producer.send(site.topic, b"open", partition=0).result()
        site.load()
        assert [value for _, value in site.rows("offset", "value")] == [b"0", b"2"]
        assert site.audit().is_clean
        uncommitted = site.using(table=TableName("parquet", site.directory / "all"))
        level = {"kafka.isolation.level": "read_uncommitted"}
        uncommitted.settings = replace(
            uncommitted.settings, source={**site.settings.source, **level}
        )
        uncommitted.load()
        assert len(uncommitted.rows("offset")) == 4
        producer.abort_transaction()
    site.load()
    assert len(site.rows("offset")) == 2
    assert site.audit().is_clean


def test_markers_and_compaction_are_no_gaps(site: TopicSite) -> None:
    """Offsets without a record: the audit looks them up in the topic."""
    site.write(0, numbers(5))
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        admin.delete_records({TopicPartition(site.topic, 0): 2}).get_all()
    site.load()
    found = site.audit().partitions[0]
    assert (found.start, found.end, found.rows, found.is_clean) == (2, 5, 3, True)


# --- following -----------------------------------------------------------------------------------


def test_following_until_told_to_stop(site: TopicSite) -> None:
    site = site.using(follow=True, freshness_ms=200, group_id="watchers")
    site.write(0, numbers(20))
    stop = threading.Event()
    loader = Loader(site.settings, local_runner, on_batch=site.reports.append)
    thread = threading.Thread(target=loader.run, args=(stop.is_set,))
    thread.start()
    try:
        for turn in range(5):
            site.write(turn % 2, numbers(10))
            stop.wait(0.2)
        deadline = 100
        while sum(each.rows for each in site.reports) < 70 and deadline:
            stop.wait(0.1)
            deadline -= 1
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()
    assert site.audit().is_clean
    assert site.audit().rows == 70
    assert len(site.reports) > 1
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        committed = admin.list_group_offsets(["watchers"])["watchers"].get()
    assert {place.partition: each.offset for place, each in committed.items()} == {0: 50, 1: 20}


def test_following_a_topic_without_a_record(site: TopicSite) -> None:
    """Columns are inferred from the first ones; what comes before we look is not passed over."""
    latest = {**site.settings.source, "startingOffsets": "latest"}
    once = site.using(format="json", source=latest)
    with pytest.raises(ConfigError, match="the topic is empty"):
        once.load()
    once.write(0, [b'{"n":1}'])
    stop = threading.Event()
    site = site.using(format="json", source=latest, follow=True, freshness_ms=100)
    loader = Loader(site.settings, local_runner, on_batch=lambda _: stop.set())
    loader.run(stop.is_set)
    assert site.rows("_offset", "n") == [(0, 1)]


def test_waiting_for_a_record_can_be_stopped(site: TopicSite) -> None:
    site = site.using(format="csv", follow=True, freshness_ms=100)
    turns = iter([False, False, True])
    Loader(site.settings, local_runner).run(lambda: next(turns, True))
    assert not site.table.exists()


def test_settings_that_cannot_be() -> None:
    name = TableName("delta", Path("/x"))
    with pytest.raises(ConfigError, match="not 'xml'"):
        LoadSettings(source={}, table=name, format="xml")
    with pytest.raises(ConfigError, match="freshness_ms"):
        LoadSettings(source={}, table=name, freshness_ms=0)
    for source in ({"subscribe": "a, bad"}, {"subscribePattern": "b.*"}):
        with pytest.raises(ConfigError, match="for ever"):
            LoadSettings(source=source, table=name, format="json", dead_letters_topic="bad")
