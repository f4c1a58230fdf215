"""Delta, Iceberg and Parquet keep the same promises."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse import delta
from millstream.spark.lakehouse.commits import remove_orphans
from millstream.spark.lakehouse.data_files import DataFile, file_name
from millstream.spark.lakehouse.formats.format import TIMESTAMP
from millstream.spark.lakehouse.parquet import ParquetTableFiles
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import (
    KINDS,
    ConcurrentLoadError,
    Layout,
    Table,
    TableName,
    dead_letters_of,
    open_table,
    parse_table_name,
)
from millstream.spark.lakehouse.written_files import WrittenFileError
from millstream.spark.locations.directories import LocalPath

SCHEMA = pa.schema([("value", pa.binary()), ("offset", pa.int64()), ("timestamp", TIMESTAMP)])


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(kind: str, tmp_path: Path) -> Table:
    made = open_table(TableName(kind, tmp_path / "a table"))
    assert not made.exists()
    made.create(Layout(schema=SCHEMA))
    assert made.exists()
    return made


def write(table: Table, batch: int, *, day: str | None = None) -> DataFile:
    """Write three rows as a task would."""
    rows = pa.table(
        {
            "value": [b"x"] * 3,
            "offset": pa.array(range(batch * 3, batch * 3 + 3), pa.int64()),
            "timestamp": pa.array([1, 2, 3], TIMESTAMP),
        },
        schema=SCHEMA,
    )
    name = file_name("app", batch=batch, task=0, attempt=os.urandom(4).hex())
    path = name if day is None else f"date={day}/{name}"
    file = table.staging_directory / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)
    return DataFile(
        path=path,
        size_bytes=file.stat().st_size,
        rows=3,
        partition_values={} if day is None else {"date": day},
        min_offset=batch * 3,
        max_offset=batch * 3 + 2,
    )


def fill(table: Table, batches: int) -> dict[str, int]:
    entries: dict[str, int] = {}
    for batch in range(1, batches + 1):
        after = {"batch": batch, "t/0": batch * 3}
        table.commit("app", after, [write(table, batch)], expected=entries)
        entries = after
    return entries


def rows_of(table: Table) -> list[int]:
    paths = [str(table.data_directory / path) for path in table.files()]
    offsets = [pq.read_table(path, columns=["offset"])["offset"].to_pylist() for path in paths]
    return sorted(offset for each in offsets for offset in each)


def test_data_and_ledger_are_committed_together(table: Table) -> None:
    assert table.ledger("app", ["batch", "t/0"]) == {}
    entries = fill(table, 3)
    assert table.ledger("app", ["batch", "t/0", "t/1"]) == entries
    assert table.ledger("other", ["batch"]) == {}
    assert rows_of(table) == list(range(3, 12))
    assert len(table.files()) == 3


def test_of_two_planners_only_the_first_commits(table: Table) -> None:
    entries = fill(table, 2)
    with pytest.raises(ConcurrentLoadError):
        table.commit("app", {"batch": 2, "t/0": 6}, [write(table, 2)], expected={"batch": 1})
    with pytest.raises(ConcurrentLoadError):
        table.commit("app", {"batch": 1}, [write(table, 1)], expected={})
    assert table.ledger("app", ["batch", "t/0"]) == entries
    assert len(table.files()) == 2


@pytest.mark.parametrize("fault", ["gone", "short", "rows", "no file of Parquet"])
def test_a_commit_looks_at_its_files(table: Table, fault: str) -> None:
    """A file on an executor's own disk must not move the offsets."""
    entries = fill(table, 1)
    file = write(table, 2)
    path = table.staging_directory / file.path
    if fault == "gone":
        path.unlink()
    elif fault == "short":
        path.write_bytes(path.read_bytes()[:-1])
    elif fault == "rows":
        file = replace(file, rows=4)
    else:
        path.write_bytes(b"x" * file.size_bytes)
    with pytest.raises(WrittenFileError, match=file.path):
        table.commit("app", {"batch": 2, "t/0": 6}, [file], expected=entries)
    assert table.ledger("app", list(entries)) == entries
    assert rows_of(table) == [3, 4, 5]


@pytest.mark.slow
def test_other_loads_and_upkeep_do_not_stand_in_the_way(table: Table) -> None:
    entries = fill(table, 3)
    table.compact(target_bytes=1 << 20)
    table.commit("other", {"batch": 1}, [write(table, 9)], expected={})
    table.commit("app", {"batch": 4}, [write(table, 4)], expected={"batch": entries["batch"]})
    assert rows_of(table) == [*range(3, 15), 27, 28, 29]


