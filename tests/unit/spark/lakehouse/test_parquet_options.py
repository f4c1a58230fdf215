"""Which columns of a data file have a dictionary: those whose values come again."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.spark.lakehouse.file_writer import FileRules, FileWriter
from millstream.spark.lakehouse.parquet_options import parquet_options
from millstream.spark.locations.location import as_location

ROWS: Final = 20_000
RANDOM: Final = Random(4)
COLUMNS: Final[dict[str, tuple[list[Any], pa.DataType | None, bool]]] = {
    "address": ([f"192.168.100.{n % 250}" for n in range(ROWS)], pa.string(), True),
    "mostly_null": ([None if n % 9 else f"192.168.100.{n % 7}" for n in range(ROWS)], None, True),
    "key": ([RANDOM.randbytes(8).hex() for _ in range(ROWS)], pa.string(), False),
    "code": ([f"c{n % 5}" for n in range(ROWS)], pa.string(), False),
    "bytes": ([b"0123456789abcdef"] * ROWS, pa.binary(), True),
    "size": ([n % 300 for n in range(ROWS)], pa.int64(), True),
    "number": (list(range(ROWS)), pa.int64(), False),
    "small": ([n % 9 for n in range(ROWS)], pa.int32(), False),
    "share": ([0.5] * ROWS, pa.float64(), False),
    "nothing": ([None] * ROWS, pa.string(), False),
    "list": ([["one value and another"]] * ROWS, pa.list_(pa.string()), False),
    "value": ([b"as a record has it, however often"] * ROWS, pa.binary(), False),
    "_topic": (["t"] * ROWS, pa.string(), True),
    "_offset": (list(range(ROWS)), pa.int64(), False),
}
"""Values, type, and whether a dictionary pays."""

TABLE: Final = pa.table(
    {name: pa.array(values, kind) for name, (values, kind, _) in COLUMNS.items()}
)
PAYS: Final = [name for name, (_, _, pays) in COLUMNS.items() if pays]


def test_values_that_come_again_have_a_dictionary_unless_they_are_short() -> None:
    assert parquet_options(TABLE)["use_dictionary"] == PAYS


@pytest.mark.parametrize("pieces", [1, 7, 400])
def test_it_is_the_same_however_the_rows_came(pieces: int) -> None:
    table = pa.Table.from_batches(TABLE.to_batches(max_chunksize=ROWS // pieces))
    assert parquet_options(table)["use_dictionary"] == PAYS


def test_rows_that_differ_further_on_are_looked_at_too() -> None:
    begin, rest = ["the very same value"] * 4_000, COLUMNS["key"][0]
    table = pa.table({"key": pa.array([*begin, *rest], pa.string())})
    assert parquet_options(table)["use_dictionary"] == []


@pytest.mark.parametrize("rows", [0, 1, 1_000])
def test_a_small_file_has_those_alone_that_it_always_has(rows: int) -> None:
    assert parquet_options(TABLE.slice(0, rows))["use_dictionary"] == ["_topic"]


def test_the_file_has_them_and_the_same_rows(tmp_path: Path) -> None:
    rules = FileRules(
        app_id="a",
        batch=1,
        directory=as_location(tmp_path),
        target_bytes=1 << 30,
        offset_column="_offset",
    )
    writer = FileWriter(rules, TABLE.schema, 0)
    for batch in TABLE.to_batches(max_chunksize=3_000):
        writer.write(batch)
    (file,) = writer.finish()
    path = tmp_path / file.path
    assert pq.read_table(path).equals(TABLE)
    group = pq.read_metadata(path).row_group(0)
    found = [group.column(place) for place in range(group.num_columns)]
    assert [each.path_in_schema for each in found if each.has_dictionary_page] == PAYS
    for each in found:
        if each.path_in_schema in ("address", "key", "size"):
            assert each.statistics.has_min_max
