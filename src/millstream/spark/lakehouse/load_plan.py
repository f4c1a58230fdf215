"""What a load would do, without doing any of it: ``millstream load --plan``.

The columns are settled by the load's own code on a copy of the table without rows, in a directory
that is removed: what the table's kind refuses is refused there, in its own words. The records that
the load would read next are decoded, some of each partition, for what they need and what of them
would be dead letters. What the values in the table's files forbid (whole numbers that a double does
not hold) shows in the load alone.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicPartition
from millstream.spark.lakehouse import ledger as ledgers
from millstream.spark.lakehouse.columns import (
    EVOLUTIONS,
    NothingToInferError,
    evolve_columns,
    format_spec,
    schema_file_of,
    settle_columns,
)
from millstream.spark.lakehouse.fan_out import same_table, settings_for
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.formats.changes import ChangeFormat
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.landing import dead_letter_rows, unreadable
from millstream.spark.lakehouse.layouts import check_event_time, layout_of
from millstream.spark.lakehouse.ledger import Ledger, RecreatedTopicError
from millstream.spark.lakehouse.load import source_options_of
from millstream.spark.lakehouse.pending_start import PendingStart
from millstream.spark.lakehouse.reject_limit import TooManyRejectsError, add_reasons
from millstream.spark.lakehouse.second_load import check_not_loaded
from millstream.spark.lakehouse.set_back import check_not_set_back
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.sorting import check_sort_by
from millstream.spark.lakehouse.table import (
    Layout,
    Table,
    TableName,
    check_new_directory,
    open_table,
)
from millstream.spark.lakehouse.table_trial import check_properties
from millstream.spark.lakehouse.topic_reader import TopicEnds, TopicReader
from millstream.spark.lakehouse.upserts import Upserts, check_appends
from millstream.spark.lakehouse.widening import changed_columns
from millstream.spark.locations.location import as_location
from millstream.spark.options import SourceOptions
from millstream.spark.plan import DataLossError
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import RangeReader, ReadRules
from millstream.spark.topics import Topics, open_topics

MOST_RECORDS: Final = 10_000
"""Offsets that are decoded, of all partitions together."""
_LEAST_OF_EACH: Final = 100
_BEGUN: Final = ("_delta_log", "metadata", "data", "catalog.db", "catalog.db-journal")
_REFUSALS: Final = (ConfigError, DataLossError, RecreatedTopicError, TooManyRejectsError)


@dataclass(frozen=True, slots=True)
class Widened:
    """A column whose type would be another one."""

    name: str
    before: pa.DataType
    after: pa.DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What a load would do now."""

    table: TableName
    load_id: str
    is_new: bool
    """The table is not there and would be created."""
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """Those of the table afterwards."""
    added: Sequence[pa.Field] = ()
    widened: Sequence[Widened] = ()
    ranges: Mapping[TopicPartition, tuple[Offset, Offset]] = field(default_factory=dict)
    """Where each partition goes on, and where it ends now."""
    looked_at: int = 0
    """Records that were decoded."""
    rejected: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why some of them would be dead letters, and how many."""
    is_waiting: bool = False
    """There is no record yet to infer the columns from."""
    refusal: str | None = None
    """Why the load would end with an error; what stands above is as far as it came."""


def plan_loads(settings: LoadSettings) -> list[LoadPlan]:
    """Return what a load into a table for each topic would do, topic by topic."""
    options = source_options_of(settings.source)
    with open_topics(options) as topics:
        found = {each.topic for each in topics.topic_partitions(options.subscription)}
    plans: list[LoadPlan] = []
    by_table: dict[str, str] = {}
    for topic in sorted(found):
        each = settings_for(settings, topic)
        other = by_table.get(str(each.table))
        if other is None:
            plan = plan_load(each)
            if plan.columns:  # until then a load has made no table
                by_table[str(each.table)] = topic
        else:
            refusal = f"{topic}: {same_table(other, each.table)}"
            plan = LoadPlan(table=each.table, load_id=each.load_id, is_new=True, refusal=refusal)
        plans.append(plan)
    return plans


def plan_load(settings: LoadSettings, *, most_records: int = MOST_RECORDS) -> LoadPlan:
    """Return what a load of these settings would do; nothing is written.

    Raises the errors of reading the topic; ConfigError for a load with a query.
    """
    if settings.query is not None:
        raise ConfigError("--plan shows loads with a format, and none with a query")
    options = source_options_of(settings.source)
    table = open_table(settings.table)
    plan = LoadPlan(table=settings.table, load_id=settings.load_id, is_new=not table.exists())
    with (
        tempfile.TemporaryDirectory(prefix="millstream-plan-") as directory,
        open_topics(options) as topics,
    ):
        planner = _Planner(settings, options, table, topics, Path(directory))
        for step in (planner.positions, planner.columns, planner.records):
            try:
                plan = step(plan, most_records)
            except NothingToInferError:
                return replace(plan, is_waiting=True)
            except _REFUSALS as error:
                return replace(plan, refusal=planner.said(error))
    return plan


class _Planner:
    """The steps of a plan, on a copy of the table in ``directory``."""

    def __init__(
        self,
        settings: LoadSettings,
        options: SourceOptions,
        table: Table,
        topics: Topics,
        directory: Path,
    ) -> None:
        self._real = settings
        self._settings = replace(
            settings,
            table=TableName(settings.table.kind, as_location(directory / "table")),
            schema_file=as_location(directory / "schema.json"),
        )
        self._options = options
        self._table = table
        self._copy = open_table(self._settings.table)
        self._topics = topics
        self._reader = TopicReader(topics, options)
        self._spec = FormatSpec()
        self._has_begun = False

    def said(self, error: Exception) -> str:
        """Return an error as the load words it, which names the table and not its copy."""
        text = str(error)
        for copy, real in (
            (self._settings.table.path, self._real.table.path),
            (schema_file_of(self._settings), schema_file_of(self._real)),
        ):
            text = text.replace(str(copy), str(real))
        return text

    def positions(self, plan: LoadPlan, most: int) -> LoadPlan:
        """Add where the load goes on."""
        ends = self._reader.ends()
        ledger = Ledger({})
        if not plan.is_new:
            known = self._table.ledger(plan.load_id, ledgers.keys(ends.topic_partitions))
            ledger = Ledger(known)
        starts = self._starts(ends) if not ledger.batch else {}
        ranges = {}
        for each, latest in ends.latest.items():
            ledger.check_topic(
                each, ends.topic_ids.get(each.topic, ZERO_TOPIC_ID), self._table.name
            )
            position = ledger.position(each)
            if position is None:
                position = starts.get(each)
            if position is None:
                position = self._reader.first(each, ledger, ends)
            ranges[each] = (self._reader.check(each, position, ends), latest)
        self._has_begun = bool(ledger.batch)
        if self._has_begun:
            fails = self._options.fail_on_data_loss
            check_not_set_back(self._table, plan.load_id, fail_on_data_loss=fails)
            read = {each: (ledger.epoch(each), ledger.position(each) or 0) for each in ranges}
            self._reader.check_epochs(read, table=self._table.name)
        elif not plan.is_new and not self._real.app_id:
            check_not_loaded(self._table, {each.topic for each in ranges})
        return replace(plan, ranges=ranges)

    def _starts(self, ends: TopicEnds) -> dict[TopicPartition, Offset]:
        kept = Ledger(PendingStart(self._real.table, self._real.load_id).entries(ends) or {})
        starts = self._reader.starts(ends)
        return {each: _or(kept.position(each), start) for each, start in starts.items()}

    def columns(self, plan: LoadPlan, most: int) -> LoadPlan:
        """Add the columns by the definition, the registry or the first records."""
        file = schema_file_of(self._real)
        if file.is_file():
            schema_file_of(self._settings).replace_with(file.read_bytes())
        if not plan.is_new:
            self._copy.create(Layout(schema=self._table.schema()))
        self._spec = format_spec(self._settings, self._topics, self._options)
        if plan.is_new:
            check_new_directory(self._real.table, _BEGUN)
        elif self._has_begun:
            self._spec = settle_columns(self._settings, self._spec, self._copy)
        schema = make_format(self._spec).table_schema()
        check_event_time(self._real, schema)
        check_sort_by(self._real.sort_by, schema)
        if self._real.is_upsert:
            Upserts(self._real).check(self._spec, schema)
        else:
            check_appends(self._table)
        if plan.is_new:
            layout = layout_of(self._real, schema)
            check_properties(self._real.table, layout, is_upsert=self._real.is_upsert)
            self._copy.create(layout)
        else:
            self._copy.create(Layout(schema=schema))
            # Which checks how it is split.
            self._table.create(layout_of(self._real, self._without_day()))
        return self._with_columns(plan)

    def _without_day(self) -> pa.Schema:
        """Return the table's columns as a layout has them."""
        schema = self._table.schema()
        if self._real.event_time is None or not self._table.keeps_partition_column:
            return schema
        return pa.schema([each for each in schema if each.name != self._real.partition_column])

    def records(self, plan: LoadPlan, most: int) -> LoadPlan:
        """Add what the next records need, and which of them cannot be read."""
        batches = list(self._next_records(plan, most))
        for _ in range(EVOLUTIONS):
            key = self._real.key_columns
            form = ChangeFormat(self._spec, key) if key else make_format(self._spec)
            decoded = [form.decode(batch) for batch in batches]
            wider = [each.wider for each in decoded if each.wider is not None]
            if not wider:
                break
            self._spec = evolve_columns(self._settings, self._spec, self._copy, wider)
        reasons = add_reasons(Counter(e.reason for e in each.rejected) for each in decoded)
        looked_at, rejected = sum(map(len, batches)), sum(reasons.values())
        plan = replace(
            self._with_columns(plan), looked_at=looked_at, rejected=rejected, reasons=reasons
        )
        if not self._real.dead_letters:
            for batch, each in zip(batches, decoded, strict=True):
                if each.rejected:
                    error = unreadable(dead_letter_rows(batch, each.rejected))
                    return replace(plan, refusal=str(error))
        try:
            self._real.max_rejects.check(
                records=looked_at, rejected=rejected, before=0, why=reasons
            )
        except TooManyRejectsError as error:
            return replace(plan, refusal=str(error))
        return plan

    def _next_records(self, plan: LoadPlan, most: int) -> list[pa.RecordBatch]:
        pending = {each: (start, end) for each, (start, end) in plan.ranges.items() if start < end}
        share = max(most // max(len(pending), 1), _LEAST_OF_EACH)
        found: list[pa.RecordBatch] = []
        with RangeReader(ReadRules.of(self._options)) as reader:
            for each, (start, end) in pending.items():
                chosen = OffsetRange(each, start, min(end, start + share))
                found += reader.read(chosen, RAW_COLUMNS)
        return found

    def _with_columns(self, plan: LoadPlan) -> LoadPlan:
        columns = self._copy.schema()
        if plan.is_new:
            return replace(plan, columns=columns)
        before = self._table.schema()
        added, changed = changed_columns(before, columns)
        return replace(
            plan,
            columns=columns,
            added=added,
            widened=[Widened(e.name, before.field(e.name).type, e.type) for e in changed],
        )


def _or(position: Offset | None, otherwise: Offset) -> Offset:
    return otherwise if position is None else position
