"""The merge of changes against a dictionary that says what is right."""

from __future__ import annotations

import base64
import json
import random
import struct
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.lake_readers import READERS, library_rows, rows_of

from millstream.model.errors import MillstreamError
from millstream.spark.lakehouse.file_writer import FileRules
from millstream.spark.lakehouse.formats.debezium import CHANGE, DELETE, TRUNCATE, UPSERT
from millstream.spark.lakehouse.formats.format import METADATA, TIMESTAMP
from millstream.spark.lakehouse.merge import Merger, newest
from millstream.spark.lakehouse.table import Layout, MergeTable, TableName, open_merge_table

COLUMNS = pa.schema([("id", pa.int64()), ("region", pa.string()), ("n", pa.int64()), *METADATA])
KEY = ("id", "region")
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


class Change(NamedTuple):
    id: int
    n: int
    partition: int
    offset: int
    time: int
    kind: int = UPSERT
    region: str = "eu"


def as_rows(changes: list[Change]) -> pa.Table:
    rows = [
        {
            "id": each.id,
            "region": each.region,
            "n": each.n,
            "_topic": "t",
            "_partition": each.partition,
            "_offset": each.offset,
            "_timestamp": each.time,
            CHANGE: each.kind,
        }
        for each in changes
    ]
    return pa.Table.from_pylist(rows, schema=COLUMNS.append(pa.field(CHANGE, pa.int8())))


class Site:
    """A table, and the merges into it."""

    def __init__(self, table: MergeTable, *, file_bytes: int = 1 << 20) -> None:
        self.table = table
        self.table.create(Layout(schema=COLUMNS))
        self._merger = Merger(table, KEY)
        self._file_bytes = file_bytes
        self._batch = 0

    def merge(self, *changes: Change) -> tuple[int, int]:
        """Merge a batch; return how many files went and came."""
        expected = {"batch": self._batch} if self._batch else {}
        self._batch += 1
        rules = FileRules(
            app_id="app",
            batch=self._batch,
            directory=str(self.table.staging_directory),
            target_bytes=self._file_bytes,
            offset_column="_offset",
            calendar_only=not self.table.keeps_partition_column,
        )
        change = self._merger.merge(
            newest(as_rows(list(changes)), KEY), rules, lambda schema: schema
        )
        self.table.replace("app", {"batch": self._batch}, change, expected=expected)
        return len(change.removed), len(change.added)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return library_rows(self.table, columns)


