"""On the driver: from options to the offset ranges that tasks will read."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from millstream.client.cluster import Cluster, partitions_of
from millstream.client.errors import ConnectionFailedError
from millstream.client.offsets import EARLIEST, LATEST, end_offsets, find_offsets
from millstream.client.settings import ClientSettings, parse_bootstrap_servers
from millstream.model.errors import ConfigError, ErrorCode, KafkaError, MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.kafka_settings import KafkaSettings
from millstream.spark.offsets import AtOffsets, lookups, resolve
from millstream.spark.options import (
    Assign,
    BoundOption,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    Subscription,
)
from millstream.spark.ranges import OffsetRange, split

log = logging.getLogger(__name__)

T = TypeVar("T")


class DataLossError(MillstreamError):
    """Offsets that were asked for are not in the log; the text names them."""


def connect(settings: KafkaSettings) -> Cluster:
    """Return the cluster that ``kafka.bootstrap.servers`` names; ConfigError names the option."""
    try:
        addresses = parse_bootstrap_servers(settings.bootstrap_servers)
    except ConfigError as error:
        raise ConfigError(f"option kafka.bootstrap.servers: {error}") from None
    return Cluster(
        ClientSettings(
            bootstrap_servers=addresses,
            client_id=settings.client_id,
            request_timeout_ms=settings.request_timeout_ms,
        )
    )


def plan_ranges(options: SourceOptions) -> list[OffsetRange]:
    """Return what to read, one range for each task.

    Raises ConfigError for options that do not fit the topics, DataLossError, KafkaError, and
    ConnectionFailedError when no broker answers after the retries that the options allow.
    """
    attempts_left = options.retries
    while True:
        try:
            with connect(options.kafka) as cluster:
                ranges = _ranges(cluster, options)
            break
        except ConnectionFailedError:
            if not attempts_left:
                raise
            attempts_left -= 1
            time.sleep(options.retry_interval_ms / 1000)
    return split(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )


def _ranges(cluster: Cluster, options: SourceOptions) -> list[OffsetRange]:
    places = places_of(cluster, options.subscription)
    log_ends = LogEnds(
        end_offsets(cluster, places, which=EARLIEST),
        end_offsets(cluster, places, which=LATEST, read_committed=options.kafka.read_committed),
    )

    starts = starting_offsets(cluster, options, log_ends.earliest, log_ends.latest)
    ends = resolve(
        options.ending.rule,
        places,
        _look_up(cluster, options.ending, places, log_ends),
        when_nothing_matches=log_ends.latest.__getitem__,
    )
    return [
        _range(options, place, (starts[place], ends[place]), log_ends.of(place)) for place in places
    ]


def starting_offsets(
    cluster: Cluster,
    options: SourceOptions,
    earliest: Mapping[TopicPartition, Offset],
    latest: Mapping[TopicPartition, Offset],
) -> dict[TopicPartition, Offset]:
    """Return where each partition's read starts; the ends of the logs are known already.

    Raises ConfigError when a starting timestamp matches nothing and the options forbid that.
    """
    places = list(latest)

    def nothing_after_start(place: TopicPartition) -> Offset:
        if options.latest_when_no_timestamp_matches:
            return latest[place]
        raise ConfigError(
            f"option {options.starting.option}: {place} has no record at or after that time "
            "(startingOffsetsByTimestampStrategy=latest starts at the end then)"
        )

    return resolve(
        options.starting.rule,
        places,
        _look_up(cluster, options.starting, places, LogEnds(earliest, latest)),
        when_nothing_matches=nothing_after_start,
    )


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The first offset of each partition, and the one after its last."""

    earliest: Mapping[TopicPartition, Offset]
    latest: Mapping[TopicPartition, Offset]

    def of(self, place: TopicPartition) -> tuple[Offset, Offset]:
        """Return both ends of one partition."""
        return self.earliest[place], self.latest[place]


def places_of(cluster: Cluster, subscription: Subscription) -> list[TopicPartition]:
    """Return the partitions that are read; ConfigError names the option when one is missing."""
    match subscription:
        case Assign():
            for place in subscription.partitions:
                _existing("assign", partial(cluster.partition, place))
            return list(subscription.partitions)
        case Subscribe():
            return partitions_of(
                [
                    _existing("subscribe", partial(cluster.topic, name))
                    for name in subscription.topics
                ]
            )
        case SubscribePattern():
            pattern = re.compile(subscription.pattern)
            names = sorted(
                topic.name
                for topic in cluster.metadata().topics.values()
                if not topic.is_internal and pattern.fullmatch(topic.name)
            )
            return partitions_of([cluster.topic(name) for name in names])


def _existing(option: str, find: Callable[[], T]) -> T:
    try:
        return find()
    except KafkaError as error:
        if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ConfigError(f"option {option}: {error.message} does not exist") from None
        raise


def _look_up(
    cluster: Cluster, bound: BoundOption, places: Sequence[TopicPartition], log_ends: LogEnds
) -> dict[TopicPartition, Offset | None]:
    """Ask the cluster what one side of the read needs to know; the ends are known already."""
    answers: dict[TopicPartition, Offset | None] = {}
    timestamps: dict[TopicPartition, int] = {}
    for lookup in lookups(bound.rule, places, option=bound.option):
        place = lookup.topic_partition
        if lookup.timestamp == EARLIEST:
            answers[place] = log_ends.earliest[place]
        elif lookup.timestamp == LATEST:
            answers[place] = log_ends.latest[place]
        else:
            timestamps[place] = lookup.timestamp
    for place, found in find_offsets(cluster, timestamps).items():
        answers[place] = None if found is None else found.offset
    return answers


def _range(
    options: SourceOptions,
    place: TopicPartition,
    wanted: tuple[Offset, Offset],
    log_ends: tuple[Offset, Offset],
) -> OffsetRange:
    """Return the range to read of one partition, after what is lost has been told or cut off."""
    start, end = wanted
    earliest, latest = log_ends
    if start > end and _states_offsets(options.starting) and _states_offsets(options.ending):
        raise ConfigError(
            f"option {options.starting.option}: {start} is after {end} of "
            f"{options.ending.option} in {place}"
        )
    lost = [
        f"[{low}, {high})"
        for low, high in ((start, min(end, earliest)), (max(start, latest), end))
        if low < high
    ]
    if start > latest:
        lost = [f"[{latest}, {start})"]
    if lost:
        _report_loss(options, place, lost, f"it holds [{earliest}, {latest})")
    start = min(max(start, earliest), latest)
    return OffsetRange(place, start, max(start, min(end, latest)))


def _states_offsets(bound: BoundOption) -> bool:
    return isinstance(bound.rule, AtOffsets)


def _report_loss(
    options: SourceOptions, place: TopicPartition, lost: Sequence[str], holds: str
) -> None:
    text = f"offsets {' and '.join(lost)} of {place} are not in the log: {holds}"
    if options.fail_on_data_loss:
        raise DataLossError(f"{text} (option failOnDataLoss=false reads what is there)")
    log.warning("%s", text)