@pytest.mark.slow
def test_compaction_keeps_the_rows_and_the_ledger(table: Table) -> None:
    entries = fill(table, 4)
    found = table.compact(target_bytes=1 << 20)
    assert (found.removed, found.added) == (4, 1)
    assert rows_of(table) == list(range(3, 15))
    assert table.ledger("app", list(entries)) == entries
    assert table.compact(target_bytes=1 << 20).removed == 0


@pytest.mark.slow
def test_what_nothing_names_is_removed_when_it_is_old(table: Table) -> None:
    fill(table, 4)
    table.compact(target_bytes=1 << 20)
    for file in table.name.path.rglob("*"):
        os.utime(file, (0, 0))
    assert table.expire(keep_ms=0) >= 4
    assert rows_of(table) == list(range(3, 15))
    assert sum(1 for _ in table.name.path.rglob("millstream-*.parquet")) <= 1
    assert len(table.files()) == 1


def test_columns_are_added_and_widened_by_name(table: Table, kind: str) -> None:
    fill(table, 1)
    table.add_columns(pa.schema([*SCHEMA, ("n", pa.int32())]))
    table.add_columns(pa.schema([("n", pa.int64())]))
    assert table.schema().field("n").type == pa.int64()
    assert table.schema().names[:3] == SCHEMA.names
    assert len(table.files()) == 1
    assert table.ledger("app", ["batch"]) == {"batch": 1}


@pytest.mark.parametrize("split", [False, True])
def test_a_directory_of_parquet_stays_readable_when_types_widen(
    tmp_path: Path, split: bool
) -> None:
    table = open_table(TableName("parquet", tmp_path / "a table"))
    schema = pa.schema([*SCHEMA, ("n", pa.int64())])
    table.create(Layout(schema=schema, event_time="timestamp" if split else None))
    for batch, kind in ((1, pa.int64()), (2, pa.float64())):
        table.add_columns(pa.schema([("n", kind)]))
        file = write(table, batch, day="2024-01-01" if split else None)
        path = table.staging_directory / file.path
        rows = pq.ParquetFile(path).read()
        pq.write_table(rows.append_column("n", pa.array([batch / 1, 2, 3], kind)), path)
        file = replace(file, size_bytes=path.stat().st_size)
        expected = {"batch": batch - 1} if batch > 1 else {}
        table.commit("app", {"batch": batch}, [file], expected=expected)
    assert sorted(pq.read_table(table.name.path)["n"].to_pylist()) == [1.0, 2.0, 2.0, 2.0, 3.0, 3.0]
    assert len(table.files()) == 2


def write_numbers(table: Table, batch: int, kind: pa.DataType) -> DataFile:
    file = write(table, batch)
    path = table.staging_directory / file.path
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.append_column("n", pa.array([batch] * 3, kind)), path)
    return replace(file, size_bytes=path.stat().st_size)


