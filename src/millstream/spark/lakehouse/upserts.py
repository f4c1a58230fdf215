"""What a load does besides if its table has one row for each key (mode upsert).

Tasks land the changes of a batch as files in ``TABLE/_millstream/changes``; the driver merges them
into the table and commits files and ledger together, again on the newest state if somebody else has
committed meanwhile. What the table is made of is kept in ``TABLE/_millstream/upsert.json``, so that
no load of another mode or key writes to it, and the audit can read the topic again.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.model.errors import ConfigError
from millstream.model.topic import TopicPartition
from millstream.schemas.registry import RegistryPlace
from millstream.spark.lakehouse.data_files import SUFFIX, DataFile, orphans
from millstream.spark.lakehouse.file_writer import FileRules
from millstream.spark.lakehouse.formats import FormatSpec
from millstream.spark.lakehouse.formats.changes import check_key
from millstream.spark.lakehouse.merge import Changes, Merger, newest
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import (
    MILLSTREAM_DIRECTORY,
    ConcurrentLoadError,
    MovedOnError,
    Table,
    TableName,
    open_merge_table,
)
from millstream.spark.lakehouse.written_files import WrittenFileError, check_written
from millstream.spark.locations.location import Location

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 10
_FRAMED: Final = {"framing": "confluent"}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertMode:
    """What a table of the present is made of."""

    key: tuple[str, ...]
    spec: FormatSpec
    """The format, without the columns: the schema file has them; and without a registry, which has
    credentials.
    """

    def asking(self, registry: RegistryPlace | None) -> UpsertMode:
        """Return it with the place of the schemas that records name by id."""
        return replace(self, spec=replace(self.spec, registry=registry))


class Upserts:
    """The merges of one load."""

    def __init__(self, settings: LoadSettings) -> None:
        self.key = settings.key_columns
        self._settings = settings
        self._table = open_merge_table(settings.table)
        self._merger = Merger(self._table, self.key)

    @property
    def directory(self) -> Location:
        """Where tasks land changes."""
        return self._settings.table.path / MILLSTREAM_DIRECTORY / "changes"

    def prepare(self, spec: FormatSpec, schema: pa.Schema) -> None:
        """Check the key and the table before it is made, and note what it is made of."""
        self.check(spec, schema)
        _write_mode(self._table.name, UpsertMode(key=self.key, spec=spec))

    def check(self, spec: FormatSpec, schema: pa.Schema) -> None:
        """Check the key and the table before it is made. ConfigError if the table has another key
        or format, or has all records.
        """
        check_key(schema, self.key)
        if self._table.exists():
            found = read_mode(self._table.name)
            if found is None and self._table.files():
                raise ConfigError(
                    f"{self._table.name} has a row for each record: load into another table for "
                    "the newest of each key"
                )
            if found is not None and found.key != self.key:
                raise ConfigError(
                    f"{self._table.name} has one row for each {', '.join(found.key)}, not "
                    f"{', '.join(self.key)}"
                )
            if found is not None and found.spec.kind != spec.kind:
                raise ConfigError(
                    f"{self._table.name} is made of records of format {found.spec.kind}, not "
                    f"{spec.kind}: the audit reads all of them again, in one format"
                )

    def change_rules(self, rules: FileRules) -> FileRules:
        """Return how tasks write changes: in files of their own, not split by day."""
        return replace(
            rules,
            directory=self.directory,
            event_time=None,
            partition_by=(),
            sort_by=(),
            partition_column=None,
        )

    def commit(
        self,
        app_id: str,
        entries: Mapping[str, int],
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int],
        rules: FileRules,
        partitions: Mapping[str, int],
    ) -> None:
        """Merge changes into the table, and commit that with the ledger.

        ``rules`` say how the table's files are written, ``partitions`` how many each topic has.
        ConcurrentLoadError if another load of this name has committed. ConfigError for a truncate
        in a topic of several partitions.
        """
        changes = self._read(app_id, entries, files, expected)
        for each in changes.truncates:
            if partitions.get(each.topic, 1) > 1:
                raise ConfigError(
                    f"{each} has a truncate, and its topic has {partitions[each.topic]} partitions:"
                    " which of their rows were there before, no offset says. Debezium needs one "
                    "partition for a table that is truncated; --format-option truncate=reject "
                    "makes truncates dead letters"
                )
        for _ in range(_ATTEMPTS):
            change = self._merger.merge(changes, rules, self._columns)
            try:
                self._table.replace(app_id, entries, change, expected=expected)
            except MovedOnError as error:
                log.info("merged again: %s", error)
            else:
                return
        raise ConcurrentLoadError(f"{self._table.name}: others commit all the time")

    def _read(
        self,
        app_id: str,
        entries: Mapping[str, int],
        files: Sequence[DataFile],
        expected: Mapping[str, int],
    ) -> Changes:
        try:
            check_written(self.directory, files)
            parts = [
                pq.ParquetFile((self.directory / file.path).open_input()).read() for file in files
            ]
        except (WrittenFileError, FileNotFoundError):
            if self._table.ledger(app_id, [*expected, *entries]) != dict(expected):
                raise ConcurrentLoadError(  # and has removed the files of those who were late
                    f"{self._table.name}: another load of {app_id} has committed"
                ) from None
            raise
        return newest(pa.concat_tables(parts), self.key)

    def _columns(self, schema: pa.Schema) -> pa.Schema:
        """Return those of the table's columns that are in its files."""
        if self._settings.event_time is None or not self._table.keeps_partition_column:
            return schema
        return pa.schema([e for e in schema if e.name != self._settings.partition_column])

    def forget(self, app_id: str, *, batch: int) -> None:
        """Remove the changes of batches up to ``batch``."""
        names = [name for name in self.directory.entries() if name.endswith(SUFFIX)]
        for name in orphans(app_id, batch=batch, names=names, referenced=()):
            (self.directory / name).unlink(missing_ok=True)


