"""A topic whose records name their schemas, through every fault of the registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.broker_process import BrokerProcess
from tests.schema_registry import Fault, RegistryServer
from tests.system.lakehouse.topic_site import TopicSite, read_rows
from tests.topics import append_batches

import millstream
from millstream.cli.main import main
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder
from millstream.schemas import http
from millstream.schemas.framing import frame
from millstream.schemas.schema import RegistryAwayError, RegistryRefusedError
from millstream.spark.lakehouse.audit import sentences
from millstream.spark.lakehouse.jobs import may_pass
from millstream.spark.lakehouse.table import open_table, parse_table_name

pytestmark = pytest.mark.system

SECRET = "wholly-secret"


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }


OLD = record(("id", "int"))
NEW = record(("note", ["null", "string"]), ("id", "long"))


def datum(number: int, schema: dict[str, Any], value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return frame(number, out.getvalue())


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(http, "_PAUSES_S", (0.0,))
    with RegistryServer() as server:
        yield server


@pytest.fixture
def site(
    broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path, registry: RegistryServer
) -> TopicSite:
    site = TopicSite(broker.bootstrap, f"{new_topic()}-framed", tmp_path)
    site.create(1)
    return site.using(format="avro", registry={"schema.registry.url": registry.url})


def test_records_of_many_schemas_become_rows_of_one_table(
    site: TopicSite, registry: RegistryServer, capfd: pytest.CaptureFixture[str]
) -> None:
    old = registry.register(f"{site.topic}-value", OLD)
    new = registry.register(f"{site.topic}-other", NEW)
    values = [datum(old, OLD, {"id": 1}), datum(new, NEW, {"id": 2**40, "note": "x"})]
    site.write(0, [*values, datum(99, OLD, {"id": 3}), datum(old, OLD, {"id": 4}), None])

    registry.fault = Fault(503)
    with pytest.raises(RegistryAwayError) as away:
        site.load()
    assert may_pass(away.value)
    registry.fault = Fault(401)
    with pytest.raises(RegistryRefusedError) as refused:
        site.load()
    assert not may_pass(refused.value)
    registry.fault = None

    site.load()
    found = site.rows("_offset", "id", "note")
    assert found == [(0, 1, None), (1, 2**40, "x"), (3, 4, None), (4, None, None)]
    letters = read_rows(site.letters, ["offset", "reason"])
    assert letters == [(2, "schema id 99 is unknown to the schema registry")]
    assert site.audit().is_clean
    by_id = [path for path in registry.asked if path.startswith("/schemas/ids/")]
    assert by_id.count(f"/schemas/ids/{new}") == 1

    # Registered meanwhile, and asked for by another process, the dead letter becomes a row.
    registry.register("late", OLD, number=99)
    registry.authorization = "Bearer " + SECRET
    table = str(site.settings.table)
    words = ["dlq", "replay", site.topic, table, "--format", "avro", "--json"]
    words += [
        "--schema-registry",
        registry.url,
        "-X",
        f"schema.registry.bearer.auth.token={SECRET}",
    ]
    assert main(words) == 0
    assert json.loads(capfd.readouterr().out)["written"] == 1
    assert site.audit().is_clean


def test_a_load_of_the_command_line_with_keys_and_a_file_of_schemas(
    site: TopicSite, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    schemas = {"schemas": [{"id": 1, "schema": OLD}, {"id": 2, "schema": {"type": "string"}}]}
    (tmp_path / "schemas.json").write_text(json.dumps(schemas))
    batch = BatchBuilder()
    batch.append(1_700_000_000_000, frame(2, b"\x04ab"), datum(1, OLD, {"id": 7}))
    batch.append(1_700_000_000_000, None, None)
    append_batches(site.bootstrap, [(TopicPartition(site.topic, 0), batch.build())])
    words = ["load", site.topic, "--to", f"parquet:{tmp_path}/t", "--engine", "local"]
    words += ["--format", "avro", "--key-format", "avro", "--group", "", "-b", site.bootstrap]
    assert main(words) == 1
    assert "--schema-registry" in capfd.readouterr().err
    assert main([*words, "--schema-registry", f"{tmp_path}/schemas.json"]) == 0
    rows = read_rows(
        open_table(parse_table_name(f"parquet:{tmp_path}/t")), ["_offset", "_key", "id"]
    )
    assert rows == [(0, "ab", 7), (1, None, None)]


def test_the_audit_of_a_table_of_the_present_asks_the_registry_for_its_keys(
    site: TopicSite, registry: RegistryServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Keys are fields of values, and keys of records, that name their schemas."""
    old = registry.register(f"{site.topic}-value", OLD)
    key = registry.register(f"{site.topic}-key", {"type": "string"})
    new = registry.register("later", NEW)
    batch = BatchBuilder()
    for number, each in enumerate([(old, OLD, 1), (new, NEW, 2), (new, NEW, 1), (99, OLD, 3)]):
        value = datum(each[0], each[1], {"id": each[2], "note": f"of {number}"})
        batch.append(1_700_000_000_000, frame(key, b"\x02" + b"%d" % each[2]), value)
    batch.append(1_700_000_000_000, frame(key, b"\x022"), None)
    append_batches(site.bootstrap, [(TopicPartition(site.topic, 0), batch.build())])
    for name, fields, held in (
        ("by-field", {"key": ("id",)}, [(1, "of 2"), (2, "of 1")]),
        ("by-key", {"format_options": {"key": "avro"}}, [(1, "of 2")]),
    ):
        table = parse_table_name(f"delta:{site.directory}/{name}")
        here = site.using(mode="upsert", table=table, **fields)
        here.load()
        assert here.rows("id", "note") == held
        found = here.audit()
        assert found.is_clean
        assert found.keys is not None
        assert found.keys.rows == len(held)
        words = ["audit", site.topic, str(table), "-b", site.bootstrap]
        assert main([*words, "--schema-registry", registry.url]) == 0
        assert main(words) == 1
        assert "--schema-registry" in capfd.readouterr().err


