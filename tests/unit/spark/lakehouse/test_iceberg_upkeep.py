"""Iceberg tables that other programs write too: Spark, Trino."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.typedef import Record
from tests.unit.spark.lakehouse.test_tables import SCHEMA, fill, rows_of, write

from millstream.spark.lakehouse import commits, maintain
from millstream.spark.lakehouse.audit import table_offsets
from millstream.spark.lakehouse.iceberg import IcebergTableFiles
from millstream.spark.lakehouse.reading import _kept_rows
from millstream.spark.lakehouse.table import Layout, Replacement, TableName

_FILE_PATH, _POSITION = 2147483546, 2147483545
"""The field ids of a position delete file (Iceberg's specification)."""


@pytest.fixture
def table(tmp_path: Path) -> IcebergTableFiles:
    made = IcebergTableFiles(TableName("iceberg", tmp_path / "t"))
    made.create(Layout(schema=SCHEMA))
    return made


def delete_as_trino_does(table: IcebergTableFiles, path: str, positions: list[int]) -> None:
    """Commit a position delete file; the data file stays as it is."""
    loaded = table._load()
    target = table.data_directory / f"{os.urandom(4).hex()}-deletes.parquet"
    ids = [_FILE_PATH, _POSITION]
    kinds = [("file_path", pa.string()), ("pos", pa.int64())]
    schema = pa.schema(
        [
            pa.field(name, kind, metadata={b"PARQUET:field_id": b"%d" % number}, nullable=False)
            for (name, kind), number in zip(kinds, ids, strict=True)
        ]
    )
    uri = table._uri(path)
    pq.write_table(pa.table([[uri] * len(positions), positions], schema=schema), target)
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{target}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(positions),
        file_size_in_bytes=target.stat().st_size,
    )
    file.spec_id = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ManifestWriterV2, "content", lambda self: ManifestContent.DELETES)
        with loaded.transaction() as transaction:  # noqa: SIM117
            with transaction.update_snapshot().fast_append() as update:
                update.append_data_file(file)


def offsets_of(table: IcebergTableFiles) -> list[int]:
    """Return the rows that any reader of Iceberg sees."""
    return sorted(table._load().scan().to_arrow()["offset"].to_pylist())


@pytest.mark.slow
def test_rows_that_others_delete_stay_deleted(table: IcebergTableFiles) -> None:
    entries = fill(table, 2)
    first = next(path for path in table.files() if "0000000001" in path)
    delete_as_trino_does(table, first, [1])
    assert offsets_of(table) == [3, 5, 6, 7, 8]
    assert table.deleted_rows() == {first: [1]}
    assert _kept_rows(table, first, [1])["offset"].to_pylist() == [3, 5]
    found = table.compact(target_bytes=1 << 20)
    assert (found.removed, found.added) == (2, 1)
    assert offsets_of(table) == [3, 5, 6, 7, 8]
    assert rows_of(table) == [3, 5, 6, 7, 8]
    delete_as_trino_does(table, table.files()[0], [0])
    table.add_columns(pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("n", pa.int64())]))
    table.add_columns(pa.schema([("n", pa.float64())]))  # all files are written anew
    assert offsets_of(table) == [5, 6, 7, 8]
    assert rows_of(table) == [5, 6, 7, 8]
    assert table.ledger("app", list(entries)) == entries


