"""Iceberg tables through `pyiceberg`: the ledger is made of table properties.

``iceberg:PATH`` is a table in its own catalogue, an SQLite file ``PATH/catalog.db`` (so one
machine), under the name ``millstream.<last part of PATH>``. Each ledger entry is a property
``millstream.<app_id>.<entry>``, set in the same transaction as the files are added. A commit has
the snapshot that it was based on, so of two planners only one succeeds.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In
from pyiceberg.table import Table, TableProperties
from pyiceberg.table import _parquet_files_to_data_files as describe_files
from pyiceberg.transforms import DayTransform
from pyiceberg.types import DoubleType, LongType, TimestamptzType

from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.compaction import rewrite_file, rewrite_small_files
from millstream.spark.lakehouse.data_files import DataFile
from millstream.spark.lakehouse.table import (
    MILLSTREAM_DIRECTORY,
    Compaction,
    ConcurrentLoadError,
    Layout,
    TableName,
    check_new_directory,
    check_same_split,
    has_foreign_entries,
)
from millstream.spark.lakehouse.widening import changed_columns, check_same_columns, plain

_NAMESPACE: Final = "millstream"
T = TypeVar("T")

_ATTEMPTS: Final = 5
_SCHEME: Final = "file://"
_METADATA: Final = ".metadata.json"
_STALE_S: Final = 86_400.0
_ICEBERG_TYPES: Final = {
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
}


class IcebergTableFiles:
    """One Iceberg table."""

    def __init__(self, name: TableName) -> None:
        self.name = name
        self._identifier = (_NAMESPACE, re.sub(r"[^A-Za-z0-9_]", "_", name.path.name) or "table")

    @property
    def data_directory(self) -> Path:
        """The directory ``data`` beside ``metadata``."""
        return self.name.path / "data"

    @property
    def staging_directory(self) -> Path:
        """The same: files that no snapshot references are not part of an Iceberg table."""
        return self.data_directory

    @property
    def keeps_partition_column(self) -> bool:
        """False: the day is computed from the timestamp (hidden partitioning)."""
        return False

    def exists(self) -> bool:
        """See :class:`Table`."""
        if not self._catalog_file.is_file():
            return False
        try:
            self._load()
        except NoSuchTableError:
            return False
        return True

    def create(self, layout: Layout) -> None:
        """See :class:`Table`."""
        if self.exists():
            table = self._load()
            check_same_columns(str(self.name), plain(table.schema().as_arrow()), layout.schema)
            found = [table.schema().find_column_name(e.source_id) for e in table.spec().fields]
            wanted = [layout.event_time] if layout.event_time is not None else []
            check_same_split(self.name, [each or "?" for each in found], wanted)
            return
        begun = self._catalog_file.is_file() or not has_foreign_entries(self.data_directory)
        own = ("metadata", self._catalog_file.name, f"{self._catalog_file.name}-journal")
        check_new_directory(self.name, (*own, self.data_directory.name) if begun else own)
        self.data_directory.mkdir(parents=True, exist_ok=True)
        catalog = self._catalog()
        with contextlib.suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(_NAMESPACE)
        with (
            contextlib.suppress(TableAlreadyExistsError),
            catalog.create_table_transaction(
                self._identifier, schema=layout.schema, location=_uri(self.name.path)
            ) as transaction,
        ):
            if layout.event_time is not None:
                with transaction.update_spec() as spec:
                    spec.add_field(layout.event_time, DayTransform(), layout.partition_column)

    def schema(self) -> pa.Schema:
        """See :class:`Table`."""
        return plain(self._load().schema().as_arrow())

    def add_columns(self, schema: pa.Schema) -> None:
        """See :class:`Table`. For types that Iceberg does not promote, all files are rewritten in
        the same transaction as the change.
        """
        known = self.schema()
        added, widened = changed_columns(known, schema)
        if added:
            with self._load().update_schema() as update:
                update.union_by_name(pa.schema(added))
        not_promoted = [field for field in widened if not self._promote(field)]
        if not_promoted:
            self._rewrite(not_promoted)

    def _promote(self, field: pa.Field) -> bool:
        """Widen the type of one column by a promotion that Iceberg supports for older files."""
        try:
            with self._load().update_schema() as update:
                update.union_by_name(pa.schema([field]))
        except ValidationError:
            return False
        return True

    def _rewrite(self, widened: Sequence[pa.Field]) -> None:
        """Change the types of columns and every file with them."""
        table = self._load()
        old = self._tasks(table)
        new = []
        for uri in old:
            path = self.data_directory / self._relative(uri)
            target = path.with_name(f"{path.stem}-{secrets.token_hex(4)}{path.suffix}")
            rewrite_file(path, target, widened)
            new.append(_uri(target))
        with table.transaction() as transaction:
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                for field in widened:
                    kind = _ICEBERG_TYPES.get(field.type)
                    if kind is None:
                        raise ConfigError(
                            f"{self.name}: column {field.name} cannot become {field.type}"
                        )
                    update.update_column(field.name, field_type=kind)
            with transaction.update_snapshot().overwrite() as snapshot:
                for task in table.scan().plan_files():
                    snapshot.delete_data_file(task.file)
                for file in describe_files(transaction.table_metadata, new, table.io):
                    snapshot.append_data_file(file)

    def ledger(self, app_id: str, keys: Iterable[str]) -> dict[str, int]:
        """See :class:`Table`."""
        return _ledger(self._load(), app_id, keys)

    def commit(
        self,
        app_id: str,
        entries: Mapping[str, int],
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int],
    ) -> None:
        """See :class:`Table`. Other commits, such as a compaction, do not conflict."""
        paths = [self._uri(file.path) for file in files]
        properties = {_property(app_id, key): str(value) for key, value in entries.items()}

        def put(table: Table) -> None:
            if _ledger(table, app_id, [*expected, *entries]) != dict(expected):
                raise ConcurrentLoadError(f"{self.name}: another load of {app_id} has committed")
            with table.transaction() as transaction:
                if paths:
                    transaction.add_files(
                        paths,
                        snapshot_properties={"millstream.app-id": app_id},
                        check_duplicate_files=False,
                    )
                transaction.set_properties(properties)

        self._repeated(put)

    def files(self) -> list[str]:
        """See :class:`Table`."""
        return [self._relative(task) for task in self._tasks(self._load())]

    def retained(self) -> set[str]:
        """See :class:`Table`."""
        data = _uri(self.data_directory) + "/"
        named = self._named_files(self._load())
        return {self._relative(uri) for uri in named if uri.startswith(data)}

    def remove_duplicates(self) -> list[str]:
        """See :class:`Table`."""

        def mend(table: Table) -> list[str]:
            uris = Counter(self._tasks(table))
            twice = sorted(uri for uri, count in uris.items() if count > 1)
            if twice:
                self._replace(table, twice, twice)
            return twice

        return [self._relative(uri) for uri in self._repeated(mend)]

    def compact(self, *, target_bytes: int) -> Compaction:
        """See :class:`Table`. The old files stay until :meth:`expire`."""
        table = self._load()
        days = {
            self._relative(task.file.file_path): repr(task.file.partition)
            for task in table.scan().plan_files()
        }
        old, new = rewrite_small_files(
            self.data_directory,
            days,
            self.data_directory,
            target_bytes=target_bytes,
            part_of=days.__getitem__,
        )
        if not old:
            return Compaction()
        gone, come = [self._uri(p) for p in old], [self._uri(p) for p in new]
        if not self._repeated(lambda table: self._replace(table, gone, come)):
            return Compaction()  # another process has replaced them
        return Compaction(len(old), len(new))

    def delete_rows(self, offsets: Mapping[TopicPartition, Sequence[Offset]]) -> None:
        """See :class:`Table`."""
        for topic_partition, gone in offsets.items():
            self._repeated(partial(_delete, topic_partition=topic_partition, offsets=list(gone)))

    def expire(self, *, keep_ms: int) -> int:
        """See :class:`Table`."""

        def forget(table: Table) -> set[str]:
            named = self._named_files(table)
            horizon = datetime.now(UTC) - timedelta(milliseconds=keep_ms)
            table.maintenance.expire_snapshots().older_than(horizon).commit()
            return named

        named_before = self._repeated(forget)
        table = self._load()
        named = self._named_files(table)
        gone = {Path(uri.removeprefix(_SCHEME)) for uri in named_before - named}
        gone |= set(self._older_states(table, named, keep_ms))
        for path in gone | set(self._left_behind(named)):
            path.unlink(missing_ok=True)
        return sum(path.suffix == ".parquet" for path in gone)

    def _older_states(self, table: Table, named: set[str], keep_ms: int) -> Iterator[Path]:
        """Yield the files of expired states."""
        current = Path(table.metadata_location).name
        for path in (self.name.path / "metadata").glob(f"*{_METADATA}"):
            is_older = path.name.partition("-")[0] < current.partition("-")[0]
            is_old = path.stat().st_mtime < time.time() - keep_ms / 1000
            if is_older and is_old and _uri(path) not in named:
                yield path

    def _left_behind(self, named: set[str]) -> Iterator[Path]:
        """Yield the files of commits that crashed.

        The files of a running load are not referenced either: only their age distinguishes them.
        """
        data = self.data_directory.rglob("millstream-*.parquet")
        for path in (*data, *(self.name.path / "metadata").glob("*.avro")):
            if _uri(path) not in named and path.stat().st_mtime < time.time() - _STALE_S:
                yield path

    # The catalogue and its files

    @property
    def _catalog_file(self) -> Path:
        return self.name.path / "catalog.db"

    def _catalog(self) -> SqlCatalog:
        return SqlCatalog(
            "millstream",
            uri=f"sqlite:///{self._catalog_file}",
            warehouse=_uri(self.name.path),
        )

    def _load(self) -> Table:
        table = self._catalog().load_table(self._identifier)
        # A commit that pyiceberg retries on a newer state would not detect that the ledger changed.
        # This changes only the copy in memory.
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        return table

    def _repeated(self, change: Callable[[Table], T]) -> T:
        """Apply a change to the present table; retry if another process has committed meanwhile."""
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(CommitFailedException), self._alone():
                return change(self._load())
        return change(self._load())

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Block other processes' commits: otherwise a load that commits continuously would starve
        maintenance. The catalogue is on one machine, so a file lock is enough.
        """
        path = self.name.path / MILLSTREAM_DIRECTORY / "lock"
        path.parent.mkdir(exist_ok=True)
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _replace(self, table: Table, old: Sequence[str], new: Sequence[str]) -> bool:
        """Replace all references to ``old`` in the table by one to each of ``new``.

        Return False, without a change, if the table does not reference all of them.
        """
        gone = set(old)
        if not gone <= set(self._tasks(table)):
            return False
        with (
            table.transaction() as transaction,
            transaction.update_snapshot().overwrite() as update,
        ):
            for task in table.scan().plan_files():
                if task.file.file_path in gone:
                    update.delete_data_file(task.file)
            for file in describe_files(table.metadata, list(new), table.io):
                update.append_data_file(file)
        return True

    def _tasks(self, table: Table) -> list[str]:
        return [task.file.file_path for task in table.scan().plan_files()]

    def _named_files(self, table: Table) -> set[str]:
        """Return every file that the table or a snapshot references: data, manifests, manifest
        lists, and the table's own older metadata.
        """
        named = {table.metadata_location, *(e.metadata_file for e in table.metadata.metadata_log)}
        for snapshot in table.snapshots():
            named.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                named.add(manifest.manifest_path)
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    named.add(entry.data_file.file_path)
        return named

    def _uri(self, path: str) -> str:
        return _uri(self.data_directory / path)

    def _relative(self, uri: str) -> str:
        return str(Path(uri.removeprefix(_SCHEME)).relative_to(self.data_directory))


def _uri(path: Path) -> str:
    """Return a path in pyiceberg's form: it does not decode the escapes of a URI."""
    return f"{_SCHEME}{path}"


def _delete(table: Table, *, topic_partition: TopicPartition, offsets: list[Offset]) -> None:
    # Not as text: its parser takes minutes for some thousand numbers. Its classes are made of other
    # arguments than their annotations say.
    make: Callable[..., BooleanExpression] = EqualTo
    make_set: Callable[..., BooleanExpression] = In
    of_partition = And(
        make("topic", topic_partition.topic), make("partition", topic_partition.partition)
    )
    table.delete(And(of_partition, make_set("offset", offsets)))


def _property(app_id: str, key: str) -> str:
    return f"millstream.{app_id}.{key}"


def _ledger(table: Table, app_id: str, keys: Iterable[str]) -> dict[str, int]:
    properties = table.properties
    return {
        key: int(properties[_property(app_id, key)])
        for key in keys
        if _property(app_id, key) in properties
    }
