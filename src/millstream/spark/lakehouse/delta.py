"""Delta tables through `deltalake`: one of the protocol's own ``txn`` actions names the ledger.

A ``txn`` action maps an application id to a number and survives the log's checkpoints and clean-up.
``<app_id>/ledger`` is the number of the file with the load's ledger (``stored_ledger``). delta-rs
refuses a commit when an application id that it sets was set since the table was read, and so of two
planners only one gets through.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.data_files import DataFile
from millstream.spark.lakehouse.delta_actions import add_action, remove_actions
from millstream.spark.lakehouse.delta_catalogs import DeltaCatalogPath
from millstream.spark.lakehouse.delta_log import named_files
from millstream.spark.lakehouse.delta_rules import check_features, check_nulls, check_rules
from millstream.spark.lakehouse.intervals import collect
from millstream.spark.lakehouse.ledger import BATCH
from millstream.spark.lakehouse.sorting import SortField
from millstream.spark.lakehouse.stored_ledger import (
    REFUSED_BATCH,
    LedgerFiles,
    LostLedgerError,
    only,
)
from millstream.spark.lakehouse.table import (
    MILLSTREAM_DIRECTORY,
    Compaction,
    ConcurrentLoadError,
    Layout,
    MovedOnError,
    Present,
    Replacement,
    TableName,
    check_new_directory,
    check_same_split,
    offset_column_of,
)
from millstream.spark.lakehouse.widening import (
    changed_columns,
    check_same_columns,
    merge,
    plain,
)
from millstream.spark.lakehouse.written_files import check_unchanged, check_written
from millstream.spark.locations.location import Location
from millstream.spark.locations.named import place_of

_ATTEMPTS: Final = 5
_HOUR_MS: Final = 3_600_000
_LONG_RUN: Final = 20
_MOST_RUNS: Final = 100
_MOST_OFFSETS: Final = 5_000
_HISTORY: Final = 1_000
_CARRIES_OLD: Final = "older"
"""The table has entries of an older version, which count where the ledger's file lacks them."""


