"""The interface of a kind of table, and the names of tables.

A table is named ``delta:PATH``, ``iceberg:PATH`` or ``parquet:PATH``, where PATH is a directory or
a place in an object store (``s3://bucket/clicks``); a Delta or an Iceberg table of a catalogue is
named ``CATALOG.NAMESPACE.TABLE`` there. If a load writes a table for each topic, the path contains
``{topic}``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from millstream.model.errors import ConfigError, MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.data_files import DataFile, is_data_file
from millstream.spark.lakehouse.partitioning import PartitionField
from millstream.spark.lakehouse.sorting import SortField
from millstream.spark.locations.location import (
    Location,
    StoreRefusedError,
    as_location,
    parse_location,
)
from millstream.spark.locations.named import NamedPlace, as_identifier

if TYPE_CHECKING:
    import pyarrow as pa

KINDS: Final = ("delta", "iceberg", "parquet")
_REFUSED_IN_PATHS: Final[Mapping[str, str]] = {
    "delta": r"[\[\]|^\\]|%[0-9A-Fa-f]{2}",
    "iceberg": r"[#?]|%[0-9A-Fa-f]{2}",
    "parquet": r"\0",
}
_WITH_CATALOGS: Final = ("delta", "iceberg")
_CATALOG_NAME: Final = re.compile(r"[A-Za-z_][\w-]*(\.[\w{}-]+){2,}")
TOPIC_FIELD: Final = "{topic}"
"""The placeholder of the topic's name in a path."""
MILLSTREAM_DIRECTORY: Final = "_millstream"
"""The directory of the schema file and, for Parquet, of the log and staged files."""


class ConcurrentLoadError(MillstreamError):
    """Another load has committed to the table since its ledger was read: read it again."""


class MovedOnError(MillstreamError):
    """The table's files have changed since they were read: read them again and merge anew."""


@dataclass(frozen=True, slots=True)
class TableName:
    """A kind of table and its place; a :class:`pathlib.Path` is taken too."""

    kind: str
    path: Location

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", as_location(self.path))

    def __str__(self) -> str:
        return f"{self.kind}:{self.path}"

    @property
    def is_per_topic(self) -> bool:
        """True if there is a table for each topic."""
        return TOPIC_FIELD in str(self.path)


def parse_table_name(
    text: str, base: Path = Path(), storage_options: Mapping[str, str] = MappingProxyType({})
) -> TableName:
    """Read ``kind:path``; ConfigError says what is wrong.

    A relative path starts from ``base``. A leading ``~`` is expanded, because no shell does it in
    ``delta:~/lake``. ``storage_options`` are those of the object store and of the catalogue.
    """
    kind, colon, path = text.partition(":")
    if not colon or kind not in KINDS or not path:
        raise ConfigError(
            f"a table is named delta:PATH, iceberg:PATH or parquet:PATH, not {text!r}"
        )
    if kind in _WITH_CATALOGS and _CATALOG_NAME.fullmatch(path):
        return TableName(kind, _parse_catalog_name(kind, path, storage_options))
    return TableName(kind, parse_location(path, base, storage_options))


def _parse_catalog_name(kind: str, text: str, storage_options: Mapping[str, str]) -> NamedPlace:
    if kind == "delta":
        from millstream.spark.lakehouse.delta_catalogs import parse_delta_name

        return parse_delta_name(text, storage_options)
    from millstream.spark.lakehouse.iceberg_catalogs import parse_catalog_name

    return parse_catalog_name(text, storage_options)


def fill_topic(text: str, topic: str) -> str:
    """Return the name of a topic's table, by one that contains ``{topic}``."""
    kind, _, path = text.partition(":")
    if kind in _WITH_CATALOGS and _CATALOG_NAME.fullmatch(path):
        topic = as_identifier(topic)
    return text.replace(TOPIC_FIELD, topic)


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
    if path.is_file():
        raise ConfigError(f"{name}: there is a file of that name")
    if not path.is_dir():
        return
    is_log = name.kind != "parquet" and (path / MILLSTREAM_DIRECTORY / "log").is_dir()
    if is_log or has_foreign_entries(path, {MILLSTREAM_DIRECTORY, *own}):
        raise ConfigError(
            f"{name}: the directory is not empty and is no Millstream table of this kind"
        )


def has_foreign_entries(directory: Location, own: Collection[str] = ()) -> bool:
    """Tell whether a directory contains anything but ``own`` and the data files of loads."""
    return any(name not in own and not is_data_file(name) for name in directory.entries())


def _is_table(path: Location) -> bool:
    try:
        return (
            (path / "_delta_log").is_dir()
            or (path / "catalog.db").is_file()
            or (path / MILLSTREAM_DIRECTORY / "log").is_dir()
        )
    except StoreRefusedError:  # keys may be for one prefix of a bucket
        return False


