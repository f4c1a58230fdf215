"""The load: read the table's offsets, read the records after them, commit both together.

One loop loads both the existing records and new ones. Every batch starts from the table's ledger,
so a crash needs no recovery: uncommitted offsets are read again, committed ones never::

    ledger ──► ends of the topics ──► ranges ──► tasks write files ──► one commit: files + ledger
      ▲                                                                        │
      └────────────────────────────────────────────────────────────────────────┘

Records that cannot be read go to a table of their own. The table's commit names them, and theirs
follows from it, after a crash too (``dead_letter_commits``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
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
from millstream.spark.lakehouse.dead_letter_commits import DeadLetterCommits
from millstream.spark.lakehouse.dead_letter_topic import DeadLetterTopic
from millstream.spark.lakehouse.file_writer import FileRules
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.landing import Landed, Landing, land
from millstream.spark.lakehouse.ledger import REJECTS, Ledger
from millstream.spark.lakehouse.parallelism import cores, run_in_threads
from millstream.spark.lakehouse.partitioning import check_partition_by
from millstream.spark.lakehouse.pending_start import PendingStart
from millstream.spark.lakehouse.reject_limit import add_reasons
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
from millstream.spark.lakehouse.upserts import Upserts, check_appends, partition_counts
from millstream.spark.lakehouse.widening import changed_columns
from millstream.spark.lakehouse.written_files import WrittenFileError, check_written
from millstream.spark.leader_epochs import join
from millstream.spark.options import SourceOptions, check_no_end, load_source, parse_options
from millstream.spark.plan import DataLossError
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
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why records are dead letters, and how many."""


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
        parallelism: Callable[[], int] = cores,
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
            batch_bytes=settings.batch_limit,
            task_bytes=settings.file_bytes * 2,  # a Parquet file is less than half of its log
        )
        self._parallelism = parallelism
        self._transform = transform
        self._upserts = Upserts(settings) if settings.is_upsert else None
        self._spec = FormatSpec()
        self._schema = RAW_COLUMNS
        self._orphans_removed = False
        self._pending_start = PendingStart(settings.table, self._app_id)
        self._rejects = DeadLetterCommits(self._dead_letters, self._app_id)
        self._rejected = 0
        self._trimmed: set[TopicPartition] = set()
        self._checked_epochs: dict[TopicPartition, LeaderEpoch] = {}
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
        check_event_time(settings, self._schema)
        if self._upserts is None:
            check_appends(self._table)
        else:
            self._upserts.prepare(self._spec, self._schema)
        self._table.create(
            Layout(
                schema=self._schema,
                event_time=settings.event_time,
                partition_column=settings.partition_column,
                partition_by=settings.partition_by,
                properties=settings.table_properties,
            )
        )
        self._remember_start(reader, ends)
        for topic_partition, size_bytes in topics.sizes(ends.topic_partitions).items():
            offsets = ends.latest[topic_partition] - ends.earliest[topic_partition]
            self._sizes.expect(topic_partition.topic, offsets=offsets, size_bytes=size_bytes)
        self._settle_dead_letters(reader, ends, self._ledger(self._table, ends.topic_partitions))
        if self._dead_letter_topic is not None:
            self._dead_letter_topic.send()  # dead letters that a crashed load has not sent
        return True

    def _settle_dead_letters(self, reader: TopicReader, ends: TopicEnds, ledger: Ledger) -> None:
        """Commit the dead letters that the table names, and delete those that are ahead of it."""
        self._commit_dead_letters(ledger)
        new = [each for each in ends.topic_partitions if each not in self._trimmed]
        if new:
            positions = self._positions(reader, ledger, ends, new)
            self._rejects.trim(self._table, positions, ends.topic_ids)
            self._trimmed.update(new)

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
        elif ledger.batch and self._table.was_set_back(self._app_id):
            self._refuse_set_back()
        self._pending_start.drop()

    def _refuse_set_back(self) -> None:
        text = (
            f"{self._table.name} was set back to a state before the last batch of {self._app_id}, "
            "whose offsets are in its ledger: the records in between are in no file of it"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{text} (option failOnDataLoss=false continues behind them; loading into another "
                "table reads all)"
            )
        log.warning("%s", text)

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
        self._settle_dead_letters(reader, ends, ledger)
        positions = self._positions(reader, ledger, ends, latest)
        self._check_epochs(reader, ledger, ends)
        ranges = next_batch(positions, latest, self._sizes, self._limits)
        if not ranges:
            return None
        behind = sum(latest.values()) - sum(positions.values()) - sum(each.size for each in ranges)
        return Plan(ledger, ranges, ends, max(behind, 0), started)

    def _positions(
        self,
        reader: TopicReader,
        ledger: Ledger,
        ends: TopicEnds,
        topic_partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, Offset]:
        positions = {}
        for topic_partition in topic_partitions:
            topic_id = ends.topic_ids.get(topic_partition.topic)
            if topic_id is not None:
                ledger.check_topic(topic_partition, topic_id, self._table.name)
            known = ledger.position(topic_partition)
            # A partition that is new since the load began is read from its first record on.
            start = ends.earliest[topic_partition] if known is None else known
            positions[topic_partition] = reader.check(topic_partition, start, ends)
        return positions

    def _check_epochs(self, reader: TopicReader, ledger: Ledger, ends: TopicEnds) -> None:
        """Check that what the table holds is what the topics hold, whenever a leader is new."""
        new = [
            each
            for each, epoch in ends.leader_epochs.items()
            if self._checked_epochs.get(each) != epoch and ledger.epoch(each) >= 0
        ]
        if new:
            read = {each: (ledger.epoch(each), ledger.position(each) or 0) for each in new}
            reader.check_epochs(read, table=self._table.name)
        self._checked_epochs = dict(ends.leader_epochs)

    def tasks(self, plan: Plan) -> tuple[list[list[OffsetRange]], Landing]:
        """Return the ranges of each task of a batch, and the tasks' parameters."""
        # The driver lands a small batch itself; a session need not be there to be asked then.
        most = 1 if self.is_small(plan) else self._settings.parallelism or self._parallelism()
        tasks = [
            [replace(e, topic_id=self._topic_id(plan, e)) for e in ranges]
            for ranges in deal(plan.ranges, self._sizes, self._limits, parallelism=most)
        ]
        return tasks, self._landing(plan.batch)

    @staticmethod
    def _topic_id(plan: Plan, each: OffsetRange) -> TopicId:
        return plan.ends.topic_ids.get(each.topic_partition.topic, ZERO_TOPIC_ID)

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
            check_results(tasks, landed)
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
        changes = self._upserts and self._upserts.directory
        staged = changes or self._table.staging_directory
        files = [staged / file.path for each in landed for file in each.files]
        self._spec = evolve_columns(self._settings, self._spec, self._table, wider, files)
        self._schema = make_format(self._spec).table_schema()

    def _file_rules(self, batch: int) -> FileRules:
        settings = self._settings
        partitioned = settings.event_time is not None and self._table.keeps_partition_column
        return FileRules(
            app_id=self._app_id,
            batch=batch,
            directory=self._table.staging_directory,
            target_bytes=settings.file_bytes,
            offset_column=offset_column_of(self._schema),
            event_time=settings.event_time,
            partition_by=settings.partition_by,
            partition_column=settings.partition_column if partitioned else None,
            calendar_only=not self._table.keeps_partition_column,
        )

    def _landing(self, batch: int) -> Landing:
        settings, options = self._settings, self._options
        dead_letters = FileRules(
            app_id=self._app_id,
            batch=batch,
            directory=self._dead_letters.staging_directory,
            target_bytes=settings.file_bytes,
            offset_column="offset",
            calendar_only=not self._dead_letters.keeps_partition_column,
        )
        return Landing(
            read=ReadRules.of(options),
            format=self._spec,
            files=self._file_rules(batch)
            if self._upserts is None
            else self._upserts.change_rules(self._file_rules(batch)),
            key=self._settings.key_columns,
            dead_letters=dead_letters
            if settings.dead_letters and (settings.format != "raw" or settings.is_upsert)
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
        """Commit the files of a batch to the table, and with them its dead letters."""
        dead_letters = [file for each in landed for file in each.dead_letters]
        reasons = add_reasons(each.reasons for each in landed)
        rejected = sum(each.rejected for each in landed)
        self._settings.max_rejects.check(
            records=rejected + sum(each.rows for each in landed),
            rejected=rejected,
            before=self._rejected,
            why=reasons,
        )
        self._check_dead_letters(plan, dead_letters)
        files = [file for each in landed for file in each.files]
        if files and any(changed_columns(self._table.schema(), self._schema)):
            raise ConcurrentLoadError(f"{self._table.name}: another load has changed its columns")
        epochs = {
            each.topic_partition: join(part.epochs.get(each.topic_partition, ()) for part in landed)
            for each in plan.ranges
        }
        reader.check_unchanged(plan.ends, epochs)
        entries = ledgers.after(plan.ledger, plan.ranges, plan.ends.topic_ids, epochs)
        if dead_letters:
            entries[REJECTS] = self._rejects.note(
                plan.batch, plan.ranges, plan.ends.topic_ids, dead_letters
            )
        self._commit(plan, entries, files)
        if dead_letters:
            self._commit_dead_letters(Ledger({**plan.ledger.entries, **entries}))
        self._rejected += rejected
        self._after_commit(reader, plan)
        return BatchReport(
            batch=plan.batch,
            rows=sum(each.rows for each in landed),
            dead_letters=rejected,
            reasons=reasons,
            read_bytes=sum(sum(each.read_bytes.values()) for each in landed),
            files=sum(len(each.files) for each in landed),
            behind=plan.behind,
            seconds=time.monotonic() - plan.started,
        )

    def _check_dead_letters(self, plan: Plan, files: Sequence[DataFile]) -> None:
        try:
            check_written(self._dead_letters.staging_directory, files)
        except WrittenFileError:
            if self._ledger(self._table, []).batch != plan.ledger.batch:  # and has removed them
                raise ConcurrentLoadError(
                    f"{self._table.name}: another load of {self._app_id} has committed"
                ) from None
            raise

    def _commit(self, plan: Plan, entries: Mapping[str, int], files: Sequence[DataFile]) -> None:
        known = plan.ledger.entries
        expected = {key: known[key] for key in entries if key in known}
        if self._upserts is None or not files:
            self._table.commit(self._app_id, entries, files, expected=expected)
            return
        self._upserts.commit(
            self._app_id,
            entries,
            files,
            expected=expected,
            rules=self._file_rules(plan.batch),
            partitions=partition_counts(list(plan.ends.latest)),
        )

    def _commit_dead_letters(self, ledger: Ledger) -> None:
        """Commit the dead letters that the table's commit has named, and send them."""
        paths = self._rejects.settle(ledger)
        if paths and self._dead_letter_topic is not None:
            self._dead_letter_topic.send(paths)

    def _after_commit(self, reader: TopicReader, plan: Plan) -> None:
        if self._upserts is not None:
            self._upserts.forget(self._app_id, batch=plan.batch)
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
    names = [each.path for each in root.found_files() if each.path.endswith(SUFFIX)]
    found = orphans(app_id, batch=batch, names=names, referenced=set(table.files()))
    if found:  # older states are many, and to ask for them takes long
        found = orphans(app_id, batch=batch, names=found, referenced=table.retained())
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


def check_event_time(settings: LoadSettings, schema: pa.Schema) -> None:
    """Raise ConfigError unless the columns that split the table are there and of the right types:
    that of the days is one of times.
    """
    check_partition_by(settings.partition_by, schema)
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


def check_results(tasks: Sequence[Sequence[OffsetRange]], landed: Sequence[Landed]) -> None:
    """Raise WrittenFileError unless there is one result of each task."""
    found = sorted(each.task for each in landed)
    if found != list(range(len(tasks))):
        raise WrittenFileError(
            f"{len(tasks)} tasks were run, and results came from {found}: nothing is committed"
        )


def spark_runner(spark: SparkSession) -> Runner:
    """Return a runner that runs the tasks on Spark."""
    from millstream.spark.lakehouse.landing import land_on_spark

    return lambda tasks, landing: land_on_spark(spark, tasks, landing)


def local_runner(tasks: Sequence[Sequence[OffsetRange]], landing: Landing) -> list[Landed]:
    """Run the tasks in this process, without Spark."""
    return run_in_threads(lambda number: land(tasks[number], landing, number), range(len(tasks)))
