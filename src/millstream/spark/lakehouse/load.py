"""The load: read the table's offsets, read the records after them, commit both together.

One loop loads both the existing records and new ones. Every batch starts from the table's ledger,
so a crash needs no recovery: uncommitted offsets are read again, committed ones never::

    ledger ──► ends of the topics ──► ranges ──► tasks write files ──► one commit: files + ledger
      ▲                                                                        │
      └────────────────────────────────────────────────────────────────────────┘

Records that cannot be read go to a table of their own, which commits first. After a crash between
the two commits, the next batch finds that the dead letters are ahead, and loads exactly the ranges
in between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicPartition
from millstream.spark.lakehouse import ledger as ledgers
from millstream.spark.lakehouse.batching import BatchLimits, SizeEstimate, deal, next_batch
from millstream.spark.lakehouse.columns import (
    EVOLUTIONS,
    NothingToInferError,
    evolve_columns,
    format_spec,
    settle_columns,
)
from millstream.spark.lakehouse.data_files import SUFFIX, DataFile, orphans
from millstream.spark.lakehouse.dead_letter_topic import DeadLetterTopic
from millstream.spark.lakehouse.file_writer import FileRules
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.landing import DEAD_LETTER_COLUMNS, Landed, Landing, land
from millstream.spark.lakehouse.ledger import Ledger
from millstream.spark.lakehouse.pending_start import PendingStart
from millstream.spark.lakehouse.second_load import check_not_loaded
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import (
    ConcurrentLoadError,
    Layout,
    Table,
    dead_letters_of,
    offset_column_of,
    open_table,
)
from millstream.spark.lakehouse.topic_reader import TopicEnds, TopicReader
from millstream.spark.lakehouse.transform import Transform
from millstream.spark.lakehouse.widening import changed_columns
from millstream.spark.options import SourceOptions, check_no_end, load_source, parse_options
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import ReadRules
from millstream.spark.topics import Topics, open_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

Runner = Callable[[Sequence[Sequence[OffsetRange]], Landing], list[Landed]]
"""Runs the tasks of a batch."""

_POLL_MS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The result of one batch."""

    batch: int
    rows: int
    dead_letters: int
    read_bytes: int
    files: int
    behind: int
    """Offsets that were in the topics when the batch was planned and are not in the table."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The next batch of a table."""

    ledger: Ledger
    ranges: Sequence[OffsetRange]
    ends: TopicEnds
    behind: int
    """Offsets that remain after it."""
    started: float

    @property
    def batch(self) -> int:
        """Return its number."""
        return self.ledger.batch + 1


