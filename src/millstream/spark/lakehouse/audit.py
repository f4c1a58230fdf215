"""Checks that a table has every record of its topic up to the ledger's offsets, each once, and
nothing else.

The offsets in the table's files and in those of its dead letters are read and compared with the
ledger. Offsets missing between the first offset and the ledger's position are then looked up in the
topic: an offset may have no record (a transaction marker, a compacted record, a record of an
aborted transaction), and then nothing is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.model.errors import MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicPartition
from millstream.spark.lakehouse import ledger as ledgers
from millstream.spark.lakehouse.dead_letter_commits import pending
from millstream.spark.lakehouse.intervals import (
    Interval,
    OffsetSet,
    collect,
    gaps,
    size,
    union,
)
from millstream.spark.lakehouse.key_audit import KeyAudit, audit_keys
from millstream.spark.lakehouse.ledger import Ledger
from millstream.spark.lakehouse.registered_columns import place_of_settings
from millstream.spark.lakehouse.table import Table, dead_letters_of, offset_column_of, open_table
from millstream.spark.lakehouse.upserts import read_mode
from millstream.spark.locations.location import Location
from millstream.spark.options import SourceOptions
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import ReadRules, read_range
from millstream.spark.topics import Topics, open_topics

_SHOWN: Final = 5
NO_TOPIC_PARTITION: Final = TopicPartition("", -1)
"""The topic partition of rows without one; not a legal topic name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAudit:
    """The findings for one partition."""

    topic_partition: TopicPartition
    start: Offset
    """The first offset of the load; −1 if nothing is loaded."""
    end: Offset
    """The ledger's position."""
    rows: int
    dead_letters: int
    missing: Sequence[Interval] = ()
    """Offsets of records that are in the topic and not in the table."""
    empty_offsets: int = 0
    """Offsets that belong to no record: markers, compaction, aborted transactions."""
    unverifiable: Sequence[Interval] = ()
    """Offsets that are missing and no longer in the topic."""
    doubled: Sequence[Interval] = ()
    beyond: Sequence[Interval] = ()
    """Offsets in the table that are not covered by the ledger."""
    is_other_topic: bool = False
    """True if the topic was deleted after it was loaded, and another one has its name."""

    @property
    def is_clean(self) -> bool:
        """True when the table holds each record once."""
        wrong = self.missing or self.doubled or self.beyond or self.unverifiable
        return not (wrong or self.is_other_topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The findings for a table."""

    table: str
    partitions: Sequence[PartitionAudit] = field(default=())
    double_references: Sequence[str] = ()
    """Files that the table references more than once (``repair`` fixes that)."""
    missing_files: Sequence[str] = ()
    """Files that the table references and that do not exist."""
    damaged_files: Sequence[str] = ()
    """Files that the table references and that cannot be read."""
    other_rows: int = 0
    """Rows that other loads or other programs wrote into the table; they are not checked."""
    unknown_load: str | None = None
    """The name of the load, if it has no ledger in the table."""
    keys: KeyAudit | None = None
    """The comparison by key, if the table has one row for each."""

    @property
    def rows(self) -> int:
        """Rows in the table."""
        return sum(each.rows for each in self.partitions)

    @property
    def is_clean(self) -> bool:
        """True if nothing is missing or duplicated."""
        if self.double_references or self.missing_files or self.damaged_files or self.unknown_load:
            return False
        if self.keys is not None and not self.keys.is_clean:
            return False
        return all(each.is_clean for each in self.partitions)


def audit(
    options: SourceOptions, table: Table, app_id: str, registry: Mapping[str, str] | None = None
) -> Audit:
    """Compare a table with the topics that it was loaded from.

    ``registry`` are settings ``schema.registry.…``: where the schemas are that records name by id.
    Only a table of the present needs them, whose keys are read again; ConfigError without.
    """
    files = table.files()
    twice = sorted({path for path in files if files.count(path) > 1}) if _has_doubles(files) else []
    absent = [path for path in sorted(set(files)) if not (table.data_directory / path).is_file()]
    damaged: list[str] = []
    mode = read_mode(table.name)
    if mode is not None:
        mode = mode.asking(place_of_settings(registry or {}))
    offsets = table_offsets(table, skip=absent, damaged=damaged)
    dead_letters_table = open_table(dead_letters_of(table.name))
    dead_letters = _dead_letter_offsets(table, dead_letters_table, app_id)
    with open_topics(options) as topics:
        subscribed = topics.topic_partitions(options.subscription)
        topic_ids = topics.ids({topic_partition.topic for topic_partition in subscribed})
        found = {*subscribed, *offsets, *dead_letters} - {NO_TOPIC_PARTITION}
        ledger = Ledger(table.ledger(app_id, ledgers.keys(found)))
        topic_partitions = sorted(
            p for p in found if p in subscribed or ledger.position(p) is not None
        )
        others = {
            p
            for p in topic_partitions
            if not ledger.is_of(p, topic_ids.get(p.topic, ZERO_TOPIC_ID))
        }
        finder = _GapReader(topics, options, others)
        keys = None
        if mode is None:
            partitions = [
                _audit_partition(
                    topic_partition,
                    ledger,
                    offsets.get(topic_partition, OffsetSet()),
                    dead_letters.get(topic_partition, OffsetSet()),
                    finder,
                )
                for topic_partition in topic_partitions
            ]
        else:
            ends = _loaded(topic_partitions, ledger, topics.earliest(topic_partitions), others)
            skip = {*absent, *damaged}
            keys, counts = audit_keys(options, table, mode, ends, dead_letters, skip=skip)
            partitions = [
                _counted_partition(each, ledger, counts, dead_letters, is_other=each in others)
                for each in topic_partitions
            ]
    return Audit(
        table=str(table.name),
        partitions=partitions,
        double_references=twice,
        missing_files=absent,
        damaged_files=damaged,
        other_rows=sum(
            each.count
            for topic_partition, each in offsets.items()
            if topic_partition not in topic_partitions
        ),
        unknown_load=None if ledger.batch else app_id,
        keys=keys,
    )


def _counted_partition(
    topic_partition: TopicPartition,
    ledger: Ledger,
    counts: Mapping[TopicPartition, int],
    dead_letters: Mapping[TopicPartition, OffsetSet],
    *,
    is_other: bool,
) -> PartitionAudit:
    """Return a partition of a table of the present: its keys were compared, not its offsets."""
    return PartitionAudit(
        topic_partition=topic_partition,
        start=ledger.entries.get(ledgers.start_key(topic_partition), 0),
        end=ledger.position(topic_partition) or 0,
        rows=counts.get(topic_partition, 0),
        dead_letters=dead_letters.get(topic_partition, OffsetSet()).count,
        is_other_topic=is_other,
    )


def _loaded(
    topic_partitions: Sequence[TopicPartition],
    ledger: Ledger,
    earliest: Mapping[TopicPartition, Offset],
    others: Collection[TopicPartition],
) -> dict[TopicPartition, tuple[Offset, Offset]]:
    """Return the offsets of each partition that are in the table and still in the topic."""
    return {
        each: (
            max(ledger.entries.get(ledgers.start_key(each), 0), earliest[each]),
            0 if each in others else ledger.position(each) or 0,
        )
        for each in topic_partitions
    }


def _has_doubles(files: Sequence[str]) -> bool:
    return len(set(files)) < len(files)


def _audit_partition(
    topic_partition: TopicPartition,
    ledger: Ledger,
    rows: OffsetSet,
    dead_letters: OffsetSet,
    finder: _GapReader,
) -> PartitionAudit:
    end = ledger.position(topic_partition) or 0
    first = union([rows, dead_letters]).intervals
    start = ledger.entries.get(ledgers.start_key(topic_partition), first[0][0] if first else end)
    dead_letters = _from(dead_letters, start)
    both = union([rows, dead_letters])
    missing: list[Interval] = []
    unverifiable: list[Interval] = []
    empty = 0
    for gap in gaps(both.intervals, start, end):
        found, gone = finder.records_in(topic_partition, gap)
        missing += found
        unverifiable += gone
        empty += gap[1] - gap[0] - size(found) - size(gone)
    beyond = [(max(low, end), high) for low, high in both.intervals if high > end]
    before = [(low, min(high, start)) for low, high in both.intervals if low < start]
    return PartitionAudit(
        topic_partition=topic_partition,
        start=start,
        end=end,
        rows=rows.count,
        dead_letters=dead_letters.count,
        missing=missing,
        empty_offsets=empty,
        unverifiable=unverifiable,
        doubled=both.doubled,
        beyond=[*before, *beyond],
        is_other_topic=topic_partition in finder.others,
    )


def _dead_letter_offsets(
    table: Table, dead_letters: Table, app_id: str
) -> dict[TopicPartition, OffsetSet]:
    """Return the offsets of the dead letters: those in their table, and those that the table's
    commit names and that are not in theirs yet.
    """
    found = table_offsets(dead_letters) if dead_letters.exists() else {}
    manifest = pending(table, dead_letters, app_id)
    for file in manifest.files if manifest is not None else ():
        path = dead_letters.staging_directory / file.path
        for topic_partition, offsets in _file_offsets(path).items():
            found[topic_partition] = union([found.get(topic_partition, OffsetSet()), offsets])
    return found


def _from(offsets: OffsetSet, start: Offset) -> OffsetSet:
    """Return dead letters without those that an earlier load left before ``start``."""
    before = size([(low, min(high, start)) for low, high in offsets.intervals if low < start])
    before += size([(low, min(high, start)) for low, high in offsets.doubled if low < start])
    return OffsetSet(
        [(max(low, start), high) for low, high in offsets.intervals if high > start],
        offsets.count - before,
        [(max(low, start), high) for low, high in offsets.doubled if high > start],
    )


def table_offsets(
    table: Table, *, skip: Sequence[str] = (), damaged: list[str] | None = None
) -> dict[TopicPartition, OffsetSet]:
    """Return the offsets in a table's files, as often as the table references each file.

    Rows without a record's position (written by another program) are counted under
    ``NO_TOPIC_PARTITION``. A file that cannot be read is put into ``damaged``; without that it is a
    MillstreamError.
    """
    found: dict[TopicPartition, list[OffsetSet]] = {}
    skipped = set(skip)
    deleted = table.deleted_rows()
    for path in table.files():
        if path in skipped:
            continue
        try:
            in_file = _file_offsets(table.data_directory / path, deleted.get(path, ()))
        except (pa.ArrowException, OSError) as error:
            if damaged is None:
                raise MillstreamError(f"{path} of {table.name} cannot be read: {error}") from error
            damaged.append(path)
            continue
        for topic_partition, offsets in in_file.items():
            found.setdefault(topic_partition, []).append(offsets)
    return {topic_partition: union(sets) for topic_partition, sets in found.items()}


def _file_offsets(path: Location, deleted: Sequence[int] = ()) -> dict[TopicPartition, OffsetSet]:
    file = pq.ParquetFile(path.open_input())
    offset_column = offset_column_of(file.schema_arrow)
    prefix = offset_column.removesuffix("offset")
    columns = [f"{prefix}topic", f"{prefix}partition", offset_column]
    if not set(columns) <= set(file.schema_arrow.names):
        return {NO_TOPIC_PARTITION: OffsetSet(count=file.metadata.num_rows - len(deleted))}
    found: dict[TopicPartition, list[OffsetSet]] = {}
    gone = np.asarray(deleted, np.int64)
    first = 0
    for rows in file.iter_batches(batch_size=1 << 20, columns=columns):
        positions = np.arange(first, first + rows.num_rows)
        first += rows.num_rows
        batch = rows.filter(pa.array(~np.isin(positions, gone))) if len(gone) else rows
        named = batch.drop_null()
        if len(named) < len(batch):
            others = OffsetSet(count=len(batch) - len(named))
            found.setdefault(NO_TOPIC_PARTITION, []).append(others)
        # Files that other libraries wrote may have view types, which Arrow's kernels do not
        # support.
        topics = named.column(columns[0]).cast(pa.string()).dictionary_encode()
        topic_partitions = named.drop_columns([columns[0]])
        for index, topic in enumerate(topics.dictionary.to_pylist()):
            of_topic = topic_partitions.filter(pc.equal(topics.indices, index))
            partitions = of_topic.column(columns[1])
            for partition in pc.unique(partitions).to_pylist():
                of_one = of_topic.filter(pc.equal(partitions, partition))
                offsets = of_one.column(offset_column).to_numpy(zero_copy_only=False)
                topic_partition = TopicPartition(topic, partition)
                found.setdefault(topic_partition, []).append(collect(offsets.astype(np.int64)))
    return {topic_partition: union(sets) for topic_partition, sets in found.items()}


class _GapReader:
    """Reads the topic at offsets that a table lacks."""

    def __init__(
        self, topics: Topics, options: SourceOptions, others: Collection[TopicPartition]
    ) -> None:
        self.others = others
        """Partitions of topics that were recreated since they were loaded."""
        self._topics = topics
        self._rules = ReadRules.of(options, fail_on_data_loss=False)
        self._earliest: Mapping[TopicPartition, Offset] = {}

    def records_in(
        self, topic_partition: TopicPartition, gap: Interval
    ) -> tuple[list[Interval], list[Interval]]:
        """Return the offsets of ``gap`` that have records, and those that are no longer in the
        log.
        """
        if topic_partition in self.others:
            return [], [gap]
        if topic_partition not in self._earliest:
            self._earliest = {
                **self._earliest,
                **self._topics.earliest([topic_partition]),
            }
        earliest = self._earliest[topic_partition]
        start, end = gap
        gone = [(start, min(end, earliest))] if start < earliest else []
        start = max(start, earliest)
        if start >= end:
            return [], gone
        schema = pa.schema([("offset", pa.int64())])
        sets = [
            collect(batch.column(0).to_numpy())
            for batch in read_range(OffsetRange(topic_partition, start, end), self._rules, schema)
        ]
        return list(union(sets).intervals), gone


def sentences(found: Audit) -> list[str]:
    """Return one line per problem; empty if the table is clean."""
    lines = [f"{path} is referenced more than once" for path in found.double_references]
    lines += [f"{path} is referenced and does not exist" for path in found.missing_files]
    if found.unknown_load is not None:
        lines.append(ledgers.unknown_load(found.unknown_load))
    lines += [f"{path} is referenced and cannot be read" for path in found.damaged_files]
    if found.keys is not None:
        lines += found.keys.sentences()
    for each in found.partitions:
        topic_partition = each.topic_partition
        if each.is_other_topic:
            lines.append(
                f"{topic_partition}: the topic was deleted and created again after it was loaded"
            )
        kinds = (
            ("records of the topic are missing", each.missing),
            ("offsets are missing and gone from the topic", each.unverifiable),
            ("offsets are there more than once", each.doubled),
            ("offsets are there that the ledger does not know", each.beyond),
        )
        for words, intervals in kinds:
            if intervals:
                shown = ", ".join(f"[{low}, {high})" for low, high in intervals[:_SHOWN])
                more = f" and {len(intervals) - _SHOWN} more" if len(intervals) > _SHOWN else ""
                lines.append(f"{topic_partition}: {size(intervals)} {words}: {shown}{more}")
    return lines
