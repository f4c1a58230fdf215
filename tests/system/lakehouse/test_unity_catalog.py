"""Delta tables of Unity Catalog: its open-source server, with files on disk and in S3."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.broker_process import BrokerProcess
from tests.object_store import CutLink, S3Server
from tests.system.lakehouse.topic_site import TopicSite
from tests.unity_catalog import UnityMissingError, UnityServer
from tests.unity_twin import UnityTwin

from millstream.cli.main import main
from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.jobs import run_load
from millstream.spark.lakehouse.load_plan import plan_load
from millstream.spark.lakehouse.maintain import maintain
from millstream.spark.lakehouse.table import open_table, parse_table_name

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with S3Server() as made:
        yield made


@pytest.fixture(scope="module")
def unity(tmp_path_factory: pytest.TempPathFactory, store: S3Server) -> Iterator[UnityServer]:
    try:
        with UnityServer(tmp_path_factory.mktemp("unity"), store) as made:
            yield made
    except UnityMissingError as error:
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


def in_unity(site: TopicSite, options: dict[str, str], **changes: Any) -> TopicSite:
    text = f"delta:prod.web.t_{site.topic.replace('-', '_')}"
    name = parse_table_name(text, storage_options=options)
    return site.using(table=name, format="json", **changes)


def listed(unity: UnityServer, site: TopicSite) -> dict[str, Any]:
    found: dict[str, Any] = unity.ask("GET", f"/tables/{site.settings.table.path}")
    return found


def rows_of_others(unity: UnityServer, site: TopicSite, **options: str) -> list[int]:
    """Return what a reader finds that has only the catalogue's answer."""
    location = listed(unity, site)["storage_location"]
    table = DeltaTable(location, storage_options=options)
    return sorted(table.to_pyarrow_table(columns=["n"])["n"].to_pylist())


def given(options: dict[str, str]) -> list[str]:
    return [f"--storage-option={name}={text}" for name, text in options.items()]


