"""The load: read the table's offsets, read the records after them, commit both together.

One loop loads both the existing records and new ones. Every batch starts from the table's ledger,
so a crash needs no recovery: uncommitted offsets are read again, committed ones never::

    ledger ──► ends of the topics ──► ranges ──► tasks write files ──► one commit: files + ledger
      ▲                                                                        │
      └────────────────────────────────────────────────────────────────────────┘

While a batch is committed, the next one is landed, if there is one (``landing_ahead``). It is
planned from what the ledger will be, and its commit is refused if the ledger is anything else.

Records that cannot be read go to a table of their own. The table's commit names them, and theirs
follows from it, after a crash too (``dead_letter_commits``).
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse import ledger as ledgers
from millstream.spark.lakehouse.batches import BatchReport, Plan, Ready, Verdict
from millstream.spark.lakehouse.columns import (
    EVOLUTIONS,
    NothingToInferError,
    evolve_columns,
    format_spec,
    settle_columns,
)
from millstream.spark.lakehouse.commits import Commits
from millstream.spark.lakehouse.file_writer import FileRules
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.landing import Landed, Landing, land
from millstream.spark.lakehouse.landing_ahead import Inherit, LandingAhead, inherit_nothing
from millstream.spark.lakehouse.layouts import check_event_time, layout_of
from millstream.spark.lakehouse.ledger import Ledger
from millstream.spark.lakehouse.parallelism import cores, run_in_threads
from millstream.spark.lakehouse.pending_start import PendingStart
from millstream.spark.lakehouse.planning import Planner, up_to
from millstream.spark.lakehouse.second_load import check_not_loaded
from millstream.spark.lakehouse.set_back import check_not_set_back
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.sorting import SortField, check_sort_by
from millstream.spark.lakehouse.table import (
    Table,
    dead_letters_of,
    offset_column_of,
    open_table,
)
from millstream.spark.lakehouse.table_trial import check_properties
from millstream.spark.lakehouse.topic_reader import TopicEnds, TopicReader
from millstream.spark.lakehouse.transform import Transform
from millstream.spark.lakehouse.upserts import Upserts, check_appends
from millstream.spark.lakehouse.written_files import WrittenFileError
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


class Loader:
    """One load into one table. ``run`` returns when the topics' ends of its start are in the table,
    or, with ``follow``, when ``should_stop`` returns True. ``rejected`` are the dead letters of the
    run, also from before it was restarted; its own are counted there as ``counted_as``. `fan_out`
    loads the batches of several itself: ``prepare``, and then ``plan`` or ``plan_after``,
    ``tasks``, ``accept``, ``check``, ``commit`` for each batch.
    """

    def __init__(
        self,
        settings: LoadSettings,
        runner: Runner,
        *,
        on_batch: Callable[[BatchReport], None] = lambda report: None,
        transform: Transform | None = None,
        parallelism: Callable[[], int] = cores,
        inherit: Inherit = inherit_nothing,
        rejected: Counter[str] | None = None,
        counted_as: str = "",
    ) -> None:
        self._settings = settings
        self._runner = runner
        self._inherit = inherit
        self._on_batch = on_batch
        self._app_id = settings.load_id
        self._options = source_options_of(settings.source)
        self._table = open_table(settings.table)
        self._dead_letters = open_table(dead_letters_of(settings.table))
        self._planner = Planner(settings, self._table)
        self._parallelism = parallelism
        self._transform = transform
        self._upserts = Upserts(settings) if settings.is_upsert else None
        self._spec = FormatSpec()
        self._schema = RAW_COLUMNS
        self._sort_by: Sequence[SortField] = ()
        self._pending_start = PendingStart(settings.table, self._app_id)
        self._commits = Commits(
            settings,
            self._table,
            self._dead_letters,
            upserts=self._upserts,
            rejected=Counter() if rejected is None else rejected,
            counted_as=counted_as,
        )
        self._ahead: LandingAhead[Plan, Sequence[Landed]] | None = None
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
            try:
                self._load_batches(reader, goal, should_stop)
            finally:
                if not isinstance(sys.exception(), KeyboardInterrupt):  # who does not wait
                    self._drop_ahead()

    def _load_batches(
        self, reader: TopicReader, goal: TopicEnds | None, should_stop: Callable[[], bool]
    ) -> None:
        while not should_stop():
            started = time.monotonic()
            report = self._load_batch(reader, goal)
            if report is not None:
                self._on_batch(report)
            elif goal is not None:
                return
            if self._ahead is None:
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
        check_sort_by(settings.sort_by, self._schema)
        if self._upserts is None:
            check_appends(self._table)
        else:
            self._upserts.prepare(self._spec, self._schema)
        layout = layout_of(settings, self._schema)
        if not self._table.exists():
            check_properties(settings.table, layout, is_upsert=settings.is_upsert)
        self._table.create(layout)
        self._sort_by = settings.sort_by or self._table.sort_by()
        self._remember_start(reader, ends)
        self._planner.expect(ends, topics.sizes(ends.topic_partitions))
        self._settle_dead_letters(reader, ends, self._ledger(self._table, ends.topic_partitions))
        self._commits.send_dead_letters()
        return True

    def _settle_dead_letters(self, reader: TopicReader, ends: TopicEnds, ledger: Ledger) -> None:
        """Commit the dead letters that the table names, and delete those that are ahead of it."""
        self._commits.settle(ledger)
        new = self._commits.untrimmed(ends)
        if new:
            self._commits.trim(self._planner.positions(ledger, reader, ends, new), ends)

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
        elif ledger.batch:
            fails = self._options.fail_on_data_loss
            check_not_set_back(self._table, self._app_id, fail_on_data_loss=fails)
        self._pending_start.drop()

    @staticmethod
    def _first_entries(reader: TopicReader, ends: TopicEnds) -> dict[str, int]:
        starts = [OffsetRange(p, offset, offset) for p, offset in reader.starts(ends).items()]
        return ledgers.after(Ledger({}), starts, ends.topic_ids, counts=ends.counts)

    # --- one batch -------------------------------------------------------------------------------

    def _load_batch(self, reader: TopicReader, goal: TopicEnds | None) -> BatchReport | None:
        """Land and commit the next batch; None when there is nothing to land."""
        ahead, self._ahead = self._ahead, None
        plan = self.plan(reader, reader.ends(), goal) if ahead is None else ahead.plan
        landed = None if ahead is None else ahead.result()
        while plan is not None:
            landed = self._land(plan, landed)
            if landed is not None:
                break
            plan = self.plan(reader, reader.ends(), goal)
        if plan is None or landed is None:
            return None
        ready = self.check(plan, landed, reader)
        self._ahead = self._land_ahead(ready, reader, goal)
        return self.commit(ready, reader)

    def plan(self, reader: TopicReader, ends: TopicEnds, goal: TopicEnds | None) -> Plan | None:
        """Return the next batch, up to ``goal``; None if the table is up to date."""
        started = time.monotonic()
        ledger = self._ledger(self._table, list(up_to(goal, ends)))
        self._settle_dead_letters(reader, ends, ledger)
        return self._planner.plan(ledger, reader, ends, goal, started)

    def plan_after(
        self, ready: Ready, reader: TopicReader, ends: TopicEnds, goal: TopicEnds | None
    ) -> Plan | None:
        """Return the batch behind one that is ready to be committed; None if there is nothing left,
        or if only the table can tell what is.
        """
        started = time.monotonic()
        if not set(ends.latest) <= set(ready.plan.ends.latest) or self._commits.untrimmed(ends):
            return None  # of new partitions only the table's ledger says what was loaded of them
        return self._planner.plan(ready.ledger, reader, ends, goal, started)

    def _land_ahead(
        self, ready: Ready, reader: TopicReader, goal: TopicEnds | None
    ) -> LandingAhead[Plan, Sequence[Landed]] | None:
        """Begin to land the batch behind one that is ready to be committed, if there is one.

        A fault of that batch is no reason to leave this one: it is met again when it is planned
        from the table's own ledger.
        """
        if not ready.plan.behind or self._transform is not None or self.is_maintenance_due():
            return None
        try:
            plan = self.plan_after(ready, reader, reader.ends(), goal)
            if plan is None:
                return None
            tasks, landing = self.tasks(plan)
            is_small = self.is_small(plan)
            run = self._inherit(lambda: self._run(tasks, landing, is_small=is_small))
            return LandingAhead(plan, run)
        except Exception as error:  # whatever planning raises: the network's errors, Spark's
            log.info("batch %d is not landed ahead: %s", ready.plan.batch + 1, error)
            return None

    def _drop_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.drop(self.discard)

    def tasks(self, plan: Plan) -> tuple[list[list[OffsetRange]], Landing]:
        """Return the ranges of each task of a batch, and the tasks' parameters."""
        # The driver lands a small batch itself; a session need not be there to be asked then.
        most = 1 if self.is_small(plan) else self._settings.parallelism or self._parallelism()
        return self._planner.tasks(plan, parallelism=most), self._landing(plan)

    def is_small(self, plan: Plan) -> bool:
        """Tell whether a batch is landed by the driver: a Spark job would cost more."""
        return self._planner.size(plan) <= self._settings.driver_bytes

    def accept(self, plan: Plan, landed: Sequence[Landed]) -> Verdict:
        """Look at the results of the tasks: whether values need columns that the table did not
        have, which are added now, or there is more than was expected.
        """
        if self._planner.learn_excess(landed):
            log.info("batch %d is larger than expected: planned again", plan.batch)
            self.discard(landed)
            return Verdict.PLAN_AGAIN
        wider = [each.wider for each in landed if each.wider is not None]
        if not wider:
            self._planner.learn(plan, landed)
            return Verdict.COMMIT
        self._evolve(wider, landed)
        self._commits.look_for_orphans_again()
        return Verdict.LAND_AGAIN

    def _land(self, plan: Plan, landed: Sequence[Landed] | None) -> Sequence[Landed] | None:
        """Run the batch's tasks, again with more columns where values need them; None if the batch
        has to be planned again. ``landed`` are the results of a first run.
        """
        if self._transform is not None:
            rules = self._file_rules(plan.batch)
            return [self._transform.land(plan.ranges, rules, self._schema)]
        for _ in range(EVOLUTIONS):
            if landed is None:
                tasks, landing = self.tasks(plan)
                landed = self._run(tasks, landing, is_small=self.is_small(plan))
            verdict = self.accept(plan, landed)
            if verdict is not Verdict.LAND_AGAIN:
                return landed if verdict is Verdict.COMMIT else None
            landed = None
        raise ConfigError(f"{self._table.name}: the columns changed {EVOLUTIONS} times in a batch")

    def _run(
        self, tasks: Sequence[Sequence[OffsetRange]], landing: Landing, *, is_small: bool
    ) -> Sequence[Landed]:
        if len(tasks) == 1 and is_small:
            landed = [land(tasks[0], landing, 0)]
        else:
            landed = self._runner(tasks, landing)
        check_results(tasks, landed)
        return landed

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
            sort_by=self._sort_by,
            partition_column=settings.partition_column if partitioned else None,
            calendar_only=not self._table.keeps_partition_column,
        )

    def _landing(self, plan: Plan) -> Landing:
        settings, options, batch = self._settings, self._options, plan.batch
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
            format=replace(self._spec, is_read_again=True),
            files=self._file_rules(batch)
            if self._upserts is None
            else self._upserts.change_rules(self._file_rules(batch)),
            key=self._settings.key_columns,
            limit=None if self._upserts is None else self._planner.byte_limit(plan),
            dead_letters=dead_letters
            if settings.dead_letters and (settings.format != "raw" or settings.is_upsert)
            else None,
        )

    def maintain_when_due(self) -> None:
        """Maintain the table at the interval of the settings, if the load follows."""
        if not self.is_maintenance_due():
            return
        from millstream.spark.lakehouse.maintain import maintain

        for table in (self._table, self._dead_letters):
            if table.exists():
                done = maintain(table, self._app_id, target_bytes=self._settings.file_bytes)
                log.info("%s: maintained: %s", table.name, done)
        self._maintained = time.monotonic()

    def is_maintenance_due(self) -> bool:
        """Tell whether the interval of the settings has passed; False unless the load follows."""
        every_ms = self._settings.maintain_every_ms
        if every_ms is None or not self._settings.follow:
            return False
        return time.monotonic() >= self._maintained + every_ms / 1000

    # --- commits ---------------------------------------------------------------------------------

    def _ledger(self, table: Table, topic_partitions: Sequence[TopicPartition]) -> Ledger:
        return Ledger(table.ledger(self._app_id, ledgers.keys(topic_partitions)))

    def check(self, plan: Plan, landed: Sequence[Landed], reader: TopicReader) -> Ready:
        """Check the files of a batch, once the batch before is in the table. Raises what must not
        be committed.
        """
        return self._commits.check(plan, landed, self._schema, reader)

    def commit(self, ready: Ready, reader: TopicReader) -> BatchReport:
        """Commit the files of a batch to the table, with its dead letters."""
        return self._commits.commit(ready, self._file_rules(ready.plan.batch), reader)

    def discard(self, landed: Sequence[Landed]) -> None:
        """Remove the files of a batch that will not be committed."""
        self._commits.discard(landed)


def source_options_of(source: Mapping[str, str]) -> SourceOptions:
    """Read the options of a load's source: by default committed records, from the earliest ones."""
    given = load_source(source)
    names = {name.lower() for name in given}
    if not names & {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"}:
        given["startingOffsets"] = "earliest"
    options = parse_options(given, streaming=True)
    check_no_end(options)
    return options


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
