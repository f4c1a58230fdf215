"""Several topics into a table each, in one job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite, read_rows

from millstream.cli.main import main
from millstream.client import Admin
from millstream.client.errors import BrokerError
from millstream.model.errors import ConfigError, ErrorCode
from millstream.spark.lakehouse import load
from millstream.spark.lakehouse.fan_out import FanOut, FanOutError, settings_for
from millstream.spark.lakehouse.landing import Landed
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import KINDS, TableName, parse_table_name
from millstream.spark.lakehouse.topic_reader import TopicEnds, TopicReader
from millstream.spark.lakehouse.works import Work, land_works_locally

pytestmark = pytest.mark.system


class Lake:
    """Topics of one prefix, and the directory of their tables."""

    def __init__(self, bootstrap: str, prefix: str, directory: Path, kind: str = "delta") -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.directory = directory
        self.settings = LoadSettings(
            source={
                "kafka.bootstrap.servers": bootstrap,
                "subscribePattern": f"{prefix}-.*",
            },
            table=TableName(kind, directory / "a lake" / "{topic}"),
            group_id="",
        )

    def topic(self, name: str, partitions: int = 1) -> TopicSite:
        site = self.site(name)
        site.create(partitions)
        return site

    def site(self, name: str) -> TopicSite:
        """Return one of the tables as whoever loads its topic alone sees it."""
        site = TopicSite(self.bootstrap, f"{self.prefix}-{name}", self.directory)
        site.settings = settings_for(self.settings, site.topic)
        return site


@pytest.fixture
def lake(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> Lake:
    return Lake(broker.bootstrap, new_topic(), tmp_path)


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_topic_gets_its_table(
    broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path, kind: str
) -> None:
    lake = Lake(broker.bootstrap, new_topic(), tmp_path, kind)
    one, two = lake.topic("one", 2), lake.topic("two")
    one.write(0, numbers(30))
    one.write(1, numbers(20))
    two.write(0, numbers(7))
    FanOut(lake.settings, land_works_locally).run()
    assert [(each.audit().is_clean, each.audit().rows) for each in (one, two)] == [
        (True, 50),
        (True, 7),
    ]
    two.write(0, numbers(3, first=7))
    three = lake.topic("three")
    three.write(0, numbers(4))
    FanOut(lake.settings, land_works_locally).run()
    two.write(0, numbers(1, first=10))
    two.load()  # the table is that of a load of its own
    assert [(each.audit().is_clean, each.audit().rows) for each in (one, two, three)] == [
        (True, 50),
        (True, 11),
        (True, 4),
    ]


def test_one_job_lands_what_all_tables_lack(lake: Lake) -> None:
    sites = [lake.topic(name) for name in ("a", "b", "c")]
    for site in sites:
        site.write(0, numbers(10))
    jobs: list[list[str]] = []

    def runner(works: Sequence[Work]) -> list[Landed | Exception]:
        jobs.append([work.topic for work in works])
        return land_works_locally(works)

    FanOut(replace(lake.settings, driver_bytes=0), runner).run()
    assert jobs == [[site.topic for site in sites]]


def test_one_topic_with_bad_records_stops_no_other(lake: Lake) -> None:
    lake.settings = replace(lake.settings, format="json", dead_letters=False)
    good, bad, empty = lake.topic("good"), lake.topic("bad"), lake.topic("empty")
    good.write(0, [b'{"n":1}', b'{"n":2.5,"s":"x"}'])
    bad.write(0, [b'{"n":1}', b"bad"])
    fan_out = FanOut(lake.settings, land_works_locally)
    with pytest.raises(FanOutError, match=rf"^{bad.topic}: offset 1 of {bad.topic}-0[^;]*$"):
        fan_out.run()
    assert good.rows("_offset", "n", "s") == [(0, 1.0, None), (1, 2.5, "x")]
    assert bad.rows("_offset") == []
    empty.write(0, [b'{"m":true}'])
    with pytest.raises(FanOutError):
        FanOut(lake.settings, land_works_locally).run()
    assert empty.rows("_offset", "m") == [(0, True)]


def test_dead_letters_stay_with_their_topic(lake: Lake) -> None:
    lake.settings = replace(lake.settings, format="json")
    site = lake.topic("one")
    site.write(0, [b'{"n":1}', b"bad"])
    FanOut(lake.settings, land_works_locally).run()
    assert read_rows(site.letters, ["offset", "value"]) == [(1, b"bad")]
    assert site.audit().is_clean


def test_following_topics_that_come_and_are_made_anew(lake: Lake) -> None:
    first = lake.topic("first")
    first.write(0, numbers(5))
    stop = threading.Event()
    rows: list[int] = []
    fan_out = FanOut(
        replace(lake.settings, follow=True, freshness_ms=200),
        land_works_locally,
        on_batch=lambda report: rows.append(report.rows),
    )
    failures: list[Exception] = []

    def run() -> None:
        try:
            fan_out.run(stop.is_set)
        except FanOutError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        later = lake.topic("later")
        later.write(0, numbers(6))
        _until(lambda: sum(rows) == 11)
        with Admin(bootstrap_servers=lake.bootstrap) as admin:
            admin.delete_topics([first.topic]).get_all()
        first.create(1)
        first.write(0, numbers(1))
        _until(lambda: first.topic in fan_out.errors)
        later.write(0, numbers(2, first=6))
        _until(lambda: sum(rows) == 13)
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()
    assert "created again" in str(failures[0])
    assert (later.audit().is_clean, later.audit().rows) == (True, 8)


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it did not come to be")


def test_the_command(lake: Lake) -> None:
    one, two = lake.topic("one"), lake.topic("two")
    one.write(0, numbers(3))
    two.write(0, numbers(4))
    topics = f"{one.topic},{two.topic}"
    words = ["load", topics, "--to", str(lake.settings.table), "-b", lake.bootstrap]
    assert main([*words, "--engine", "local", "--group", ""]) == 0
    assert [each.audit().rows for each in (one, two)] == [3, 4]
    assert main(["audit", topics, str(lake.settings.table), "-b", lake.bootstrap]) == 0
    one.table.data_directory.joinpath(one.table.files()[0]).unlink()
    assert main(["audit", topics, str(lake.settings.table), "-b", lake.bootstrap]) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("event_time", [None, "_timestamp"])
def test_an_empty_topic_begins_where_it_was_first_seen(
    broker: BrokerProcess,
    new_topic: Callable[[], str],
    tmp_path: Path,
    kind: str,
    event_time: str | None,
) -> None:
    """Its columns cannot be inferred yet, and "latest" is another place later."""
    lake = Lake(broker.bootstrap, new_topic(), tmp_path, kind)
    source = {**lake.settings.source, "startingOffsets": "latest"}
    lake.settings = replace(lake.settings, source=source, format="json", event_time=event_time)
    past, empty = lake.topic("past"), lake.topic("empty", 2)
    past.write(0, [b'{"n":1}'])
    FanOut(lake.settings, land_works_locally).run()
    assert not empty.table.exists()
    past.write(0, [b'{"n":2}'])
    empty.write(1, [b'{"m":1}', b"bad", b'{"m":2}'])
    FanOut(lake.settings, land_works_locally).run()
    assert past.rows("_offset", "n") == [(1, 2)]
    assert empty.rows("_partition", "_offset", "m") == [(1, 0, 1), (1, 2, 2)]
    assert empty.audit().is_clean
    assert not (empty.settings.table.path / "_millstream" / "start.json").exists()


def test_an_empty_topic_that_was_made_anew(lake: Lake) -> None:
    source = {**lake.settings.source, "startingOffsets": "latest"}
    lake.settings = replace(lake.settings, source=source, format="json")
    site = lake.topic("one")
    FanOut(lake.settings, land_works_locally).run()
    with Admin(bootstrap_servers=lake.bootstrap) as admin:
        admin.delete_topics([site.topic]).get_all()
    site.create(1)
    FanOut(lake.settings, land_works_locally).run()
    site.write(0, [b'{"n":1}'])
    FanOut(lake.settings, land_works_locally).run()
    site.write(0, [b'{"n":2}'])
    FanOut(lake.settings, land_works_locally).run()
    assert (1, 2) in site.rows("_offset", "n")


def test_a_topic_that_is_deleted_ends_its_own_load(lake: Lake) -> None:
    one, two = lake.topic("one"), lake.topic("two")
    servers = {"kafka.bootstrap.servers": lake.bootstrap}
    lake.settings = replace(
        lake.settings, source={**servers, "subscribe": f"{one.topic},{two.topic}"}
    )
    FanOut(lake.settings, land_works_locally).run()
    with Admin(bootstrap_servers=lake.bootstrap) as admin:
        admin.delete_topics([one.topic]).get_all()
    two.write(0, numbers(3))
    with pytest.raises(FanOutError, match=f"^{one.topic}: option subscribe: [^;]*$"):
        FanOut(lake.settings, land_works_locally).run()
    assert two.audit().rows == 3
    wrong = {**servers, "subscribe": f"{two.topic},{two.topic}-misspelt"}
    two.write(0, numbers(4))
    with pytest.raises(FanOutError, match=f"^{two.topic}-misspelt: [^;]*does not exist$"):
        FanOut(replace(lake.settings, source=wrong), land_works_locally).run()
    assert two.audit().rows == 7


def test_a_topic_that_goes_between_metadata_and_offsets(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.topic("one").write(0, numbers(3))
    ends, calls = TopicReader.ends, []

    def late(self: TopicReader) -> TopicEnds:
        calls.append(1)
        if len(calls) == 1:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "offsets of one-0")
        return ends(self)

    monkeypatch.setattr(TopicReader, "ends", late)
    rows: list[int] = []
    FanOut(lake.settings, land_works_locally, on_batch=lambda r: rows.append(r.rows)).run()
    assert rows == [3]


def test_columns_that_cannot_change_end_one_topic(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.settings = replace(lake.settings, format="json")
    one, two = lake.topic("one"), lake.topic("two")
    for each in (one, two):
        each.write(0, [b'{"n":1}'] * 3)
    FanOut(lake.settings, land_works_locally).run()
    one.write(0, [b'{"n":1.5}'])
    two.write(0, [b'{"n":2}'])

    def refuse(*_: object) -> None:
        raise ConfigError("n cannot become double")

    monkeypatch.setattr(load, "evolve_columns", refuse)
    with pytest.raises(FanOutError, match=f"^{one.topic}: n cannot become double$"):
        FanOut(lake.settings, land_works_locally).run()
    assert two.audit().rows == 4


def test_names_that_are_one_in_a_catalogue(lake: Lake, tmp_path: Path) -> None:
    """Catalogues take neither dots nor dashes in names: these become ``_``."""
    first, second = lake.topic("a-b"), lake.topic("a_b")
    for site in (first, second):
        site.write(0, [b"one", b"two"])
    warehouse = str(tmp_path / "warehouse")
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/tables.db", "warehouse": warehouse}
    table = parse_table_name("iceberg:prod.web.t_{topic}", storage_options=options)
    with pytest.raises(FanOutError) as caught:
        FanOut(replace(lake.settings, table=table), land_works_locally).run()
    assert str(caught.value) == (
        f"{second.topic}: its table would be that of {first.topic}, "
        f"{settings_for(replace(lake.settings, table=table), first.topic).table}: load it apart, "
        "into a table of another name"
    )


def test_what_cannot_be(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs its own schema file"):
        FanOut(replace(lake.settings, schema_file=tmp_path / "s.json"), land_works_locally)
    with pytest.raises(ConfigError, match="one table"):
        FanOut(replace(lake.settings, query=lambda rows: rows), land_works_locally)


def test_where_each_topic_starts() -> None:
    settings = LoadSettings(
        source={"subscribe": "a,b", "startingOffsets": '{"a":{"0":5}}'},
        table=TableName("delta", Path("/lake/{topic}")),
        schema_file=Path("/schemas/{topic}.json"),
    )
    a, b = settings_for(settings, "a"), settings_for(settings, "b")
    assert a.source == {"subscribe": "a", "startingOffsets": '{"a": {"0": 5}}'}
    assert b.source == {"subscribe": "b"}
    assert (str(b.table), str(b.schema_file)) == ("delta:/lake/b", "/schemas/b.json")
    assert (b.load_id, b.group) == ("load:b", "millstream-b-" + b.group[-8:])
    assert a.group[-8:] != b.group[-8:]
