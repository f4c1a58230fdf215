"""How data files are laid out, and that they hold what was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.spark.lakehouse import file_writer
from millstream.spark.lakehouse.file_writer import FileRules, FileWriter
from millstream.spark.lakehouse.formats.format import TIMESTAMP
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS


def rules(directory: Path) -> FileRules:
    return FileRules(
        app_id="a",
        batch=1,
        directory=str(directory),
        target_bytes=1 << 30,
        offset_column="offset",
    )


def rows(first: int, count: int) -> pa.RecordBatch:
    offsets = range(first, first + count)
    columns = {
        "key": [None if offset % 2 else b"k%d" % offset for offset in offsets],
        "value": [b"v%d" % offset * 10 for offset in offsets],
        "topic": ["t"] * count,
        "partition": [3] * count,
        "offset": list(offsets),
        "timestamp": [1_700_000_000_000_000 + offset * 1000 for offset in offsets],
        "timestampType": [0] * count,
        "headers": [[{"key": "h", "value": b"1"}] if offset % 3 else None for offset in offsets],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in RAW_COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_COLUMNS)


def test_records_come_back_as_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [rows(first, 1000) for first in range(0, 10_000, 1000)]
    monkeypatch.setattr(file_writer, "ROW_GROUP_BYTES", batches[0].nbytes * 4)
    writer = FileWriter(rules(tmp_path), RAW_COLUMNS, 0)
    for batch in batches:
        writer.write(batch)
    (file,) = writer.finish()
    assert (file.rows, file.min_offset, file.max_offset) == (10_000, 0, 9_999)
    found = pq.read_table(tmp_path / file.path)
    assert found.equals(pa.Table.from_batches(batches))
    assert file.size_bytes == (tmp_path / file.path).stat().st_size


def test_what_is_not_worth_its_time_is_not_written(tmp_path: Path) -> None:
    writer = FileWriter(rules(tmp_path), RAW_COLUMNS, 0)
    writer.write(rows(0, 1000))
    (file,) = writer.finish()
    group = pq.ParquetFile(tmp_path / file.path).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert columns["offset"].statistics.max == 999
    assert columns["key"].statistics.has_min_max
    assert columns["topic"].statistics.min == "t"
    assert not columns["value"].is_stats_set
    assert "DELTA_BINARY_PACKED" in columns["timestamp"].encodings
    assert "RLE_DICTIONARY" in columns["topic"].encodings
    assert "RLE_DICTIONARY" not in columns["value"].encodings


@pytest.mark.parametrize("keeps_day", [False, True])
def test_times_that_no_calendar_has(tmp_path: Path, keeps_day: bool) -> None:
    """A producer that gives nanoseconds for milliseconds does not stop a load."""
    batch = rows(0, 4)
    index = batch.schema.get_field_index("timestamp")
    times = pa.array([1_700_000_000_000_000, 2 * 10**18, -(10**18), None], pa.int64())
    batch = batch.set_column(index, batch.schema.field(index), times.cast(TIMESTAMP))
    split = replace(
        rules(tmp_path),
        event_time="timestamp",
        partition_column="date" if keeps_day else None,
        calendar_only=not keeps_day,
    )
    writer = FileWriter(split, RAW_COLUMNS, 0)
    writer.write(batch)
    files = writer.finish()
    assert sorted(each.rows for each in files) == [1, 3]
    if keeps_day:
        days = {each.rows: each.partition_values["date"] for each in files}
        assert days == {1: "2023-11-14", 3: None}
    found = [pq.ParquetFile(tmp_path / each.path).read()["timestamp"] for each in files]
    kept = sorted(v for each in found for v in each.cast(pa.int64()).to_pylist() if v is not None)
    assert kept == (
        [-(10**18), 1_700_000_000_000_000, 2 * 10**18] if keeps_day else [times[0].as_py()]
    )


DAY_US = 86_400_000_000


def of_days(days: list[int]) -> pa.RecordBatch:
    batch = rows(0, len(days))
    index = batch.schema.get_field_index("timestamp")
    times = pa.array([day * DAY_US + 5 for day in days], pa.int64()).cast(TIMESTAMP)
    return batch.set_column(index, batch.schema.field(index), times)


@pytest.mark.slow
@pytest.mark.parametrize("waiting_bytes", [256 << 20, 100_000])
def test_days_that_are_mixed_have_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting_bytes: int
) -> None:
    """Each batch has a record of each of 60 days, and more of one of them."""
    monkeypatch.setattr(file_writer, "WAITING_BYTES", waiting_bytes)
    split = replace(rules(tmp_path), event_time="timestamp", partition_column="date")
    writer = FileWriter(split, RAW_COLUMNS, 0)
    for _ in range(50):
        writer.write(of_days([*range(60), *[7] * 40]))
        assert len([each for each in writer._open.values() if each.file]) <= 16
        assert writer._waiting_bytes == sum(e.waiting_bytes for e in writer._open.values())
        assert writer._waiting_bytes <= waiting_bytes
    files = writer.finish()
    counts: dict[str | None, int] = {}
    for each in files:
        day = each.partition_values["date"]
        counts[day] = counts.get(day, 0) + each.rows
        found = pq.ParquetFile(tmp_path / each.path).read()
        assert found.num_rows == each.rows
        days = {time // DAY_US for time in found["timestamp"].cast(pa.int64()).to_pylist()}
        assert len(days) == 1
    assert sorted(counts.values()) == [50] * 59 + [50 * 41]
    assert len(files) == 60 if waiting_bytes > 1 << 20 else len(files) < 120
