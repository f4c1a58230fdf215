"""Tables of the present: the newest record of each key, from compacted topics and change data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from tests.broker_process import BrokerProcess
from tests.lake_readers import READERS, rows_of
from tests.system.lakehouse.keyed_site import KeyedSite, change, wrapped
from tests.system.lakehouse.topic_site import read_rows

from millstream.cli.main import main
from millstream.client import Admin
from millstream.model.errors import ConfigError
from millstream.records.compression import Codec
from millstream.spark.lakehouse.audit import sentences
from millstream.spark.lakehouse.dead_letters import replay
from millstream.spark.lakehouse.landing import Landed, Landing
from millstream.spark.lakehouse.load import Loader, local_runner
from millstream.spark.lakehouse.load_plan import plan_load
from millstream.spark.lakehouse.maintain import maintain
from millstream.spark.lakehouse.reject_limit import RejectLimit
from millstream.spark.lakehouse.table import ConcurrentLoadError, Replacement, open_merge_table
from millstream.spark.lakehouse.upserts import Upserts
from millstream.spark.locations.location import as_location
from millstream.spark.ranges import OffsetRange

pytestmark = pytest.mark.system

KINDS = ("delta", "iceberg")


class CrashError(Exception):
    """The driver dies here."""


@pytest.fixture
def site(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> KeyedSite:
    made = KeyedSite(broker.bootstrap, new_topic(), tmp_path)
    made.create(1)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_compacted_topic(site: KeyedSite, kind: str) -> None:
    """Keys are the records' keys; a null value deletes."""
    site = site.upserting(kind, "raw")
    site.put(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"no key"))
    site.load()
    assert site.held("key", "value", "offset") == [(b"a", b"2", 2), (b"b", b"1", 1)]
    site.put(0, (b"b", None), (b"c", b"1"), (b"never", None))
    site.load()
    for name, read in READERS.items():
        assert rows_of(read(site.table, ["key", "value"])) == [(b"a", b"2"), (b"c", b"1")], name
    found = site.audit()
    assert found.is_clean, sentences(found)
    assert found.keys is not None
    assert (found.rows, found.keys.gone) == (2, 0)


def test_another_format_is_refused(site: KeyedSite) -> None:
    """Envelopes were read as rows: each was a dead letter, and the audit read them so, too."""
    row = {"id": 1, "name": "Ann"}
    site.put(0, ({"id": 1}, change("c", None, row)))
    site.upserting("delta", "debezium", "id").load()
    site.put(0, ({"id": 1}, change("u", row, {"id": 1, "name": "Anna"})))
    columns = [{"name": "id", "type": "int64"}, {"name": "name", "type": "string"}]
    schema = site.directory / "other.json"
    schema.write_text(json.dumps({"format": "json", "columns": columns}))
    other = site.upserting("delta", "json", "id", schema_file=as_location(schema))
    reason = "of records of format debezium, not json"
    assert reason in (plan_load(other.settings).refusal or "")
    with pytest.raises(ConfigError, match=reason):
        other.load()
    assert site.upserting("delta", "debezium", "id").audit().is_clean


def test_a_batch_that_is_larger_than_its_log(site: KeyedSite) -> None:
    """Compressed records: their log says nothing about what the driver has to hold."""
    limit = 256 << 10
    site = site.upserting("delta", "raw", batch_bytes=limit)
    for first in range(0, 1_000, 100):
        values = {b"%d" % n: b"x" * 10_000 for n in range(first, first + 100)}
        site.put(0, *values.items(), codec=Codec.GZIP)
    site.load()
    assert site.held("key") == sorted((b"%d" % n,) for n in range(1_000))
    assert max(each.read_bytes for each in site.reports) < 3 * limit
    found = site.audit()
    assert found.is_clean, sentences(found)
    # What was landed of a batch that was too large is there no more.
    assert [p.name for p in (site.directory / "delta/_millstream/changes").iterdir()] == []