def test_rows_deleted_while_files_are_joined(
    table: IcebergTableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(table, 2)
    first = table.files()[0]
    replace = IcebergTableFiles._replace

    def late(self: IcebergTableFiles, *arguments: Any) -> bool:
        delete_as_trino_does(table, first, [0, 1, 2])
        return replace(self, table._load(), *arguments[1:])

    monkeypatch.setattr(IcebergTableFiles, "_replace", late)
    table.compact(target_bytes=1 << 20)
    assert len(offsets_of(table)) == 3


def test_the_audit_sees_what_others_have_deleted(tmp_path: Path) -> None:
    table = IcebergTableFiles(TableName("iceberg", tmp_path / "t"))
    columns = [("topic", pa.string()), ("partition", pa.int32())]
    table.create(Layout(schema=pa.schema([*SCHEMA, *columns])))
    file = write(table, 1)
    path = table.staging_directory / file.path
    rows = pq.ParquetFile(path).read()
    for name, values in (("topic", pa.array(["t"] * 3)), ("partition", pa.array([0] * 3, "int32"))):
        rows = rows.append_column(name, values)
    pq.write_table(rows, path)
    with table._load().transaction() as transaction:
        transaction.add_files([table._uri(file.path)])
    delete_as_trino_does(table, file.path, [1])
    (found,) = table_offsets(table).values()
    assert (found.count, list(found.intervals)) == (2, [(3, 4), (5, 6)])


def age(table: IcebergTableFiles) -> None:
    for file in table.name.path.rglob("*"):
        os.utime(file, (0, 0))


@pytest.mark.slow
def test_upkeep_leaves_what_a_snapshot_names(table: IcebergTableFiles) -> None:
    """Joined files that were joined again, and files that Spark names in its own way."""
    fill(table, 2)
    first = table._load().current_snapshot()
    assert table.compact(target_bytes=1 << 20).removed == 2
    between = table._load().current_snapshot()
    assert first is not None
    assert between is not None
    table.commit("app", {"batch": 3}, [write(table, 3)], expected={"batch": 2})
    of_spark = write(table, 4)
    with table._load().transaction() as transaction:
        transaction.add_files([f"file:{table.data_directory / of_spark.path}"])
    beside = table._load().current_snapshot()
    assert beside is not None
    assert table.compact(target_bytes=1 << 20).removed == 3
    last = table._load().current_snapshot()
    assert last is not None
    age(table)
    maintain.maintain(table, "app", target_bytes=1 << 20)
    assert commits.remove_orphans(table, "app", batch=9) == []
    for snapshot, count in ((first, 6), (between, 6), (beside, 12), (last, 12)):
        assert table._load().scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows == count


@pytest.mark.slow
def test_a_manifest_is_read_once(table: IcebergTableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each snapshot lists all manifests: reading each list's is the square of the commits."""
    fill(table, 12)
    reads = []
    fetch = ManifestFile.fetch_manifest_entry

    def counted(self: ManifestFile, *arguments: Any, **named: Any) -> Any:
        reads.append(self.manifest_path)
        return fetch(self, *arguments, **named)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    assert len(table.retained()) == 12
    assert len(reads) == len(set(reads)) == 12
    table.commit("app", {"batch": 13}, [write(table, 13)], expected={"batch": 12})
    reads.clear()
    assert len(table.retained()) == 13
    assert len(reads) == 1


@pytest.mark.slow
def test_merges_leave_no_manifest_behind_in_which_nothing_lives(table: IcebergTableFiles) -> None:
    """Each would be read by every merge after it: the square of the merges."""
    expected: dict[str, int] = {}
    for number in range(1, 7):
        change = Replacement(
            base=table.state(), removed=table.files(), added=[write(table, number)]
        )
        table.replace("app", {"batch": number}, change, expected=expected)
        expected = {"batch": number}
    loaded = table._load()
    snapshot = loaded.current_snapshot()
    assert snapshot is not None
    kinds = [
        (each.added_files_count, each.deleted_files_count) for each in snapshot.manifests(loaded.io)
    ]
    assert sorted(kinds) == [(0, 1), (1, 0)]
    assert len(table.files()) == 1
    first = next(iter(loaded.snapshots()))
    assert loaded.scan(snapshot_id=first.snapshot_id).to_arrow().num_rows == 3


def test_a_column_without_statistics_is_not_worth_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    headers = pa.field("headers", pa.list_(pa.struct([("key", pa.string())])))
    table = IcebergTableFiles(TableName("iceberg", tmp_path / "t"))
    table.create(Layout(schema=pa.schema([*SCHEMA, headers])))
    file = write(table, 1)
    path = table.staging_directory / file.path
    rows = pq.ParquetFile(path).read()
    pq.write_table(
        rows.append_column(headers, pa.nulls(3, headers.type)), path, write_statistics=False
    )
    table.commit("app", {"batch": 1}, [replace(file, size_bytes=path.stat().st_size)], expected={})
    assert rows_of(table) == [3, 4, 5]
    assert not caplog.records
