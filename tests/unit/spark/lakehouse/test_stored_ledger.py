"""A ledger is one value of its table, and those of older versions are carried on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from millstream.spark.lakehouse.delta import DeltaTableFiles
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.iceberg import IcebergTableFiles
from millstream.spark.lakehouse.stored_ledger import (
    LostLedgerError,
    from_properties,
    old_properties,
    property_name,
    to_text,
)
from millstream.spark.lakehouse.table import (
    KINDS,
    ConcurrentLoadError,
    Layout,
    Table,
    TableName,
    open_table,
)

OLD = {"batch": 4, "t.u/0": 7, "t.u/0/start": 1, "t.u/0/id": 99, "t.u/1": 5, "rejects": 3}
KEYS = [*OLD, "applied", "t.u/1/id"]


def made(kind: str, path: Path) -> Table:
    table = open_table(TableName(kind, path / kind))
    table.create(Layout(schema=RAW_COLUMNS))
    return table


@pytest.mark.parametrize("kind", KINDS)
def test_loads_whose_names_and_topics_run_together(kind: str, tmp_path: Path) -> None:
    table = made(kind, tmp_path)
    for number, (app_id, topic) in enumerate([("a", "b.c"), ("a.b", "c"), ("a.b.c", "x")]):
        entries = {"batch": number + 1, f"{topic}/0": number}
        assert table.ledger(app_id, entries) == {}
        table.commit(app_id, entries, [], expected={})
    assert table.ledger("a", ["batch", "b.c/0", "c/0"]) == {"batch": 1, "b.c/0": 0}
    assert table.ledger("a.b", ["batch", "b.c/0", "c/0"]) == {"batch": 2, "c/0": 1}


def write_as_before(table: Table, app_id: str) -> None:
    """Write a ledger as the versions up to decision 0094 did."""
    if isinstance(table, IcebergTableFiles):
        with table._load().transaction() as transaction:
            transaction.set_properties(
                {f"millstream.{app_id}.{key}": str(value) for key, value in OLD.items()}
            )
        return
    delta = DeltaTable(str(table.name.path))
    delta.create_write_transaction(
        [],
        "append",
        delta.schema(),
        commit_properties=CommitProperties(
            app_transactions=[Transaction(f"{app_id}/{k}", value) for k, value in OLD.items()]
        ),
    )


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_ledger_of_an_older_version_goes_on(kind: str, tmp_path: Path) -> None:
    table = made(kind, tmp_path)
    write_as_before(table, "app")
    assert table.ledger("app", KEYS) == OLD
    assert table.ledger("app", ["t.u/1"]) == {"t.u/1": 5}
    table.commit("app", {"batch": 5, "t.u/1": 8}, [], expected={"batch": 4, "t.u/1": 5})
    now = {**OLD, "batch": 5, "t.u/1": 8}
    assert table.ledger("app", KEYS) == now
    table.commit("app", {"batch": 6, "t.u/0": 9}, [], expected={"batch": 5, "t.u/0": 7})
    now |= {"batch": 6, "t.u/0": 9}
    assert table.ledger("app", KEYS) == now
    if isinstance(table, IcebergTableFiles):
        assert [name for name in table._load().properties if name.startswith("millstream")] == [
            "millstream.app.batch",
            property_name("app"),
        ]


def read_as_before(table: Table, app_id: str, keys: list[str]) -> dict[str, int]:
    """Read a ledger as the versions up to decision 0094 did."""
    if isinstance(table, IcebergTableFiles):
        properties = table._load().properties
        found = {key: properties.get(f"millstream.{app_id}.{key}") for key in keys}
        return {key: int(value) for key, value in found.items() if value is not None}
    delta = DeltaTable(str(table.name.path))
    versions = {key: delta.transaction_version(f"{app_id}/{key}") for key in keys}
    return {key: value for key, value in versions.items() if value is not None}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("begun", ["before", "now"])
def test_an_older_version_refuses_to_load_what_this_one_has(
    kind: str, begun: str, tmp_path: Path
) -> None:
    """It begins a load that has no batch with a commit that must find no entry of its own."""
    table = made(kind, tmp_path)
    if begun == "before":
        write_as_before(table, "app")
    known = table.ledger("app", ["batch"])
    table.commit("app", {"batch": 5, "t.u/2": 1}, [], expected=known)
    assert read_as_before(table, "app", ["batch"]) == {"batch": 0}
    assert table.ledger("app", ["batch", "t.u/2"]) == {"batch": 5, "t.u/2": 1}
    table.commit("app", {"batch": 6, "t.u/2": 2}, [], expected={"batch": 5, "t.u/2": 1})
    assert read_as_before(table, "app", ["batch"]) == {"batch": 0}
    assert table.ledger("app", KEYS) == ({**OLD, "batch": 6} if begun == "before" else {"batch": 6})


def test_an_older_ledger_is_that_of_a_load_that_has_committed() -> None:
    before = {"millstream.a.batch": "3", "millstream.a.b.c/0": "7", "write.x": "1"}
    assert from_properties(before, "a") == {"batch": 3, "b.c/0": 7}
    assert from_properties(before, "a.b") == {}
    both = {**before, "millstream.a.b.batch": "2", property_name("a"): to_text({"batch": 4})}
    assert from_properties(both, "a.b") == {"batch": 2, "c/0": 7}
    assert from_properties(both, "a") == {"batch": 4}
    assert old_properties({"millstream.a:topic.t/0": "5"}, "a:topic") == ["millstream.a:topic.t/0"]


def test_one_look_up_for_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made("delta", tmp_path)
    entries = {"batch": 1, **{f"t/{number}": number for number in range(100)}}
    table.commit("app", entries, [], expected={})
    asked = []
    look_up = DeltaTable.transaction_version

    def counted(self: DeltaTable, app_id: str) -> int | None:
        asked.append(app_id)
        return look_up(self, app_id)

    monkeypatch.setattr(DeltaTable, "transaction_version", counted)
    assert table.ledger("app", [*entries, *(f"t/{n}/epoch" for n in range(100))]) == entries
    assert len(asked) == 3
    asked.clear()
    new = made("delta", tmp_path / "new")
    new.commit("app", entries, [], expected={})  # nobody has committed to it: it has no old ledger
    assert len(asked) < 10


def test_a_ledger_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    table = made("delta", tmp_path)
    assert isinstance(table, DeltaTableFiles)
    table.commit("app", {"batch": 1}, [], expected={})
    seen = table._open()
    table.commit("app", {"batch": 2}, [], expected={"batch": 1})
    with pytest.raises(ConcurrentLoadError, match="another load of app has committed"):
        table._ledger(seen, "app", ["batch"])
    assert table.ledger("app", ["batch"]) == {"batch": 2}


def test_files_of_ledgers(tmp_path: Path) -> None:
    """One is there for each load. What crashes leave goes when it is old. A lost one is named."""
    table = made("delta", tmp_path)
    for batch in range(1, 4):
        expected = {"batch": batch - 1} if batch > 1 else {}
        table.commit("app", {"batch": batch}, [], expected=expected)
    directory = table.name.path / "_millstream" / "ledger"
    (own,) = directory.iterdir()
    left = directory / "77.json"
    left.write_text('{"load": "app", "entries": {}}')
    table.expire(keep_ms=0)
    assert left.exists()
    for path in (own, left):
        os.utime(path, (time.time() - 90_000,) * 2)
    table.expire(keep_ms=0)
    assert list(directory.iterdir()) == [own]
    assert table.ledger("app", ["batch"]) == {"batch": 3}
    own.unlink()
    with pytest.raises(LostLedgerError, match="of app is not in"):
        table.ledger("app", ["batch"])
