"""One topic as a table of a query: its columns, and the scans that DuckDB makes of it.

DuckDB reads a ``pyarrow.dataset.Dataset`` by asking it for a scanner with the columns that it needs
and the condition that it leaves to the scan. It does not evaluate that condition again, so a scan
applies all of it, and, before that, reads only where it may be true.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from millstream.model.errors import MillstreamError
from millstream.model.topic import ZERO_TOPIC_ID
from millstream.query.formats import ChosenFormat
from millstream.query.predicate import PositionColumns, region_of
from millstream.query.pushdown import TopicEnds, ranges_of, times_of
from millstream.query.region import ANY, Region
from millstream.query.rejects import Rejects
from millstream.query.settings import QuerySettings
from millstream.query.source_columns import (
    RAW_TABLE,
    filled,
    needed_columns,
    raw_rows,
    read_schema,
    within,
)
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.widening import changed_columns
from millstream.spark.options import SourceOptions
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import RangeReader, ReadRules
from millstream.spark.topics import Topics

_POSITION: Final = PositionColumns("_partition", "_offset", "_timestamp")


class WiderColumnsError(MillstreamError):
    """Values need wider types than the columns have; a query begins again with ``columns``."""

    def __init__(self, topic: str, columns: pa.Schema, changed: Sequence[pa.Field]) -> None:
        names = ", ".join(f"{each.name} {each.type}" for each in changed)
        super().__init__(
            f"records of {topic} need wider columns than its first ones: {names} "
            "(--schema FILE states columns)"
        )
        self.topic = topic
        self.columns = columns


@dataclass(slots=True, eq=False)
class Scan:
    """One scan of a topic, and what it has read so far."""

    condition: pc.Expression | None
    region: Region
    ranges: Sequence[OffsetRange]
    rejects: Rejects
    records: int = 0
    read_bytes: int = 0

    @property
    def offsets(self) -> int:
        """Return how many offsets are to be read."""
        return sum(each.size for each in self.ranges)


@dataclass(slots=True, eq=False, kw_only=True)
class TopicTable:
    """A topic, as it was when the query began."""

    name: str
    ends: TopicEnds
    options: SourceOptions
    topics: Topics
    format: ChosenFormat
    settings: QuerySettings
    is_dry: bool = False
    """True: scans are planned and read nothing."""
    scans: list[Scan] = field(default_factory=list)
    failure: BaseException | None = None
    """What a scan raised: DuckDB hands on its text alone."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: list[Generator[pa.RecordBatch, None, None]] = field(default_factory=list)

    @property
    def spec(self) -> FormatSpec:
        """Return the format's parameters."""
        return self.format.spec

    def schema(self) -> pa.Schema:
        """Return the columns."""
        return RAW_TABLE if self.spec.kind == "raw" else make_format(self.spec).table_schema()

    def widen(self, columns: pa.Schema) -> None:
        """Use wider columns from now on."""
        self.format = replace(self.format, spec=replace(self.spec, columns=columns))
        self.begin()

    def begin(self) -> None:
        """Forget the scans: the query begins again."""
        self.close()
        self.scans = []
        self.failure = None

    def close(self) -> None:
        """Close the connections of scans that were not read to their end."""
        for each in self._open:
            with suppress(ValueError):  # it runs on another thread, which is being stopped
                each.close()
        self._open = []

    def scan(
        self, columns: Sequence[str] | None, condition: pc.Expression | None
    ) -> pa.RecordBatchReader:
        """Plan a scan, and return its reader."""
        schema = self.schema()
        chosen = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        try:
            with self._lock:
                scan = self._plan(condition)
        except BaseException as error:
            self.failure = error
            raise
        batches = self._read(scan, schema, chosen)
        self._open.append(batches)
        return pa.RecordBatchReader.from_batches(chosen, batches)

    def _plan(self, condition: pc.Expression | None) -> Scan:
        region = region_of(condition, _POSITION)
        lateness_ms = self.settings.lateness_ms
        ranges = ranges_of(region, self.ends, self.topics, lateness_ms=lateness_ms)
        topic_id = self.topics.ids([self.name]).get(self.name, ZERO_TOPIC_ID)
        rejects = Rejects(self.name, self.settings.max_rejects)
        ranges = [replace(each, topic_id=topic_id) for each in ranges]
        scan = Scan(condition, region, ranges, rejects)
        self.scans.append(scan)
        return scan

    def _read(
        self, scan: Scan, schema: pa.Schema, chosen: pa.Schema
    ) -> Generator[pa.RecordBatch, None, None]:
        if self.is_dry:
            return
        try:
            yield from self._rows(scan, schema, chosen)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.failure = self.failure or error
            raise

    def _rows(self, scan: Scan, schema: pa.Schema, chosen: pa.Schema) -> Iterator[pa.RecordBatch]:
        form = make_format(self.spec)
        has_times = any(box.times != ANY for box in scan.region)
        needed = needed_columns(schema, chosen.names, scan.condition)
        wanted = read_schema(self.spec, needed, has_times=has_times)
        rules = ReadRules.of(self.options)
        with RangeReader(rules) as reader:
            for each in scan.ranges:
                times = times_of(scan.region, each.topic_partition)
                for found in reader.read(each, wanted):
                    scan.records += len(found)
                    scan.read_bytes = reader.read_bytes
                    batch = within(found, times)
                    if self.spec.kind == "raw":
                        batch = raw_rows(batch, needed)
                    else:
                        decoded = form.decode(filled(batch))
                        self._check_width(decoded.wider)
                        scan.rejects.add(len(batch), decoded.rejected)
                        batch = decoded.rows
                    if scan.condition is not None:
                        batch = batch.filter(scan.condition)
                    if len(batch):
                        yield batch.select(chosen.names)
        scan.rejects.judge()

    def _check_width(self, wider: pa.Schema | None) -> None:
        """Raise WiderColumnsError if columns have to be wider; new ones are of no use to a query
        that is bound to those there were.
        """
        if wider is None:
            return
        known = self.spec.columns
        columns = pa.schema([wider.field(name) for name in known.names])
        changed = changed_columns(known, columns)[1]
        if changed:
            raise WiderColumnsError(self.name, columns, changed)


class TopicDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """What DuckDB is given for a topic."""

    def __init__(self, table: TopicTable) -> None:
        self._topic_table = table

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._topic_table.schema()

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        **_: Any,
    ) -> TopicScanner:
        """Return what reads these columns where the condition is true."""
        return TopicScanner(self._topic_table, columns, filter)


@dataclass(frozen=True, slots=True)
class TopicScanner:
    """A scan that has not begun."""

    table: TopicTable
    columns: Sequence[str] | None
    condition: pc.Expression | None

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns of the rows."""
        schema = self.table.schema()
        names = schema.names if self.columns is None else self.columns
        return pa.schema([schema.field(name) for name in names])

    def to_reader(self) -> pa.RecordBatchReader:
        """Begin."""
        return self.table.scan(self.columns, self.condition)
