"""Several topics into a table each, in one job: ``delta:lake/{topic}``.

Every round looks at all topics once, plans the next batch of each table, lands all of them in one
Spark job, and commits table by table::

    ends of all topics ──► a plan for each table ──► one job ──► a commit for each table
           ▲                                                              │
           └──────────────────────────────────────────────────────────────┘

A table has its own offsets, under the same names as a load of its topic alone, so it may be
audited, maintained and loaded separately. New topics get their tables when they appear. An error of
one topic ends only that topic's load.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.model.errors import (
    ConfigError,
    CorruptLogError,
    ErrorCode,
    KafkaError,
    MillstreamError,
)
from millstream.schemas.schema import RegistryRefusedError
from millstream.spark.lakehouse.batches import BatchReport, Plan
from millstream.spark.lakehouse.columns import EVOLUTIONS
from millstream.spark.lakehouse.landing import Landed, Landing, UnreadableRecordError, land
from millstream.spark.lakehouse.ledger import RecreatedTopicError
from millstream.spark.lakehouse.load import (
    Loader,
    local_runner,
    source_options_of,
    wait,
)
from millstream.spark.lakehouse.parallelism import cores, run_in_threads
from millstream.spark.lakehouse.reject_limit import TooManyRejectsError, add_reasons
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import TOPIC_FIELD, TableName
from millstream.spark.lakehouse.topic_reader import TopicEnds, TopicReader
from millstream.spark.lakehouse.written_files import WrittenFileError
from millstream.spark.locations.location import Location
from millstream.spark.options import Subscribe
from millstream.spark.plan import DataLossError
from millstream.spark.ranges import OffsetRange
from millstream.spark.topics import Topics, open_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_FATAL: Final = {
    kind.__name__: kind
    for kind in (
        *(ConfigError, RegistryRefusedError, CorruptLogError),
        *(DataLossError, RecreatedTopicError, UnreadableRecordError, TooManyRejectsError),
    )
}
"""The errors that end the load of one topic only."""

_ATTEMPTS: Final = 3
_SUBSCRIPTIONS: Final = frozenset(("subscribe", "subscribepattern", "assign"))
_BY_TOPIC: Final = frozenset(("startingoffsets", "startingoffsetsbytimestamp"))


class FanOutError(MillstreamError):
    """The loads of some topics failed; the text has the reason for each. The others are loaded."""


@dataclass(frozen=True, slots=True)
class Work:
    """One task of a round: ranges of one topic, for that topic's table."""

    topic: str
    number: int
    ranges: Sequence[OffsetRange]
    landing: Landing


WorkRunner = Callable[[Sequence[Work]], list[Landed | Exception]]
"""Runs the tasks of a round; a task's result may be the error of its topic."""


def land_works_locally(works: Sequence[Work]) -> list[Landed | Exception]:
    """Run every task in this process."""
    return run_in_threads(_land, works)


