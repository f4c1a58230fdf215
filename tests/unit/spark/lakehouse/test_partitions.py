"""Iceberg tables that are split by transforms of columns: what is refused, which files there are,
and that readers skip those of other partitions.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, IsNull, LessThan
from pyiceberg.table import Table as PyTable
from tests.lake_readers import iceberg_table

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse import file_writer
from millstream.spark.lakehouse.data_files import DataFile
from millstream.spark.lakehouse.file_writer import FileRules, FileWriter
from millstream.spark.lakehouse.formats.format import METADATA, TIMESTAMP
from millstream.spark.lakehouse.partition_rows import transformed
from millstream.spark.lakehouse.partitioning import (
    check_partition_by,
    from_iceberg,
    parse_partition_by,
)
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import Layout, Table, TableName, open_table

COLUMNS = pa.schema(
    [
        ("user_id", pa.int64()),
        ("region", pa.string()),
        ("at", TIMESTAMP),
        ("born", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("code", pa.binary()),
        ("ok", pa.bool_()),
        ("share", pa.float64()),
        ("n", pa.int32()),
        *METADATA,
    ]
)
HOUR_US = 3_600_000_000


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    made: list[dict[str, Any]] = [
        {
            "user_id": None if n % 11 == 3 else n % 7 - 3,
            "region": None if n % 13 == 5 else ("eu-west", "eu-north", "us", "")[n % 4],
            "at": None if n % 17 == 4 else (n % 50 - 20) * HOUR_US + n,
            "born": dt.date(1969, 12, 30) + dt.timedelta(days=n % 40),
            "price": n % 9 - 4,
            "code": b"%d" % (n % 5),
            "ok": n % 3 == 0,
            "share": n / 7,
            "n": n % 5,
            "_topic": "t",
            "_partition": 0,
            "_offset": n,
            "_timestamp": n,
        }
        for n in range(first, first + count)
    ]
    return pa.RecordBatch.from_pylist(made, schema=COLUMNS)


def made(directory: Path, text: str) -> Table:
    table = open_table(TableName("iceberg", directory))
    table.create(Layout(schema=COLUMNS, partition_by=parse_partition_by(text)))
    return table


def written(table: Table, text: str, batches: Sequence[pa.RecordBatch], batch: int = 1) -> None:
    files = landed(table, text, batches, batch)
    expected = {"batch": batch - 1} if batch > 1 else {}
    table.commit("app", {"batch": batch}, files, expected=expected)


def landed(
    table: Table, text: str, batches: Sequence[pa.RecordBatch], batch: int = 1
) -> list[DataFile]:
    rules = FileRules(
        app_id="app",
        batch=batch,
        directory=table.staging_directory,
        target_bytes=1 << 20,
        offset_column="_offset",
        partition_by=parse_partition_by(text),
        calendar_only=True,
    )
    writer = FileWriter(rules, COLUMNS, 0)
    for each in batches:
        writer.write(each)
    return writer.finish()


TRANSFORMS = (
    "region",
    "ok, born",
    "bucket(4, user_id)",
    "bucket(3, region)",
    "bucket(3, at), bucket(3, born), bucket(2, price), bucket(2, code)",
    "truncate(2, region)",
    "truncate(2, user_id)",
    "truncate(3, price), truncate(1, code)",
    "hour(at)",
    "day(at), bucket(4, user_id)",
    "month(born), truncate(1, region), n",
    "at",
)


@pytest.mark.slow
@pytest.mark.parametrize("text", TRANSFORMS)
def test_every_file_is_in_the_partition_of_all_of_its_rows(text: str, tmp_path: Path) -> None:
    """Against pyiceberg's own transforms, value by value."""
    table = made(tmp_path / "t", text)
    written(table, text, [rows(300), rows(100, 300)])
    found = iceberg_table(table.name.path)
    spec, schema = found.spec(), found.schema()
    seen = set()
    for task in found.scan().plan_files():
        data = found.io.new_input(task.file.file_path)
        with data.open() as stream:
            content = pq.read_table(stream)
        for position, field in enumerate(spec.fields):
            source = schema.find_field(field.source_id)
            column = content[source.name].combine_chunks()
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.int64())
            apply = field.transform.transform(source.field_type)
            values = {apply(_internal(value)) for value in column.to_pylist()}
            assert values == {task.file.partition[position]}, (field, values)
        seen.add(tuple(task.file.partition))
    assert len(seen) == len(table.files()) > 1, "a partition has one file of the task"
    assert sorted(found.scan().to_arrow()["_offset"].to_pylist()) == list(range(400))
    again = open_table(TableName("iceberg", tmp_path / "t"))
    again.create(Layout(schema=COLUMNS, partition_by=parse_partition_by(text)))
    with pytest.raises(ConfigError, match="is split by"):
        again.create(Layout(schema=COLUMNS))


def _internal(value: Any) -> Any:
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value


