"""Dead letters are tried again; tables are maintained and measured while nothing is lost."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position
from deltalake import DeltaTable
from tests.broker_process import BrokerProcess
from tests.lake_readers import iceberg_table, own_catalog
from tests.system.lakehouse.topic_site import TopicSite, read_rows

from millstream.cli.main import main
from millstream.model.errors import ConfigError
from millstream.spark.lakehouse import columns, dead_letter_commits
from millstream.spark.lakehouse.dead_letter_commits import DeadLetterCommits
from millstream.spark.lakehouse.dead_letters import Replay, replay
from millstream.spark.lakehouse.lag import table_lag
from millstream.spark.lakehouse.ledger import Ledger
from millstream.spark.lakehouse.load import Loader, local_runner
from millstream.spark.lakehouse.maintain import maintain
from millstream.spark.lakehouse.reject_limit import RejectLimit
from millstream.spark.lakehouse.table import KINDS
from millstream.spark.options import parse_options

pytestmark = pytest.mark.system


@pytest.fixture(params=KINDS)
def site(
    request: pytest.FixtureRequest,
    broker: BrokerProcess,
    new_topic: Callable[[], str],
    tmp_path: Path,
) -> TopicSite:
    made = TopicSite(broker.bootstrap, new_topic(), tmp_path).kind(request.param)
    made.create(1)
    return made


def edit_schema(site: TopicSite, name: str, kind: str) -> None:
    """Give a column another type by hand, or put in a new one."""
    path = site.settings.table.path / "_millstream" / "schema.json"
    value = json.loads(path.read_text())
    value["columns"] = [each for each in value["columns"] if each["name"] != name]
    value["columns"].append({"name": name, "type": kind})
    path.write_text(json.dumps(value))


def test_dead_letters_are_replayed_once(site: TopicSite) -> None:
    """The schema that somebody mended becomes the table's, and what comes later is read by it."""
    site = site.using(format="json", format_options={"evolve": "false"})
    site.write(0, [b'{"n":1}'])
    site.load()
    site.write(0, [b'{"n":1.5,"t":"x"}', b"hopeless", b'{"n":2}'])
    site.load()
    assert len(read_rows(site.letters, ["offset"])) == 2
    assert replay(site.settings) == Replay(tried=2, written=0, still_unreadable=2)
    edit_schema(site, "n", "double")
    edit_schema(site, "t", "string")
    assert replay(site.settings) == Replay(tried=2, written=1, still_unreadable=1)
    assert replay(site.settings) == Replay(tried=1, written=0, still_unreadable=1)
    assert {str(f.type) for f in site.table.schema() if f.name in "nt"} == {"double", "string"}
    edit_schema(site, "u", "string")
    site.write(0, [b'{"n":3,"u":"y"}'])
    site.load()
    assert site.audit().is_clean
    rows = sorted(whole_rows(site), key=lambda row: row["_offset"])
    assert [(row["n"], row["t"], row["u"]) for row in rows] == [
        (1.0, None, None),
        (1.5, "x", None),
        (2.0, None, None),
        (3.0, None, "y"),
    ]


def whole_rows(site: TopicSite) -> list[dict[str, Any]]:
    """Return the rows as the library of the table's kind reads them."""
    name = site.settings.table
    if name.kind == "delta":
        return list(DeltaTable(str(name.path)).to_pyarrow_table().to_pylist())
    if name.kind == "parquet":
        return list(pq.read_table(name.path, schema=site.table.schema()).to_pylist())
    return list(iceberg_table(name.path).scan().to_arrow().to_pylist())


def test_a_column_that_cannot_become_another_is_refused(site: TopicSite) -> None:
    """Rows of another type would leave a table that nobody can read."""
    site = site.using(format="json", format_options={"evolve": "false"})
    site.write(0, [b'{"n":1}', b'{"n":1}', b'{"n":"x"}'])
    site.load()
    edit_schema(site, "n", "string")
    with pytest.raises(ConfigError, match="n as int64, not string"):
        replay(site.settings)
    with pytest.raises(ConfigError, match="n as int64, not string"):
        site.load()
    assert [row["n"] for row in whole_rows(site)] == [1, 1]