class Loader:
    """One load into one table. ``run`` returns when the topics' ends of its start are in the table,
    or, with ``follow``, when ``should_stop`` returns True. `fan_out` loads the batches of several
    itself: ``prepare``, and then ``plan``, ``tasks``, ``accept``, ``commit`` for each batch.
    """

    def __init__(
        self,
        settings: LoadSettings,
        runner: Runner,
        *,
        on_batch: Callable[[BatchReport], None] = lambda report: None,
        transform: Transform | None = None,
    ) -> None:
        self._settings = settings
        self._runner = runner
        self._on_batch = on_batch
        self._app_id = settings.load_id
        self._options = source_options_of(settings.source)
        self._table = open_table(settings.table)
        self._dead_letters = open_table(dead_letters_of(settings.table))
        self._sizes = SizeEstimate()
        self._limits = BatchLimits(
            batch_bytes=settings.batch_bytes,
            task_bytes=settings.file_bytes * 2,  # a Parquet file is less than half of its log
            parallelism=settings.parallelism,
        )
        self._transform = transform
        self._spec = FormatSpec()
        self._schema = RAW_COLUMNS
        self._orphans_removed = False
        self._pending_start = PendingStart(settings.table, self._app_id)
        self._dead_letter_topic = (
            DeadLetterTopic(
                settings.dead_letters_topic, self._dead_letters, self._app_id, settings.source
            )
            if settings.dead_letters_topic
            else None
        )
        self._maintained = time.monotonic()

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Load. Raises ConfigError, DataLossError, RecreatedTopicError, and the errors of
        reading.
        """
        with open_topics(self._options) as topics:
            reader = TopicReader(topics, self._options)
            while not self.prepare(topics, reader, reader.ends()):
                if not self._settings.follow:
                    raise NothingToInferError
                if should_stop():
                    return
                wait(time.monotonic(), self._settings.freshness_ms, should_stop)
            goal = None if self._settings.follow else reader.ends()
            while not should_stop():
                started = time.monotonic()
                report = self._load_batch(reader, goal)
                if report is not None:
                    self._on_batch(report)
                elif goal is not None:
                    return
                self.maintain_when_due()
                if goal is None and (report is None or not report.behind):
                    wait(started, self._settings.freshness_ms, should_stop)

    # --- before the first batch ------------------------------------------------------------------

    def prepare(self, topics: Topics, reader: TopicReader, ends: TopicEnds) -> bool:
        """Create the table if necessary, with the columns of its format, and commit the starting
        offsets of a new load. Return False while there is no record to infer the columns from; the
        starting offsets are stored even then.
        """
        settings = self._settings
        if self._transform is None:
            try:
                self._spec = format_spec(settings, topics, self._options)
            except NothingToInferError:
                if not self._pending_start.entries(ends):
                    self._pending_start.keep(self._first_entries(reader, ends))
                return False
            if self._table.exists() and self._ledger(self._table, []).batch:
                self._spec = settle_columns(settings, self._spec, self._table)
            self._schema = make_format(self._spec).table_schema()
        else:
            topic_partitions = [OffsetRange(p, end, end) for p, end in ends.latest.items()]
            self._schema = self._transform.schema(topic_partitions)
        _check_event_time(settings, self._schema)
        self._table.create(
            Layout(
                schema=self._schema,
                event_time=settings.event_time,
                partition_column=settings.partition_column,
            )
        )
        self._remember_start(reader, ends)
        for topic_partition, size_bytes in topics.sizes(ends.topic_partitions).items():
            offsets = ends.latest[topic_partition] - ends.earliest[topic_partition]
            self._sizes.expect(topic_partition.topic, offsets=offsets, size_bytes=size_bytes)
        if self._dead_letter_topic is not None:
            self._dead_letter_topic.send()  # dead letters that a crashed load has not sent
        return True

    def _remember_start(self, reader: TopicReader, ends: TopicEnds) -> None:
        """Commit the starting offsets of a new load before it reads: "latest" changes later."""
        ledger = self._ledger(self._table, ends.topic_partitions)
        if not ledger.batch and ends.topic_partitions:
            if not self._settings.app_id:
                check_not_loaded(
                    self._table,
                    {topic_partition.topic for topic_partition in ends.topic_partitions},
                )
            entries = self._pending_start.entries(ends) or self._first_entries(reader, ends)
            self._table.commit(self._app_id, entries, [], expected={})
        self._pending_start.drop()

    @staticmethod
    def _first_entries(reader: TopicReader, ends: TopicEnds) -> dict[str, int]:
        starts = [OffsetRange(p, offset, offset) for p, offset in reader.starts(ends).items()]
        return ledgers.after(Ledger({}), starts, ends.topic_ids)

    # --- one batch -------------------------------------------------------------------------------

    def _load_batch(self, reader: TopicReader, goal: TopicEnds | None) -> BatchReport | None:
        """Land and commit the next batch; None when there is nothing to land."""
        plan = self.plan(reader, reader.ends(), goal)
        return None if plan is None else self.commit(plan, self._land(plan), reader)

    def plan(self, reader: TopicReader, ends: TopicEnds, goal: TopicEnds | None) -> Plan | None:
        """Return the next batch, up to ``goal``; None if the table is up to date."""
        started = time.monotonic()
        latest = dict(ends.latest)
        if goal is not None:
            latest = {p: min(end, latest[p]) for p, end in goal.latest.items() if p in latest}
        ledger = self._ledger(self._table, list(latest))
        positions = self._positions(reader, ledger, ends, latest)
        ranges = self._pending(positions, ends) or next_batch(
            positions, latest, self._sizes, self._limits
        )
        if not ranges:
            return None
        behind = sum(latest.values()) - sum(positions.values()) - sum(each.size for each in ranges)
        return Plan(ledger, ranges, ends, max(behind, 0), started)

    def _positions(
        self,
        reader: TopicReader,
        ledger: Ledger,
        ends: TopicEnds,
        latest: Mapping[TopicPartition, Offset],
    ) -> dict[TopicPartition, Offset]:
        positions = {}
        for topic_partition in latest:
            topic_id = ends.topic_ids.get(topic_partition.topic)
            if topic_id is not None:
                ledger.check_topic(topic_partition, topic_id, self._table.name)
            known = ledger.position(topic_partition)
            # A partition that is new since the load began is read from its first record on.
            start = ends.earliest[topic_partition] if known is None else known
            positions[topic_partition] = reader.check(topic_partition, start, ends)
        return positions

    def _pending(
        self, positions: Mapping[TopicPartition, Offset], ends: TopicEnds
    ) -> list[OffsetRange]:
        """Return the ranges whose dead letters are committed and whose rows are not.

        RecreatedTopicError if the dead letters are those of a deleted table.
        """
        if not self._dead_letters.exists():
            return []
        dead_letters = self._ledger(self._dead_letters, list(positions))
        ranges = [
            OffsetRange(topic_partition, start, end)
            for topic_partition, start in sorted(positions.items())
            if (end := dead_letters.position(topic_partition)) is not None and end > start
        ]
        for each in ranges:
            topic_partition = each.topic_partition
            topic_id = ends.topic_ids.get(topic_partition.topic, ZERO_TOPIC_ID)
            dead_letters.check_topic(topic_partition, topic_id, self._dead_letters.name)
        return ranges

    def tasks(self, plan: Plan) -> tuple[list[list[OffsetRange]], Landing]:
        """Return the ranges of each task of a batch, and the tasks' parameters."""
        return deal(plan.ranges, self._sizes, self._limits), self._landing(plan.batch)

    def is_small(self, plan: Plan) -> bool:
        """Tell whether a batch is landed by the driver: a Spark job would cost more."""
        return sum(map(self._sizes.size, plan.ranges)) <= self._settings.driver_bytes

    def accept(self, plan: Plan, landed: Sequence[Landed]) -> bool:
        """Accept the results of the tasks. Return False if values need columns that the table did
        not have: they are added now, and the tasks have to run again.
        """
        wider = [each.wider for each in landed if each.wider is not None]
        if not wider:
            self._learn(plan.ranges, landed)
            return True
        self._evolve(wider, landed)
        self._orphans_removed = False
        return False

    def _land(self, plan: Plan) -> list[Landed]:
        """Run the batch's tasks, again with more columns where values need them."""
        if self._transform is not None:
            rules = self._file_rules(plan.batch)
            return [self._transform.land(plan.ranges, rules, self._schema)]
        for _ in range(EVOLUTIONS):
            tasks, landing = self.tasks(plan)
            if len(tasks) == 1 and self.is_small(plan):
                landed = [land(tasks[0], landing, 0)]
            else:
                landed = self._runner(tasks, landing)
            if self.accept(plan, landed):
                return landed
        raise ConfigError(f"{self._table.name}: the columns changed {EVOLUTIONS} times in a batch")

    def _learn(self, ranges: Sequence[OffsetRange], landed: Sequence[Landed]) -> None:
        for topic in {each.topic_partition.topic for each in ranges}:
            offsets = sum(each.size for each in ranges if each.topic_partition.topic == topic)
            size_bytes = sum(each.read_bytes.get(topic, 0) for each in landed)
            self._sizes.learn(topic, offsets=offsets, size_bytes=size_bytes)

    def _evolve(self, wider: Sequence[pa.Schema], landed: Sequence[Landed]) -> None:
        """Add the columns that its values need to the table."""
        staged = self._table.staging_directory
        files = [staged / file.path for each in landed for file in each.files]
        self._spec = evolve_columns(self._settings, self._spec, self._table, wider, files)
        self._schema = make_format(self._spec).table_schema()

    def _file_rules(self, batch: int) -> FileRules:
        settings = self._settings
        partitioned = settings.event_time is not None and self._table.keeps_partition_column
        return FileRules(
            app_id=self._app_id,
            batch=batch,
            directory=str(self._table.staging_directory),
            target_bytes=settings.file_bytes,
            offset_column=offset_column_of(self._schema),
            event_time=settings.event_time,
            partition_column=settings.partition_column if partitioned else None,
            calendar_only=not self._table.keeps_partition_column,
        )

    def _landing(self, batch: int) -> Landing:
        settings, options = self._settings, self._options
        dead_letters = FileRules(
            app_id=self._app_id,
            batch=batch,
            directory=str(self._dead_letters.staging_directory),
            target_bytes=settings.file_bytes,
            offset_column="offset",
            calendar_only=not self._dead_letters.keeps_partition_column,
        )
        return Landing(
            read=ReadRules.of(options),
            format=self._spec,
            files=self._file_rules(batch),
            dead_letters=dead_letters
            if settings.dead_letters and settings.format != "raw"
            else None,
        )

    def maintain_when_due(self) -> None:
        """Maintain the table at the interval of the settings, if the load follows."""
        every_ms = self._settings.maintain_every_ms
        if every_ms is None or not self._settings.follow:
            return
        if time.monotonic() < self._maintained + every_ms / 1000:
            return
        from millstream.spark.lakehouse.maintain import maintain

        for table in (self._table, self._dead_letters):
            if table.exists():
                done = maintain(table, self._app_id, target_bytes=self._settings.file_bytes)
                log.info("%s: maintained: %s", table.name, done)
        self._maintained = time.monotonic()

    # --- commits ---------------------------------------------------------------------------------

    def _ledger(self, table: Table, topic_partitions: Sequence[TopicPartition]) -> Ledger:
        return Ledger(table.ledger(self._app_id, ledgers.keys(topic_partitions)))

    def commit(self, plan: Plan, landed: Sequence[Landed], reader: TopicReader) -> BatchReport:
        """Commit the files of a batch to the table, after its dead letters."""
        dead_letters = [file for each in landed for file in each.dead_letters]
        if dead_letters:
            self._commit_dead_letters(plan, dead_letters)
            if self._dead_letter_topic is not None:
                named = set(self._dead_letters.files())
                self._dead_letter_topic.send(
                    each.path for each in dead_letters if each.path in named
                )
        files = [file for each in landed for file in each.files]
        if files and any(changed_columns(self._table.schema(), self._schema)):
            raise ConcurrentLoadError(f"{self._table.name}: another load has changed its columns")
        self._commit(self._table, plan.ledger, plan.ranges, plan.ends, files)
        self._after_commit(reader, plan)
        return BatchReport(
            batch=plan.batch,
            rows=sum(each.rows for each in landed),
            dead_letters=sum(each.rejected for each in landed),
            read_bytes=sum(sum(each.read_bytes.values()) for each in landed),
            files=sum(len(each.files) for each in landed),
            behind=plan.behind,
            seconds=time.monotonic() - plan.started,
        )

    def _commit_dead_letters(self, plan: Plan, dead_letters: Sequence[DataFile]) -> None:
        """Commit the dead letters of a batch, unless a crashed load has committed them.

        ConcurrentLoadError if only some of them are committed: another load is running, with other
        ranges.
        """
        self._dead_letters.create(Layout(schema=DEAD_LETTER_COLUMNS))
        known = self._ledger(self._dead_letters, [each.topic_partition for each in plan.ranges])
        reached = {each: known.position(each.topic_partition) or 0 for each in plan.ranges}
        if all(position >= each.end for each, position in reached.items()):
            return
        if any(position > each.start for each, position in reached.items()):
            raise ConcurrentLoadError(f"{self._dead_letters.name}: another load has committed")
        numbered = Ledger({**known.entries, ledgers.BATCH: plan.ledger.batch})
        entries = ledgers.after(numbered, plan.ranges, plan.ends.topic_ids)
        expected = {key: known.entries[key] for key in entries if key in known.entries}
        self._dead_letters.commit(self._app_id, entries, dead_letters, expected=expected)

    def _commit(
        self,
        table: Table,
        ledger: Ledger,
        ranges: Sequence[OffsetRange],
        ends: TopicEnds,
        files: Sequence[DataFile],
    ) -> None:
        entries = ledgers.after(ledger, ranges, ends.topic_ids)
        expected = {key: ledger.entries[key] for key in entries if key in ledger.entries}
        table.commit(self._app_id, entries, files, expected=expected)

    def _after_commit(self, reader: TopicReader, plan: Plan) -> None:
        if not self._orphans_removed:
            self._orphans_removed = True
            for table in (self._table, self._dead_letters):
                if table.exists():
                    remove_orphans(table, self._app_id, batch=plan.batch)
        if self._settings.group:
            positions = {each.topic_partition: each.end for each in plan.ranges}
            reader.commit_to_group(self._settings.group, positions)