@pytest.fixture(params=["delta", "iceberg"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return Site(open_merge_table(TableName(request.param, tmp_path / "table")))


@pytest.mark.slow
def test_the_newest_of_each_key_by_offset(site: Site) -> None:
    site.merge(Change(1, 10, 0, 0, 5), Change(2, 20, 0, 1, 5), Change(1, 11, 0, 2, 4))
    assert site.rows("id", "n") == [(1, 11), (2, 20)]
    site.merge(Change(2, 21, 0, 3, 1), Change(3, 30, 0, 4, 1), Change(1, 0, 0, 5, 1, DELETE))
    assert site.rows("id", "n", "_offset") == [(2, 21, 3), (3, 30, 4)]
    site.merge(Change(2, 0, 0, 6, 1, DELETE), Change(9, 0, 0, 7, 1, DELETE))
    site.merge(Change(1, 12, 0, 8, 1), Change(3, 0, 0, 9, 1, DELETE))
    for read in READERS.values():
        assert rows_of(read(site.table, ["id", "n"])) == [(1, 12)]


def test_the_order_of_the_rows_of_a_batch_says_nothing() -> None:
    one = [Change(1, 12, 0, 8, 5), Change(1, 11, 0, 7, 9), Change(2, 20, 0, 9, 5)]
    more = [Change(3, 31, 1, 4, 5), Change(3, 30, 1, 3, 6)]
    tied = [Change(4, 40, 0, 900, 5), Change(4, 43, 3, 0, 5)]
    for batch in (one, [*one, *more, *tied]):
        for rows in (batch, batch[::-1]):
            found = newest(as_rows(rows), KEY).rows["n"].to_pylist()
            assert found == [12, 20, 31, 43][: 2 if batch is one else 4]


def delete_by_vector(table: Path, *rows: int) -> None:
    """Delete rows of the only file of a Delta table as Spark does, with an inline deletion vector
    (Delta protocol, "Deletion Vector Format": z85 of a magic number and a Roaring bitmap array).
    """
    log = table / "_delta_log"
    lines = [line for each in sorted(log.glob("*.json")) for line in each.read_text().splitlines()]
    add = next(action["add"] for line in lines if "add" in (action := json.loads(line)))
    header = struct.pack("<IQIIIHHI", 1681511377, 1, 0, 12346, 1, 0, len(rows) - 1, 16)
    bitmap = header + struct.pack(f"<{len(rows)}H", *rows)
    encoded = base64.b85encode(bitmap).translate(bytes.maketrans(_B85, _Z85))
    vector = {
        "storageType": "i",
        "pathOrInlineDv": encoded.decode(),
        "sizeInBytes": len(bitmap),
        "cardinality": len(rows),
    }
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": gone},
        {"add": {**add, "deletionVector": vector}},
    ]
    version = len(list(log.glob("*.json")))
    text = "\n".join(json.dumps(each) for each in actions)
    (log / f"{version:020}.json").write_text(text)


def test_deletion_vectors_of_other_programs_are_refused(tmp_path: Path) -> None:
    """deltalake's commit would not remove the vector with its file: the row would be back."""
    site = Site(open_merge_table(TableName("delta", tmp_path / "table")))
    site.merge(*(Change(each, each, 0, each, 5) for each in range(4)))
    delete_by_vector(tmp_path / "table", 1, 2)
    assert list(site.table.deleted_rows().values()) == [[1, 2]]
    files = site.table.files()
    with pytest.raises(MillstreamError, match="deletion vectors"):
        site.merge(Change(0, 10, 0, 10, 6))
    assert site.table.files() == files


def test_an_older_record_that_comes_again_changes_nothing(site: Site) -> None:
    site.merge(Change(1, 10, 0, 5, 5))
    assert site.merge(Change(1, 9, 0, 4, 9), Change(1, 0, 0, 3, 9, DELETE)) == (0, 0)
    assert site.merge(Change(1, 10, 0, 5, 5)) == (0, 0), "nor does the record itself"
    assert site.rows("id", "n") == [(1, 10)]


@pytest.mark.slow
def test_between_partitions_the_later_record_wins(site: Site) -> None:
    """Their offsets say nothing to each other: a topic got more partitions."""
    site.merge(Change(1, 10, 0, 1000, 5), Change(2, 20, 0, 1001, 9), Change(3, 30, 0, 1002, 5))
    site.merge(Change(1, 11, 3, 0, 6), Change(2, 21, 3, 1, 6), Change(3, 31, 3, 2, 5))
    assert site.rows("id", "n") == [(1, 11), (2, 20), (3, 31)]
    site.merge(Change(4, 41, 3, 3, 6), Change(4, 40, 0, 1003, 5))
    site.merge(Change(2, 0, 3, 4, 10, DELETE), Change(1, 0, 0, 1004, 5, DELETE))
    assert site.rows("id", "n") == [(1, 11), (3, 31), (4, 41)]


@pytest.mark.parametrize("greatest_first", [False, True])
def test_at_one_time_the_greatest_partition_wins(greatest_first: bool, tmp_path: Path) -> None:
    """Whatever order a load reads them in, and whether it reads them in one batch."""
    site = Site(open_merge_table(TableName("delta", tmp_path / "table")))
    one, other = Change(1, 10, 0, 900, 5), Change(1, 13, 3, 0, 5)
    two, another = Change(2, 20, 0, 901, 5), Change(2, 23, 3, 1, 5)
    for n in (0, 1) if greatest_first else (1, 0):
        site.merge((one, other)[n])
    site.merge(*((another, two) if greatest_first else (two, another)))
    assert site.rows("id", "n") == [(1, 13), (2, 23)]


@pytest.mark.slow
def test_a_truncate_removes_what_was_before_it(site: Site) -> None:
    site.merge(Change(1, 10, 0, 0, 5), Change(2, 20, 0, 1, 5))
    site.merge(
        Change(3, 30, 0, 2, 5),
        Change(1, 11, 0, 3, 5),
        Change(0, 0, 0, 4, 5, TRUNCATE),
        Change(1, 12, 0, 5, 5),
    )
    assert site.rows("id", "n", "_offset") == [(1, 12, 5)]
    site.merge(Change(0, 0, 0, 6, 5, TRUNCATE))
    assert site.rows("id") == []


def test_only_files_with_a_hit_are_written_anew(tmp_path: Path) -> None:
    site = Site(open_merge_table(TableName("delta", tmp_path / "table")))
    for first in (0, 100, 200):
        site.merge(*(Change(first + n, n, 0, first + n, 5) for n in range(100)))
    old = set(site.table.files())
    assert len(old) == 3
    assert site.merge(Change(150, -1, 0, 300, 5)) == (1, 1)
    assert len(old & set(site.table.files())) == 2
    assert site.merge(Change(999, -1, 0, 301, 5)) == (0, 1)
    assert len(site.rows("id")) == 301


@pytest.mark.slow
def test_rows_of_other_programs(site: Site) -> None:
    """A row without a place is replaced by the next change of its key; doubles are mended."""
    site.merge(Change(1, 10, 0, 0, 5))
    path = site.table.staging_directory / "others.parquet"
    own = pa.table({"id": [1, 2, 2, 3], "region": ["eu", "eu", "eu", None], "n": [7, 7, 8, 7]})
    rows = [own[f.name] if f.name in own.column_names else pa.nulls(4, f.type) for f in COLUMNS]
    pq.write_table(pa.Table.from_arrays(rows, schema=COLUMNS), path)
    from millstream.spark.lakehouse.data_files import DataFile

    file = DataFile(path=path.name, size_bytes=path.stat().st_size, rows=4)
    site.table.commit("others", {"batch": 1}, [file], expected={})
    site.merge(Change(1, 11, 0, 1, 5), Change(2, 20, 0, 2, 5))
    found = {(row["id"], row["n"]) for row in _dicts(site)}
    assert found == {(1, 11), (2, 20), (3, 7)}
    assert len(_dicts(site)) == 3


def _dicts(site: Site) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in site.table.files():
        found = pq.ParquetFile(site.table.data_directory / path)
        rows += found.read(columns=["id", "n"]).to_pylist()
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_against_a_dictionary(site: Site, seed: int) -> None:
    rng = random.Random(seed)
    expected: dict[tuple[int, str], int] = {}
    ends = [0, 0, 0]
    for _ in range(12):
        batch = []
        for _ in range(rng.randrange(1, 60)):
            number = rng.randrange(40)
            partition = number % 3
            region = "eu" if number % 2 else "us"
            kind = rng.choice([UPSERT, UPSERT, DELETE])
            if rng.random() < 0.02:
                kind, partition = TRUNCATE, rng.randrange(3)
                for each in [e for e in expected if e[0] % 3 == partition]:
                    del expected[each]
            elif kind == DELETE:
                expected.pop((number, region), None)
            value = rng.randrange(1000)
            if kind == UPSERT:
                expected[number, region] = value
            # Times run backwards: within a partition they do not matter.
            time = 1_000 - ends[partition]
            batch.append(Change(number, value, partition, ends[partition], time, kind, region))
            ends[partition] += 1
        rng.shuffle(batch)
        site.merge(*batch)
        found = {(number, region): n for number, region, n in site.rows("id", "region", "n")}
        assert found == expected
        assert len(site.rows("id")) == len(expected)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.binary(), [b"\xff\x00", b"a", b""]),
        (pa.date32(), [1, 2, -3]),
        (TIMESTAMP, [1, 2, -3]),
        (pa.bool_(), [True, False]),
        (pa.decimal128(10, 2), [1, 2]),
        (pa.string(), ["ü", "", "z"]),
    ],
)
def test_kinds_of_keys(kind: pa.DataType, values: list[Any], tmp_path: Path) -> None:
    table = open_merge_table(TableName("delta", tmp_path / "table"))
    schema = pa.schema([("k", kind), *METADATA])
    table.create(Layout(schema=schema))
    merger = Merger(table, ["k"])
    for batch in (1, 2):
        data = {
            "k": pa.array(values, kind),
            "_topic": ["t"] * len(values),
            "_partition": [0] * len(values),
            "_offset": [batch * 10 + n for n in range(len(values))],
            CHANGE: [UPSERT] * len(values),
        }
        whole = schema.append(pa.field(CHANGE, pa.int8()))
        arrays = [
            pa.array(data[f.name], f.type) if f.name in data else pa.nulls(len(values), f.type)
            for f in whole
        ]
        rules = FileRules(
            app_id="app",
            batch=batch,
            directory=str(table.staging_directory),
            target_bytes=1 << 20,
            offset_column="_offset",
        )
        changes = newest(pa.Table.from_arrays(arrays, schema=whole), ["k"])
        change = merger.merge(changes, rules, lambda schema: schema)
        expected = {"batch": 1} if batch == 2 else {}
        table.replace("app", {"batch": batch}, change, expected=expected)
    assert [row[0] for row in library_rows(table, ["_offset"])] == [
        20 + n for n in range(len(values))
    ]
