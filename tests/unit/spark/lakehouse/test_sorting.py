"""Orders of rows: how they are written, and what keeps them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake_readers import iceberg_table, library_rows

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.file_writer import FileRules, FileWriter
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.sorting import SortField, check_sort_by, in_order, parse_sort_by
from millstream.spark.lakehouse.table import Layout, Table, TableName, open_table

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("offset", pa.int64())])
ORDER = parse_sort_by("user, n desc")


def rows_of(count: int, seed: int) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "user": [rng.choice(["a", "b", "c", None]) for _ in range(count)],
            "n": [rng.choice([1, 2, 3, None]) for _ in range(count)],
            "offset": list(range(count)),
        },
        schema=SCHEMA,
    )


def expected_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    def place(row: tuple[Any, ...]) -> tuple[Any, ...]:
        user, n, offset = row
        return user is None, user or "", n is None, -(n or 0), offset

    return sorted(rows, key=place)


def tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].to_pylist() for name in SCHEMA.names), strict=True))


def fill(table: Table, batch: int, rows: pa.Table) -> None:
    rules = FileRules(
        app_id="x",
        batch=batch,
        directory=table.staging_directory,
        target_bytes=1 << 20,
        offset_column="offset",
        sort_by=ORDER,
    )
    writer = FileWriter(rules, SCHEMA, 0)
    for part in rows.to_batches(max_chunksize=7):
        writer.write(part)
    before = {} if batch == 1 else {"batch": batch - 1}
    table.commit("x", {"batch": batch}, writer.finish(), expected=before)


def test_what_is_read() -> None:
    assert parse_sort_by("a, b DESC,c asc") == (
        SortField("a"),
        SortField("b", descending=True),
        SortField("c"),
    )
    assert ", ".join(map(str, ORDER)) == "user, n desc"


@pytest.mark.parametrize("text", ["", "a,", "a down", "a desc desc", "a, a desc"])
def test_what_is_not_read(text: str) -> None:
    with pytest.raises(ConfigError, match="sort by"):
        parse_sort_by(text)


def test_columns_that_have_no_order() -> None:
    schema = pa.schema([("x", pa.float64()), ("l", pa.list_(pa.int64()))])
    for name, words in (("y", "no column y"), ("x", "double"), ("l", "list")):
        with pytest.raises(ConfigError, match=words):
            check_sort_by([SortField(name)], schema)
    check_sort_by(ORDER, SCHEMA)


def test_rows_in_order() -> None:
    rows = rows_of(200, 1)
    assert tuples(in_order(rows, ORDER)) == expected_order(tuples(rows))
    assert in_order(rows, ()).equals(rows)


def test_a_file_is_one_sorted_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.spark.lakehouse.file_writer.ROW_GROUP_BYTES", 2_000)
    table = open_table(TableName("delta", tmp_path / "t"))
    table.create(Layout(schema=SCHEMA))
    rows = rows_of(500, 2)
    fill(table, 1, rows)
    files = table.files()
    assert len(files) > 2
    found = []
    for path in files:
        read = pq.read_table(tmp_path / "t" / path)
        assert tuples(read) == expected_order(tuples(read))
        found += tuples(read)
    assert sorted(found, key=lambda row: row[2]) == tuples(rows)


@pytest.mark.slow
def test_an_iceberg_table_keeps_its_order(tmp_path: Path) -> None:
    """Its compaction too, and a load that does not name it."""
    table = open_table(TableName("iceberg", tmp_path / "t"))
    table.create(Layout(schema=SCHEMA, sort_by=ORDER))
    table.create(Layout(schema=SCHEMA))
    table.create(Layout(schema=SCHEMA, sort_by=ORDER))
    assert table.sort_by() == ORDER
    for other in ("user", "n desc, user", "user, n"):
        with pytest.raises(ConfigError, match="is sorted by user, n desc, not by"):
            table.create(Layout(schema=SCHEMA, sort_by=parse_sort_by(other)))
    order = iceberg_table(table.name.path).sort_order()
    assert [str(each) for each in order.fields] == [
        "1 ASC NULLS LAST",
        "2 DESC NULLS LAST",
    ]
    rows = rows_of(100, 3)
    fill(table, 1, rows.slice(0, 60))
    fill(table, 2, rows.slice(60))
    assert table.compact(target_bytes=1 << 20).added == 1
    (path,) = table.files()
    read = pq.ParquetFile((table.data_directory / path).open_input()).read()
    assert tuples(read) == expected_order(tuples(rows))
    assert len(library_rows(table, ["offset"])) == 100


def test_a_table_without_an_order_is_not_given_one(tmp_path: Path) -> None:
    table = open_table(TableName("iceberg", tmp_path / "t"))
    table.create(Layout(schema=SCHEMA))
    assert table.sort_by() == ()
    with pytest.raises(ConfigError, match="is sorted by nothing, not by"):
        table.create(Layout(schema=SCHEMA, sort_by=ORDER))


def test_the_parquet_log_has_no_order(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Delta or an Iceberg table can be sorted"):
        LoadSettings(source={}, table=TableName("parquet", tmp_path), sort_by=ORDER)
