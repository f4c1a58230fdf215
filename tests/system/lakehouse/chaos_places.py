"""Where the table of a chaos run lies: on disk, in an S3 server, or in a REST catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from tests.iceberg_rest import RestCatalogServer
from tests.object_store import S3Server

from millstream.spark.lakehouse.table import Table, open_table, parse_table_name


@dataclass(frozen=True, slots=True)
class Place:
    """A table by its name, and the options that reach it."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def table(self) -> Table:
        return open_table(parse_table_name(self.name, storage_options=dict(self.options)))

    @property
    def words(self) -> list[str]:
        """Return the options as the commands take them."""
        return [f"--storage-option={name}={text}" for name, text in self.options.items()]

    def read(self, columns: tuple[str, ...]) -> pa.Table:
        """Read the rows: with another program's library where there is one for this place."""
        kind, _, path = self.name.partition(":")
        if kind == "delta":
            table = DeltaTable(path, storage_options=dict(self.options))
            return table.to_pyarrow_table(columns=list(columns))
        if path.startswith("prod."):
            found = load_catalog("prod", **self.options).load_table(path.removeprefix("prod."))
            return found.scan(selected_fields=columns).to_arrow()
        own = self.table
        files = [pq.ParquetFile((own.data_directory / each).open_input()) for each in own.files()]
        return pa.concat_tables([file.read(list(columns)) for file in files])


@contextmanager
def place(to: str, kind: str, directory: Path) -> Iterator[Place]:
    """Start what the table lies in; ``to`` is disk, s3 or rest."""
    if to == "s3":
        with S3Server() as store:
            yield Place(f"{kind}:s3://lake/chaos", store.options)
    elif to == "rest":
        with RestCatalogServer(directory / "rest") as server:
            options = {"type": "rest", "uri": f"http://127.0.0.1:{server.port}"}
            yield Place("iceberg:prod.web.chaos", options)
    else:
        yield Place(f"{kind}:{directory / 'table'}")
