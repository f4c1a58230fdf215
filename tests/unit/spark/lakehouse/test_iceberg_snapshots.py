"""Snapshots of Iceberg tables: thousands of commits cost no more than hundreds."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.snapshots import Snapshot

from millstream.spark.lakehouse import iceberg_snapshots
from millstream.spark.lakehouse.data_files import DataFile, file_name
from millstream.spark.lakehouse.iceberg import IcebergTableFiles
from millstream.spark.lakehouse.iceberg_snapshots import surplus
from millstream.spark.lakehouse.table import Layout, Replacement, TableName

SCHEMA = pa.schema([("offset", pa.int64())])


def made(path: Path, **properties: str) -> IcebergTableFiles:
    table = IcebergTableFiles(TableName("iceberg", path / "t"))
    named = {name.replace("_", "."): value for name, value in properties.items()}
    table.create(Layout(schema=SCHEMA, properties=named))
    return table


def written(table: IcebergTableFiles, batch: int) -> DataFile:
    name = file_name("app", batch=batch, task=0, attempt=os.urandom(4).hex())
    path = table.staging_directory / name
    pq.write_table(pa.table({"offset": pa.array([batch], pa.int64())}), path.uri())
    return DataFile(path=name, size_bytes=path.size_bytes(), rows=1)


def fill(table: IcebergTableFiles, *batches: int) -> None:
    for batch in batches:
        expected = {} if batch == 1 else {"batch": batch - 1}
        table.commit("app", {"batch": batch}, [written(table, batch)], expected=expected)


def offsets_of(table: IcebergTableFiles) -> list[int]:
    rows = table._load().scan().to_arrow()
    return sorted(rows["offset"].to_pylist())


def snapshots(*numbers: int) -> list[Snapshot]:
    return [
        Snapshot(
            **{"snapshot-id": 100 + n, "sequence-number": n, "timestamp-ms": n},
            **{"manifest-list": f"file:///{n}", "summary": None, "schema-id": 0},
        )
        for n in numbers
    ]


def test_the_newest_stay_and_of_older_ones_some() -> None:
    assert surplus(snapshots(*range(16)), most=16, heads=()) == []
    assert surplus(snapshots(*range(17)), most=16, heads=()) == [101, 102, 104, 105, 107, 108]
    turned = snapshots(*range(16, -1, -1))
    assert surplus(turned, most=16, heads=(102, 105)) == [101, 104, 107, 108]


def test_the_number_of_snapshots_is_bounded() -> None:
    known: list[Snapshot] = []
    for number in range(2_000):
        known += snapshots(number)
        gone = set(surplus(known, most=60, heads=(100,)))
        known = [each for each in known if each.snapshot_id not in gone]
        assert len(known) <= 60
    numbers = [each.sequence_number or 0 for each in known]
    assert numbers[-30:] == list(range(1_970, 2_000))
    # The history thins out, and does not end.
    assert numbers[0] == 0
    assert max(after - before for before, after in itertools.pairwise(numbers)) < 500


def test_a_load_forgets_snapshots_and_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_snapshots, "MOST_SNAPSHOTS", 6)
    table = made(tmp_path)
    fill(table, 1, 2)
    second = table._load().current_snapshot()
    assert second is not None
    table._load().manage_snapshots().create_tag(second.snapshot_id, "report").commit()
    fill(table, *range(3, 15))
    found = table._load()
    assert len(found.snapshots()) <= 7  # the tag's is one more
    assert found.snapshot_by_name("report") is not None
    assert found.scan(snapshot_id=second.snapshot_id).to_arrow().num_rows == 2
    assert offsets_of(table) == list(range(1, 15))
    assert not table.was_set_back("app")
    change = Replacement(base=table.state(), removed=table.files(), added=[written(table, 15)])
    table.replace("app", {"batch": 15}, change, expected={"batch": 14})
    for number in range(16, 22):
        change = Replacement(base=table.state(), added=[written(table, number)])
        table.replace("app", {"batch": number}, change, expected={"batch": number - 1})
        assert len(table._load().snapshots()) <= 7
    assert offsets_of(table) == list(range(15, 22))


def test_a_table_may_keep_more_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_snapshots, "MOST_SNAPSHOTS", 3)
    table = made(tmp_path, **{"history_expire_min-snapshots-to-keep": "8"})
    fill(table, *range(1, 9))
    assert len(table._load().snapshots()) == 8


@pytest.mark.parametrize("enabled", ["true", "false", None])
def test_manifests_are_merged(enabled: str | None, tmp_path: Path) -> None:
    """The list of them is written anew at each commit."""
    more = {} if enabled is None else {"commit_manifest-merge_enabled": enabled}
    table = made(tmp_path, **{"commit_manifest_min-count-to-merge": "4"}, **more)
    fill(table, *range(1, 13))
    found = table._load()
    present = found.current_snapshot()
    assert present is not None
    count = len(present.manifests(found.io))
    assert count == 12 if enabled == "false" else count <= 4
    assert offsets_of(table) == list(range(1, 13))
    assert table.compact(target_bytes=1 << 20).removed == 12
    table.expire(keep_ms=0)
    assert offsets_of(table) == list(range(1, 13))


def test_older_metadata_is_removed(tmp_path: Path) -> None:
    table = made(tmp_path, **{"write_metadata_previous-versions-max": "2"})
    fill(table, *range(1, 10))
    assert len(list((tmp_path / "t" / "metadata").glob("*.metadata.json"))) <= 3


def test_a_commit_copies_the_table_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg copied it 17 times, each time with all snapshots."""
    table = made(tmp_path)
    fill(table, 1)
    update, calls = iceberg_snapshots.update_table_metadata, 0

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return update(*given, **named)

    monkeypatch.setattr(iceberg_snapshots, "update_table_metadata", counted)
    fill(table, 2)
    assert 0 < calls <= 5


def test_forgotten_snapshots_are_not_taken_for_a_table_that_was_set_back(tmp_path: Path) -> None:
    """A tag keeps an old one of the load; of the present ones only a compaction is left."""
    table = made(tmp_path)
    fill(table, 1, 2)
    second = table._load().current_snapshot()
    assert second is not None
    table._load().manage_snapshots().create_tag(second.snapshot_id, "report").commit()
    fill(table, 3)
    table.compact(target_bytes=1 << 20)
    table.expire(keep_ms=0)
    assert len(table._load().snapshots()) == 2
    assert not table.was_set_back("app")
    fill(table, 4)
    assert not table.was_set_back("app")
    table._load().manage_snapshots().set_current_snapshot(second.snapshot_id).commit()
    assert table.was_set_back("app")
