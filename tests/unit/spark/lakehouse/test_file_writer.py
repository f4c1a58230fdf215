"""How data files are laid out, and that they hold what was written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.spark.lakehouse import file_writer
from millstream.spark.lakehouse.file_writer import FileRules, FileWriter
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
