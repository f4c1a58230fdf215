"""Writes record batches to Parquet files of about the configured size, one set of files per
partition of the table: per day, or per value of its transforms (``partition_by``).

Rows are buffered until a row group is large enough: writing batch by batch would create row groups
of ten thousand rows, which are slow to read. A file is complete once it is closed and synced.

However many days the records of a task fall on and however they are mixed, a day has one file of
the task, or files of the configured size: rows wait in memory until they fill a row group or, in
all, ``WAITING_BYTES``; then those of the fullest day are written. At most ``_MOST_OPEN_FILES``
files are open; if there are more, the largest one is closed, and its day may get another one.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.data_files import DataFile, file_name
from millstream.spark.lakehouse.formats.format import FIRST_TIME_US, LAST_TIME_US
from millstream.spark.lakehouse.parquet_options import parquet_options
from millstream.spark.lakehouse.partition_rows import by_partition
from millstream.spark.lakehouse.partitioning import PartitionField
from millstream.spark.lakehouse.sorting import SortField, in_order
from millstream.spark.locations.location import Location, as_location

ROW_GROUP_BYTES: Final = 96 << 20
"""Bytes of Arrow data in one row group, which is what a task buffers in memory."""

DAY_ROW_GROUP_BYTES: Final = 32 << 20
"""The same for each open day, if the table is split by day."""

_EPOCH: Final = date(1970, 1, 1)
_DAY_US: Final = 86_400_000_000
_FIRST_DAY: Final = FIRST_TIME_US // _DAY_US
_LAST_DAY: Final = LAST_TIME_US // _DAY_US

WAITING_BYTES: Final = 256 << 20
"""Bytes of Arrow data of all days that wait for their row groups."""
_MOST_OPEN_FILES: Final = 16
MOST_PARTITIONS: Final = 10_000
"""The most partitions of ``partition_by`` that the records of one task may fall into."""
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""The directory of rows without an event time (Hive's name)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRules:
    """The parameters of writing files; sent to the executors."""

    app_id: str
    batch: int
    directory: Location
    target_bytes: int
    offset_column: str
    event_time: str | None = None
    partition_by: Sequence[PartitionField] = ()
    """Transforms that split the table, instead of the day of ``event_time`` (Iceberg)."""
    sort_by: Sequence[SortField] = ()
    """The order of the rows in each file. Then a file has one row group: that of a larger file
    would have to wait in memory as a whole.
    """
    partition_column: str | None = None
    """The partition column in the path; None if the table has none (Iceberg)."""
    calendar_only: bool = False
    """True if the table's library does not support times outside of the years 1 to 9999 (Iceberg):
    they become null.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", as_location(self.directory))


@dataclass(slots=True)
class _Open:
    """An open file, and the rows buffered for its next row group."""

    path: str
    file: pa.NativeFile | None = None
    writer: pq.ParquetWriter | None = None
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    rows: int = 0
    min_offset: int = 2**63 - 1
    max_offset: int = -1


