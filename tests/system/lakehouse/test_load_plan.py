"""`load --plan`: says what the load then does, and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.broker_process import BrokerProcess
from tests.system.lakehouse.topic_site import TopicSite

from millstream.cli.main import main

pytestmark = pytest.mark.system


def files_in(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()
    }


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_plan_says_what_the_load_does(
    broker: BrokerProcess,
    new_topic: Callable[[], str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    site = TopicSite(broker.bootstrap, f"{new_topic()}-plan", tmp_path)
    site.create(2)
    words = ["load", site.topic, "--to", f"{kind}:{tmp_path}/t", "--engine", "local"]
    words += ["--format", "json", "--group", "", "-b", site.bootstrap, "--json"]

    def plan(*more: str, code: int = 0) -> dict[str, Any]:
        before = files_in(tmp_path)
        assert main([*words, *more, "--plan"]) == code
        assert files_in(tmp_path) == before
        found: dict[str, Any] = json.loads(capfd.readouterr().out)
        return found

    assert plan()["waitsForRecords"]
    site.write(0, [b'{"id": 1}', b"rubbish"])
    found = plan()
    assert found["create"]
    assert found["columns"][0] == {"name": "id", "type": "int64"}
    assert found["partitions"][0] == {
        "topic": site.topic, "partition": 0, "from": 0, "to": 2,
    }  # fmt: skip
    assert (found["decoded"], found["rejected"]) == (2, 1)
    assert found["refused"] is None
    assert main(words) == 0
    capfd.readouterr()

    site.write(1, [b'{"id": 1.5, "note": "x"}'])
    found = plan()
    assert not found["create"]
    assert found["added"] == [{"name": "note", "type": "string"}]
    assert found["widened"] == [{"name": "id", "from": "int64", "to": "double"}]
    assert [(each["from"], each["to"]) for each in found["partitions"]] == [(2, 2), (0, 1)]
    refused = plan("--event-time", "id", code=1)
    assert "the event time has to be a timestamp column" in refused["refused"]
    other = tmp_path / "other.json"
    other.write_text('{"format": "json", "columns": [{"name": "id", "type": "string"}]}')
    refused = plan("--schema", str(other), code=1)
    assert "id as int64, not string" in refused["refused"]
    assert main(words) == 0
    capfd.readouterr()
    assert plan()["added"] == []


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_plan_refuses_what_the_load_refuses(
    broker: BrokerProcess,
    new_topic: Callable[[], str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    site = TopicSite(broker.bootstrap, new_topic(), tmp_path)
    site.create(1)
    words = ["load", site.topic, "--engine", "local", "--format", "json", "--group", "", "--json"]
    words += ["-b", site.bootstrap, "--to"]

    def refuses(reason: str, *more: str, table: str = "t") -> None:
        for plan in (["--plan"], []):
            assert main([*words, f"{kind}:{tmp_path}/{table}", *more, *plan]) != 0
            told = capfd.readouterr()
            assert reason in told.err, (plan, told)
            assert "millstream-plan-" not in told.err

    site.write(0, [b'{"id": 1}', b"rubbish"])
    refuses("offset 1 of", "--no-dead-letters", table="strict")
    if kind == "delta":
        refuses("delta.nonsense", "--table-property", "delta.nonsense=1", table="odd")
    assert main([*words, f"{kind}:{tmp_path}/t"]) == 0
    capfd.readouterr()
    doubles = tmp_path / "doubles.json"
    doubles.write_text('{"format": "json", "columns": [{"name": "id", "type": "double"}]}')
    refuses("id as int64, not double", "--app-id", "another", "--schema", str(doubles))
    if kind == "iceberg":
        refuses("is sorted by nothing, not by id", "--sort-by", "id")
    else:
        table = DeltaTable(str(tmp_path / "t"))
        table.restore(1)
        refuses("was set back")
