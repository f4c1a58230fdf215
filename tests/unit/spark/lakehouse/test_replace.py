"""Files take the place of others in one commit with the ledger."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.lake_readers import library_rows

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.data_files import DataFile
from millstream.spark.lakehouse.file_writer import FileRules, FileWriter
from millstream.spark.lakehouse.table import (
    ConcurrentLoadError,
    Layout,
    MergeTable,
    MovedOnError,
    Replacement,
    TableName,
    open_merge_table,
)

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.timestamp("us", "UTC")), ("offset", pa.int64())])
KINDS = ("delta", "iceberg")


def written(table: MergeTable, *ids: int, batch: int = 1) -> list[DataFile]:
    rules = FileRules(
        app_id="app",
        batch=batch,
        directory=str(table.staging_directory),
        target_bytes=1 << 20,
        offset_column="offset",
        event_time="day",
        partition_column="the day" if table.keeps_partition_column else None,
    )
    writer = FileWriter(rules, SCHEMA, 0)
    rows = {"id": list(ids), "day": [i * 86_400_000_000 for i in ids], "offset": list(ids)}
    writer.write(pa.RecordBatch.from_pydict(rows, schema=SCHEMA))
    return writer.finish()


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> MergeTable:
    made = open_merge_table(TableName(request.param, tmp_path / "table"))
    made.create(Layout(schema=SCHEMA, event_time="day", partition_column="the day"))
    made.commit("app", {"batch": 1}, written(made, 1, 2, 3), expected={})
    return made


@pytest.mark.slow
def test_files_are_replaced_with_the_ledger(table: MergeTable) -> None:
    old = table.files()
    change = Replacement(base=table.state(), removed=old[:2], added=written(table, 7, batch=2))
    table.replace("app", {"batch": 2}, change, expected={"batch": 1})
    assert len(library_rows(table, ["id"])) == 2
    assert (7,) in library_rows(table, ["id"])
    assert table.ledger("app", ["batch"]) == {"batch": 2}
    assert not table.was_set_back("app")
    table.replace("app", {"batch": 3}, Replacement(base=table.state()), expected={"batch": 2})
    assert table.ledger("app", ["batch"]) == {"batch": 3}
    rest = Replacement(base=table.state(), removed=table.files())
    table.replace("app", {"batch": 4}, rest, expected={"batch": 3})
    assert table.files() == []


def test_a_table_that_moved_on_keeps_its_files(table: MergeTable) -> None:
    base, files = table.state(), table.files()
    table.commit("other", {"batch": 1}, written(table, 9), expected={})
    assert table.state() != base
    change = Replacement(base=base, removed=files)
    with pytest.raises(MovedOnError):
        table.replace("app", {"batch": 2}, change, expected={"batch": 1})
    assert table.ledger("app", ["batch"]) == {"batch": 1}
    assert len(table.files()) == 4


def test_a_load_that_was_overtaken_replaces_nothing(table: MergeTable) -> None:
    change = Replacement(base=table.state(), removed=table.files())
    with pytest.raises(ConcurrentLoadError):
        table.replace("app", {"batch": 2}, change, expected={})
    assert len(table.files()) == 3


def test_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mode upsert takes delta:PATH or iceberg:PATH"):
        open_merge_table(TableName("parquet", tmp_path))


@pytest.mark.slow
def test_a_commit_opens_the_table_once(table: MergeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an object store each time is a dozen requests, and more for each commit in the log."""
    name = "_open" if table.name.kind == "delta" else "_load"
    opens, original = [], getattr(type(table), name)

    def counted(self: MergeTable) -> object:
        opens.append(name)
        return original(self)

    monkeypatch.setattr(type(table), name, counted)
    present = table.present()
    assert len(opens) == 1
    assert sorted(present.files) == sorted(table.files())
    assert present.state == table.state()
    opens.clear()
    change = Replacement(base=present.state, removed=present.files, added=written(table, 9))
    table.replace("app", {"batch": 2}, change, expected={"batch": 1})
    assert len(opens) == 1
    table.commit("app", {"batch": 3}, written(table, 10), expected={"batch": 2})
    assert len(opens) == 2
    assert library_rows(table, ["id"]) == [(9,), (10,)]
