"""A table that somebody else writes to: rows without a topic, a partition, an offset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.model.errors import ConfigError, MillstreamError
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.audit import NO_TOPIC_PARTITION, table_offsets
from millstream.spark.lakehouse.data_files import DataFile
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.second_load import check_not_loaded
from millstream.spark.lakehouse.table import Layout, Table, TableName, open_table

LARGE = 2**60 + 1
"""No double holds it: columns with a null were read as doubles."""


def put(table: Table, name: str, rows: pa.Table) -> None:
    path = table.staging_directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    file = DataFile(path=name, size_bytes=path.stat().st_size, rows=rows.num_rows)
    known = table.ledger("app", ["batch"])
    table.commit("app", {"batch": known.get("batch", 0) + 1}, [file], expected=known)


def row(**known: Any) -> dict[str, Any]:
    return {**dict.fromkeys(RAW_COLUMNS.names), **known}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = open_table(TableName("parquet", tmp_path / "t"))
    more = pa.field("more", pa.struct([("topic", pa.string())]))
    made.create(Layout(schema=RAW_COLUMNS.append(more)))
    rows = [
        row(topic="t", partition=0, offset=LARGE),
        row(topic="t", partition=0),
        row(topic="t", offset=3),
        row(partition=0, offset=4),
    ]
    put(made, "some.parquet", pa.Table.from_pylist(rows, schema=RAW_COLUMNS))
    nested = pa.array([{"topic": "nested"}], more.type)
    put(made, "other.parquet", pa.table({"value": [b"x"], "more": nested}))
    return made


def test_they_are_counted_and_not_taken_for_records(table: Table) -> None:
    found = table_offsets(table)
    assert set(found) == {TopicPartition("t", 0), NO_TOPIC_PARTITION}
    assert found[TopicPartition("t", 0)].intervals == [(LARGE, LARGE + 1)]
    assert found[NO_TOPIC_PARTITION].count == 4


def test_they_are_no_load_of_a_topic(table: Table) -> None:
    check_not_loaded(table, ["nested", "u"])
    with pytest.raises(ConfigError, match="already has records of t"):
        check_not_loaded(table, ["t", "u"])


def test_a_log_that_somebody_has_damaged(table: Table) -> None:
    path = max((table.name.path / "_millstream" / "log").glob("*.json"))
    path.write_text(path.read_text()[:20])
    with pytest.raises(MillstreamError, match=f"{path} is damaged"):
        table.files()
