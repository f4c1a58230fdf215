"""Looks at the files of a batch before a commit names them.

A task says which files it has written, and may have written them where nobody else sees them: on an
executor's own disk, on a mount that was not there. A commit that named such files would move the
offsets past records that no table has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.model.errors import MillstreamError
from millstream.spark.lakehouse.data_files import DataFile
from millstream.spark.lakehouse.table import ConcurrentLoadError
from millstream.spark.lakehouse.widening import changed_columns, plain
from millstream.spark.locations.location import Location


class WrittenFileError(MillstreamError):
    """A file is not there, or not as the task that wrote it said; nothing was committed."""


def check_written(directory: Location, files: Sequence[DataFile]) -> list[pa.Schema]:
    """Return the columns of finished files.

    ``directory`` is the one that their paths are relative to. WrittenFileError unless each is there
    with the size and the rows that its task has reported.
    """
    return [_check(directory / file.path, file) for file in files]


def check_unchanged(table: str, known: pa.Schema, found: Iterable[pa.Schema]) -> None:
    """Raise ConcurrentLoadError for files whose columns are not the table's any more.

    ``known`` is the table's schema in the state that the commit follows.
    """
    for schema in found:
        added, different = changed_columns(known, plain(schema))
        for field in (*added, *different):
            raise ConcurrentLoadError(
                f"{table}: column {field.name} of a file is {field.type}, and another load has "
                "changed that of the table"
            )


def _check(path: Location, file: DataFile) -> pa.Schema:
    try:
        size = path.size_bytes()
    except OSError as error:
        raise WrittenFileError(
            f"{path} was written by a task and is not there ({error.strerror or error}): do driver "
            "and executors see the same directory?"
        ) from error
    if size != file.size_bytes:
        raise WrittenFileError(f"{path} has {size} bytes, its task wrote {file.size_bytes}")
    try:
        with pq.ParquetFile(path.open_input()) as found:
            rows, schema = found.metadata.num_rows, found.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise WrittenFileError(f"{path} cannot be read: {error}") from error
    if rows != file.rows:
        raise WrittenFileError(f"{path} has {rows} rows, its task wrote {file.rows}")
    return schema
