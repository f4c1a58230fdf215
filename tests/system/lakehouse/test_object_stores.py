"""Tables in an object store: an S3 server of another program, and links that break."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable
from tests.broker_process import BrokerProcess
from tests.object_store import CutLink, S3Server, options_of
from tests.system.lakehouse.topic_site import TopicSite

from millstream.cli.main import main
from millstream.client.core.producer.transactions import PreparedTransaction
from millstream.model.errors import ConfigError, MillstreamError
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.jobs import run_load
from millstream.spark.lakehouse.maintain import maintain
from millstream.spark.lakehouse.table import Layout, open_table, parse_table_name
from millstream.spark.locations.location import parse_location
from millstream.spark.sink_journal import Journal

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as made:
        yield made


@pytest.fixture
def site(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> TopicSite:
    made = TopicSite(broker.bootstrap, new_topic(), tmp_path)
    made.create(2)
    return made


def clicks(count: int, *, first: int = 0) -> list[bytes]:
    found = [json.dumps({"n": n, "at": "2024-01-31T10:00:00Z"}).encode() for n in range(count)]
    return [b"rubbish" if n == first + 3 else each for n, each in enumerate(found)][first:]


def in_store(site: TopicSite, kind: str, options: dict[str, str], **changes: Any) -> TopicSite:
    name = parse_table_name(f"{kind}:s3://lake/{site.topic}", storage_options=options)
    return site.using(table=name, format="json", event_time="at", **changes)


def rows_of_others(site: TopicSite, options: dict[str, str]) -> list[int]:
    """Read the table with another program."""
    path = site.settings.table.path
    if site.settings.table.kind == "delta":
        table = DeltaTable(path.uri(), storage_options=options).to_pyarrow_table()
        return sorted(table["n"].to_pylist())
    found = polars.scan_parquet(
        f"{path.uri()}/date=*/*.parquet",
        storage_options={name.lower(): text for name, text in options.items()},
    ).collect()
    return sorted(found["n"].to_list())


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_table_with_dead_letters(site: TopicSite, server: S3Server, kind: str) -> None:
    site.write(0, clicks(200))
    site = in_store(site, kind, server.options)
    site.load()
    site.write(1, clicks(100))
    site.load()
    site.load()
    found = site.audit()
    assert found.is_clean
    assert (found.rows, sum(each.dead_letters for each in found.partitions)) == (298, 2)
    expected = sorted([n for n in range(200) if n != 3] + [n for n in range(100) if n != 3])
    assert rows_of_others(site, server.options) == expected
    done = maintain(site.table, site.settings.load_id, target_bytes=1 << 20, keep_ms=0)
    assert done.compaction.added == 1
    assert site.audit().is_clean
    assert rows_of_others(site, server.options) == expected
    name = str(site.settings.table)
    given = [f"--storage-option={key}={text}" for key, text in server.options.items()]
    assert main(["dlq", "show", name, *given]) == 0


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", [pytest.param("delta", marks=pytest.mark.long), "parquet"])
def test_a_link_that_breaks_in_a_commit(site: TopicSite, server: S3Server, kind: str) -> None:
    log = "_delta_log/" if kind == "delta" else "_millstream/log/"
    cuts = [(log, True), (log, False), ("date%3D2024", False), ("rejected/", True)]
    site.write(0, clicks(100))
    with CutLink(server.port) as link:
        here = in_store(site, kind, options_of(link.endpoint))
        here.load()
        for number, (moment, answered) in enumerate(cuts, 1):
            site.write(0, clicks(number * 100 + 100, first=number * 100))
            link.cut(f"PUT /lake/{site.topic}", moment, answered=answered)
            run_load(here.settings)
            assert link.cuts == number, moment
    at_home = in_store(site, kind, server.options)
    found = at_home.audit()
    assert found.is_clean
    assert found.rows == 495
    assert sum(each.dead_letters for each in found.partitions) == 5
    bad = {3, 103, 203, 303, 403}
    assert rows_of_others(at_home, server.options) == [n for n in range(500) if n not in bad]


def test_a_store_that_does_not_answer_ends_a_load_with_a_sentence(
    site: TopicSite, server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(0, clicks(10))
    bootstrap = ["--engine=local", "--bootstrap-server", site.bootstrap]
    for name, option, sentence in (
        ("delta:s3://lake/x", "AWS_S3_ALLOW_UNSAFE_RENAME=true", "conditional puts"),
        ("parquet:s3://lake/x", "conditional_put=disabled", "conditional puts"),
        ("iceberg:s3://lake/x", "AWS_REGION=us-east-1", "needs a catalogue"),
    ):
        with contextlib.suppress(SystemExit):
            assert main(["load", site.topic, "--to", name, "--storage-option", option, *bootstrap])
        assert sentence in capsys.readouterr().err.replace("\n", " ").replace("│", "")


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_store_that_does_not_keep_the_condition_is_refused(kind: str) -> None:
    with S3Server(conditional=False) as careless:
        name = parse_table_name(f"{kind}:s3://lake/t", storage_options=careless.options)
        with pytest.raises(ConfigError, match="does not keep the condition"):
            open_table(name).create(Layout(schema=RAW_COLUMNS))
        assert not open_table(name).exists()


def test_the_journal_of_a_sink(server: S3Server) -> None:
    place = parse_location("s3://lake/checkpoint/millstream-sink", storage_options=server.options)
    journal = Journal(place)
    name = journal.name()
    assert Journal(place).name() == name
    one, other = (
        [PreparedTransaction(transactional_id=text, producer_id=1, epoch=1, is_v2=True)]
        for text in ("a", "b")
    )
    for batch in range(2):
        journal.decide(batch, one)
        with pytest.raises(MillstreamError, match="another driver"):
            Journal(place).decide(batch, other)
        assert Journal(place).decided() == {batch: one}
        journal.finish(batch)
        assert (Journal(place).decided(), Journal(place).last_committed()) == ({}, batch)
    assert sorted(place.entries()) == ["1.committed", "id"]
