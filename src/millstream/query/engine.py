"""Runs a query in DuckDB over the topics that it names.

The result is read as it comes: neither a topic nor a result is ever in memory as a whole, unless
the query itself (a sort, a join) needs it, which DuckDB then spills to a temporary directory.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

import duckdb
import pyarrow as pa

from millstream.query.duckdb_errors import error_of_a_file, sentence_of
from millstream.query.report import describe
from millstream.query.settings import QueryError, QuerySettings
from millstream.query.table_names import read_statement, table_names
from millstream.query.tables import Tables
from millstream.query.topic_table import TopicDataset, TopicTable, WiderColumnsError
from millstream.spark.lakehouse.columns import EVOLUTIONS

T = TypeVar("T")

RESULT_ROWS: Final = 16_384
"""Rows in one batch of a result."""
FILE_FORMATS: Final = ("json", "csv", "parquet")
_STANDARD_OUTPUT: Final = "/dev/stdout"
_RESULT: Final = "millstream_result"


def _is_stream(path: Path) -> bool:
    """True for what is there and is no file of its own: a device, a pipe, an open descriptor."""
    is_of_a_process = str(path.absolute()).startswith(("/dev/", "/proc/"))
    return is_of_a_process or (path.exists() and not path.is_file())


def _standard_output_is_a_file() -> bool:
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


class Query:
    """One query; a context manager that ends it.

    Raises QueryError for what is wrong with the query, ConfigError, and the errors of reading.
    """

    def __init__(self, text: str, settings: QuerySettings) -> None:
        self._statement = read_statement(text)
        with ExitStack() as stack:
            self._tables = stack.enter_context(Tables(settings))
            spill = stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-sql-"))
            self._spill = Path(spill)
            self._connection = duckdb.connect(
                config={
                    "autoinstall_known_extensions": "false",
                    "python_enable_replacements": "false",
                    "temp_directory": spill,
                }
            )
            stack.callback(self._connection.close)
            # A time without a zone is in UTC, as everywhere here.
            self._connection.execute("SET TimeZone = 'UTC'").fetchall()
            self._stack = stack.pop_all()
        self._is_begun = False

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the query, whether it was read to its end or not."""
        self._stack.close()

    @property
    def tables(self) -> Mapping[str, TopicTable]:
        """The topics that the query names, with what was read of each."""
        return self._tables.tables

    @property
    def is_explained(self) -> bool:
        """True if the result is one text: what would be read, or was."""
        return self._statement.is_explained

    def run(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the columns of the result and its batches, read as they are asked for."""
        self._begin()
        if self.is_explained:
            text = pa.RecordBatch.from_pydict({"explain": [self._explain()]})
            return text.schema, iter([text])
        return self._retried(self._rows)

    def write(self, path: str, form: str) -> None:
        """Write the result to a file, which appears when it is whole; ``-`` is standard output.

        ``form`` is one of FILE_FORMATS; json is one object a line. What is there and is no file (a
        device, a pipe) is written to as it is, and never replaced.
        """
        self._begin()
        if self.is_explained:
            raise QueryError("EXPLAIN has no rows for a file")
        if path == "-" and _standard_output_is_a_file():
            # DuckDB would open that file anew, and so cut off what other commands wrote to it.
            whole = self._spill / "standard-output"
            self._retried(lambda: self._copy(str(whole), form))
            sys.stdout.flush()
            with whole.open("rb") as made:
                shutil.copyfileobj(made, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        if path == "-" or _is_stream(Path(path)):
            place = _STANDARD_OUTPUT if path == "-" else path
            try:
                self._retried(lambda: self._copy(place, form))
            except OSError as error:
                if error.filename == _STANDARD_OUTPUT:
                    error.filename = "standard output"
                raise
            return
        # A link is followed: what it points to is replaced, and not the link.
        target = Path(os.path.realpath(path))
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            self._retried(lambda: self._copy(str(part), form))
            part.replace(target)
        except OSError as error:
            if error.filename == str(part):
                error.filename = path
            raise
        finally:
            with suppress(FileNotFoundError):
                part.unlink()

    # --- steps -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Find the topics that the query names; once."""
        if self._is_begun:
            raise QueryError("a query runs once")
        self._is_begun = True
        self._tables.add(table_names(self._connection, self._statement.text))
        for name, table in self.tables.items():
            self._connection.register(name, TopicDataset(table))

    def _retried(self, work: Callable[[], T]) -> T:
        """Do the work; begin again with wider columns while values need them."""
        for _ in range(EVOLUTIONS):
            try:
                return self._translated(work)
            except WiderColumnsError as error:
                self.tables[error.topic].widen(error.columns)
                for name, table in self.tables.items():
                    table.begin()
                    self._connection.register(name, TopicDataset(table))  # DuckDB keeps columns
        return self._translated(work)

    def _rows(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        reader = self._connection.sql(self._statement.text).to_arrow_reader(RESULT_ROWS)
        first = next(reader, None)
        found = iter(()) if first is None else chain([first], reader)
        return reader.schema, self._all(found)

    def _all(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while (batch := self._translated(lambda: next(batches, None))) is not None:
            yield batch

    def _copy(self, path: str, form: str) -> None:
        if form not in FILE_FORMATS:
            raise QueryError(f"a file is one of {', '.join(FILE_FORMATS)}, not {form!r}")
        self._connection.sql(self._statement.text).create_view(_RESULT, replace=True)
        quoted = path.replace("'", "''")
        self._connection.execute(f"COPY (FROM {_RESULT}) TO '{quoted}' (FORMAT {form})")

    def _explain(self) -> str:
        text = self._statement.text
        if self._statement.is_analyzed:
            plan = self._retried(lambda: self._plan(f"EXPLAIN ANALYZE {text}"))
        else:
            plan = self._translated(lambda: self._plan(f"EXPLAIN {text}"))
            for table in self.tables.values():
                table.is_dry = True
            self._translated(lambda: self._connection.sql(text).to_arrow_table())
        parts = [describe(t, is_read=self._statement.is_analyzed) for t in self.tables.values()]
        return "\n".join([plan.rstrip("\n"), *parts])

    def _plan(self, text: str) -> str:
        return str(self._connection.execute(text).fetchall()[0][1])

    def _translated(self, work: Callable[[], T]) -> T:
        """Do the work; what a scan raised comes out of DuckDB as itself."""
        try:
            return work()
        except (duckdb.Error, pa.ArrowException, RuntimeError, OSError) as error:
            for table in self.tables.values():
                if table.failure is not None:
                    raise table.failure from None
            if "interrupted" in str(error).lower():
                raise KeyboardInterrupt from None
            of_a_file = error_of_a_file(error)
            if of_a_file is not None:
                raise of_a_file from None
            # Where rows are streamed, pyarrow has an OSError with DuckDB's text.
            if isinstance(error, duckdb.Error | OSError):
                raise QueryError(sentence_of(error, self.tables)) from None
            raise
