"""How other programs read a table of a load: each with its own library."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as IcebergTable

from millstream.spark.lakehouse.table import Table
from millstream.spark.locations.location import Location


@contextmanager
def own_catalog(path: Location | Path) -> Iterator[SqlCatalog]:
    """Open the SQLite catalogue of a directory as the user's page says, and close it behind.

    One that is left open keeps a connection, of which Python warns from 3.13 on.
    """
    with SqlCatalog(
        "millstream", uri=f"sqlite:///{path}/catalog.db", warehouse=f"file://{path}"
    ) as catalog:
        assert isinstance(catalog, SqlCatalog)
        yield catalog


def iceberg_table(path: Location | Path) -> IcebergTable:
    """Return the table of a directory as pyiceberg finds it; it is for reading."""
    with own_catalog(path) as catalog:
        return catalog.load_table(("millstream", re.sub(r"[^A-Za-z0-9_]", "_", path.name)))


def read_by_library(table: Table, columns: Sequence[str]) -> pa.Table:
    """Read with deltalake or pyiceberg."""
    if table.name.kind == "delta":
        return DeltaTable(table.name.path.uri()).to_pyarrow_table(columns=list(columns))
    scan = iceberg_table(table.name.path).scan(selected_fields=tuple(columns))
    return scan.to_arrow().select(columns)


def read_by_polars(table: Table, columns: Sequence[str]) -> pa.Table:
    """Read with Polars and its own readers of tables."""
    import polars as pl

    if table.name.kind == "delta":
        frame = pl.scan_delta(table.name.path.uri())
    else:
        frame = pl.scan_iceberg(iceberg_table(table.name.path).metadata_location)
    with warnings.catch_warnings():  # it prefers a package of its own for Iceberg, and says so
        warnings.simplefilter("ignore", pl.exceptions.PerformanceWarning)
        return frame.select(columns).collect().to_arrow()


def read_by_duckdb(table: Table, columns: Sequence[str]) -> pa.Table:
    """Read with DuckDB: the files that the table references now, without delete files."""
    import duckdb

    assert not table.deleted_rows()
    names = ", ".join(f'"{name}"' for name in columns)
    paths = [(table.data_directory / path).uri() for path in table.files()]
    with duckdb.connect() as connection:
        query = f"SELECT {names} FROM read_parquet($paths, union_by_name = true)"
        return connection.sql(query, params={"paths": paths}).to_arrow_table()


READERS: Final[Mapping[str, Callable[[Table, Sequence[str]], pa.Table]]] = {
    "its library": read_by_library,
    "Polars": read_by_polars,
    "DuckDB": read_by_duckdb,
}


def rows_of(found: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows as tuples, by the first column."""
    ordered = found.sort_by(found.column_names[0])
    return list(zip(*(column.to_pylist() for column in ordered.columns), strict=True))


def library_rows(table: Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows that deltalake or pyiceberg reads, by the first column."""
    return rows_of(read_by_library(table, columns))
