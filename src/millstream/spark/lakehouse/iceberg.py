"""Iceberg tables through `pyiceberg`: the ledger is made of table properties.

A table is one of a catalogue (``iceberg_catalogs``). A load's ledger is one property
(``stored_ledger``), set in the same transaction as the files are added. A commit has the snapshot
that it was based on, so of two planners only one succeeds.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction
from pyiceberg.transforms import DayTransform
from pyiceberg.types import DoubleType, LongType, TimestamptzType

from millstream.model.errors import ConfigError, MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.compaction import rewrite_file, rewrite_small_files
from millstream.spark.lakehouse.data_files import SUFFIX, DataFile
from millstream.spark.lakehouse.iceberg_catalogs import (
    file_uri,
    home_of,
    make_namespace,
)
from millstream.spark.lakehouse.iceberg_conditions import from_positions, of_records
from millstream.spark.lakehouse.iceberg_deletes import deleted_rows, deletes_of
from millstream.spark.lakehouse.iceberg_orders import add_order, check_same_order, order_of
from millstream.spark.lakehouse.iceberg_overwrites import overwrite
from millstream.spark.lakehouse.iceberg_partitions import (
    add_fields,
    append,
    describe,
    map_names,
    split_of,
)
from millstream.spark.lakehouse.iceberg_rules import check_required
from millstream.spark.lakehouse.iceberg_snapshots import (
    APP_ID,
    OneCopyTransaction,
    forget_some,
    was_set_back,
)
from millstream.spark.lakehouse.iceberg_upkeep import IcebergUpkeep
from millstream.spark.lakehouse.sorting import SortField
from millstream.spark.lakehouse.stored_ledger import (
    from_properties,
    old_properties,
    only,
    property_name,
    refusal,
    to_text,
)
from millstream.spark.lakehouse.table import (
    Compaction,
    ConcurrentLoadError,
    Layout,
    MovedOnError,
    Present,
    Replacement,
    TableName,
    check_new_directory,
    check_same_split,
    has_foreign_entries,
)
from millstream.spark.lakehouse.widening import changed_columns, check_same_columns, plain
from millstream.spark.lakehouse.written_files import check_written
from millstream.spark.locations.location import Location
from millstream.spark.locations.named import plain_uri

T = TypeVar("T")

# pyiceberg warns of each column whose Parquet file has no statistics, which a column of nulls or a
# list may not have. They are optional, and nobody can do anything about it.
logging.getLogger("pyiceberg.io.pyarrow").addFilter(
    lambda record: not str(record.msg).startswith("PyArrow statistics missing")
)

_ATTEMPTS: Final = 5
_OWN_PROPERTIES: Final = {TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true"}
"""Of tables that a load makes: the metadata of each of thousands of commits is large."""
_SCHEME: Final = "file://"
_ICEBERG_TYPES: Final = {
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.timestamp("us", "UTC"): TimestamptzType(),
}


class IcebergTableFiles:
    """One Iceberg table."""

    def __init__(self, name: TableName) -> None:
        self.name = name
        self._home = home_of(name.path)
        self._upkeep = IcebergUpkeep(self._home.path)
        self._identifier = self._home.identifier

    @property
    def data_directory(self) -> Location:
        """The directory ``data`` beside ``metadata``."""
        return self._home.path / "data"

    @property
    def staging_directory(self) -> Location:
        """The same: files that no snapshot references are not part of an Iceberg table."""
        return self.data_directory

    @property
    def keeps_partition_column(self) -> bool:
        """False: the day is computed from the timestamp (hidden partitioning)."""
        return False

    def exists(self) -> bool:
        """See :class:`Table`."""
        if not self._home.is_there():
            return False
        try:
            self._load()
        except NoSuchTableError:
            return False
        return True

    def create(self, layout: Layout) -> None:
        """See :class:`Table`. Of several processes one makes it; the others check its columns."""
        if not self.exists():
            begun = self._home.is_there() or not has_foreign_entries(self.data_directory)
            own = ("metadata", *self._home.own_files)
            place = TableName(self.name.kind, self._home.path)
            check_new_directory(place, (*own, self.data_directory.name) if begun else own)
            self.data_directory.make_directory()
            with self._home.alone():
                if not self.exists() and self._make(layout):
                    return
        table = self._load()
        check_same_columns(str(self.name), plain(table.schema().as_arrow()), layout.schema)
        check_required(self.name, table.schema())
        wanted = [str(each) for each in layout.partition_by]
        if layout.event_time is not None:
            wanted = [f"day({layout.event_time})"]
        check_same_split(self.name, split_of(table.schema(), table.spec()), wanted)
        check_same_order(self.name, order_of(table.schema(), table.sort_order()), layout.sort_by)

    def _make(self, layout: Layout) -> bool:
        """Make the table; False if another process has made it meanwhile."""
        catalog = self._home.catalog()
        make_namespace(catalog, self._identifier)
        try:
            with catalog.create_table_transaction(
                self._identifier,
                schema=layout.schema,
                location=file_uri(self._home.path),
                properties={**_OWN_PROPERTIES, **layout.properties},
            ) as transaction:
                if layout.event_time is not None:
                    with transaction.update_spec() as spec:
                        spec.add_field(layout.event_time, DayTransform(), layout.partition_column)
                elif layout.partition_by:
                    with transaction.update_spec() as spec:
                        add_fields(spec, layout.partition_by)
                if layout.sort_by:
                    with transaction.update_sort_order() as order:
                        add_order(order, layout.sort_by)
        except (TableAlreadyExistsError, CommitFailedException):
            if not self.exists():
                raise
            return False
        return True

    def schema(self) -> pa.Schema:
        """See :class:`Table`."""
        return plain(self._load().schema().as_arrow())

    def sort_by(self) -> Sequence[SortField]:
        """See :class:`Table`."""
        table = self._load()
        return order_of(table.schema(), table.sort_order())

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
        deleted = self._deleted_rows(table, self._scan(table))
        new = []
        for uri in self._tasks(table):
            name = self._relative(uri)
            path = self.data_directory / name
            target = path.with_name(f"{path.stem}-{secrets.token_hex(4)}{SUFFIX}")
            rewrite_file(path, target, widened, deleted=deleted.get(name, ()))
            new.append(file_uri(target))
        with OneCopyTransaction(table) as transaction:
            with transaction.update_schema(allow_incompatible_changes=True) as update:
                for field in widened:
                    kind = _ICEBERG_TYPES.get(field.type)
                    if kind is None:
                        raise ConfigError(
                            f"{self.name}: column {field.name} cannot become {field.type}"
                        )
                    update.update_column(field.name, field_type=kind)
            with overwrite(transaction) as snapshot:
                for task in self._scan(table):
                    snapshot.delete_data_file(task.file)
                for file in describe(transaction.table_metadata, new, table.io):
                    snapshot.append_data_file(file)

    def ledger(self, app_id: str, keys: Iterable[str]) -> dict[str, int]:
        """See :class:`Table`."""
        return only(from_properties(self._load().properties, app_id), keys)

    def was_set_back(self, app_id: str) -> bool:
        """See :class:`Table`."""
        return was_set_back(self._load(), app_id)

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

        def put(table: Table) -> None:
            self._check_ledger(table, app_id, entries, expected)
            # Behind the ledger: who has committed has removed the files of those who were late.
            check_written(self.staging_directory, files)
            with OneCopyTransaction(table) as transaction:
                forget_some(transaction)
                if paths:
                    append(transaction, paths, table.io, properties={APP_ID: app_id})
                _set_ledger(transaction, table, app_id, entries)

        self._repeated(put)

    def state(self) -> str:
        """See :class:`MergeTable`: the present snapshot."""
        return _state(self._load())

    def present(self) -> Present:
        """See :class:`MergeTable`."""
        table = self._load()
        tasks = self._scan(table)
        return Present(
            state=_state(table),
            schema=plain(table.schema().as_arrow()),
            files=self._files(tasks),
            deleted=self._deleted_rows(table, tasks),
        )

    def replace(
        self,
        app_id: str,
        entries: Mapping[str, int],
        change: Replacement,
        *,
        expected: Mapping[str, int],
    ) -> None:
        """See :class:`MergeTable`. Delete files of removed files no longer count."""
        gone = {self._uri(path) for path in change.removed}
        paths = [self._uri(file.path) for file in change.added]

        def put(table: Table) -> None:
            self._check_ledger(table, app_id, entries, expected)
            if _state(table) != change.base:
                raise MovedOnError(f"{self.name} has changed since snapshot {change.base}")
            check_written(self.staging_directory, change.added)
            with OneCopyTransaction(table) as transaction:
                forget_some(transaction)
                map_names(transaction)
                if gone or paths:
                    with overwrite(transaction, {APP_ID: app_id}) as update:
                        for task in self._scan(table) if gone else ():
                            if plain_uri(task.file.file_path) in gone:
                                update.delete_data_file(task.file)
                        for file in describe(transaction.table_metadata, paths, table.io):
                            update.append_data_file(file)
                _set_ledger(transaction, table, app_id, entries)

        self._repeated(put)

    def _check_ledger(
        self,
        table: Table,
        app_id: str,
        entries: Mapping[str, int],
        expected: Mapping[str, int],
    ) -> None:
        names = [*expected, *entries]
        if only(from_properties(table.properties, app_id), names) != dict(expected):
            raise ConcurrentLoadError(f"{self.name}: another load of {app_id} has committed")

    def files(self) -> list[str]:
        """See :class:`Table`."""
        return self._files(self._scan(self._load()))

    def _files(self, tasks: Sequence[FileScanTask]) -> list[str]:
        return [self._relative(plain_uri(task.file.file_path)) for task in tasks]

    def deleted_rows(self) -> dict[str, Sequence[int]]:
        """See :class:`Table`."""
        table = self._load()
        return self._deleted_rows(table, self._scan(table))

    def _deleted_rows(
        self, table: Table, tasks: Sequence[FileScanTask]
    ) -> dict[str, Sequence[int]]:
        return {self._relative(uri): rows for uri, rows in deleted_rows(table.io, tasks).items()}

    def retained(self) -> set[str]:
        """See :class:`Table`."""
        data = file_uri(self.data_directory) + "/"
        named = self._upkeep.named_files(self._load())
        return {self._relative(uri) for uri in named if uri.startswith(data)}

    def remove_duplicates(self) -> list[str]:
        """See :class:`Table`."""

        def mend(table: Table) -> list[str]:
            uris = Counter(self._tasks(table))
            twice = {
                plain_uri(task.file.file_path): deletes_of(task)
                for task in self._scan(table)
                if uris[plain_uri(task.file.file_path)] > 1
            }
            if twice:
                self._replace(table, twice, sorted(twice))
            return sorted(twice)

        return [self._relative(uri) for uri in self._repeated(mend)]

    def compact(self, *, target_bytes: int) -> Compaction:
        """See :class:`Table`. The old files stay until :meth:`expire`."""
        table = self._load()
        tasks = {self._relative(plain_uri(each.file.file_path)): each for each in self._scan(table)}
        old, new = rewrite_small_files(
            self.data_directory,
            tasks,
            self.data_directory,
            target_bytes=target_bytes,
            part_of=lambda path: repr(tasks[path].file.partition),
            deleted=self._deleted_rows(table, list(tasks.values())),
            sort_by=order_of(table.schema(), table.sort_order()),
        )
        if not old:
            return Compaction()
        gone = {self._uri(path): deletes_of(tasks[path]) for path in old}
        come = [self._uri(path) for path in new]
        if not self._repeated(lambda table: self._replace(table, gone, come)):
            return Compaction()  # another process has replaced them
        return Compaction(len(old), len(new))

    def delete_rows(self, offsets: Mapping[TopicPartition, Sequence[Offset]]) -> None:
        """See :class:`Table`."""
        for topic_partition, numbers in offsets.items():
            gone = of_records(topic_partition, numbers)
            self._repeated(lambda table, gone=gone: table.delete(gone))  # type: ignore[misc]

    def truncate(
        self,
        positions: Mapping[TopicPartition, Offset],
        app_id: str,
        entries: Mapping[str, int],
        *,
        expected: Mapping[str, int],
    ) -> None:
        """See :class:`Table`."""
        gone = from_positions(positions)

        def cut(table: Table) -> None:
            self._check_ledger(table, app_id, entries, expected)
            with OneCopyTransaction(table) as transaction:
                if positions:
                    transaction.delete(gone)
                _set_ledger(transaction, table, app_id, entries)

        self._repeated(cut)

    def expire(self, *, keep_ms: int) -> int:
        """See :class:`Table`."""

        def forget(table: Table) -> set[str]:
            named = self._upkeep.named_files(table)
            horizon = datetime.now(UTC) - timedelta(milliseconds=keep_ms)
            table.maintenance.expire_snapshots().older_than(horizon).commit()
            return named

        return self._upkeep.remove(self._repeated(forget), self._load(), keep_ms=keep_ms)

    def _load(self) -> Table:
        table = self._home.catalog().load_table(self._identifier)
        # A commit that pyiceberg retries on a newer state would not detect that the ledger changed.
        # This changes only the copy in memory.
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        return table

    def _repeated(self, change: Callable[[Table], T]) -> T:
        """Apply a change to the present table; retry if another process has committed meanwhile."""
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(CommitFailedException), self._home.alone():
                return change(self._load())
        return change(self._load())

    def _replace(self, table: Table, old: Mapping[str, frozenset[str]], new: Sequence[str]) -> bool:
        """Replace all references to ``old`` in the table by one to each of ``new``.

        Return False, without a change, if the table does not reference all of them with these
        delete files: rows that were deleted meanwhile would come back.
        """
        present = {plain_uri(each.file.file_path): deletes_of(each) for each in self._scan(table)}
        if any(present.get(uri) != deletes for uri, deletes in old.items()):
            return False
        with OneCopyTransaction(table) as transaction, overwrite(transaction) as update:
            for task in self._scan(table):
                if plain_uri(task.file.file_path) in old:
                    update.delete_data_file(task.file)
            for file in describe(table.metadata, list(new), table.io):
                update.append_data_file(file)
        return True

    def _tasks(self, table: Table) -> list[str]:
        return [plain_uri(task.file.file_path) for task in self._scan(table)]

    def _scan(self, table: Table) -> list[FileScanTask]:
        try:
            return list(table.scan().plan_files())
        except ValueError as error:
            if "equality deletes" not in str(error):
                raise
            raise MillstreamError(
                f"{self.name}: another program has deleted rows by their values (equality deletes),"
                " which pyiceberg cannot read; let that program rewrite the table's files"
            ) from None

    def _uri(self, path: str) -> str:
        return file_uri(self.data_directory / path)

    def _relative(self, uri: str) -> str:
        data = f"{file_uri(self.data_directory)}/"
        return uri.removeprefix(data) if uri.startswith(data) else uri.removeprefix(_SCHEME)


def _state(table: Table) -> str:
    snapshot = table.current_snapshot()
    return "none" if snapshot is None else str(snapshot.snapshot_id)


def _set_ledger(
    transaction: Transaction, table: Table, app_id: str, entries: Mapping[str, int]
) -> None:
    """Change a load's ledger; entries that an older version wrote become part of its value."""
    known = from_properties(table.properties, app_id)
    refused, batch = refusal(app_id)
    written = {property_name(app_id): to_text({**known, **entries}), refused: batch}
    old = [name for name in old_properties(table.properties, app_id) if name not in written]
    transaction.set_properties(written)
    transaction.remove_properties(*old)
