"""Delta tables through `deltalake`: the ledger is made of the protocol's own ``txn`` actions.

A ``txn`` action maps an application id to a number and survives the log's checkpoints and clean-up.
Each ledger entry is one, ``<app_id>/<entry>``. delta-rs refuses a commit when an application id
that it sets was set since the table was read, and so of two planners only one gets through.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.data_files import DataFile
from millstream.spark.lakehouse.intervals import collect
from millstream.spark.lakehouse.table import (
    Compaction,
    ConcurrentLoadError,
    Layout,
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

_ATTEMPTS: Final = 5
_HOUR_MS: Final = 3_600_000
_LONG_RUN: Final = 20
_MOST_RUNS: Final = 100
_MOST_OFFSETS: Final = 5_000


class DeltaTableFiles:
    """One Delta table."""

    def __init__(self, name: TableName) -> None:
        self.name = name
        self._uri = str(name.path)

    @property
    def data_directory(self) -> Path:
        """The table's own directory."""
        return self.name.path

    @property
    def staging_directory(self) -> Path:
        """The same: files that no commit references are not part of a Delta table."""
        return self.name.path

    @property
    def keeps_partition_column(self) -> bool:
        """True: the day is in the log and in the path, not in the file."""
        return True

    def exists(self) -> bool:
        """See :class:`Table`."""
        return (self.name.path / "_delta_log").is_dir() and DeltaTable.is_deltatable(self._uri)

    def create(self, layout: Layout) -> None:
        """See :class:`Table`."""
        schema = layout.schema
        if layout.is_partitioned:
            schema = schema.append(pa.field(layout.partition_column, pa.date32()))
        if self.exists():
            check_same_columns(str(self.name), self.schema(), schema)
            found = DeltaTable(self._uri).metadata().partition_columns
            wanted = [layout.partition_column] if layout.is_partitioned else []
            check_same_split(self.name, found, wanted)
            return
        check_new_directory(self.name, ("_delta_log",))
        times = [each.name for each in schema if pa.types.is_time(each.type)]
        if times:
            raise ConfigError(f"Delta has no type for a time of day: {', '.join(times)}")
        self.name.path.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            self._uri,
            schema=schema,
            mode="ignore",
            partition_by=[layout.partition_column] if layout.is_partitioned else None,
        )

    def schema(self) -> pa.Schema:
        """See :class:`Table`."""
        return plain(pa.schema(DeltaTable(self._uri).schema()))

    def add_columns(self, schema: pa.Schema) -> None:
        """See :class:`Table`. For wider types the whole table is rewritten, in one commit."""
        known = self.schema()
        added, widened = changed_columns(known, schema)
        if added:
            fields = [Field.from_arrow(field) for field in added]
            DeltaTable(self._uri).alter.add_columns(fields)
        if widened:
            self._rewrite(merge(self.schema(), schema))

    def _rewrite(self, schema: pa.Schema) -> None:
        table = DeltaTable(self._uri)
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
        )

    def ledger(self, app_id: str, keys: Iterable[str]) -> dict[str, int]:
        """See :class:`Table`."""
        return self._ledger(DeltaTable(self._uri), app_id, keys)

    @staticmethod
    def _ledger(table: DeltaTable, app_id: str, keys: Iterable[str]) -> dict[str, int]:
        found = {key: table.transaction_version(f"{app_id}/{key}") for key in keys}
        return {key: value for key, value in found.items() if value is not None}

    def commit(
        self,
        app_id: str,
        entries: Mapping[str, int],
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int],
    ) -> None:
        """See :class:`Table`. Other commits, such as a compaction, do not conflict."""
        properties = CommitProperties(
            custom_metadata={"millstream": json.dumps({"appId": app_id, **entries})},
            app_transactions=[Transaction(f"{app_id}/{k}", value) for k, value in entries.items()],
        )
        offset_column = offset_column_of(self.schema())
        actions = [_add_action(file, offset_column) for file in files]
        for attempt in range(_ATTEMPTS):
            table = DeltaTable(self._uri)
            if self._ledger(table, app_id, [*expected, *entries]) != dict(expected):
                raise ConcurrentLoadError(f"{self.name}: another load of {app_id} has committed")
            try:
                table.create_write_transaction(
                    actions,
                    "append",
                    table.schema(),
                    table.metadata().partition_columns,
                    commit_properties=properties,
                )
            except CommitFailedError:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def files(self) -> list[str]:
        """See :class:`Table`."""
        adds = pa.table(DeltaTable(self._uri).get_add_actions(flatten=True))
        return [unquote(path) for path in adds["path"].to_pylist()]

    def retained(self) -> set[str]:
        """See :class:`Table`. Older states are those that are still in the log."""
        log = self.name.path / "_delta_log"
        named = set(self.files())
        for path in log.glob("*.json"):
            for line in path.read_text(encoding="utf-8").splitlines():
                action = json.loads(line)
                named |= {
                    unquote(action[kind]["path"]) for kind in ("add", "remove") if kind in action
                }
        for path in log.glob("*.checkpoint*.parquet"):
            actions = pq.read_table(path, columns=["add.path", "remove.path"]).flatten()
            for column in actions.columns:
                named |= {unquote(each) for each in column.drop_null().to_pylist()}
        return named

    def remove_duplicates(self) -> list[str]:
        """Return []: in the Delta protocol a path is in a table once, however often it is added."""
        return []

    def compact(self, *, target_bytes: int) -> Compaction:
        """See :class:`Table`. delta-rs chooses the files and writes the new ones."""
        metrics = DeltaTable(self._uri).optimize.compact(target_size=target_bytes)
        return Compaction(metrics["numFilesRemoved"], metrics["numFilesAdded"])

    def delete_rows(self, offsets: Mapping[TopicPartition, Sequence[Offset]]) -> None:
        """See :class:`Table`."""
        for topic_partition, gone in offsets.items():
            for condition in _conditions(gone):
                DeltaTable(self._uri).delete(
                    f"topic = '{topic_partition.topic}' "
                    f'AND "partition" = {topic_partition.partition} '
                    f"AND ({condition})"
                )

    def expire(self, *, keep_ms: int) -> int:
        """See :class:`Table`; what the log forgets follows ``delta.logRetentionDuration``."""
        table = DeltaTable(self._uri)
        removed = table.vacuum(
            retention_hours=-(-keep_ms // _HOUR_MS),
            dry_run=False,
            enforce_retention_duration=False,
        )
        table.create_checkpoint()
        table.cleanup_metadata()
        return len(removed)


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


def _add_action(file: DataFile, offset_column: str) -> AddAction | RemoveAction:
    stats: dict[str, Any] = {"numRecords": file.rows}
    if file.max_offset >= file.min_offset:
        stats |= {
            "minValues": {offset_column: file.min_offset},
            "maxValues": {offset_column: file.max_offset},
            "nullCount": {offset_column: 0},
        }
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(file.partition_values),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(stats),
    )


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