@pytest.mark.parametrize("kind", ["real", "twin"])
def test_loads_by_name(
    site: TopicSite,
    request: pytest.FixtureRequest,
    kind: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each command that takes a table, against the real server, and against the twin of the unit
    tests, which so is shown to answer alike.
    """
    if kind == "twin":
        with UnityTwin("prod") as twin:
            commands_by_name(site, twin.uri, tmp_path, capsys)
    else:
        unity: UnityServer = request.getfixturevalue("unity")
        here = commands_by_name(site, unity.uri, tmp_path, capsys)
        assert rows_of_others(unity, here) == good(200)
        columns = listed(unity, here)["columns"]
        assert ("n", "bigint") in [(each["name"], each["type_text"]) for each in columns]


def commands_by_name(
    site: TopicSite, uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> TopicSite:
    options = {"uri": uri, "warehouse": f"file://{tmp_path}/warehouse"}
    here = in_unity(site, options, event_time="at")
    site.write(0, clicks(0, 100))
    assert plan_load(here.settings).is_new
    assert not (tmp_path / "warehouse").exists()
    here.load()
    site.write(1, clicks(100, 200))
    assert not plan_load(here.settings).is_new
    # The catalogue knows where it is.
    here = in_unity(site, {"uri": uri}, event_time="at")
    here.load()
    found = here.audit()
    assert found.is_clean
    assert (found.rows, sum(each.dead_letters for each in found.partitions)) == (198, 2)
    name = str(here.settings.table)
    where = ["--bootstrap-server", site.bootstrap, "--storage-option", f"uri={uri}"]
    assert main(["audit", site.topic, name, *where]) == 0
    assert main(["lag", site.topic, name, *where]) == 0
    for words in (["dlq", "show", name], ["repair", name]):
        assert main([*words, "--storage-option", f"uri={uri}"]) == 0
    assert "2 dead letters" in capsys.readouterr().err
    done = maintain(here.table, here.settings.load_id, target_bytes=1 << 20, keep_ms=0)
    assert (done.compaction.removed, done.compaction.added) == (2, 1)
    assert here.audit().is_clean
    return here


def test_columns_that_come_later(site: TopicSite, unity: UnityServer, tmp_path: Path) -> None:
    options = {"uri": unity.uri, "warehouse": str(tmp_path / "warehouse")}
    here = in_unity(site, options)
    site.write(0, clicks(0, 3))
    here.load()
    site.write(0, [json.dumps({"n": 3, "new": "x"}).encode()])
    here.load()
    table = DeltaTable(listed(unity, here)["storage_location"])
    rows = table.to_pyarrow_table(columns=["n", "new"]).sort_by("n").to_pylist()
    assert rows[-1] == {"n": 3, "new": "x"}
    assert here.audit().is_clean


def test_a_table_of_the_present(site: TopicSite, unity: UnityServer, tmp_path: Path) -> None:
    options = {"uri": unity.uri, "warehouse": str(tmp_path / "warehouse")}
    here = in_unity(site, options, mode="upsert", key=("n",))
    for text in ("old", "new"):
        site.write(0, [json.dumps({"n": n, "text": text}).encode() for n in range(50)])
        here.load()
    table = DeltaTable(listed(unity, here)["storage_location"])
    assert set(table.to_pyarrow_table(columns=["text"])["text"].to_pylist()) == {"new"}
    assert rows_of_others(unity, here) == list(range(50))


def test_in_s3_with_keys_that_the_server_lends(
    site: TopicSite, unity: UnityServer, store: S3Server
) -> None:
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    own = {name: text for name, text in store.options.items() if name not in keys}
    options = {"uri": unity.uri, "warehouse": "s3://lake/tables", **own}
    here = in_unity(site, options, event_time="at")
    assert here.settings.table.path.storage_options["AWS_SESSION_TOKEN"] == "lent"
    for first in (0, 100):
        site.write(0, clicks(first, first + 100))
        here.load()
    assert here.settings.table.path.storage_options["AWS_SESSION_TOKEN"] == "lent"
    assert here.audit().is_clean
    assert rows_of_others(unity, here, **store.options) == good(200)
    maintain(here.table, here.settings.load_id, target_bytes=1 << 20, keep_ms=0)
    assert here.audit().is_clean
    assert rows_of_others(unity, here, **store.options) == good(200)


@pytest.mark.parametrize("answered", [True, False])
def test_a_link_that_breaks_as_the_table_is_listed(
    site: TopicSite, unity: UnityServer, tmp_path: Path, answered: bool
) -> None:
    site.write(0, clicks(0, 100))
    with CutLink(unity.port) as link:
        options = {"uri": link.endpoint, "warehouse": str(tmp_path / "warehouse")}
        here = in_unity(site, options)
        link.cut("POST /api/2.1/unity-catalog/tables ", answered=answered)
        run_load(here.settings)
        assert link.cuts == 1
    at_home = in_unity(site, {"uri": unity.uri})
    assert at_home.audit().is_clean
    assert rows_of_others(unity, at_home) == good(100)


def test_a_managed_table_is_refused(site: TopicSite, unity: UnityServer) -> None:
    here = in_unity(site, {"uri": unity.uri})
    schema = f"m_{site.topic.replace('-', '_')}"
    unity.ask("POST", "/schemas", {"name": schema, "catalog_name": "prod"})
    whole = {"name": "t", "catalog_name": "prod", "schema_name": schema}
    staged = unity.ask("POST", "/staging-tables", whole)
    table = {
        **whole,
        "table_type": "MANAGED",
        "data_source_format": "DELTA",
        "columns": [],
        "storage_location": staged["staging_location"],
        "properties": {
            "delta.feature.catalogManaged": "supported",
            "io.unitycatalog.tableId": staged["id"],
        },
    }
    unity.ask("POST", "/tables", table)
    name = parse_table_name(f"delta:prod.{schema}.t", storage_options={"uri": unity.uri})
    with pytest.raises(ConfigError, match="is a managed table: only its catalogue may commit"):
        here.using(table=name).load()


def test_names_that_are_not_there(
    site: TopicSite, unity: UnityServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write(0, clicks(0, 3))
    words = ["load", site.topic, "--bootstrap-server", site.bootstrap, "--engine", "local"]
    uri = f"uri={unity.uri}"
    for name, more, message in (
        ("prod.no.t", [], "prod.no.t does not exist. To create it as an external table"),
        ("dev.web.t", [f"warehouse={tmp_path}"], "has no catalogue dev"),
    ):
        options = [f"--storage-option={each}" for each in (uri, *more)]
        assert main([*words, "--to", f"delta:{name}", *options]) != 0
        assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("**/_delta_log"))


def test_a_server_that_asks_for_a_token(
    site: TopicSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        with UnityServer(tmp_path / "unity", secured=True) as secured:
            options = {"uri": secured.uri, "warehouse": str(tmp_path / "warehouse")}
            site.write(0, clicks(0, 100))
            with pytest.raises(ConfigError, match=r"refuses us \(401.*: check the token"):
                in_unity(site, options).load()
            monkeypatch.setenv("MILLSTREAM_CATALOG__PROD__TOKEN", secured.token)
            here = in_unity(site, options)
            here.load()
            assert here.audit().is_clean
            assert open_table(here.settings.table).exists()
    except UnityMissingError as error:
        pytest.skip(str(error))