def test_widening_beside_an_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a file of the narrower type would stay, which Spark does not read."""
    table = open_table(TableName("delta", tmp_path / "t"))
    table.create(Layout(schema=pa.schema([*SCHEMA, ("n", pa.int64())])))
    table.commit("app", {"batch": 1}, [write_numbers(table, 1, pa.int64())], expected={})
    rewrite, appended = delta.write_deltalake, []

    def beside(*arguments: Any, **named: Any) -> None:
        if not appended:
            appended.append(write_numbers(table, 2, pa.int64()))
            table.commit("app", {"batch": 2}, appended, expected={"batch": 1})
        rewrite(*arguments, **named)

    monkeypatch.setattr(delta, "write_deltalake", beside)
    table.add_columns(pa.schema([("n", pa.float64())]))
    assert rows_of(table) == [3, 4, 5, 6, 7, 8]
    schemas = [pq.read_schema(table.data_directory / path) for path in table.files()]
    assert {schema.field("n").type for schema in schemas} == {pa.float64()}
    late = write_numbers(table, 3, pa.int64())
    with pytest.raises(ConcurrentLoadError, match="column n"):
        table.commit("app", {"batch": 3}, [late], expected={"batch": 2})
    assert table.ledger("app", ["batch"]) == {"batch": 2}


def test_a_table_is_made_once(table: Table) -> None:
    fill(table, 1)
    table.create(Layout(schema=SCHEMA))
    assert len(table.files()) == 1
    with pytest.raises(ConfigError, match="other columns"):
        table.create(Layout(schema=pa.schema([("x", pa.int8())])))


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_days_stand_in_the_path(kind: str, tmp_path: Path) -> None:
    table = open_table(TableName(kind, tmp_path / "t"))
    table.create(Layout(schema=SCHEMA, event_time="timestamp"))
    assert table.schema().names[-1] == "date"
    table.commit("app", {"batch": 1}, [write(table, 1, day="1970-01-01")], expected={})
    if kind == "parquet":
        found = ds.dataset(tmp_path / "t", partitioning="hive").to_table()
        assert found["date"].to_pylist() == ["1970-01-01"] * 3
    else:
        from deltalake import DeltaTable

        found = DeltaTable(tmp_path / "t").to_pyarrow_table()
        assert [str(day) for day in found["date"].to_pylist()] == ["1970-01-01"] * 3


def test_iceberg_knows_the_day_by_itself(tmp_path: Path) -> None:
    table = open_table(TableName("iceberg", tmp_path / "t"))
    table.create(Layout(schema=SCHEMA, event_time="timestamp"))
    table.commit("app", {"batch": 1}, [write(table, 1)], expected={})
    assert table.schema().names == SCHEMA.names
    assert rows_of(table) == [3, 4, 5]


@pytest.mark.slow
def test_repair_removes_double_references(tmp_path: Path) -> None:
    for kind in ("iceberg", "parquet"):
        table = open_table(TableName(kind, tmp_path / kind))
        table.create(Layout(schema=SCHEMA))
        file = write(table, 1)
        table.commit("app", {"batch": 1}, [file], expected={})
        if isinstance(table, ParquetTableFiles):
            table._write(table._read(), {"add": [file.path]})
        else:
            table.commit("other", {"batch": 1}, [file], expected={})
        assert rows_of(table) == [3, 3, 4, 4, 5, 5]
        assert table.remove_duplicates() == [file.path]
        assert rows_of(table) == [3, 4, 5]
        assert table.remove_duplicates() == []


# --- Parquet's own log ---------------------------------------------------------------------------


def test_readers_see_committed_files_only(tmp_path: Path) -> None:
    table = ParquetTableFiles(TableName("parquet", tmp_path / "t"))
    table.create(Layout(schema=SCHEMA))
    file = write(table, 1)
    assert ds.dataset(tmp_path / "t", format="parquet").count_rows() == 0
    table.commit("app", {"batch": 1}, [file], expected={})
    assert ds.dataset(tmp_path / "t", format="parquet").count_rows() == 3


def test_a_crash_between_commit_and_move_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ParquetTableFiles(TableName("parquet", tmp_path / "t"))
    table.create(Layout(schema=SCHEMA))
    file = write(table, 1)
    with monkeypatch.context() as patch:

        def crash(self: LocalPath, target: LocalPath) -> None:
            raise KeyboardInterrupt

        patch.setattr(LocalPath, "rename_to", crash)
        with pytest.raises(KeyboardInterrupt):
            table.commit("app", {"batch": 1}, [file], expected={})
    assert not (tmp_path / "t" / file.path).exists()
    assert table.ledger("app", ["batch"]) == {"batch": 1}
    assert rows_of(table) == [3, 4, 5]


@pytest.mark.slow
def test_the_log_is_replayed_from_its_newest_state(tmp_path: Path) -> None:
    table = ParquetTableFiles(TableName("parquet", tmp_path / "t"))
    table.create(Layout(schema=SCHEMA))
    entries = fill(table, 60)
    log = tmp_path / "t" / "_millstream" / "log"
    assert len(list(log.glob("*.state"))) == 1
    for commit in sorted(log.glob("*.json"))[:50]:
        commit.unlink()
    assert table.ledger("app", list(entries)) == entries
    assert len(table.files()) == 60


def test_a_directory_with_other_files_is_left_alone(kind: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "users-own.parquet").write_text("x")
    with pytest.raises(ConfigError, match="not empty"):
        open_table(TableName(kind, tmp_path)).create(Layout(schema=SCHEMA))
    file = open_table(TableName(kind, tmp_path / "data" / "users-own.parquet"))
    with pytest.raises(ConfigError, match="a file of that name"):
        file.create(Layout(schema=SCHEMA))


def test_a_table_of_another_kind_or_around_it(table: Table) -> None:
    for kind in KINDS:
        if kind != table.name.kind:
            with pytest.raises(ConfigError, match="no Millstream table of this kind"):
                open_table(TableName(kind, table.name.path)).create(Layout(schema=SCHEMA))
        inside = TableName(kind, table.name.path / "deep" / "inner")
        with pytest.raises(ConfigError, match="inside the table"):
            open_table(inside).create(Layout(schema=SCHEMA))


REFUSED = {
    "delta": ("x[1]", "a|b", "a%20b"),
    "iceberg": ("a%20b", "a#b", "a?b"),
    "parquet": (),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x[1]", "a|b", "a%20b", "a#b", "a?b", "{x} ä%", "a'b:c@d"])
def test_paths_that_libraries_take_for_others(kind: str, tmp_path: Path, name: str) -> None:
    table = open_table(TableName(kind, tmp_path / name))
    if name in REFUSED[kind]:
        with pytest.raises(ConfigError, match="such a path"):
            table.create(Layout(schema=SCHEMA))
        return
    table.create(Layout(schema=SCHEMA))
    table.add_columns(pa.schema([("n", pa.int32())]))
    fill(table, 3)
    table.add_columns(pa.schema([("n", pa.int64())]))
    table.compact(target_bytes=1 << 20)
    table.expire(keep_ms=0)
    assert rows_of(table) == list(range(3, 12))


def test_a_table_whose_making_died_is_made(tmp_path: Path) -> None:
    iceberg = TableName("iceberg", tmp_path / "i")
    (iceberg.path / "data").mkdir(parents=True)
    open_table(iceberg).create(Layout(schema=SCHEMA))
    delta = TableName("delta", tmp_path / "d")
    (delta.path / "_delta_log").mkdir(parents=True)
    open_table(delta).create(Layout(schema=SCHEMA))
    assert open_table(iceberg).exists()
    assert open_table(delta).exists()


@pytest.mark.slow
def test_first_loads_at_once_make_one_table(tmp_path: Path) -> None:
    """Each looks, sees nothing, and makes the SQL tables of the catalogue, and then the table."""
    together = threading.Barrier(4)

    def make(number: int, fields: pa.Schema) -> None:
        together.wait()
        open_table(TableName("iceberg", tmp_path / str(number))).create(Layout(schema=fields))

    other = pa.schema([("x", pa.int8())])
    for number in range(4):
        together.reset()
        with ThreadPoolExecutor(4) as pool:
            made = [pool.submit(make, number, each) for each in (SCHEMA, SCHEMA, SCHEMA, other)]
        refused = [error for each in made if (error := each.exception())]
        assert all(type(each) is ConfigError for each in refused), refused
        assert len(refused) in (1, 3), "who had other columns than the first is told so"
        assert open_table(TableName("iceberg", tmp_path / str(number))).exists()


def test_a_table_stays_split_as_it_is(kind: str, tmp_path: Path) -> None:
    """Files of another split would leave a table that its readers refuse."""
    whole, split = (open_table(TableName(kind, tmp_path / name)) for name in ("whole", "split"))
    by_day = Layout(schema=SCHEMA, event_time="timestamp")
    for table, layout, other in ((whole, Layout(schema=SCHEMA), by_day), (split, by_day, None)):
        table.create(layout)
        table.create(layout)
        with pytest.raises(ConfigError, match=r"event time|no column date"):
            table.create(other or Layout(schema=SCHEMA))


# --- names ---------------------------------------------------------------------------------------


def test_names() -> None:
    assert str(parse_table_name("delta:/x/y")) == "delta:/x/y"
    assert dead_letters_of(parse_table_name("iceberg:/x/y")).path == Path("/x/y_dead_letters")
    for text in ("", "delta", "delta:", "hudi:/x"):
        with pytest.raises(ConfigError, match="delta:PATH"):
            parse_table_name(text)
    assert parse_table_name("delta:file:///x/y").path == Path("/x/y")
    with pytest.raises(ConfigError, match="local or mounted"):
        parse_table_name("iceberg:hdfs://host/x")


@pytest.mark.slow
def test_what_an_older_state_names_is_no_orphan(table: Table) -> None:
    """A reader may be at work on the files that a compaction has replaced."""
    for batch in (1, 2, 3):
        expected = {"batch": batch - 1} if batch > 1 else {}
        table.commit("app", {"batch": batch}, [write(table, batch)], expected=expected)
    before = [table.data_directory / path for path in table.files()]
    dead = table.staging_directory / write(table, 3).path
    assert table.compact(target_bytes=1 << 20).removed == 3
    remove_orphans(table, "app", batch=3)
    assert not dead.exists()
    if table.name.kind != "parquet":  # there the log of commits moves them out of sight
        assert all(path.exists() for path in before)
    table.expire(keep_ms=0)
    assert not any(path.exists() for path in before)


def test_expiry_leaves_what_a_load_is_writing(table: Table) -> None:
    """No commit names its files yet; that they are older than what is kept says nothing."""
    fill(table, 2)
    in_flight = table.staging_directory / write(table, 3).path
    os.utime(in_flight, (time.time() - 7_200, time.time() - 7_200))
    table.expire(keep_ms=1_800_000)
    assert in_flight.exists()


class _Overtaken(ParquetTableFiles):
    """A reader that has looked which commits there are when another one forgets them."""

    def __init__(self, name: TableName) -> None:
        super().__init__(name)
        self._forgotten = False

    def _parsed(self, version: int, suffix: str) -> dict[str, Any]:
        if not self._forgotten:
            self._forgotten = True
            open_table(self.name).expire(keep_ms=-60_000)
        return super()._parsed(version, suffix)


def test_commits_may_be_forgotten_while_they_are_read(tmp_path: Path) -> None:
    table = open_table(TableName("parquet", tmp_path / "table"))
    table.create(Layout(schema=SCHEMA))
    entries = fill(table, 4)
    assert _Overtaken(table.name).ledger("app", list(entries)) == entries


def test_a_partition_column_with_a_space(kind: str, tmp_path: Path) -> None:
    """Delta writes such paths in another way into its log: the audit took the files for lost."""
    table = open_table(TableName(kind, tmp_path / "table"))
    table.create(Layout(schema=SCHEMA, event_time="timestamp", partition_column="event day"))
    file = write(table, 1, day="1970-01-01")
    if kind == "delta":
        spaced = file.path.replace("date=", "event day=")
        (tmp_path / "table" / file.path).parent.rename(tmp_path / "table" / Path(spaced).parent)
        file = replace(file, path=spaced, partition_values={"event day": "1970-01-01"})
    table.commit("app", {"batch": 1}, [file], expected={})
    assert table.files() == [file.path]
    assert (table.data_directory / file.path).is_file()


@pytest.mark.parametrize("text", ["delta:~/lake/t", "delta:file://~/lake/t"])
def test_no_shell_replaces_the_tilde(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_table_name(text, Path("/base")).path == tmp_path / "lake" / "t"
    assert parse_table_name("delta:t", Path("/base")).path == Path("/base/t")


@pytest.mark.parametrize("name", ["", "a/b", "a=b", "50%20", "x:y", "a\\b", " a", "h#"])
def test_partition_columns_that_no_path_can_hold(name: str) -> None:
    with pytest.raises(ConfigError, match=r"partition_column .* cannot be part of file paths"):
        LoadSettings(source={}, table=TableName("delta", Path("/t")), partition_column=name)


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_table_that_is_widened_before_a_commit(kind: str, tmp_path: Path) -> None:
    """A file with the narrower type would make a table that no reader takes."""
    table = open_table(TableName(kind, tmp_path / "table"))
    table.create(Layout(schema=pa.schema([*SCHEMA, ("n", pa.int64())])))
    late = write_numbers(table, 1, pa.int64())
    table.add_columns(pa.schema([*SCHEMA, ("n", pa.float64())]))
    with pytest.raises(ConcurrentLoadError, match="column n of a file is int64"):
        table.commit("app", {"batch": 1}, [late], expected={})
    assert not table.files()


def test_table_properties(tmp_path: Path) -> None:
    wanted = {"delta.logRetentionDuration": "interval 3 days"}
    delta_table = open_table(TableName("delta", tmp_path / "d"))
    with pytest.raises(ConfigError, match="owner"):
        delta_table.create(Layout(schema=SCHEMA, properties={"owner": "web"}))
    delta_table.create(Layout(schema=SCHEMA, properties=wanted))
    assert DeltaTable(tmp_path / "d").metadata().configuration == wanted
    iceberg = open_table(TableName("iceberg", tmp_path / "i"))
    iceberg.create(Layout(schema=SCHEMA, properties={"owner": "web"}))
    assert iceberg._load().properties["owner"] == "web"
    iceberg.commit("app", {"batch": 1}, [write(iceberg, 1)], expected={})
    assert iceberg._load().properties["owner"] == "web"
    with pytest.raises(ConfigError, match="no table properties"):
        open_table(TableName("parquet", tmp_path / "p")).create(
            Layout(schema=SCHEMA, properties=wanted)
        )
