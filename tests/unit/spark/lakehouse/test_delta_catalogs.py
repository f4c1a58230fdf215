"""Delta tables by their names in Unity Catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lake_readers import library_rows
from tests.unit.spark.lakehouse.test_replace import written
from tests.unity_twin import UnityTwin

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.delta_catalogs import DeltaCatalogPath
from millstream.spark.lakehouse.table import (
    Layout,
    MergeTable,
    TableName,
    dead_letters_of,
    open_merge_table,
    parse_table_name,
)
from millstream.spark.lakehouse.unity_columns import sql_type, unity_column
from millstream.spark.locations.location import StoreError

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.timestamp("us", "UTC")), ("offset", pa.int64())])
LAYOUT = Layout(schema=SCHEMA, event_time="day", partition_column="the day")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABRICKS_HOST", "DATABRICKS_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[UnityTwin]:
    with UnityTwin("prod") as made:
        yield made


def named(server: UnityTwin, text: str = "delta:prod.web.clicks", **options: str) -> TableName:
    return parse_table_name(text, storage_options={"uri": server.uri, **options})


def made(server: UnityTwin, directory: Path) -> MergeTable:
    table = open_merge_table(named(server, warehouse=str(directory)))
    table.create(LAYOUT)
    return table


def test_a_table_is_listed_when_its_log_is_there(server: UnityTwin, tmp_path: Path) -> None:
    table = open_merge_table(named(server, warehouse=str(tmp_path)))
    assert not table.exists()
    table.create(LAYOUT)
    assert table.exists()
    listed = server.tables["prod.web.clicks"]
    place = tmp_path / "web" / "clicks"
    assert listed["storage_location"] == f"file://{place}"
    assert (listed["table_type"], listed["data_source_format"]) == ("EXTERNAL", "DELTA")
    assert [(each["name"], each["type_text"], each["type_name"]) for each in listed["columns"]] == [
        ("id", "bigint", "LONG"),
        ("day", "timestamp", "TIMESTAMP"),
        ("offset", "bigint", "LONG"),
        ("the day", "date", "DATE"),
    ]
    table.commit("app", {"batch": 1}, written(table, 1, 2), expected={})
    by_path = open_merge_table(TableName("delta", place))
    assert library_rows(by_path, ["id"]) == [(1,), (2,)]
    assert by_path.ledger("app", ["batch"]) == {"batch": 1}


def test_a_listed_table_needs_no_warehouse(server: UnityTwin, tmp_path: Path) -> None:
    made(server, tmp_path)
    found = open_merge_table(named(server))
    assert found.exists()
    found.create(LAYOUT)
    assert found.data_directory.uri() == str(tmp_path / "web" / "clicks")


def test_a_load_that_died_before_the_table_was_listed(server: UnityTwin, tmp_path: Path) -> None:
    table = made(server, tmp_path)
    table.commit("app", {"batch": 1}, written(table, 1), expected={})
    del server.tables["prod.web.clicks"]
    assert not table.exists()
    table.create(LAYOUT)
    assert table.exists()
    assert table.ledger("app", ["batch"]) == {"batch": 1}


def test_a_table_that_moved_is_found_where_it_is_now(server: UnityTwin, tmp_path: Path) -> None:
    table = made(server, tmp_path)
    table.commit("app", {"batch": 1}, written(table, 1), expected={})
    (tmp_path / "web" / "clicks").rename(tmp_path / "moved")
    server.tables["prod.web.clicks"]["storage_location"] = f"file:{tmp_path}/moved"
    assert table.exists()
    assert library_rows(table, ["id"]) == [(1,)]


def test_another_load_lists_the_table_elsewhere_meanwhile(
    server: UnityTwin, tmp_path: Path
) -> None:
    table = open_merge_table(named(server, warehouse=str(tmp_path / "a")))
    assert not table.exists()
    server.schemas.add("prod.web")
    answer, late = server.answer, {"yes": True}

    def overtaken(method: str, path: str, body: Any, token: str | None) -> tuple[int, Any]:
        if method == "POST" and path.endswith("/tables") and late.pop("yes", False):
            made(server, tmp_path / "b")
        return answer(method, path, body, token)

    server.answer = overtaken  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="another load has made the table meanwhile"):
        table.create(LAYOUT)


def test_dead_letters_lie_beside_their_table(server: UnityTwin, tmp_path: Path) -> None:
    made(server, tmp_path)
    letters = open_merge_table(dead_letters_of(named(server)))
    assert letters.data_directory.uri() == str(tmp_path / "web" / "clicks_dead_letters")
    assert not letters.exists()
    letters.create(Layout(schema=SCHEMA))
    assert "prod.web.clicks_dead_letters" in server.tables


def test_a_topic_in_the_name(server: UnityTwin) -> None:
    name = named(server, "delta:prod.web.{topic}")
    assert name.is_per_topic
    assert str(name.path.filled("{topic}", "my-topic.v1")) == "prod.web.my_topic_v1"


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ({"table_type": "MANAGED"}, "prod.web.clicks is a managed table: only its catalogue may"),
        ({"properties": {"delta.feature.catalogManaged": "supported"}}, "is a managed table"),
        ({"table_type": "METRIC_VIEW"}, "prod.web.clicks is a metric view in its catalogue"),
        ({"data_source_format": "PARQUET"}, "prod.web.clicks is a table of format PARQUET"),
    ],
)
def test_what_a_load_cannot_write_to(
    server: UnityTwin, tmp_path: Path, listed: dict[str, object], message: str
) -> None:
    made(server, tmp_path)
    server.tables["prod.web.clicks"].update(listed)
    with pytest.raises(ConfigError, match=message):
        open_merge_table(named(server)).exists()


def test_a_name_that_is_not_there_and_no_place_for_it(server: UnityTwin) -> None:
    table = open_merge_table(named(server))
    assert not table.exists()
    with pytest.raises(ConfigError, match=r"prod\.web\.clicks does not exist\. .* warehouse=URI"):
        table.create(LAYOUT)


def test_a_catalogue_that_the_server_does_not_have(server: UnityTwin, tmp_path: Path) -> None:
    table = open_merge_table(named(server, "delta:dev.web.clicks", warehouse=str(tmp_path)))
    with pytest.raises(ConfigError, match=r"Unity Catalog at http://127.* has no catalogue dev"):
        table.create(LAYOUT)
    assert not list(tmp_path.iterdir())


def test_a_token_by_option_and_by_environment(
    server: UnityTwin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(server, tmp_path)
    server.token = "secret"
    with pytest.raises(ConfigError, match=r"refuses us \(401: no such token\): check the token"):
        open_merge_table(named(server)).exists()
    assert open_merge_table(named(server, token="secret")).exists()
    monkeypatch.setenv("MILLSTREAM_CATALOG__PROD__URI", server.uri)
    monkeypatch.setenv("MILLSTREAM_CATALOG__PROD__TOKEN", "secret")
    assert open_merge_table(parse_table_name("delta:prod.web.clicks")).exists()


def test_databricks_names_the_server_and_its_token_goes_nowhere_else(
    server: UnityTwin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(server, tmp_path)
    server.token = "secret"
    monkeypatch.setenv("DATABRICKS_HOST", server.uri)
    monkeypatch.setenv("DATABRICKS_TOKEN", "secret")
    assert open_merge_table(parse_table_name("delta:prod.web.clicks")).exists()
    with pytest.raises(ConfigError, match="refuses us"):
        open_merge_table(named(server)).exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "catalogue prod: nothing says where it is"),
        ({"type": "unity"}, "catalogue prod: Unity Catalog needs the address of its server"),
        ({"type": "glue"}, "catalogue prod: its type is one of unity, spark, not 'glue'"),
        ({"uri": "ftp://x"}, "uri 'ftp://x' is no address"),
    ],
)
def test_settings_that_are_missing(options: dict[str, str], message: str) -> None:
    name = parse_table_name("delta:prod.web.clicks", storage_options=options)
    with pytest.raises(ConfigError, match=message):
        open_merge_table(name).exists()


def test_a_name_of_four_parts(server: UnityTwin) -> None:
    with pytest.raises(ConfigError, match=r"is named CATALOG\.SCHEMA\.TABLE"):
        open_merge_table(named(server, "delta:prod.web.old.clicks")).exists()


def test_a_server_that_is_none(server: UnityTwin) -> None:
    server.failures = [(404, "<html>")]
    with pytest.raises(ConfigError, match="is not Unity Catalog"):
        open_merge_table(named(server)).exists()
    server.failures = [(200, "<html>")]
    with pytest.raises(ConfigError, match="is not Unity Catalog"):
        open_merge_table(named(server)).exists()


def test_a_server_that_does_not_answer_for_a_moment(server: UnityTwin, tmp_path: Path) -> None:
    made(server, tmp_path)
    server.failures = [(503, "UNAVAILABLE"), (429, "RESOURCE_EXHAUSTED")]
    assert open_merge_table(named(server)).exists()
    server.failures = [(503, "UNAVAILABLE")] * 3
    with pytest.raises(StoreError, match="answers 503 it said so"):
        open_merge_table(named(server)).exists()


def test_the_server_lends_keys_for_its_store(server: UnityTwin) -> None:
    server.keys = {
        "aws_temp_credentials": {
            "access_key_id": "id",
            "secret_access_key": "lent",
            "session_token": "session",
        }
    }
    name = named(server, warehouse="s3://lake/tables", AWS_REGION="eu-west-1")
    lent = {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "lent",
        "AWS_SESSION_TOKEN": "session",
        "AWS_REGION": "eu-west-1",
    }
    assert dict(name.path.storage_options) == lent
    assert name.path.uri() == "s3://lake/tables/web/clicks"
    asked = ("POST", "/temporary-path-credentials")
    body = {"url": "s3://lake/tables/web/clicks", "operation": "PATH_CREATE_TABLE"}
    assert server.asked[-1] == (*asked, body)
    assert isinstance(name.path, DeltaCatalogPath)
    name.path.add([])
    assert dict(name.path.storage_options) == lent
    body = {"table_id": server.tables["prod.web.clicks"]["table_id"], "operation": "READ_WRITE"}
    assert server.asked[-1] == ("POST", "/temporary-table-credentials", body)


def test_a_token_that_may_only_read(server: UnityTwin, tmp_path: Path) -> None:
    made(server, tmp_path)
    server.tables["prod.web.clicks"]["storage_location"] = "s3://lake/clicks"
    server.keys = {"aws_temp_credentials": {"access_key_id": "id", "secret_access_key": "lent"}}
    answer = server.answer

    def guarded(method: str, path: str, body: Any, token: str | None) -> tuple[int, Any]:
        if body and body.get("operation") == "READ_WRITE":
            return 403, {"error_code": "PERMISSION_DENIED", "message": "read only"}
        return answer(method, path, body, token)

    server.answer = guarded  # type: ignore[method-assign]
    assert named(server).path.storage_options["AWS_SECRET_ACCESS_KEY"] == "lent"


def test_keys_that_are_given_are_used(server: UnityTwin) -> None:
    own = {"AWS_ACCESS_KEY_ID": "own", "AWS_SECRET_ACCESS_KEY": "own"}
    name = named(server, warehouse="s3://lake/tables", **own)
    assert dict(name.path.storage_options) == own
    assert not [path for _, path, _ in server.asked if "credentials" in path]


def test_a_server_without_keys_leaves_those_of_the_environment(server: UnityTwin) -> None:
    name = named(server, warehouse="s3://lake/tables", AWS_REGION="eu-west-1")
    assert dict(name.path.storage_options) == {"AWS_REGION": "eu-west-1"}


def test_columns_as_unity_catalog_has_them() -> None:
    kind = {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "integer", "nullable": True, "metadata": {}},
            {"name": "b-c", "type": {"type": "array", "elementType": "short"}},
            {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "byte"}},
        ],
    }
    assert sql_type(kind) == "struct<a:int,`b-c`:array<smallint>,m:map<string,tinyint>>"
    column = unity_column({"name": "n", "type": "decimal(10, 2)", "nullable": False}, 3)
    assert (column["type_text"], column["type_name"], column["position"]) == (
        "decimal(10,2)",
        "DECIMAL",
        3,
    )
    assert (column["type_precision"], column["type_scale"]) == (10, 2)
    assert column["nullable"] is False
    assert unity_column({"name": "s", "type": kind}, 0)["type_name"] == "STRUCT"
