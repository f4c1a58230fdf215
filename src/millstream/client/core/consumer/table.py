"""Converts fetched batches to tables, and finds the error in unreadable ones."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from millstream.client.core.consumer.errors import CorruptRecordError, RecordError
from millstream.client.core.consumer.fetched import Fetched
from millstream.client.core.consumer.record_reader import RecordReader
from millstream.model.errors import MillstreamError
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset
from millstream.records.batch import iter_batches
from millstream.records.tables import FetchedBatches, table_from_batches, table_schema


@dataclass(frozen=True, slots=True)
class Rest:
    """What a table left of a fetch: the records from ``offset`` on."""

    fetched: Fetched
    offset: Offset
    epoch: LeaderEpoch
    """The leader epoch of the record before it."""


class TableReader:
    """Collects the rows of one table."""

    def __init__(self, columns: Sequence[str] | None, *, check_crcs: bool) -> None:
        """Select all columns, or those named; ValueError for an unknown one."""
        schema = table_schema()
        if columns is not None:
            unknown = [name for name in columns if name not in schema.names]
            if unknown:
                have = ", ".join(schema.names)
                raise ValueError(f"there is no column {unknown[0]!r}; columns: {have}")
            schema = pa.schema([schema.field(name) for name in columns])
        self._schema = schema
        self._check_crcs = check_crcs
        self._tables: list[pa.Table] = []
        self._last: tuple[Fetched, FetchedBatches] | None = None
        """The last fetch, and what of it was read."""
        self.rows = 0
        self.size = 0
        """Bytes that were fetched for these rows."""

    def add(self, fetched: Fetched) -> RecordError | None:
        """Add the rows of a fetch; return the error that ended them early, if any."""
        topic_partition = fetched.topic_partition
        batches = FetchedBatches(
            topic_partition.topic,
            topic_partition.partition,
            [fetched.data],
            start_offset=fetched.fetch_offset,
            aborted=fetched.aborted,
        )
        error: RecordError | None = None
        try:
            table = table_from_batches([batches], self._schema, check_crcs=self._check_crcs)
        except (MillstreamError, ValueError) as damage:
            error = self._find_error(fetched, damage)
            batches = replace(batches, data=[self._sound_part(fetched.data, error.offset)])
            table = table_from_batches([batches], self._schema, check_crcs=self._check_crcs)
        self.size += len(fetched.data)
        self._last = fetched, batches
        if table.num_rows:
            self.rows += table.num_rows
            self._tables.append(table)
        return error

    def table(self) -> pa.Table:
        """Return all rows taken."""
        return pa.concat_tables(self._tables) if self._tables else self._schema.empty_table()

    def cut(self, most: int) -> Rest | None:
        """Leave the rows after the first ``most`` out; return the part of the last fetch that they
        are, None if there are no more rows than that.
        """
        surplus = self.rows - most
        if surplus <= 0 or self._last is None:
            return None
        last = self._tables.pop()
        kept = last.num_rows - surplus
        assert kept > 0, "only the last fetch may be cut"
        self._tables.append(last.slice(0, kept))
        self.rows = most
        fetched, batches = self._last
        schema = pa.schema([table_schema().field("offset")])
        offset: Offset = table_from_batches([batches], schema, check_crcs=False)["offset"][
            kept
        ].as_py()
        return Rest(fetched, offset, _epoch_before(fetched.data, offset))

    def _find_error(self, fetched: Fetched, damage: Exception) -> RecordError:
        """Decode record by record up to the error."""
        reader: RecordReader[bytes, bytes] = RecordReader(check_crcs=self._check_crcs)
        found = reader.read(fetched).error
        if found is None:
            topic_partition = fetched.topic_partition
            return CorruptRecordError(topic_partition, fetched.fetch_offset, str(damage))
        return found

    def _sound_part(self, data: memoryview, offset: Offset) -> memoryview:
        """Return the whole batches before the one with ``offset``, even if that one is damaged."""
        position = 0
        with contextlib.suppress(MillstreamError):
            for batch in iter_batches(data):
                if batch.next_offset > offset or (self._check_crcs and not batch.is_valid):
                    break
                position += batch.size
        return data[:position]


def _epoch_before(data: memoryview, offset: Offset) -> LeaderEpoch:
    epoch = NO_LEADER_EPOCH
    for batch in iter_batches(data):
        if batch.base_offset >= offset:
            break
        epoch = batch.partition_leader_epoch
    return epoch