def test_fields_of_dead_letters_become_columns(site: TopicSite) -> None:
    strict = site.using(format="json", format_options={"evolve": "false"})
    strict.write(0, [b'{"n":1}', b'{"n":1}'])
    strict.load()
    strict.write(0, [b'{"n":2.5,"more":[5]}'])
    strict.load()
    assert replay(site.using(format="json").settings) == Replay(1, 1, 0)
    rows = sorted(whole_rows(site), key=lambda row: row["_offset"])
    assert [(row["n"], row["more"]) for row in rows] == [(1.0, None), (1.0, None), (2.5, [5])]


def test_a_replay_into_a_table_that_is_split(site: TopicSite) -> None:
    """Without the event time the rows would lie where readers of the table do not look."""
    site = site.using(format="json", event_time="_timestamp")
    site.write(0, [b'{"n":1}', b"hopeless"])
    site.load()
    with pytest.raises(ConfigError, match="state the event time"):
        replay(site.using(event_time=None).settings)
    assert replay(site.settings) == Replay(tried=1, written=0, still_unreadable=1)


def test_a_replay_of_no_table(site: TopicSite) -> None:
    with pytest.raises(ConfigError, match="there is no table"):
        replay(site.using(format="json").settings)


@pytest.mark.parametrize("moment", ["before the file", "after the file"])
def test_a_load_that_died_while_columns_changed(
    site: TopicSite, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site.using(format="json")
    site.write(0, [b'{"n":1}'])
    site.load()
    site.write(0, [b'{"n":2.5,"s":"x"}'])
    write = columns.write_schema_file

    def crash(*arguments: Any, **named: Any) -> None:
        if moment == "after the file":
            write(*arguments, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(columns, "write_schema_file", crash)
        with pytest.raises(KeyboardInterrupt):
            site.load()
    site.load()
    assert sorted(row["n"] for row in whole_rows(site)) == [1.0, 2.5]
    assert site.audit().is_clean


def test_a_replay_that_died_between_its_two_commits(
    site: TopicSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site.using(format="text", format_options={"pattern": r"n=(?P<n>\d+)"})
    site.write(0, [b"n=1", b"m=2", b"m=3", b"x"])
    site.load()
    fixed = site.using(format="text", format_options={"pattern": r"[nm]=(?P<n>\d+)"})
    with monkeypatch.context() as patch:

        def crash(self: object, offsets: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(type(site.letters), "delete_rows", crash)
        with pytest.raises(KeyboardInterrupt):
            replay(fixed.settings)
    assert site.audit().partitions[0].doubled
    assert replay(fixed.settings) == Replay(tried=3, written=0, still_unreadable=1)
    assert site.rows("_offset", "n") == [(0, "1"), (1, "2"), (2, "3")]
    assert read_rows(site.letters, ["offset"]) == [(3,)]
    assert site.audit().is_clean
    assert replay(fixed.settings) == Replay(tried=1, written=0, still_unreadable=1)


@pytest.mark.slow
def test_very_many_dead_letters_are_replayed(site: TopicSite) -> None:
    """As many numbers in one condition ended the process in delta-rs."""
    pattern = {"pattern": r"n=(?P<n>\d+)"}
    site = site.using(format="text", format_options=pattern, max_rejects=RejectLimit(share=None))
    lines = [b"x%d" % n if n % 3 == 2 else b"m=%d" % n for n in range(30_000)]
    site.write(0, lines, batch=5_000)
    site.load()
    fixed = site.using(format_options={"pattern": r"[nm]=(?P<n>\d+)"})
    assert replay(fixed.settings) == Replay(30_000, 20_000, 10_000)
    assert len(read_rows(site.letters, ["offset"])) == 10_000
    assert site.audit().is_clean


def test_maintenance_beside_a_load_that_commits_all_the_time(site: TopicSite) -> None:
    site = site.using(follow=True, freshness_ms=20)
    stop = threading.Event()
    loader = Loader(site.settings, local_runner, on_batch=site.reports.append)
    site.write(0, [b"0"])
    loading = threading.Thread(target=loader.run, args=(stop.is_set,))
    loading.start()

    def write() -> None:
        while not stop.is_set():
            site.write(0, [b"1"] * 10)

    writing = threading.Thread(target=write)
    writing.start()
    joined = 0
    try:
        for _ in range(1000):
            if len(site.reports) > 8:
                break
            stop.wait(0.02)
        for _ in range(3):
            done = maintain(site.table, site.settings.load_id, target_bytes=1 << 20, keep_ms=0)
            joined += done.compaction.removed
    finally:
        stop.set()
        loading.join(30)
        writing.join(30)
    assert joined
    site.using(follow=False).load()
    assert site.audit().is_clean


def test_maintenance_keeps_every_record(site: TopicSite) -> None:
    for number in range(5):
        site.write(0, [b"%d" % number])
        site.load()
    assert len(site.table.files()) == 5
    done = maintain(site.table, site.settings.load_id, target_bytes=1 << 20, keep_ms=0)
    assert (done.compaction.removed, done.compaction.added) == (5, 1)
    assert done.histogram[0] == ("< 1 MB", 1)
    site.write(0, [b"5"])
    site.load()
    assert [row[0] for row in site.rows("offset")] == list(range(6))
    assert site.audit().is_clean


def test_lag(site: TopicSite) -> None:
    site.write(0, [b"a", b"b"])
    site.load()
    options = parse_options(site.settings.source, streaming=True)
    (now,) = table_lag(options, site.table, site.settings.load_id)
    assert (now.offsets, now.rows, now.seconds, now.is_exact) == (0, 0, 0.0, True)
    site.write(0, [b"c", b"d", b"e"])
    (behind,) = table_lag(options, site.table, site.settings.load_id)
    assert (behind.position, behind.offsets, behind.rows) == (2, 3, 3)
    assert behind.seconds > 0
    with pytest.raises(ConfigError, match="no load of the name else"):
        table_lag(options, site.table, "else")


def letters_in_topic(site: TopicSite, topic: str) -> list[tuple[bytes | None, dict[str, bytes]]]:
    """Return value and headers of the records in the topic of dead letters."""
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": "letters"})
    consumer.assign([Position(topic, 0, 0)])
    low, high = consumer.get_watermark_offsets(Position(topic, 0))
    found: list[tuple[bytes | None, dict[str, bytes]]] = []
    while len(found) < high - low:
        for message in consumer.consume(100, 1.0):
            found.append((message.value(), dict(message.headers() or ())))
    consumer.close()
    return found


def test_dead_letters_in_a_topic(
    site: TopicSite, new_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"{new_topic()}-letters"
    TopicSite(site.bootstrap, topic, site.directory).create(1)
    site = site.using(format="json", dead_letters_topic=topic)
    site.write(0, [b'{"n":1}', b"bad"])
    site.load()
    site.write(0, [b"worse", b'{"n":2}'])
    settle = DeadLetterCommits.settle

    def crash_behind(self: DeadLetterCommits, ledger: Ledger) -> list[str]:
        if settle(self, ledger):
            raise KeyboardInterrupt
        return []

    with monkeypatch.context() as patch:
        patch.setattr(DeadLetterCommits, "settle", crash_behind)
        with pytest.raises(KeyboardInterrupt):
            site.load()
    assert len(letters_in_topic(site, topic)) == 1
    site.load()
    site.load()
    found = letters_in_topic(site, topic)
    assert [value for value, _ in found] == [b"bad", b"worse"]
    headers = found[1][1]
    assert headers.pop("__connect.errors.exception.message")
    assert headers == {
        "__connect.errors.topic": site.topic.encode(),
        "__connect.errors.partition": b"0",
        "__connect.errors.offset": b"2",
        "__connect.errors.connector.name": f"load:{site.topic}".encode(),
        "__connect.errors.stage": b"VALUE_CONVERTER",
    }
    assert site.audit().is_clean
    assert site.rows("_offset", "n") == [(0, 1), (3, 2)]


def test_what_was_sent_is_forgotten_with_its_dead_letters(
    site: TopicSite, new_topic: Callable[[], str]
) -> None:
    """Those of a new table are sent, although the topic has had dead letters of later offsets."""
    topic = f"{new_topic()}-letters"
    TopicSite(site.bootstrap, topic, site.directory).create(1)
    site = site.using(format="json", dead_letters_topic=topic)
    site.write(0, [b'{"n":1}'] * 3 + [b'{"n":"x"}', b"bad", b'{"n":"y"}'])
    site.load()
    assert offsets_sent(site, topic) == [3, 4, 5]
    shutil.rmtree(site.settings.table.path)
    schema = site.directory / "schema.json"
    schema.write_text('{"format": "json", "columns": [{"name": "n", "type": "string"}]}')
    site = site.using(schema_file=schema)
    site.load()
    assert offsets_sent(site, topic) == [3, 4, 5, 0, 1, 2, 4]
    site.load()
    assert len(offsets_sent(site, topic)) == 7


def offsets_sent(site: TopicSite, topic: str) -> list[int]:
    """Return which records the topic of dead letters has, in its order."""
    found = letters_in_topic(site, topic)
    return [int(headers["__connect.errors.offset"]) for _, headers in found]


def test_a_load_that_follows_maintains_its_table(site: TopicSite) -> None:
    site = site.using(follow=True, freshness_ms=1, maintain_every_ms=1)
    site.write(0, [b"0"])
    turns = iter(range(1, 8))

    def should_stop() -> bool:
        number = next(turns, None)
        if number is not None:
            site.write(0, [b"%d" % number])
        return number is None

    Loader(site.settings, local_runner).run(should_stop)
    assert len(site.table.files()) < 4
    assert site.audit().is_clean
    assert site.audit().rows == 8


@pytest.mark.parametrize("site", ["iceberg"], indirect=True)
def test_older_states_of_iceberg_are_forgotten(site: TopicSite) -> None:
    """Each commit leaves a file with the whole state; the table remembers the last few."""
    site.write(0, [b"0"])
    site.load()
    with (
        own_catalog(site.settings.table.path) as catalog,
        catalog.load_table("millstream.iceberg").transaction() as transaction,
    ):
        transaction.set_properties(
            {
                "write.metadata.previous-versions-max": "2",
                "write.metadata.delete-after-commit.enabled": "false",
            }
        )
    for number in range(1, 6):
        site.write(0, [b"%d" % number])
        site.load()
    states = site.settings.table.path / "metadata"
    assert len(list(states.glob("*.metadata.json"))) > 6
    maintain(site.table, site.settings.load_id, target_bytes=1 << 20, keep_ms=3_600_000)
    assert len(list(states.glob("*.metadata.json"))) > 6
    maintain(site.table, site.settings.load_id, target_bytes=1 << 20, keep_ms=0)
    assert len(list(states.glob("*.metadata.json"))) <= 4
    site.write(0, [b"6"])
    site.load()
    assert [row[0] for row in site.rows("offset")] == list(range(7))
    assert iceberg_table(site.settings.table.path).scan().to_arrow().num_rows == 7


@pytest.mark.parametrize("command", ["repair", "maintain", "dlq show"])
def test_dead_letters_that_a_load_has_left(
    site: TopicSite, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands on tables commit what the table's commit has named."""
    site = site.using(format="json")
    site.write(0, [b'{"n":1}', b"bad"])
    with monkeypatch.context() as patch:
        patch.setattr(DeadLetterCommits, "settle", lambda *_: [])
        site.load()
    assert not site.letters.exists()
    assert site.audit().is_clean
    for table in (site.settings.table, f"{site.settings.table}_dead_letters"):
        assert main([*command.split(), str(table)]) == 0
        if "show" in command:
            break
    assert read_rows(site.letters, ["offset"]) == [(1,)]
    site.load()
    assert read_rows(site.letters, ["offset"]) == [(1,)]
    assert site.audit().is_clean


def test_dead_letters_that_a_replay_finds(site: TopicSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load has died before their commit; a replay does not wait for the next load."""
    site = site.using(format="text", format_options={"pattern": "n=(?P<n>.*)"})
    site.write(0, [b"n=1", b"m=2"])
    with monkeypatch.context() as patch:
        patch.setattr(DeadLetterCommits, "settle", lambda *_: [])
        site.load()
    fixed = site.using(format_options={"pattern": ".=(?P<n>.*)"})
    assert replay(fixed.settings) == Replay(tried=1, written=1)
    assert site.rows("_offset", "n") == [(0, "1"), (1, "2")]
    site.load()
    assert read_rows(site.letters, ["offset"]) == []
    assert site.audit().is_clean


def test_dead_letters_are_committed_once(site: TopicSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load has died behind their commit, before it has removed their manifest."""
    site = site.using(format="json")
    site.write(0, [b'{"n":1}', b"bad"])
    with monkeypatch.context() as patch:
        patch.setattr(dead_letter_commits, "_forget", lambda *_, **__: None)
        site.load()
    assert list(site.letters.name.path.rglob("rejected/*.json"))
    assert dead_letter_commits.settle_all(site.settings.table) == 1
    assert read_rows(site.letters, ["offset"]) == [(1,)]
    assert site.audit().is_clean
    assert not list(site.letters.name.path.rglob("rejected/*.json"))