class FileWriter:
    """Writes the rows of one task."""

    def __init__(self, rules: FileRules, schema: pa.Schema, task: int) -> None:
        self._rules = rules
        self._schema = schema
        self._task = task
        is_whole = rules.event_time is None and not rules.partition_by
        self._group_bytes = ROW_GROUP_BYTES if is_whole else DAY_ROW_GROUP_BYTES
        self._open: dict[Hashable, _Open] = {}
        self._partitions: set[Hashable] = set()
        self._waiting_bytes = 0
        self._finished: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows with the table's columns."""
        if not batch.num_rows:
            return
        if self._rules.calendar_only:
            batch = _on_the_calendar(batch)
        if self._rules.partition_by:
            for values, rows in by_partition(batch, self._rules.partition_by):
                self._count(values)
                self._write(values, rows)
            return
        for day, rows in self._by_day(batch):
            self._write(day, rows)

    def _count(self, values: Hashable) -> None:
        """Raise ConfigError for a partition too many: each one has a file of each batch."""
        self._partitions.add(values)
        if len(self._partitions) > MOST_PARTITIONS:
            raise ConfigError(
                f"the records of one task fall into more than {MOST_PARTITIONS:,} partitions of "
                f"{', '.join(map(str, self._rules.partition_by))}, and each would be a file: "
                "use coarser ones, such as bucket(16, COLUMN) or day(COLUMN)"
            )

    def finish(self) -> list[DataFile]:
        """Close the open files and return all files."""
        for day in list(self._open):
            self._close(day)
        return self._finished

    def _by_day(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        event_time = self._rules.event_time
        if event_time is None:
            yield None, batch
            return
        days = batch.column(event_time).cast(pa.date32(), safe=False).cast(pa.int32())
        order = pc.array_sort_indices(days).to_numpy()  # stable; nulls last
        ordered = days.take(pa.array(order))
        runs = pc.run_end_encode(ordered)
        start = 0
        for day, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            # Copied: a slice would keep the whole batch while its day waits.
            rows = batch if end - start == len(batch) else batch.take(pa.array(order[start:end]))
            yield self._day(day), rows
            start = end

    def _day(self, day: int | None) -> str:
        """Return the name of a day, counted from 1970 on; days outside of the calendar have no
        name.

        If the day is not in the path (Iceberg), a file still has the rows of one day only.
        """
        if day is not None and _FIRST_DAY <= day <= _LAST_DAY:
            return (_EPOCH + timedelta(days=day)).isoformat()
        return _NO_DAY if day is None or self._rules.partition_column is not None else str(day)

    def _write(self, day: Hashable, batch: pa.RecordBatch) -> None:
        current = self._open.get(day)
        if current is None:
            current = self._open[day] = _Open(self._path(day))
        current.waiting.append(batch)
        current.waiting_bytes += batch.nbytes
        self._waiting_bytes += batch.nbytes
        ends = pc.min_max(batch.column(self._rules.offset_column))
        current.min_offset = min(current.min_offset, ends["min"].as_py())
        current.max_offset = max(current.max_offset, ends["max"].as_py())
        if current.waiting_bytes >= self._group_bytes:
            self._write_full(day)
        elif self._waiting_bytes >= WAITING_BYTES:
            self._write_full(max(self._open, key=lambda each: self._open[each].waiting_bytes))

    def _write_full(self, day: Hashable) -> None:
        """Write the waiting rows of a day, and close a file: its own if it is large enough, the
        largest one if too many are open.
        """
        current = self._open[day]
        self._write_group(current)
        assert current.file is not None
        if self._rules.sort_by or current.file.tell() >= self._rules.target_bytes:
            self._close(day)
        sizes = {each: file.tell() for each, open_ in self._open.items() if (file := open_.file)}
        if len(sizes) > _MOST_OPEN_FILES:
            self._close(max(sizes, key=sizes.__getitem__))

    def _path(self, day: Hashable) -> str:
        name = file_name(
            self._rules.app_id,
            batch=self._rules.batch,
            task=self._task,
            attempt=secrets.token_hex(4),
        )
        column = self._rules.partition_column
        return name if day is None or column is None else f"{column}={day}/{name}"

    def _write_group(self, current: _Open) -> None:
        table = in_order(
            pa.Table.from_batches(current.waiting, schema=self._schema), self._rules.sort_by
        )
        if current.writer is None:
            current.file = (self._rules.directory / current.path).open_output()
            current.writer = pq.ParquetWriter(current.file, self._schema, **parquet_options(table))
        current.writer.write_table(table, row_group_size=table.num_rows)
        current.rows += table.num_rows
        self._waiting_bytes -= current.waiting_bytes
        current.waiting, current.waiting_bytes = [], 0

    def _close(self, day: Hashable) -> None:
        current = self._open.pop(day)
        if current.waiting:
            self._write_group(current)
        assert current.writer is not None
        assert current.file is not None
        current.writer.close()
        current.file.flush()
        size = current.file.tell()
        current.file.close()
        (self._rules.directory / current.path).settle()
        column = self._rules.partition_column
        self._finished.append(
            DataFile(
                path=current.path,
                size_bytes=size,
                rows=current.rows,
                partition_values={}
                if day is None or column is None
                else {column: None if day == _NO_DAY else str(day)},
                min_offset=current.min_offset,
                max_offset=current.max_offset,
            )
        )


def _on_the_calendar(batch: pa.RecordBatch) -> pa.RecordBatch:
    for index, column in enumerate(batch.schema):
        if not pa.types.is_timestamp(column.type):
            continue
        micros = batch.column(index).cast(pa.int64())
        ends = pc.min_max(micros)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is not None and (low < FIRST_TIME_US or high > LAST_TIME_US):
            known = pc.and_(
                pc.greater_equal(micros, FIRST_TIME_US), pc.less_equal(micros, LAST_TIME_US)
            )
            times = pc.if_else(known, batch.column(index), pa.scalar(None, column.type))
            batch = batch.set_column(index, column, times)
    return batch
