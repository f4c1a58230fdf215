"""The SQLite catalogue of a directory: its connections, and locks of other programs on its file."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from millstream.spark.lakehouse.iceberg_catalogs import OwnCatalog
from millstream.spark.lakehouse.table import Layout, Table, TableName, open_table
from millstream.spark.locations.directories import LocalPath

SCHEMA = pa.schema([("n", pa.int64())])


def made(path: Path) -> Table:
    table = open_table(TableName("iceberg", path))
    table.create(Layout(schema=SCHEMA))
    return table


def test_no_connection_is_left_open(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.commit("app", {"batch": 1}, [], expected={})
    catalog = OwnCatalog(LocalPath(tmp_path / "t")).catalog()
    assert catalog.list_namespaces() == [("millstream",)]
    opened = [Path(file.path) for file in psutil.Process().open_files()]
    assert not [each for each in opened if each.is_relative_to(tmp_path)]


@pytest.mark.parametrize("name", ["what?", "50%41", "a#b"])
def test_the_file_lies_in_the_directory_whatever_its_name(tmp_path: Path, name: str) -> None:
    """A place becomes a URL for SQLAlchemy, which gives such characters a meaning."""
    OwnCatalog(LocalPath(tmp_path / name)).path.make_directory()
    OwnCatalog(LocalPath(tmp_path / name)).catalog()
    assert (tmp_path / name / "catalog.db").is_file()
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.slow
def test_a_commit_waits_for_a_program_that_reads_the_whole_file(tmp_path: Path) -> None:
    """A backup reads for as long as it takes. SQLite alone gives up after 5 s."""
    table = made(tmp_path / "t")
    database = sqlite3.connect(tmp_path / "t" / "catalog.db", check_same_thread=False)
    with closing(database) as backup:
        backup.execute("BEGIN")
        backup.execute("SELECT * FROM iceberg_tables").fetchall()
        release = threading.Timer(6, backup.rollback)
        release.start()
        table.commit("app", {"batch": 1}, [], expected={})
        release.join()
    assert table.ledger("app", ["batch"]) == {"batch": 1}