def test_a_query_reads_records_with_their_own_schemas(
    site: TopicSite, registry: RegistryServer, capfd: pytest.CaptureFixture[str]
) -> None:
    old = registry.register("old", OLD)
    new = registry.register(f"{site.topic}-value", NEW)
    key = registry.register(f"{site.topic}-key", {"type": "string"})
    batch = BatchBuilder()
    batch.append(1_700_000_000_000, frame(key, b"\x02a"), datum(old, OLD, {"id": 1}))
    batch.append(
        1_700_000_000_000, frame(key, b"\x02b"), datum(new, NEW, {"id": 2**40, "note": "x"})
    )
    batch.append(1_700_000_000_000, None, datum(99, OLD, {"id": 3}))
    append_batches(site.bootstrap, [(TopicPartition(site.topic, 0), batch.build())])
    query = f'SELECT _key, id, note FROM "{site.topic}" ORDER BY id'
    expected = [{"_key": "a", "id": 1, "note": None}, {"_key": "b", "id": 2**40, "note": "x"}]
    rows = millstream.sql(
        query,
        bootstrap_servers=site.bootstrap,
        format="avro",
        format_options={"key": "avro"},
        settings={"schema.registry.url": registry.url},
    )
    assert rows.to_pylist() == expected
    words = ["sql", query, "-b", site.bootstrap, "--format", "avro", "--json"]
    assert main([*words, "--format-option", "key=avro", "--schema-registry", registry.url]) == 0
    said = capfd.readouterr()
    assert [json.loads(line) for line in said.out.splitlines()] == expected
    assert "schema id 99 is unknown to the schema registry" in said.err
    assert main(words) == 1
    assert "--schema-registry" in capfd.readouterr().err


def envelope(*fields: tuple[str, Any]) -> dict[str, Any]:
    """Return the schema of Debezium's envelopes of rows with these fields."""
    row = {**record(*fields), "name": "Value"}
    kinds = {"before": ["null", row], "after": ["null", "Value"], "op": "string"}
    return {**record(*kinds.items()), "name": "Envelope"}


def test_change_data_in_avro_through_a_change_of_its_columns(
    site: TopicSite, registry: RegistryServer
) -> None:
    first = envelope(("id", "int"), ("name", ["null", "string"]))
    second = envelope(("id", "long"), ("name", ["null", "string"]), ("age", ["null", "int"]))
    plain = record(("id", "int"))
    number = registry.register(f"{site.topic}-value", first)
    key = registry.register(f"{site.topic}-key", plain)
    site = site.using(
        format="debezium",
        mode="upsert",
        key=("id",),
        table=parse_table_name(f"iceberg:{site.directory}/users"),
    )

    def put(schema: int, written: dict[str, Any], *changes: tuple[int, Any]) -> None:
        batch = BatchBuilder()
        for each, value in changes:
            whole = None if value is None else datum(schema, written, value)
            batch.append(1_700_000_000_000, datum(key, plain, {"id": each}), whole)
        append_batches(site.bootstrap, [(TopicPartition(site.topic, 0), batch.build())])

    def row(number: int, name: str | None, **more: Any) -> dict[str, Any]:
        return {"id": number, "name": name, **more}

    put(
        number,
        first,
        *((n, {"op": "c", "before": None, "after": row(n, "new")}) for n in (1, 2, 3)),
        (1, {"op": "u", "before": None, "after": row(1, "other")}),
        (2, {"op": "d", "before": row(2, "new"), "after": None}),
        (2, None),
        (3, {"op": "m", "before": None, "after": None}),
    )
    site.load()
    assert site.rows("id", "name") == [(1, "other"), (3, "new")]
    assert read_rows(site.letters, ["offset", "reason"]) == [(6, 'op "m" changes no row')]
    later = registry.register("users-2", second)
    put(
        later,
        second,
        (4, {"op": "c", "before": None, "after": row(4, None, age=7)}),
        (5, {"op": "c", "before": None, "after": row(2**40, "the key gets no wider type")}),
        (3, {"op": "d", "before": None, "after": None}),
    )
    put(number, first, (1, {"op": "u", "before": row(1, "x"), "after": row(1, "third")}))
    site.load()
    assert site.rows("id", "name", "age") == [(1, "third", None), (4, None, 7)]
    assert [offset for (offset,) in read_rows(site.letters, ["offset"])] == [6, 8]
    found = site.audit()
    assert found.is_clean, sentences(found)
    assert found.keys is not None
    assert found.keys.rows == 2