def check_same_split(name: TableName, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise ConfigError unless an existing table is partitioned as the load wants it."""
    if list(found) != list(wanted):
        raise ConfigError(
            f"{name} is there and is split by {', '.join(found) or 'nothing'}, not by "
            f"{', '.join(wanted) or 'nothing'}: state the event time, or the partitions, that it "
            "was made with"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of a table, and its partitioning.

    ``schema`` has all columns. ``partition_column`` is derived from ``event_time`` (a timestamp
    column): the day that it falls on, in UTC. Iceberg has no column for it (hidden partitioning);
    Delta and Parquet do. ``properties`` are those of the table format, for a table that is made.
    """

    schema: pa.Schema
    event_time: str | None = None
    partition_column: str = "date"
    partition_by: Sequence[PartitionField] = ()
    """Transforms that split the table, instead of the day of ``event_time`` (Iceberg)."""
    sort_by: Sequence[SortField] = ()
    """The order of rows in files, which an Iceberg table keeps."""
    properties: Mapping[str, str] = field(default_factory=dict)
    filled: Sequence[str] = ()
    """Columns that each row has a value of: the key of an upsert table."""

    @property
    def is_partitioned(self) -> bool:
        """True when the table is split by day."""
        return self.event_time is not None


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction: files removed from the table and files added."""

    removed: int = 0
    added: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Files that take the place of others (copy on write)."""

    base: str
    """The state of the table (:meth:`MergeTable.state`) in which its files were read."""
    removed: Sequence[str] = ()
    """Paths, as in :meth:`Table.files`."""
    added: Sequence[DataFile] = ()
    """Finished files in the staging directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A table of the present, all of one state."""

    state: str
    """See :meth:`MergeTable.state`."""
    schema: pa.Schema
    files: Sequence[str]
    deleted: Mapping[str, Sequence[int]]


class Table(Protocol):
    """One table of any kind. Every method reads the table again: nothing is cached."""

    name: TableName

    @property
    def data_directory(self) -> Location:
        """The directory of committed data files; their paths are relative to it."""

    @property
    def staging_directory(self) -> Location:
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

    def sort_by(self) -> Sequence[SortField]:
        """Return the order that the table has for rows in files; () where it has none."""

    def add_columns(self, schema: pa.Schema) -> None:
        """Add the new columns of ``schema``, and widen types of existing ones."""

    def ledger(self, app_id: str, keys: Iterable[str]) -> dict[str, int]:
        """Return the ledger entries with these names of a load; absent names are left out."""

    def was_set_back(self, app_id: str) -> bool:
        """Tell whether the table was set back to a state without the last files of a load
        (``RESTORE`` of Delta, a rollback of Iceberg). Its ledger is not set back with it.
        """

    def commit(
        self,
        app_id: str,
        entries: Mapping[str, int],
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int],
    ) -> None:
        """Add files and ledger entries to the table atomically; the files are looked at before.

        WrittenFileError if a file is not what its task has reported.
        ConcurrentLoadError if the entries differ from ``expected``.
        """

    def files(self) -> list[str]:
        """Return the paths of the table's data files, as often as each is referenced."""

    def deleted_rows(self) -> dict[str, Sequence[int]]:
        """Return, for each path of :meth:`files` that holds rows which other programs have deleted
        without a new file (Iceberg's delete files, Delta's deletion vectors), their positions in
        it, from 0 on.
        """

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

    def truncate(
        self,
        positions: Mapping[TopicPartition, Offset],
        app_id: str,
        entries: Mapping[str, int],
        *,
        expected: Mapping[str, int],
    ) -> None:
        """Delete the rows of these partitions from these offsets on (raw columns only: dead
        letters), and change the ledger in the same commit.

        ConcurrentLoadError if the entries differ from ``expected``.
        """

    def expire(self, *, keep_ms: int) -> int:
        """Remove older states of the table and files that only those reference; return the number
        of files removed.
        """


class MergeTable(Table, Protocol):
    """A table whose rows can be replaced in one commit with the ledger: Delta and Iceberg."""

    def state(self) -> str:
        """Return what names the present set of files: another one after each change of them."""

    def present(self) -> Present:
        """Return what a merge needs of the table, which is read once."""

    def replace(
        self,
        app_id: str,
        entries: Mapping[str, int],
        change: Replacement,
        *,
        expected: Mapping[str, int],
    ) -> None:
        """Remove and add files, and change the ledger, atomically; added files are looked at first.

        MovedOnError, and nothing is committed, unless the table is still in the state that the
        change is based on. ConcurrentLoadError if the entries differ from ``expected``.
        WrittenFileError if a file is not what was written.
        """


def offset_column_of(schema: pa.Schema) -> str:
    """Return the column that holds the records' offsets: that of decoded or of raw tables."""
    return "_offset" if schema.get_field_index("_offset") >= 0 else "offset"


def dead_letters_of(name: TableName) -> TableName:
    """Return the name of the table of dead letters."""
    return TableName(name.kind, name.path.with_name(f"{name.path.name}_dead_letters"))


def open_merge_table(name: TableName) -> MergeTable:
    """Return a table for upserts; ConfigError for a kind that has none."""
    if name.kind == "delta":
        from millstream.spark.lakehouse.delta import DeltaTableFiles

        return DeltaTableFiles(name)
    if name.kind == "iceberg":
        from millstream.spark.lakehouse.iceberg import IcebergTableFiles

        return IcebergTableFiles(name)
    raise ConfigError(
        f"{name}: mode upsert takes delta:PATH or iceberg:PATH. Who reads a plain directory of "
        "Parquet files would see old and new rows of a key side by side"
    )


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
