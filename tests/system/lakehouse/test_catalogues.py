"""Iceberg tables of catalogues: Iceberg's own REST server, and SQL with its files in S3."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from tests.broker_process import BrokerProcess
from tests.iceberg_rest import RestCatalogMissingError, RestCatalogServer
from tests.object_store import CutLink, S3Server
from tests.system.lakehouse.topic_site import TopicSite

from millstream.cli.main import main
from millstream.spark.lakehouse.jobs import run_load
from millstream.spark.lakehouse.maintain import maintain
from millstream.spark.lakehouse.table import parse_table_name

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    try:
        with RestCatalogServer(tmp_path_factory.mktemp("rest")) as made:
            yield made
    except RestCatalogMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def site(broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path) -> TopicSite:
    made = TopicSite(broker.bootstrap, new_topic(), tmp_path)
    made.create(2)
    return made


def clicks(first: int, end: int) -> list[bytes]:
    values = {n: json.dumps({"n": n, "at": "2024-01-31T10:00:00Z"}).encode() for n in range(end)}
    return [b"rubbish" if n % 100 == 3 else values[n] for n in range(first, end)]


def good(end: int) -> list[int]:
    return [n for n in range(end) if n % 100 != 3]


def in_catalog(site: TopicSite, options: dict[str, str]) -> TopicSite:
    text = "iceberg:prod.web.t_{topic}".replace("{topic}", site.topic.replace("-", "_"))
    name = parse_table_name(text, storage_options=options)
    return site.using(table=name, format="json", event_time="at")


def rows_of_others(site: TopicSite, options: dict[str, str]) -> list[int]:
    table = load_catalog("prod", **options).load_table(str(site.settings.table.path)[5:])
    return sorted(table.scan().to_arrow()["n"].to_pylist())


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_link_to_a_rest_catalogue_that_breaks_in_a_commit(
    site: TopicSite, rest: RestCatalogServer
) -> None:
    site.write(0, clicks(0, 100))
    options = {"type": "rest", "uri": f"http://127.0.0.1:{rest.port}"}
    with CutLink(rest.port) as link:
        here = in_catalog(site, {"type": "rest", "uri": link.endpoint})
        here.load()
        table = str(here.settings.table.path).rpartition(".")[2]
        for number, answered in enumerate((True, False), 1):
            site.write(0, clicks(number * 100, number * 100 + 100))
            link.cut(f"POST /v1/namespaces/web/tables/{table} ", answered=answered)
            run_load(here.settings)
            assert link.cuts == number
    at_home = in_catalog(site, options)
    found = at_home.audit()
    assert found.is_clean
    assert (found.rows, sum(each.dead_letters for each in found.partitions)) == (297, 3)
    assert rows_of_others(at_home, options) == good(300)
    maintain(at_home.table, at_home.settings.load_id, target_bytes=1 << 20, keep_ms=0)
    assert at_home.audit().is_clean
    assert rows_of_others(at_home, options) == good(300)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_table_in_s3_of_an_sql_catalogue(
    site: TopicSite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with S3Server() as server:
        options = {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": "s3://lake/warehouse",
            "s3.endpoint": server.endpoint,
            "s3.access-key-id": "somebody",
            "s3.secret-access-key": "secret",
            "s3.region": "us-east-1",
        }
        site = in_catalog(site, options)
        for first in (0, 100):
            site.write(0, clicks(first, first + 100))
            site.load()
        found = site.audit()
        assert found.is_clean
        assert (found.rows, sum(each.dead_letters for each in found.partitions)) == (198, 2)
        assert rows_of_others(site, options) == good(200)
        done = maintain(site.table, site.settings.load_id, target_bytes=1 << 20, keep_ms=0)
        assert (done.compaction.removed, done.compaction.added) == (2, 1)
        assert site.audit().is_clean
        assert rows_of_others(site, options) == good(200)
        given = [f"--storage-option={key}={text}" for key, text in options.items()]
        name = str(site.settings.table)
        assert main(["audit", site.topic, name, "--bootstrap-server", site.bootstrap, *given]) == 0
        assert main(["dlq", "show", name, *given]) == 0
        assert "2 dead letters" in capsys.readouterr().err
