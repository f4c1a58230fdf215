"""The interface of a kind of table, and the names of tables.

A table is named ``delta:PATH``, ``iceberg:PATH`` or ``parquet:PATH``. If a load writes a table for
each topic, the path contains ``{topic}``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from millstream.model.errors import ConfigError, MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.data_files import DataFile, is_data_file

if TYPE_CHECKING:
    import pyarrow as pa

KINDS: Final = ("delta", "iceberg", "parquet")
_REFUSED_IN_PATHS: Final[Mapping[str, str]] = {
    "delta": r"[\[\]|^\\]|%[0-9A-Fa-f]{2}",
    "iceberg": r"[#?]|%[0-9A-Fa-f]{2}",
    "parquet": r"\0",
}
TOPIC_FIELD: Final = "{topic}"
"""The placeholder of the topic's name in a path."""
MILLSTREAM_DIRECTORY: Final = "_millstream"
"""The directory of the schema file and, for Parquet, of the log and staged files."""


class ConcurrentLoadError(MillstreamError):
    """Another load has committed to the table since its ledger was read: read it again."""


@dataclass(frozen=True, slots=True)
class TableName:
    """A kind of table and its directory."""

    kind: str
    path: Path

    def __str__(self) -> str:
        return f"{self.kind}:{self.path}"

    @property
    def is_per_topic(self) -> bool:
        """True if there is a table for each topic."""
        return TOPIC_FIELD in str(self.path)


def parse_table_name(text: str, base: Path = Path()) -> TableName:
    """Read ``kind:path``; ConfigError says what is wrong.

    A relative path starts from ``base``. A leading ``~`` is expanded, because no shell does it in
    ``delta:~/lake``.
    """
    kind, colon, path = text.partition(":")
    if not colon or kind not in KINDS or not path:
        raise ConfigError(
            f"a table is named delta:PATH, iceberg:PATH or parquet:PATH, not {text!r}"
        )
    path = path.removeprefix("file://")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path):
        raise ConfigError(f"a table lies in a local or mounted directory: {path} is none")
    return TableName(kind, (base / Path(path).expanduser()).absolute())


def check_new_directory(name: TableName, own: Collection[str]) -> None:
    """Raise ConfigError unless a table may be made in a directory.

    Maintenance removes files that a table does not reference, so the directory must not contain
    other files or be inside another table. ``own`` are the entries of a table that was begun.
    """
    path = name.path
    if re.search(_REFUSED_IN_PATHS[name.kind], str(path)):
        raise ConfigError(f"{name}: libraries of {name.kind} tables do not find such a path again")
    outer = next((each for each in path.parents if _is_table(each)), None)
    if outer is not None:
        raise ConfigError(f"{name} would lie inside the table {outer}")
    if not path.exists():
        return
    if not path.is_dir():
        raise ConfigError(f"{name}: there is a file of that name")
    is_log = name.kind != "parquet" and (path / MILLSTREAM_DIRECTORY / "log").is_dir()
    if is_log or has_foreign_entries(path, {MILLSTREAM_DIRECTORY, *own}):
        raise ConfigError(
            f"{name}: the directory is not empty and is no Millstream table of this kind"
        )


def has_foreign_entries(directory: Path, own: Collection[str] = ()) -> bool:
    """Tell whether a directory contains anything but ``own`` and the data files of loads."""
    return directory.is_dir() and any(
        each.name not in own and not is_data_file(each.name) for each in directory.iterdir()
    )


def _is_table(path: Path) -> bool:
    return (
        (path / "_delta_log").is_dir()
        or (path / "catalog.db").is_file()
        or (path / MILLSTREAM_DIRECTORY / "log").is_dir()
    )


def check_same_split(name: TableName, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise ConfigError unless an existing table is partitioned as the load wants it."""
    if list(found) != list(wanted):
        raise ConfigError(
            f"{name} is there and is split by {', '.join(found) or 'nothing'}, not by "
            f"{', '.join(wanted) or 'nothing'}: state the event time that it was made with"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of a table, and its partitioning.

    ``schema`` has all columns. ``partition_column`` is derived from ``event_time`` (a timestamp
    column): the day that it falls on, in UTC. Iceberg has no column for it (hidden partitioning);
    Delta and Parquet do.
    """

    schema: pa.Schema
    event_time: str | None = None
    partition_column: str = "date"

    @property
    def is_partitioned(self) -> bool:
        """True when the table is split by day."""
        return self.event_time is not None


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction: files removed from the table and files added."""

    removed: int = 0
    added: int = 0


class Table(Protocol):
    """One table of any kind. Every method reads the table again: nothing is cached."""

    name: TableName

    @property
    def data_directory(self) -> Path:
        """The directory of committed data files; their paths are relative to it."""

    @property
    def staging_directory(self) -> Path:
        """The directory in which tasks write data files, under the same relative paths."""

    @property
    def keeps_partition_column(self) -> bool:
        """True if the day is a column of the table, whose values are in the paths."""

    def exists(self) -> bool:
        """True if the table exists."""

    def create(self, layout: Layout) -> None:
        """Create the table; ConfigError if it exists with other columns."""

    def schema(self) -> pa.Schema:
        """Return the columns as they are now."""

    def add_columns(self, schema: pa.Schema) -> None:
        """Add the new columns of ``schema``, and widen types of existing ones."""

    def ledger(self, app_id: str, keys: Iterable[str]) -> dict[str, int]:
        """Return the ledger entries with these names of a load; absent names are left out."""

    def commit(
        self,
        app_id: str,
        entries: Mapping[str, int],
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int],
    ) -> None:
        """Add files and ledger entries to the table atomically.

        ConcurrentLoadError if the entries differ from ``expected``.
        """

    def files(self) -> list[str]:
        """Return the paths of the table's data files, as often as each is referenced."""

    def retained(self) -> set[str]:
        """Return the paths referenced by any state of the table that is not expired: a reader may
        use an older one.
        """

    def remove_duplicates(self) -> list[str]:
        """Reduce multiple references to a file to one; return those files' paths."""

    def compact(self, *, target_bytes: int) -> Compaction:
        """Rewrite small files as fewer ones of about ``target_bytes`` with the same rows."""

    def delete_rows(self, offsets: Mapping[TopicPartition, Sequence[Offset]]) -> None:
        """Delete the rows of these records from the table (raw columns only: dead letters)."""

    def expire(self, *, keep_ms: int) -> int:
        """Remove older states of the table and files that only those reference; return the number
        of files removed.
        """


def offset_column_of(schema: pa.Schema) -> str:
    """Return the column that holds the records' offsets: that of decoded or of raw tables."""
    return "_offset" if schema.get_field_index("_offset") >= 0 else "offset"


def dead_letters_of(name: TableName) -> TableName:
    """Return the name of the table of dead letters."""
    return TableName(name.kind, name.path.with_name(f"{name.path.name}_dead_letters"))


def open_table(name: TableName) -> Table:
    """Return the table of this name, which need not exist yet."""
    if name.kind == "delta":
        from millstream.spark.lakehouse.delta import DeltaTableFiles

        return DeltaTableFiles(name)
    if name.kind == "iceberg":
        from millstream.spark.lakehouse.iceberg import IcebergTableFiles

        return IcebergTableFiles(name)
    from millstream.spark.lakehouse.parquet import ParquetTableFiles

    return ParquetTableFiles(name)