@pytest.mark.parametrize("kind", KINDS)
def test_change_data(site: KeyedSite, kind: str) -> None:
    """Creates, updates, deletes with their tombstones, reads, a truncate; columns come and widen;
    with Kafka Connect's wrapper and without it.
    """
    site = site.upserting(kind, "debezium", "id")
    one, two = {"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}
    site.put(0, ({"id": 1}, change("r", None, one)), ({"id": 2}, change("c", None, two)))
    site.put(0, ({"id": 1}, change("u", one, {"id": 1, "name": "Anna"})))
    site.load()
    assert site.held("id", "name") == [(1, "Anna"), (2, "Bob")]
    site.put(
        0,
        (wrapped({"id": 2}), wrapped(change("d", two, None))),
        (wrapped({"id": 2}), None),
        (wrapped({"id": 3}), wrapped(change("c", None, {"id": 3, "name": "Cy", "age": 7}))),
        ({"id": 4}, change("c", None, {"id": 4, "name": "Di", "age": 7.5})),
        ({"id": 5}, change("c", None, {"id": 5, "name": "Ed", "age": 1})),
        ({"id": 5}, change("d", None, None)),  # the key alone says which
        ({"id": 5}, wrapped(None)),
    )
    site.load()
    expected = [(1, "Anna", None), (3, "Cy", 7.0), (4, "Di", 7.5)]
    assert read_by_all(site, "id", "name", "age") == expected
    found = site.audit()
    assert found.is_clean, sentences(found)
    site.put(0, (None, change("t", None, None)), ({"id": 9}, change("c", None, {"id": 9})))
    site.load()
    assert read_by_all(site, "id", "name") == [(9, None)]
    assert site.audit().is_clean
    assert not list(Upserts(site.settings).directory.iterdir())


def read_by_all(site: KeyedSite, *columns: str) -> list[tuple[Any, ...]]:
    found = [rows_of(read(site.table, columns)) for read in READERS.values()]
    assert all(each == found[0] for each in found)
    return found[0]


def test_what_cannot_be_applied_is_a_dead_letter(site: KeyedSite) -> None:
    limit = RejectLimit(share=None, count=None)
    site = site.upserting("delta", "debezium", "id", max_rejects=limit)
    site.put(
        0,
        ({"id": 1}, change("c", None, {"id": 1, "name": "Ann"})),
        ({"id": 1}, change("u", {"id": 1}, {"id": 7, "name": "Ann"})),
        ({"id": 1}, change("u", None, {"id": 1, "name": "__debezium_unavailable_value"})),
        ({"id": 1}, {"id": 1, "name": "no envelope"}),
        ({"id": 1}, b"{"),
        (None, change("d", None, None)),
        (None, None),
        ({"id": 1}, change("m", None, None)),
        ({"id": 1}, change("c", None, {"name": "no key"})),
    )
    site.load()
    site.put(0, ({"id": 1}, change("c", None, {"id": 1.5, "name": "no whole number"})))
    site.load()
    assert site.held("id", "name") == [(1, "Ann")]
    assert len(read_rows(site.letters, ["offset"])) == 9
    reasons = " ".join(row[0] for row in read_rows(site.letters, ["reason"]))
    for words in ("changed id of the key", "did not log name", "no field op", "has no key: id"):
        assert words in reasons
    assert 'op "m" changes no row' in reasons
    assert "there is no key: id is null" in reasons
    assert site.audit().is_clean
    with pytest.raises(ConfigError, match="its dead letters are older"):
        replay(site.settings)


def test_json_rows_with_tombstones(site: KeyedSite) -> None:
    """A null value has no fields: its key tells, as an object, a value or a text."""
    text = site.upserting("delta", "json", "name")
    site.put(0, (b"Ann", {"name": "Ann", "n": 1}), (b"Bob", {"name": "Bob", "n": 1}))
    site.put(0, (b"12", {"name": "12", "n": 1}), (b'"Cy"', {"name": "Cy", "n": 1}))
    text.load()
    assert len(text.held("name")) == 4
    site.put(0, (b"Ann", None), (b"12", None), (b'"Cy"', None), ({"name": "x"}, None))
    text.load()
    assert text.held("name", "n") == [("Bob", 1)]
    assert text.audit().is_clean


def test_a_table_keeps_its_mode_and_key(site: KeyedSite) -> None:
    upserts = site.upserting("delta", "json", "id")
    site.put(0, (b"1", {"id": 1, "x": 1.5}))
    upserts.load()
    with pytest.raises(ConfigError, match="takes mode upsert only"):
        upserts.using(mode="append", key=()).load()
    with pytest.raises(ConfigError, match="one row for each id, not _key"):
        upserts.using(key=()).load()
    with pytest.raises(ConfigError, match="the key x is a column of type double"):
        site.upserting("iceberg", "json", "x").load()
    with pytest.raises(ConfigError, match="the key y is not a column of the table"):
        site.upserting("iceberg", "json", "y").load()
    appended = site.using(
        format="json", table=replace(upserts.settings.table, path=site.directory / "all")
    )
    appended.load()
    with pytest.raises(ConfigError, match="has a row for each record"):
        appended.using(mode="upsert", key=("id",)).load()
    for settings, words in (
        (
            {"mode": "upsert", "table": replace(site.settings.table, kind="parquet")},
            "delta:PATH or",
        ),
        ({"mode": "upsert", "format": "debezium"}, "needs the key"),
        ({"format": "debezium"}, "for mode upsert"),
        ({"key": ("id",)}, "for mode upsert"),
        ({"mode": "merge"}, "a mode is one of"),
    ):
        with pytest.raises(ConfigError, match=words):
            replace(appended.settings, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_gets_more_partitions(site: KeyedSite, kind: str) -> None:
    """Keys move to other partitions, whose offsets begin at 0: the later record wins."""
    site = site.upserting(kind, "json", "id", event_time="at")
    day = "2024-01-0%dT00:00:00Z"
    site.put(0, *((b"", {"id": n % 5, "n": n, "at": day % 1}) for n in range(50)))
    site.load()
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        admin.create_partitions({site.topic: 3}).get_all()
    later = 1_700_000_000_001
    site.put(2, *((b"", {"id": n, "n": 100, "at": day % 2}) for n in range(3)), time=later)
    site.load()
    assert site.held("id", "n") == [(0, 100), (1, 100), (2, 100), (3, 48), (4, 49)]
    assert site.audit().is_clean
    maintain(site.table, site.settings.load_id, target_bytes=1 << 20, keep_ms=0)
    site.put(2, (b"", {"id": 3, "n": 101, "at": day % 3}), time=later + 1)
    site.load()
    found = site.audit()
    assert found.is_clean, sentences(found)
    assert site.held("id", "n")[3] == (3, 101)


def test_a_truncate_in_several_partitions_ends_the_load(
    broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    site = KeyedSite(broker.bootstrap, new_topic(), tmp_path)
    site.create(2)
    site.put(0, ({"id": 1}, change("c", None, {"id": 1})), (None, change("t", None, None)))
    site = site.upserting("delta", "debezium", "id")
    with pytest.raises(ConfigError, match="has 2 partitions"):
        site.load()
    site = site.using(format_options={"truncate": "reject"})
    site.load()
    assert site.held("id") == [(1,)]
    assert read_rows(site.letters, ["offset"]) == [(1,)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", ["landed", "merged", "committed"])
def test_a_driver_that_dies(
    site: KeyedSite, kind: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site.upserting(kind, "raw", batch_bytes=1_500, driver_bytes=0)
    for n in range(8):
        site.put(0, *((b"%d" % (i % 7), b"%d" % i) for i in range(n * 10, n * 10 + 10)))
    deaths = iter([True, False, True, True, False, True])
    commit, merge = Upserts.commit, open_merge_table(site.settings.table).__class__.replace

    def dying(tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        landed = local_runner(tasks, landing)
        if moment == "landed" and next(deaths, False):
            raise CrashError
        return landed

    def die_merged(*arguments: Any, **more: Any) -> None:
        if moment == "merged" and next(deaths, False):
            raise CrashError
        merge(*arguments, **more)

    def die_committed(*arguments: Any, **more: Any) -> None:
        commit(*arguments, **more)
        if moment == "committed" and next(deaths, False):
            raise CrashError

    monkeypatch.setattr(Upserts, "commit", die_committed)
    monkeypatch.setattr(open_merge_table(site.settings.table).__class__, "replace", die_merged)
    for _ in range(20):
        try:
            site.load(dying)
        except CrashError:
            continue
        break
    monkeypatch.undo()
    site.put(0, (b"last", b"1"))
    site.load()
    assert site.audit().is_clean
    assert site.held("key", "offset")[:-1] == [(b"%d" % i, 73 + (i - 73) % 7) for i in range(7)]
    assert not list(Upserts(site.settings).directory.iterdir())
    on_disk = {str(p.relative_to(site.table.data_directory)) for p in own_files(site)}
    assert on_disk == site.table.retained()


def own_files(site: KeyedSite) -> Iterable[Path]:
    changes = Upserts(site.settings).directory
    found = site.table.data_directory.rglob("millstream-*.parquet")
    return (path for path in found if changes not in path.parents)


@pytest.mark.parametrize("kind", KINDS)
def test_others_commit_meanwhile(
    site: KeyedSite, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program's commit is merged behind; another load of the name has won."""
    site = site.upserting(kind, "raw")
    site.put(0, (b"a", b"1"), (b"b", b"1"))
    site.load()
    site.put(0, (b"a", b"2"), (b"c", b"1"))
    cls = open_merge_table(site.settings.table).__class__
    original, pending = cls.replace, [True]

    def overtaken(self: Any, *arguments: Any, **more: Any) -> None:
        if pending and pending.pop():  # another program has deleted all rows since
            gone = Replacement(base=self.state(), removed=self.files())
            original(self, "program", {"batch": 1}, gone, expected={})
        original(self, *arguments, **more)

    monkeypatch.setattr(cls, "replace", overtaken)
    site.load()
    assert site.held("key", "value") == [(b"a", b"2"), (b"c", b"1")]
    monkeypatch.undo()

    rival = site.using()

    def late(tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
        landed = local_runner(tasks, landing)
        rival.load()
        return landed

    site.put(0, (b"e", b"1"))
    with pytest.raises(ConcurrentLoadError):
        Loader(replace(site.settings, driver_bytes=0), late).run()
    assert (b"e", b"1") in site.held("key", "value")


def test_the_audit_names_what_is_wrong(site: KeyedSite, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows behind the load's back; and the command, with history and present side by side."""
    site.put(0, *((b"%d" % n, {"id": n, "n": n}) for n in range(6)), (b"5", None))
    words = [
        site.topic,
        "--engine",
        "local",
        "-b",
        site.bootstrap,
        "--group",
        "",
        "--format",
        "json",
    ]
    now, history = (f"delta:{site.directory}/{name}" for name in ("now", "history"))
    assert main(["load", *words, "--to", now, "--mode", "upsert", "--key", "id"]) == 0
    assert main(["load", *words, "--to", history]) == 0
    capsys.readouterr()
    assert main(["audit", site.topic, history, "-b", site.bootstrap]) == 0
    assert "7 rows, 0 gaps" in capsys.readouterr().err
    assert main(["audit", site.topic, now, "-b", site.bootstrap]) == 0
    assert "5 rows, one for each id, each its newest record" in capsys.readouterr().err
    table = DeltaTable(now.removeprefix("delta:"))
    rows = table.to_pyarrow_table()
    table.delete("id = 1")
    table.update(updates={"_offset": "0"}, predicate="id = 2")
    write_deltalake(table, rows.slice(3, 1), mode="append")
    table.update(updates={"id": "5"}, predicate="id = 0")
    assert main(["audit", site.topic, now, "-b", site.bootstrap, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["keys"] == {
        "key": ["id"],
        "missing": 2,
        "undeleted": 1,
        "stale": 1,
        "doubled": 1,
        "gone": 0,
    }