def remove_orphans(table: Table, app_id: str, *, batch: int) -> list[str]:
    """Remove files of batches up to ``batch`` that no commit references; return their paths."""
    root = table.staging_directory
    names = [str(path.relative_to(root)) for path in root.rglob(f"millstream-*{SUFFIX}")]
    found = orphans(app_id, batch=batch, names=names, referenced=table.retained())
    for name in found:
        (root / name).unlink(missing_ok=True)
    if found:
        log.info("%s: removed %d files of crashed batches", table.name, len(found))
    return found


def source_options_of(source: Mapping[str, str]) -> SourceOptions:
    """Read the options of a load's source: by default committed records, from the earliest ones."""
    given = load_source(source)
    names = {name.lower() for name in given}
    if not names & {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"}:
        given["startingOffsets"] = "earliest"
    options = parse_options(given, streaming=True)
    check_no_end(options)
    return options


def _check_event_time(settings: LoadSettings, schema: pa.Schema) -> None:
    column = settings.event_time
    if column is None:
        return
    if schema.get_field_index(column) < 0 or not pa.types.is_timestamp(schema.field(column).type):
        times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
        raise ConfigError(
            f"the event time has to be a timestamp column, one of {', '.join(times)}, "
            f"not {column!r}"
        )
    day = settings.partition_column
    if day.casefold() in (name.casefold() for name in schema.names):
        raise ConfigError(
            f"there is a column {day} already: name that of the days otherwise (partition column)"
        )


def wait(started: float, freshness_ms: int, should_stop: Callable[[], bool]) -> None:
    """Wait until half of the freshness has passed since ``started``, so that a batch has more
    records.
    """
    deadline = started + freshness_ms / 2000
    while not should_stop() and (rest := deadline - time.monotonic()) > 0:
        time.sleep(min(rest, _POLL_MS / 1000))


def spark_runner(spark: SparkSession) -> Runner:
    """Return a runner that runs the tasks on Spark."""
    from millstream.spark.lakehouse.landing import land_on_spark

    return lambda tasks, landing: land_on_spark(spark, tasks, landing)


def local_runner(tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
    """Run the tasks one after the other in this process, without Spark."""
    return [land(ranges, landing, number) for number, ranges in enumerate(tasks)]
