"""Several topics into a table each, in one job: ``delta:lake/{topic}``.

Every round looks at all topics once, plans the next batch of each table, lands all of them in one
Spark job, and commits table by table::

    ends of all topics ──► a plan for each table ──► one job ──► a commit for each table
           ▲                                                              │
           └──────────────────────────────────────────────────────────────┘

While the tables of one round are committed, the next round is landed, as long as a table is behind
(``landing_ahead``).

A table has its own offsets, under the same names as a load of its topic alone, so it may be
audited, maintained and loaded separately. New topics get their tables when they appear. An error of
one topic ends only that topic's load.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from millstream.model.errors import (
    ConfigError,
    ErrorCode,
    KafkaError,
    MillstreamError,
)
from millstream.spark.lakehouse.batches import BatchReport, Plan, Ready, Verdict
from millstream.spark.lakehouse.columns import EVOLUTIONS
from millstream.spark.lakehouse.landing import Landed
from millstream.spark.lakehouse.landing_ahead import Inherit, LandingAhead, inherit_nothing
from millstream.spark.lakehouse.load import Loader, local_runner, source_options_of, wait
from millstream.spark.lakehouse.parallelism import cores
from millstream.spark.lakehouse.reject_limit import add_reasons
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import TOPIC_FIELD, TableName
from millstream.spark.lakehouse.topic_reader import TopicEnds, TopicReader
from millstream.spark.lakehouse.works import (
    FATAL_FOR_A_TOPIC,
    Work,
    WorkRunner,
    land_works_locally,
)
from millstream.spark.locations.location import Location
from millstream.spark.options import Subscribe
from millstream.spark.topics import Topics, open_topics

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 3
_SUBSCRIPTIONS: Final = frozenset(("subscribe", "subscribepattern", "assign"))
_BY_TOPIC: Final = frozenset(("startingoffsets", "startingoffsetsbytimestamp"))


class FanOutError(MillstreamError):
    """The loads of some topics failed; the text has the reason for each. The others are loaded."""


@dataclass(frozen=True, slots=True)
class Round:
    """The next batch of every table that lacks something, as tasks."""

    plans: Mapping[str, Plan]
    works: Sequence[Work]


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


def same_table(other: str, table: TableName) -> ConfigError:
    """Return the error of a topic whose table is that of another one: in a catalogue's names dots
    and dashes of topics become the same.
    """
    return ConfigError(
        f"its table would be that of {other}, {table}: load it apart, into a table of another name"
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
        inherit: Inherit = inherit_nothing,
        rejected: Counter[str] | None = None,
    ) -> None:
        if settings.query is not None:
            raise ConfigError(f"a query writes to one table: leave {TOPIC_FIELD} out of its name")
        schema = settings.schema_file
        if schema is not None and TOPIC_FIELD not in str(schema):
            raise ConfigError(
                f"each topic needs its own schema file: use {TOPIC_FIELD} in {schema}"
            )
        self._settings = settings
        self._runner = runner
        self._on_batch = on_batch
        self._parallelism = parallelism
        self._inherit = inherit
        self._rejected = Counter[str]() if rejected is None else rejected
        self._ahead: LandingAhead[Round, list[Landed | Exception]] | None = None
        self._options = source_options_of(settings.source)
        self._loaders: dict[str, Loader] = {}
        self._by_table: dict[str, str] = {}
        """Whose table each is."""
        self._rounds = 0
        self.errors: dict[str, Exception] = {}
        """Topics whose loads have ended, and why."""

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Load. Raises FanOutError at the end if the loads of some topics failed."""
        with open_topics(self._options) as topics:
            reader = TopicReader(topics, self._options)
            goal = None if self._settings.follow else self._ends(topics, reader)
            try:
                self._load_rounds(topics, reader, goal, should_stop)
            finally:
                if not isinstance(sys.exception(), KeyboardInterrupt):  # who does not wait
                    self._drop_ahead()
        if self.errors:
            raise FanOutError(self._told())

    def _load_rounds(
        self,
        topics: Topics,
        reader: TopicReader,
        goal: TopicEnds | None,
        should_stop: Callable[[], bool],
    ) -> None:
        while not should_stop():
            started = time.monotonic()
            report = self._load_batches(topics, reader, goal)
            if report is None:
                if goal is not None:
                    return
            elif report.by_topic:
                self._on_batch(report)
            if self._ahead is None:
                self._maintain_when_due()
            if goal is None and (report is None or not report.behind):
                wait(started, self._settings.freshness_ms, should_stop)

    def _maintain_when_due(self) -> None:
        for topic, loader in self._loaders.items():
            if topic not in self.errors:
                with self._giving_up(topic):
                    loader.maintain_when_due()

    def _told(self) -> str:
        return "; ".join(f"{topic}: {error}" for topic, error in sorted(self.errors.items()))

    def _load_batches(
        self, topics: Topics, reader: TopicReader, goal: TopicEnds | None
    ) -> BatchReport | None:
        """Land and commit the next batch of every table; None when there is nothing to land. The
        report is of no table if nothing could be committed: batches have to be planned again, or
        loads have ended.
        """
        started = time.monotonic()
        ahead, self._ahead = self._ahead, None
        plans: Mapping[str, Plan]
        if ahead is not None:
            plans = ahead.plan.plans
            landed = self._land(plans, list(zip(ahead.plan.works, ahead.result(), strict=True)))
        else:
            plans = self._plan(topics, reader, goal, {})
            if not plans:
                return None
            landed = self._land(plans)
        ready: dict[str, Ready] = {}
        for topic, files in landed.items():
            with self._giving_up(topic):
                ready[topic] = self._loaders[topic].check(plans[topic], files, reader)
        self._ahead = self._land_ahead(ready, topics, reader, goal)
        reports: dict[str, BatchReport] = {}
        for topic, batch in ready.items():
            with self._giving_up(topic):
                reports[topic] = self._loaders[topic].commit(batch, reader)
        self._rounds += bool(reports)
        again = [plans[topic] for topic in plans if topic not in {*landed, *self.errors}]
        report = _sum(self._rounds, reports, time.monotonic() - started)
        return replace(
            report, behind=report.behind + sum(each.size + each.behind for each in again)
        )

    def _plan(
        self,
        topics: Topics,
        reader: TopicReader,
        goal: TopicEnds | None,
        ready: Mapping[str, Ready],
    ) -> dict[str, Plan]:
        """Return the next batch of every table; ``ready`` are batches that it follows and that are
        not committed yet.
        """
        plans: dict[str, Plan] = {}
        for topic, ends in by_topic(self._ends(topics, reader)).items():
            wanted = None if goal is None else only(goal, topic)
            plan = None
            if topic in ready:
                # What is wrong with it is met again when it is planned from its table's ledger.
                with contextlib.suppress(*FATAL_FOR_A_TOPIC.values()):
                    plan = self._loaders[topic].plan_after(ready[topic], reader, ends, wanted)
            else:
                with self._giving_up(topic):
                    loader = self._loader(topic, topics, reader, ends)
                    plan = None if loader is None else loader.plan(reader, ends, wanted)
            if plan is not None:
                plans[topic] = plan
        return plans

    def _land_ahead(
        self,
        ready: Mapping[str, Ready],
        topics: Topics,
        reader: TopicReader,
        goal: TopicEnds | None,
    ) -> LandingAhead[Round, list[Landed | Exception]] | None:
        """Begin to land the round behind one that is ready to be committed, if a table is behind.

        A fault of that round is no reason to leave this one.
        """
        loaders = [loader for topic, loader in self._loaders.items() if topic not in self.errors]
        is_behind = any(each.plan.behind for each in ready.values())
        if not is_behind or any(loader.is_maintenance_due() for loader in loaders):
            return None
        try:
            plans = self._plan(topics, reader, goal, ready)
            if not plans:
                return None
            works = self._works(plans)
            is_small = self._are_small(plans, works)
            run = self._inherit(lambda: self._run(works, is_small=is_small))
            return LandingAhead(Round(plans, works), run)
        except Exception as error:  # whatever planning raises: the network's errors, Spark's
            log.info("round %d is not landed ahead: %s", self._rounds + 2, error)
            return None

    def _drop_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        works = ahead.plan.works

        def discard(outcomes: Sequence[Landed | Exception]) -> None:
            for work, outcome in zip(works, outcomes, strict=True):
                if isinstance(outcome, Landed):
                    self._loaders[work.topic].discard([outcome])

        ahead.drop(discard)

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
        made = Loader(
            settings,
            local_runner,
            parallelism=self._parallelism,
            rejected=self._rejected,
            counted_as=topic,
        )
        other = self._by_table.get(str(settings.table))
        if other is not None:
            raise same_table(other, settings.table)
        if not made.prepare(topics, reader, ends):
            return None
        self._loaders[topic] = made
        self._by_table[str(settings.table)] = topic
        log.info("%s goes into %s", topic, settings.table)
        return made

    def _land(
        self,
        plans: Mapping[str, Plan],
        found: Sequence[tuple[Work, Landed | Exception]] | None = None,
    ) -> dict[str, list[Landed]]:
        """Run the tasks of all plans in one job; run those again whose table got more columns.

        ``found`` are the results of a first run.
        """
        waiting = dict(plans)
        done: dict[str, list[Landed]] = {}
        for _ in range(EVOLUTIONS):
            if found is None:
                works = self._works(waiting)
                outcomes = self._run(works, is_small=self._are_small(waiting, works))
                found = list(zip(works, outcomes, strict=True))
            self._accept(found, waiting, done)
            if not waiting:
                return done
            found = None
        for topic in waiting:
            self._give_up(topic, ConfigError(f"its columns changed {EVOLUTIONS} times in a batch"))
        return done

    def _accept(
        self,
        found: Sequence[tuple[Work, Landed | Exception]],
        waiting: dict[str, Plan],
        done: dict[str, list[Landed]],
    ) -> None:
        """Move topics from ``waiting`` to ``done``, but for those that have to run again; topics
        whose loads have ended, or whose batches have to be planned again, are in neither.
        """
        landed: dict[str, list[Landed]] = {topic: [] for topic in waiting}
        for work, outcome in found:
            if isinstance(outcome, Landed):
                landed[work.topic].append(outcome)
            elif work.topic not in self.errors:
                self._give_up(work.topic, outcome)
        for topic, files in landed.items():
            if topic not in self.errors:
                with self._giving_up(topic):
                    verdict = self._loaders[topic].accept(waiting[topic], files)
                    if verdict is Verdict.LAND_AGAIN:
                        continue
                    if verdict is Verdict.COMMIT:
                        done[topic] = files
            del waiting[topic]

    def _works(self, plans: Mapping[str, Plan]) -> list[Work]:
        works = []
        for topic, plan in plans.items():
            with self._giving_up(topic):
                tasks, landing = self._loaders[topic].tasks(plan)
                works += [Work(topic, n, ranges, landing) for n, ranges in enumerate(tasks)]
        return works

    def _are_small(self, plans: Mapping[str, Plan], works: Sequence[Work]) -> bool:
        """Tell whether the driver lands tasks: together they are too small for a Spark job."""
        return len(works) == len(plans) and all(
            self._loaders[topic].is_small(plan) for topic, plan in plans.items()
        )

    def _run(self, works: Sequence[Work], *, is_small: bool) -> list[Landed | Exception]:
        return land_works_locally(works) if is_small else self._runner(works)

    @contextlib.contextmanager
    def _giving_up(self, topic: str) -> Iterator[None]:
        """End the load of one topic on an error of that topic."""
        try:
            yield
        except tuple(FATAL_FOR_A_TOPIC.values()) as error:
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
        {name: count for name, count in ends.counts.items() if name == topic},
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