class DeltaTableFiles:
    """One Delta table."""

    def __init__(self, name: TableName) -> None:
        self.name = name

    def _open(self) -> DeltaTable:
        place = self.data_directory
        return DeltaTable(place.uri(), storage_options=dict(place.storage_options))

    @property
    def _ledgers(self) -> LedgerFiles:
        return LedgerFiles(self.data_directory / MILLSTREAM_DIRECTORY / "ledger")

    @property
    def _log(self) -> Location:
        return self.data_directory / "_delta_log"

    @property
    def data_directory(self) -> Location:
        """The table's own directory, by its catalogue if it is named by one."""
        return place_of(self.name.path)

    @property
    def staging_directory(self) -> Location:
        """The same: files that no commit references are not part of a Delta table."""
        return self.data_directory

    @property
    def keeps_partition_column(self) -> bool:
        """True: the day is in the log and in the path, not in the file."""
        return True

    def exists(self) -> bool:
        """See :class:`Table`. A catalogue lists it, if it is named by one, and its log is there."""
        path = self.name.path
        return (not isinstance(path, DeltaCatalogPath) or path.is_listed()) and self._has_log()

    def _has_log(self) -> bool:
        # Not DeltaTable.is_deltatable: it lets no other thread run while a store answers.
        return any(name.endswith((".json", ".parquet")) for name in self._log.entries())

    def create(self, layout: Layout) -> None:
        """See :class:`Table`."""
        schema = layout.schema
        if layout.is_partitioned:
            schema = schema.append(pa.field(layout.partition_column, pa.date32()))
        if self._has_log():
            check_same_columns(str(self.name), self.schema(), schema)
            found = self._open().metadata().partition_columns
            wanted = [layout.partition_column] if layout.is_partitioned else []
            check_same_split(self.name, found, wanted)
            check_rules(self.name, self._open())
            check_nulls(self.name, self._open(), layout)
        else:
            self._make(schema, layout)
        if isinstance(self.name.path, DeltaCatalogPath):
            self.name.path.add(json.loads(self._open().schema().to_json())["fields"])

    def _make(self, schema: pa.Schema, layout: Layout) -> None:
        check_new_directory(self.name, ("_delta_log",))
        times = [each.name for each in schema if pa.types.is_time(each.type)]
        if times:
            raise ConfigError(f"Delta has no type for a time of day: {', '.join(times)}")
        place = self.data_directory
        place.check_commits()
        place.make_directory()
        try:
            DeltaTable.create(
                place.uri(),
                storage_options=dict(place.storage_options),
                schema=schema,
                mode="ignore",
                partition_by=[layout.partition_column] if layout.is_partitioned else None,
                configuration=dict(layout.properties) or None,
            )
        except DeltaError as error:
            if layout.properties and "property" in str(error):
                raise ConfigError(f"{self.name}: {error}") from None
            raise

    def schema(self) -> pa.Schema:
        """See :class:`Table`."""
        return plain(pa.schema(self._open().schema()))

    def sort_by(self) -> Sequence[SortField]:
        """See :class:`Table`. None: this kind keeps no order."""
        return ()

    def add_columns(self, schema: pa.Schema) -> None:
        """See :class:`Table`. For wider types the whole table is rewritten, in one commit."""
        added, _ = changed_columns(self.schema(), schema)
        if added:
            fields = [Field.from_arrow(field) for field in added]
            self._open().alter.add_columns(fields)
        for _ in range(_ATTEMPTS):
            table = self._open()
            known = plain(pa.schema(table.schema()))
            wanted = merge(known, schema)
            if not changed_columns(known, wanted)[1]:
                return
            with contextlib.suppress(CommitFailedError):
                self._rewrite(table, wanted)
        raise ConcurrentLoadError(f"{self.name}: other loads commit while its types are widened")

    @staticmethod
    def _rewrite(table: DeltaTable, schema: pa.Schema) -> None:
        """Rewrite the table as it was read; CommitFailedError if anything was committed since: a
        file that was added meanwhile would keep its narrower type.
        """
        rows = (
            _cast(batch, schema)
            for batch in table.to_pyarrow_dataset().to_batches(batch_size=1 << 16)
        )
        write_deltalake(
            table,
            pa.RecordBatchReader.from_batches(schema, rows),
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=table.metadata().partition_columns or None,
            commit_properties=CommitProperties(max_commit_retries=0),
        )

    def ledger(self, app_id: str, keys: Iterable[str]) -> dict[str, int]:
        """See :class:`Table`."""
        keys = list(keys)
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(ConcurrentLoadError):  # read the one that has replaced it
                return only(self._ledger(self._open(), app_id, keys), keys)
        return only(self._ledger(self._open(), app_id, keys), keys)

    def _ledger(self, table: DeltaTable, app_id: str, keys: Iterable[str]) -> dict[str, int]:
        """Return the whole ledger of a load, with those of ``keys`` that an older version wrote."""
        number = table.transaction_version(_ledger_id(app_id))
        if number is None and not table.version():
            return {}  # it was just made, and each of its old entries would be a look-up
        found = {} if number is None else self._ledgers.read(number)
        if found is None:
            if self._open().transaction_version(_ledger_id(app_id)) != number:
                raise ConcurrentLoadError(f"{self.name}: another load of {app_id} has committed")
            raise LostLedgerError(
                f"{self.name}: the ledger {number} of {app_id} is not in _millstream/ledger"
            )
        old_batch = table.transaction_version(f"{app_id}/{BATCH}")
        if old_batch == REFUSED_BATCH:  # this version has written it; was there another one?
            old_batch = table.transaction_version(f"{app_id}/{_CARRIES_OLD}")
        if BATCH in found and old_batch is None:
            return found
        old = {k: table.transaction_version(f"{app_id}/{k}") for k in keys if k not in found}
        return {**found, **{key: value for key, value in old.items() if value is not None}}

    def _note(self, table: DeltaTable, app_id: str, entries: Mapping[str, int]) -> CommitProperties:
        """Write the ledger as it is with these entries; return what a commit of it has to carry.

        If the commit fails the file stays for :meth:`expire`: an error may come after the commit.
        """
        number = self._ledgers.write(app_id, {**self._ledger(table, app_id, entries), **entries})
        written = [Transaction(_ledger_id(app_id), number)]
        old_batch = table.transaction_version(f"{app_id}/{BATCH}")
        if old_batch != REFUSED_BATCH:
            written.append(Transaction(f"{app_id}/{BATCH}", REFUSED_BATCH))
        if old_batch:
            written.append(Transaction(f"{app_id}/{_CARRIES_OLD}", 1))
        return CommitProperties(
            custom_metadata={"millstream": json.dumps({"appId": app_id, **entries})},
            app_transactions=written,
        )

    def _replaced(self, number: int | None) -> None:
        """Remove the ledger that a commit has replaced."""
        if number is not None:
            self._ledgers.remove(number)

    def was_set_back(self, app_id: str) -> bool:
        """See :class:`Table`; of the last thousand commits."""
        entries = {each["version"]: each for each in self._open().history(_HISTORY)}
        own = [version for version, each in entries.items() if _is_of(each, app_id)]
        version = max(entries, default=0)
        while version in entries and version not in own:
            restored = _restored_version(entries[version])
            version = version - 1 if restored is None else restored
        return bool(own) and version < max(own)

    def commit(
        self,
        app_id: str,
        entries: Mapping[str, int],
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int],
    ) -> None:
        """See :class:`Table`. Other commits, such as a compaction, do not conflict."""
        for attempt in range(_ATTEMPTS):
            table = self._open()
            self._check_ledger(table, app_id, entries, expected)
            # Behind the ledger: who has committed has removed the files of those who were late.
            columns = check_written(self.staging_directory, files)
            schema = plain(pa.schema(table.schema()))
            check_unchanged(str(self.name), schema, columns)
            check_rules(self.name, table)
            before = table.transaction_version(_ledger_id(app_id))
            try:
                table.create_write_transaction(
                    [add_action(file, offset_column_of(schema)) for file in files],
                    "append",
                    table.schema(),
                    table.metadata().partition_columns,
                    commit_properties=self._note(table, app_id, entries),
                )
            except CommitFailedError as error:
                check_features(self.name, error)
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                self._replaced(before)
                return

    def state(self) -> str:
        """See :class:`MergeTable`: the version of the log."""
        return str(self._open().version())

    def present(self) -> Present:
        """See :class:`MergeTable`."""
        table = self._open()
        return Present(
            state=str(table.version()),
            schema=plain(pa.schema(table.schema())),
            files=_files_of(table),
            deleted=self._deleted_rows(table),
        )

    def replace(
        self,
        app_id: str,
        entries: Mapping[str, int],
        change: Replacement,
        *,
        expected: Mapping[str, int],
    ) -> None:
        """See :class:`MergeTable`. Any other commit since the state was read is a MovedOnError."""
        table = self._open()
        self._check_ledger(table, app_id, entries, expected)
        if str(table.version()) != change.base:
            raise MovedOnError(f"{self.name} has changed since version {change.base}")
        columns = check_written(self.staging_directory, change.added)
        schema = plain(pa.schema(table.schema()))
        check_unchanged(str(self.name), schema, columns)
        check_rules(self.name, table)
        actions = [add_action(file, offset_column_of(schema)) for file in change.added]
        before = table.transaction_version(_ledger_id(app_id))
        properties = self._note(table, app_id, entries)
        properties.max_commit_retries = 0
        try:
            table.create_write_transaction(
                [*actions, *remove_actions(table, set(change.removed))],
                "append",  # "overwrite" would remove all other files too
                table.schema(),
                table.metadata().partition_columns,
                commit_properties=properties,
            )
        except CommitFailedError as error:
            check_features(self.name, error)
            raise MovedOnError(f"{self.name}: {error}") from error
        self._replaced(before)

    def _check_ledger(
        self,
        table: DeltaTable,
        app_id: str,
        entries: Mapping[str, int],
        expected: Mapping[str, int],
    ) -> None:
        names = [*expected, *entries]
        if only(self._ledger(table, app_id, names), names) != dict(expected):
            raise ConcurrentLoadError(f"{self.name}: another load of {app_id} has committed")

    def files(self) -> list[str]:
        """See :class:`Table`."""
        return _files_of(self._open())

    def deleted_rows(self) -> dict[str, Sequence[int]]:
        """See :class:`Table`."""
        return self._deleted_rows(self._open())

    def _deleted_rows(self, table: DeltaTable) -> dict[str, Sequence[int]]:
        found: dict[str, Sequence[int]] = {}
        root = self.data_directory.uri().rstrip("/") + "/"
        for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
            for uri, kept in zip(batch.column(0), batch.column(1), strict=True):
                path = unquote(uri.as_py().removeprefix("file://")).removeprefix(root)
                gone = np.flatnonzero(~kept.values.to_numpy(zero_copy_only=False))
                found[path] = gone.tolist()
        return found

    def retained(self) -> set[str]:
        """See :class:`Table`. Older states are those that are still in the log."""
        return {*self.files(), *named_files(self._log)}

    def remove_duplicates(self) -> list[str]:
        """Return []: in the Delta protocol a path is in a table once, however often it is added."""
        return []

    def compact(self, *, target_bytes: int) -> Compaction:
        """See :class:`Table`. delta-rs chooses the files and writes the new ones."""
        metrics = self._open().optimize.compact(target_size=target_bytes)
        return Compaction(metrics["numFilesRemoved"], metrics["numFilesAdded"])

    def delete_rows(self, offsets: Mapping[TopicPartition, Sequence[Offset]]) -> None:
        """See :class:`Table`."""
        for topic_partition, gone in offsets.items():
            for condition in _conditions(gone):
                self._open().delete(
                    f"topic = '{topic_partition.topic}' "
                    f'AND "partition" = {topic_partition.partition} '
                    f"AND ({condition})"
                )

    def truncate(
        self,
        positions: Mapping[TopicPartition, Offset],
        app_id: str,
        entries: Mapping[str, int],
        *,
        expected: Mapping[str, int],
    ) -> None:
        """See :class:`Table`."""
        condition = " OR ".join(
            f"(topic = '{each.topic}' AND \"partition\" = {each.partition} "
            f'AND "offset" >= {position})'
            for each, position in positions.items()
        )
        table = self._open()
        self._check_ledger(table, app_id, entries, expected)
        version, before = table.version(), table.transaction_version(_ledger_id(app_id))
        if condition:
            try:
                table.delete(condition, commit_properties=self._note(table, app_id, entries))
            except CommitFailedError as error:
                raise ConcurrentLoadError(f"{self.name}: {error}") from error
        if table.version() == version:  # there was no such row
            self.commit(app_id, entries, [], expected=expected)
        else:
            self._replaced(before)

    def expire(self, *, keep_ms: int) -> int:
        """See :class:`Table`; what the log forgets follows ``delta.logRetentionDuration``."""
        table = self._open()
        removed = table.vacuum(
            retention_hours=-(-keep_ms // _HOUR_MS),
            dry_run=False,
            enforce_retention_duration=False,
        )
        table.create_checkpoint()
        table.cleanup_metadata()
        for number, app_id in self._ledgers.stale():
            if self._open().transaction_version(_ledger_id(app_id)) != number:
                self._ledgers.remove(number)
        return len(removed)


def _files_of(table: DeltaTable) -> list[str]:
    adds = pa.table(table.get_add_actions(flatten=True))
    return [unquote(path) for path in adds["path"].to_pylist()]


def _ledger_id(app_id: str) -> str:
    """Return the application id of a load's ledger; no entry of an older version has such a one."""
    return f"{app_id}/ledger"


def _is_of(commit: Mapping[str, Any], app_id: str) -> bool:
    """Tell whether a commit of the table's history is one of a load."""
    written = json.loads(commit.get("millstream", "{}"))
    return bool(written.get("appId") == app_id)


def _restored_version(commit: Mapping[str, Any]) -> int | None:
    """Return the version that a RESTORE went back to; −1 if it names a time; None for others."""
    if commit.get("operation") != "RESTORE":
        return None
    version = commit.get("operationParameters", {}).get("version")
    return -1 if version is None else int(version)


def _conditions(offsets: Sequence[Offset]) -> Iterator[str]:
    """Yield conditions on offsets with a bounded number of terms: tens of thousands of terms crash
    delta-rs.
    """
    runs = collect(np.array(offsets, np.int64)).intervals
    single = [each for low, high in runs if high - low < _LONG_RUN for each in range(low, high)]
    longer = [
        f'"offset" BETWEEN {low} AND {high - 1}' for low, high in runs if high - low >= _LONG_RUN
    ]
    for first in range(0, len(longer), _MOST_RUNS):
        yield " OR ".join(longer[first : first + _MOST_RUNS])
    for first in range(0, len(single), _MOST_OFFSETS):
        yield f'"offset" IN ({", ".join(map(str, single[first : first + _MOST_OFFSETS]))})'


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