@pytest.mark.slow
def test_readers_skip_other_partitions(tmp_path: Path) -> None:
    text = "day(at), bucket(4, user_id)"
    table = made(tmp_path / "t", text)
    batch = rows(400)
    written(table, text, [batch])
    found = iceberg_table(table.name.path)
    files = len(table.files())

    def scanned(condition: Any) -> tuple[int, list[int]]:
        scan = found.scan(row_filter=condition)
        return len(list(scan.plan_files())), sorted(scan.to_arrow()["_offset"].to_pylist())

    count, offsets = scanned(EqualTo("user_id", 2))
    assert 0 < count < files / 2
    assert offsets == _offsets(batch, pc.equal(batch["user_id"], 2))
    day = And(
        GreaterThanOrEqual("at", "1970-01-01T00:00:00+00:00"),
        LessThan("at", "1970-01-02T00:00:00+00:00"),
    )
    count, offsets = scanned(And(day, EqualTo("user_id", 2)))
    assert count == 1
    assert len(offsets) > 5
    count, _ = scanned(IsNull("user_id"))
    assert 0 < count < files
    _check_duckdb(found, batch)


def _check_duckdb(found: PyTable, batch: pa.RecordBatch) -> None:
    wanted = _offsets(batch, pc.equal(batch["region"], "us"))
    with duckdb.connect() as connection:
        uris = [task.file.file_path.removeprefix("file://") for task in found.scan().plan_files()]
        read = connection.sql(
            "SELECT _offset FROM read_parquet($files) WHERE region = 'us'", params={"files": uris}
        )
        assert sorted(row[0] for row in read.fetchall()) == wanted


def _offsets(batch: pa.RecordBatch, kept: pa.Array) -> list[int]:
    return sorted(batch.filter(kept)["_offset"].to_pylist())


@pytest.mark.slow
def test_upkeep_keeps_partitions_apart(tmp_path: Path) -> None:
    text = "bucket(4, user_id), region"
    table = made(tmp_path / "t", text)
    for batch in range(1, 4):
        written(table, text, [rows(100, 100 * batch)], batch)
    before = len(table.files())
    done = table.compact(target_bytes=1 << 20)
    assert done.removed == before
    found = iceberg_table(table.name.path)
    partitions = [tuple(task.file.partition) for task in found.scan().plan_files()]
    assert len(set(partitions)) == len(partitions) == done.added < before
    assert sorted(found.scan().to_arrow()["_offset"].to_pylist()) == list(range(100, 400))
    hit = found.scan(row_filter=EqualTo("region", "us")).to_arrow()
    assert hit.num_rows == rows(300, 100)["region"].to_pylist().count("us")


def test_too_many_partitions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "MOST_PARTITIONS", 50)
    table = made(tmp_path / "t", "_offset")
    landed(table, "_offset", [rows(50)])
    with pytest.raises(ConfigError, match=r"more than 50 partitions of _offset.*bucket"):
        landed(table, "_offset", [rows(30), rows(21, 30)])


def test_what_partition_by_says() -> None:
    text = "day(at),bucket( 16 , user_id ), truncate(4,region),n"
    fields = parse_partition_by(text)
    assert ", ".join(map(str, fields)) == "day(at), bucket(16, user_id), truncate(4, region), n"
    assert [each.iceberg for each in fields] == ["day", "bucket[16]", "truncate[4]", "identity"]
    assert [from_iceberg(each.iceberg, each.column) for each in fields] == list(fields)
    assert parse_partition_by("identity(n)") == parse_partition_by("n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a,",
        "week(at)",
        "bucket(at)",
        "bucket(0, n)",
        "bucket(x, n)",
        "bucket(-1, n)",
        "day(at",
        "day()",
        "day(a, b)",
        "n, n",
        "day(at), hour(at)",
        "truncate(9999999999, n)",
    ],
)
def test_what_it_does_not_take(text: str) -> None:
    with pytest.raises(ConfigError, match="partition by"):
        parse_partition_by(text)


@pytest.mark.parametrize(
    "text", ["nothing", "hour(born)", "day(region)", "bucket(2, ok)", "share", "truncate(2, at)"]
)
def test_columns_that_a_transform_does_not_take(text: str) -> None:
    with pytest.raises(ConfigError, match="partition by"):
        check_partition_by(parse_partition_by(text), COLUMNS)


def test_nulls_stay_nulls() -> None:
    values = pa.array([None, 1, None], pa.int64())
    assert transformed(values, parse_partition_by("bucket(8, n)")[0]).null_count == 2


def test_kinds_that_have_days_only(tmp_path: Path) -> None:
    whole = LoadSettings(source={"subscribe": "t"}, table=TableName("delta", tmp_path / "t"))
    day = replace(whole, partition_by=parse_partition_by("day(at)"))
    assert (day.event_time, day.partition_by) == ("at", ())
    with pytest.raises(ConfigError, match="a delta table is split by the day of one column"):
        replace(whole, partition_by=parse_partition_by("hour(at)"))
    with pytest.raises(ConfigError, match="not by both"):
        replace(day, partition_by=parse_partition_by("n"))
