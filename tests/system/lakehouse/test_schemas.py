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

from millstream.cli.main import main
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchBuilder
from millstream.schemas import http
from millstream.schemas.framing import frame
from millstream.schemas.schema import RegistryAwayError, RegistryRefusedError
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