def partition_counts(topic_partitions: Sequence[TopicPartition]) -> dict[str, int]:
    """Return how many partitions each topic has."""
    found: dict[str, int] = {}
    for each in topic_partitions:
        found[each.topic] = found.get(each.topic, 0) + 1
    return found


def check_appends(table: Table) -> None:
    """Raise ConfigError if a table has one row for each key."""
    mode = read_mode(table.name) if table.exists() else None
    if mode is not None:
        raise ConfigError(
            f"{table.name} has one row for each {', '.join(mode.key)}: it takes mode upsert only"
        )


def read_mode(name: TableName) -> UpsertMode | None:
    """Return what a table of the present is made of; None for other tables."""
    try:
        value: dict[str, Any] = json.loads(_path(name).read_bytes())
    except FileNotFoundError:
        return None
    spec = FormatSpec(
        kind=value["format"],
        options=value["options"],
        definition=base64.b64decode(value["definition"]),
        reserved=frozenset(value["reserved"]),
        writers={int(n): base64.b64decode(text) for n, text in value["writers"].items()},
    )
    return UpsertMode(key=tuple(value["key"]), spec=spec)


def _write_mode(name: TableName, mode: UpsertMode) -> None:
    spec = mode.spec
    value = {
        "key": list(mode.key),
        "format": spec.kind,
        "options": {**spec.options, **_FRAMED} if spec.is_framed else dict(spec.options),
        "reserved": sorted(spec.reserved),
        "definition": base64.b64encode(spec.definition).decode(),
        "writers": {str(n): base64.b64encode(e).decode() for n, e in spec.writers.items()},
    }
    _path(name).replace_with((json.dumps(value, indent=1) + "\n").encode())


def _path(name: TableName) -> Location:
    return name.path / MILLSTREAM_DIRECTORY / "upsert.json"
