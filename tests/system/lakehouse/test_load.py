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
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite, read_rows

from millstream.client import Admin
from millstream.model.errors import ConfigError
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse import columns
from millstream.spark.lakehouse.audit import sentences
from millstream.spark.lakehouse.landing import Landed, Landing, UnreadableRecordError
from millstream.spark.lakehouse.ledger import RecreatedTopicError
from millstream.spark.lakehouse.load import Loader, Plan, local_runner
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import KINDS, ConcurrentLoadError, Table
from millstream.spark.lakehouse.topic_reader import TopicReader
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

    def crash_after(self: Loader, *arguments: Any) -> None:
        if moment == "after commit" and next(deaths, False):
            raise CrashError

    monkeypatch.setattr(Loader, "_after_commit", crash_after)
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
def test_a_crash_between_dead_letters_and_rows(
    site: TopicSite, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site.kind(kind).using(format="json")
    site.write(0, [b'{"n":1}', b"bad"])
    commit = Loader._commit

    def crash(self: Loader, table: Table, *arguments: Any) -> None:
        if arguments[-1]:
            raise CrashError
        commit(self, table, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Loader, "_commit", crash)
        with pytest.raises(CrashError):
            site.load()
    assert len(read_rows(site.letters, ["offset"])) == 1
    site.write(0, [b"bad too", b'{"n":2}'])
    site.load()
    assert site.rows("_offset", "n") == [(0, 1), (3, 2)]
    assert read_rows(site.letters, ["offset"]) == [(1,), (2,)]
    assert site.audit().is_clean


@pytest.mark.parametrize("ours", [1, 3])
def test_dead_letters_of_another_driver_with_other_ranges(site: TopicSite, ours: int) -> None:
    """It dies before its rows are in: which letters are there is told by offsets, not by batch."""
    site = site.kind("delta").using(format="json", freshness_ms=1)
    site.write(0, [b'{"n":1}', b"bad", b'{"n":2}', b"bad too", b'{"n":3}'], batch=1)
    place = TopicPartition(site.topic, 0)

    def start(settings: LoadSettings, end: int) -> tuple[Loader, Any]:
        loader = Loader(settings, local_runner)
        with open_topics(loader._options) as topics:
            reader = TopicReader(topics, loader._options)
            loader.prepare(topics, reader, reader.ends())
            ledger = loader._ledger(loader._table, [place])
            plan = Plan(ledger, [OffsetRange(place, 0, end)], reader.ends(), 0, 0.0)
            return loader, (plan, loader._land(plan), reader)

    first, batch = start(site.settings, 2)
    second, other = start(site.settings, ours)
    dead_letters = [file for each in batch[1] for file in each.dead_letters]
    first._commit_dead_letters(batch[0], dead_letters)  # and here it dies
    if ours > 2:
        with pytest.raises(ConcurrentLoadError):
            second.commit(*other)
    else:
        second.commit(*other)
    site.load()
    assert site.rows("_offset", "n") == [(0, 1), (2, 2), (4, 3)]
    assert read_rows(site.letters, ["offset"]) == [(1,), (3,)]
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


def test_without_dead_letters_the_first_bad_record_ends_the_load(site: TopicSite) -> None:
    site = site.using(format="json", dead_letters=False)
    site.write(1, [b'{"n":1}', b"bad"])
    with pytest.raises(UnreadableRecordError, match=rf"offset 1 of {site.topic}-1"):
        site.load()


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
    infer = columns._infer

    def overtaken(*arguments: Any) -> pa.Schema:
        monkeypatch.setattr(columns, "_infer", infer)
        inferred = infer(*arguments)
        other.load()
        return inferred

    monkeypatch.setattr(columns, "_infer", overtaken)
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
    with pytest.raises(ConfigError, match=f"holds records of {site.topic} already"):
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
    site.write(0, [b'{"t":1700000000000000}', b'{"t":2000000000000000000}'])
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
    from millstream.spark.lakehouse.settings import LoadSettings
    from millstream.spark.lakehouse.table import TableName

    name = TableName("delta", Path("/x"))
    with pytest.raises(ConfigError, match="not 'xml'"):
        LoadSettings(source={}, table=name, format="xml")
    with pytest.raises(ConfigError, match="freshness_ms"):
        LoadSettings(source={}, table=name, freshness_ms=0)
    for source in ({"subscribe": "a, bad"}, {"subscribePattern": "b.*"}):
        with pytest.raises(ConfigError, match="for ever"):
            LoadSettings(source=source, table=name, format="json", dead_letters_topic="bad")
