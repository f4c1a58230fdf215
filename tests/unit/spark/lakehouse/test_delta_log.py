"""What a Delta table's log names, also in checkpoints of V2 spec with sidecars."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.spark.lakehouse.commits import remove_orphans
from millstream.spark.lakehouse.data_files import DataFile, file_name
from millstream.spark.lakehouse.table import Layout, Table, TableName, open_table

SCHEMA = pa.schema([("offset", pa.int64())])
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
SIDECAR = "016ae953-37a9-438e-8683-9a9a4a79a395.parquet"
PATH = pa.struct([("path", pa.string())])
MAP = pa.map_(pa.string(), pa.string())
ADD = pa.struct(
    [
        *(("path", pa.string()), ("partitionValues", MAP), ("size", pa.int64())),
        *(("modificationTime", pa.int64()), ("dataChange", pa.bool_()), ("stats", pa.string())),
    ]
)
REMOVE = pa.struct(
    [
        *(("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())),
        *(("partitionValues", MAP), ("size", pa.int64())),
    ]
)


def put(table: Table, batch: int) -> str:
    name = file_name("app", batch=batch, task=0, attempt=os.urandom(4).hex())
    path = table.staging_directory / name
    pq.write_table(pa.table({"offset": pa.array([batch], pa.int64())}), path.uri())
    file = DataFile(path=name, size_bytes=path.size_bytes(), rows=1)
    expected = {} if batch == 1 else {"batch": batch - 1}
    table.commit("app", {"batch": batch}, [file], expected=expected)
    return name


def read_log(log: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(log.glob("*.json"))
        for line in path.read_text().splitlines()
    ]


def as_rows(actions: list[dict[str, Any]], **kinds: pa.DataType) -> pa.Table:
    rows = [{kind: each.get(kind) for kind in kinds} for each in actions]
    return pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))


def replace_by_checkpoint(table_path: Path, form: str) -> None:
    """Put a checkpoint of V2 spec in the place of all commits, as delta-spark does with
    delta.checkpointPolicy = v2.
    """
    log = table_path / "_delta_log"
    actions = read_log(log)
    commits = sorted(log.glob("*.json"))
    version = int(commits[-1].stem)
    removed = {each["remove"]["path"] for each in actions if "remove" in each}
    files = [
        each
        for each in actions
        if "remove" in each or ("add" in each and each["add"]["path"] not in removed)
    ]
    (log / "_sidecars").mkdir()
    sidecar = log / "_sidecars" / SIDECAR
    pq.write_table(as_rows(files, add=ADD, remove=REMOVE), sidecar)
    named = {
        **{"path": quote(SIDECAR), "sizeInBytes": sidecar.stat().st_size},
        **{"modificationTime": int(time.time() * 1000), "tags": {}},
    }
    protocol = {
        **{"minReaderVersion": 3, "minWriterVersion": 7},
        **{"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]},
    }
    metadata = next(each["metaData"] for each in actions if "metaData" in each)
    transactions = {each["txn"]["appId"]: each for each in actions if "txn" in each}
    top = [
        {"checkpointMetadata": {"version": version}},
        {"protocol": protocol},
        {"metaData": metadata},
        *transactions.values(),
        {"sidecar": named},
    ]
    if form == "json":
        path = log / f"{version:020}.checkpoint.{UUID}.json"
        path.write_text("\n".join(map(json.dumps, top)) + "\n")
    else:
        middle = f".{UUID}" if form == "parquet" else ""
        pq.write_table(_top_rows(top), log / f"{version:020}.checkpoint{middle}.parquet")
    for commit in commits:
        commit.unlink()
    (log / f"{version:020}.json").write_text(json.dumps({"commitInfo": {"timestamp": 1}}) + "\n")


def _top_rows(actions: list[dict[str, Any]]) -> pa.Table:
    texts = pa.list_(pa.string())
    return as_rows(
        actions,
        checkpointMetadata=pa.struct([("version", pa.int64())]),
        protocol=pa.struct(
            [
                *(("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())),
                *(("readerFeatures", texts), ("writerFeatures", texts)),
            ]
        ),
        metaData=pa.struct(
            [
                *(("id", pa.string()), ("name", pa.string()), ("description", pa.string())),
                ("format", pa.struct([("provider", pa.string()), ("options", MAP)])),
                *(("schemaString", pa.string()), ("partitionColumns", texts)),
                *(("createdTime", pa.int64()), ("configuration", MAP)),
            ]
        ),
        txn=pa.struct(
            [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
        ),
        sidecar=pa.struct(
            [
                *(("path", pa.string()), ("sizeInBytes", pa.int64())),
                *(("modificationTime", pa.int64()), ("tags", MAP)),
            ]
        ),
    )


@pytest.mark.parametrize("form", ["json", "parquet", "classic"])
def test_files_that_only_a_sidecar_names_are_kept(form: str, tmp_path: Path) -> None:
    table = open_table(TableName("delta", tmp_path / "t"))
    table.create(Layout(schema=SCHEMA))
    replaced = {put(table, batch) for batch in (1, 2, 3)}
    assert table.compact(target_bytes=1 << 20).removed == 3
    live = {*table.files(), put(table, 4)}
    replace_by_checkpoint(tmp_path / "t", form)
    assert set(table.files()) == live
    assert table.retained() == live | replaced
    remove_orphans(table, "app", batch=4)
    assert all((tmp_path / "t" / name).exists() for name in live | replaced)
    # Upkeep leaves a table that is read as before, and its ledger.
    table.expire(keep_ms=3_600_000)
    assert set(table.files()) == live
    assert all((tmp_path / "t" / name).exists() for name in live | replaced)
    put(table, 5)
    assert table.ledger("app", ["batch"]) == {"batch": 5}