def land_works_on_spark(spark: SparkSession, works: Sequence[Work]) -> list[Landed | Exception]:
    """Run the tasks of all tables in one Spark job."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict(
                    {"work": [index], "outcome": [_to_json(_land(works[index]))]}
                )

    numbers = spark.range(0, len(works), 1, len(works))
    rows = numbers.mapInArrow(run, "work long, outcome string").collect()
    outcomes = {row.work: _from_json(row.outcome) for row in rows}
    missing = sorted(set(range(len(works))) - set(outcomes))
    if missing or len(rows) != len(works):
        raise WrittenFileError(
            f"{len(works)} tasks were run and {len(rows)} results came, none of {missing}: nothing "
            "is committed"
        )
    return [outcomes[index] for index in range(len(works))]


def _land(work: Work) -> Landed | Exception:
    try:
        return land(work.ranges, work.landing, work.number)
    except tuple(_FATAL.values()) as error:
        return error


def _to_json(outcome: Landed | Exception) -> str:
    if isinstance(outcome, Landed):
        return json.dumps({"landed": outcome.to_json()})
    return json.dumps({"error": type(outcome).__name__, "text": str(outcome)})


def _from_json(text: str) -> Landed | Exception:
    value: dict[str, str] = json.loads(text)
    if "landed" in value:
        return Landed.from_json(value["landed"])
    return _FATAL.get(value["error"], MillstreamError)(value["text"])


def settings_for(settings: LoadSettings, topic: str) -> LoadSettings:
    """Return the settings of a load of one topic alone."""
    source = {
        name: text for name, text in settings.source.items() if name.lower() not in _SUBSCRIPTIONS
    }
    for name in list(source):
        if name.lower() in _BY_TOPIC and source[name].lstrip().startswith("{"):
            of_topic = json.loads(source.pop(name)).get(topic)
            if of_topic is not None:
                source[name] = json.dumps({topic: of_topic})
    schema = settings.schema_file
    return replace(
        settings,
        source={**source, "subscribe": topic},
        table=TableName(settings.table.kind, _fill(settings.table.path, topic)),
        schema_file=None if schema is None else _fill(schema, topic),
    )


def _fill(path: Location, topic: str) -> Location:
    return path.filled(TOPIC_FIELD, topic)


class FanOut:
    """A load of several topics. ``run`` returns when the ends of its start are in the tables, or,
    with ``follow``, when ``should_stop`` returns True.
    """

    def __init__(
        self,
        settings: LoadSettings,
        runner: WorkRunner,
        *,
        on_batch: Callable[[BatchReport], None] = lambda report: None,
        parallelism: Callable[[], int] = cores,
    ) -> None:
        if settings.query is not None:
            raise ConfigError(f"a query writes to one table: leave {TOPIC_FIELD} out of its name")
        schema = settings.schema_file
        if schema is not None and TOPIC_FIELD not in str(schema):
            raise ConfigError(f"each topic has columns of its own: name {TOPIC_FIELD} in {schema}")
        self._settings = settings
        self._runner = runner
        self._on_batch = on_batch
        self._parallelism = parallelism
        self._options = source_options_of(settings.source)
        self._loaders: dict[str, Loader] = {}
        self._rounds = 0
        self.errors: dict[str, Exception] = {}
        """Topics whose loads have ended, and why."""

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Load. Raises FanOutError at the end if the loads of some topics failed."""
        with open_topics(self._options) as topics:
            reader = TopicReader(topics, self._options)
            goal = None if self._settings.follow else self._ends(topics, reader)
            while not should_stop():
                started = time.monotonic()
                report = self._load_batches(topics, reader, goal)
                if report is not None:
                    self._on_batch(report)
                elif goal is not None:
                    break
                for topic, loader in self._loaders.items():
                    if topic not in self.errors:
                        with self._giving_up(topic):
                            loader.maintain_when_due()
                if goal is None and (report is None or not report.behind):
                    wait(started, self._settings.freshness_ms, should_stop)
        if self.errors:
            raise FanOutError(self._told())

    def _told(self) -> str:
        return "; ".join(f"{topic}: {error}" for topic, error in sorted(self.errors.items()))

    def _load_batches(
        self, topics: Topics, reader: TopicReader, goal: TopicEnds | None
    ) -> BatchReport | None:
        """Land and commit the next batch of every table; None when there is nothing to land."""
        started = time.monotonic()
        plans: dict[str, Plan] = {}
        for topic, ends in by_topic(self._ends(topics, reader)).items():
            with self._giving_up(topic):
                loader = self._loader(topic, topics, reader, ends)
                if loader is None:
                    continue
                wanted = None if goal is None else only(goal, topic)
                plan = loader.plan(reader, ends, wanted)
                if plan is not None:
                    plans[topic] = plan
        if not plans:
            return None
        landed = self._land(plans)
        reports: dict[str, BatchReport] = {}
        for topic, files in landed.items():
            with self._giving_up(topic):
                reports[topic] = self._loaders[topic].commit(plans[topic], files, reader)
        self._rounds += 1
        return _sum(self._rounds, reports, time.monotonic() - started)

    def _ends(self, topics: Topics, reader: TopicReader) -> TopicEnds:
        """Get the ends of all topics, again if one is deleted between metadata and offsets."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._present_ends(topics, reader)
            except KafkaError as error:
                if error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
        return self._present_ends(topics, reader)

    def _present_ends(self, topics: Topics, reader: TopicReader) -> TopicEnds:
        """Get the ends of all topics. A topic that does not exist, or not any more, ends its own
        load.
        """
        try:
            return reader.ends()
        except ConfigError:
            subscription = self._options.subscription
            if not isinstance(subscription, Subscribe):
                raise
            rest = [name for name in subscription.topics if not self._is_gone(topics, name)]
            if rest == list(subscription.topics):
                raise
            if not rest:
                raise FanOutError(self._told()) from None
        self._options = replace(self._options, subscription=Subscribe(tuple(rest)))
        reader.read(self._options)
        return reader.ends()

    def _is_gone(self, topics: Topics, topic: str) -> bool:
        try:
            topics.topic_partitions(Subscribe((topic,)))
        except ConfigError as error:
            self._give_up(topic, error)
            return True
        return False

    def _loader(
        self, topic: str, topics: Topics, reader: TopicReader, ends: TopicEnds
    ) -> Loader | None:
        """Return the load of a topic; None if it has failed, or if its columns are unknown because
        it is empty.
        """
        if topic in self.errors:
            return None
        known = self._loaders.get(topic)
        if known is not None:
            return known
        settings = settings_for(self._settings, topic)
        made = Loader(settings, local_runner, parallelism=self._parallelism)
        if not made.prepare(topics, reader, ends):
            return None
        self._loaders[topic] = made
        log.info("%s goes into %s", topic, settings.table)
        return made

    def _land(self, plans: Mapping[str, Plan]) -> dict[str, list[Landed]]:
        """Run the tasks of all plans in one job; run those again whose table got more columns."""
        waiting = dict(plans)
        done: dict[str, list[Landed]] = {}
        for _ in range(EVOLUTIONS):
            works = []
            for topic, plan in waiting.items():
                with self._giving_up(topic):
                    tasks, landing = self._loaders[topic].tasks(plan)
                    works += [Work(topic, n, ranges, landing) for n, ranges in enumerate(tasks)]
            found: dict[str, list[Landed]] = {topic: [] for topic in waiting}
            for work, outcome in zip(works, self._run(waiting, works), strict=True):
                if isinstance(outcome, Landed):
                    found[work.topic].append(outcome)
                else:
                    self._give_up(work.topic, outcome)
            for topic, landed in found.items():
                plan = waiting[topic]
                if topic not in self.errors:
                    with self._giving_up(topic):
                        if not self._loaders[topic].accept(plan, landed):
                            continue
                        done[topic] = landed
                del waiting[topic]
            if not waiting:
                return done
        for topic in waiting:
            self._give_up(topic, ConfigError(f"its columns changed {EVOLUTIONS} times in a batch"))
        return done

    def _run(self, plans: Mapping[str, Plan], works: Sequence[Work]) -> list[Landed | Exception]:
        """Run tasks, in this process if all of them together are small."""
        if len(works) == len(plans) and all(
            self._loaders[topic].is_small(plan) for topic, plan in plans.items()
        ):
            return land_works_locally(works)
        return self._runner(works)

    @contextlib.contextmanager
    def _giving_up(self, topic: str) -> Iterator[None]:
        """End the load of one topic on an error of that topic."""
        try:
            yield
        except tuple(_FATAL.values()) as error:
            self._give_up(topic, error)

    def _give_up(self, topic: str, error: Exception) -> None:
        log.warning("the load of topic %s ends: %s", topic, error)
        self.errors[topic] = error


def by_topic(ends: TopicEnds) -> dict[str, TopicEnds]:
    """Return the values of partitions grouped by topic."""
    return {
        topic: only(ends, topic)
        for topic in sorted({topic_partition.topic for topic_partition in ends.latest})
    }


def only(ends: TopicEnds, topic: str) -> TopicEnds:
    """Return the values of one topic's partitions."""
    return TopicEnds(
        {
            topic_partition: offset
            for topic_partition, offset in ends.earliest.items()
            if topic_partition.topic == topic
        },
        {
            topic_partition: offset
            for topic_partition, offset in ends.latest.items()
            if topic_partition.topic == topic
        },
        {name: topic_id for name, topic_id in ends.topic_ids.items() if name == topic},
        {each: epoch for each, epoch in ends.leader_epochs.items() if each.topic == topic},
    )


def _sum(round_number: int, by_topic: Mapping[str, BatchReport], seconds: float) -> BatchReport:
    reports = by_topic.values()
    lags = [each.lag_seconds for each in reports if each.lag_seconds is not None]
    return BatchReport(
        batch=round_number,
        rows=sum(each.rows for each in reports),
        dead_letters=sum(each.dead_letters for each in reports),
        read_bytes=sum(each.read_bytes for each in reports),
        files=sum(each.files for each in reports),
        behind=sum(each.behind for each in reports),
        seconds=seconds,
        reasons=add_reasons(each.reasons for each in reports),
        offsets=sum(each.offsets for each in reports),
        written_bytes=sum(each.written_bytes for each in reports),
        lag_seconds=max(lags, default=None),
        by_topic=by_topic,
    )
