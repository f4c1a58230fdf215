"""On the driver: from options to the offset ranges that tasks will read."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.client.errors import ConnectionFailedError
from millstream.model.errors import ConfigError, MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtOffsets,
    lookups,
    resolve,
)
from millstream.spark.options import BoundOption, SourceOptions
from millstream.spark.ranges import OffsetRange, pack, split
from millstream.spark.topics import Topics, open_topics

log = logging.getLogger(__name__)


class RecreatedTopicError(MillstreamError):
    """A topic was deleted; another one has its name."""


class DataLossError(MillstreamError):
    """Requested offsets are not in the log; the text names them."""


def plan_ranges(options: SourceOptions) -> list[OffsetRange]:
    """Return what to read, one range for each task.

    Raises ConfigError for options that do not fit the topics, DataLossError, KafkaError, and
    ConnectionFailedError when no broker answers after the retries that the options allow.
    """
    attempts_left = options.retries
    while True:
        try:
            with open_topics(options) as topics:
                ranges = _ranges(topics, options)
            break
        except ConnectionFailedError:
            if not attempts_left:
                raise
            attempts_left -= 1
            time.sleep(options.retry_interval_ms / 1000)
    return split_ranges(ranges, options)


def split_ranges(ranges: Sequence[OffsetRange], options: SourceOptions) -> list[OffsetRange]:
    """Return the ranges cut into one for each task, by bytes if files are read."""
    if options.log_dirs:
        from millstream.spark.log_files.splitting import split_by_bytes

        ranges = split_by_bytes(
            [each for each in ranges if each.size > 0],
            options.log_dirs,
            max_bytes=options.max_bytes_per_partition,
            min_partitions=options.min_partitions,
        )
    return split(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )


def tasks_of(
    ranges: Sequence[OffsetRange], options: SourceOptions
) -> list[tuple[OffsetRange, ...]]:
    """Return what each task reads: one range, or several small ones.

    Where an option says how many tasks there are or how large they may be, each range has one.
    """
    if options.min_partitions is not None or options.max_records_per_partition is not None:
        return [(each,) for each in ranges]
    return pack(ranges)


def _ranges(topics: Topics, options: SourceOptions) -> list[OffsetRange]:
    topic_partitions = topics.topic_partitions(options.subscription)
    log_ends = LogEnds(
        topics.earliest(topic_partitions),
        topics.latest(topic_partitions, read_committed=options.kafka.read_committed),
    )

    starts = starting_offsets(topics, options, log_ends.earliest, log_ends.latest)
    ends = resolve(
        options.ending.rule,
        topic_partitions,
        _look_up(topics, options.ending, topic_partitions, log_ends),
        when_nothing_matches=log_ends.latest.__getitem__,
    )
    return [
        _range(
            options,
            topic_partition,
            (starts[topic_partition], ends[topic_partition]),
            log_ends.of(topic_partition),
        )
        for topic_partition in topic_partitions
    ]


def starting_offsets(
    topics: Topics,
    options: SourceOptions,
    earliest: Mapping[TopicPartition, Offset],
    latest: Mapping[TopicPartition, Offset],
) -> dict[TopicPartition, Offset]:
    """Return the starting offset of each partition; the ends of the logs are known already.

    Raises ConfigError when a starting timestamp matches nothing and the options forbid that.
    """
    topic_partitions = list(latest)

    def nothing_after_start(topic_partition: TopicPartition) -> Offset:
        if options.latest_when_no_timestamp_matches:
            return latest[topic_partition]
        raise ConfigError(
            f"option {options.starting.option}: {topic_partition} has no record at or after that "
            "time (startingOffsetsByTimestampStrategy=latest starts at the end then)"
        )

    return resolve(
        options.starting.rule,
        topic_partitions,
        _look_up(topics, options.starting, topic_partitions, LogEnds(earliest, latest)),
        when_nothing_matches=nothing_after_start,
    )


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The first offset of each partition, and the one after its last."""

    earliest: Mapping[TopicPartition, Offset]
    latest: Mapping[TopicPartition, Offset]

    def of(self, topic_partition: TopicPartition) -> tuple[Offset, Offset]:
        """Return both ends of one partition."""
        return self.earliest[topic_partition], self.latest[topic_partition]


def _look_up(
    topics: Topics,
    bound: BoundOption,
    topic_partitions: Sequence[TopicPartition],
    log_ends: LogEnds,
) -> dict[TopicPartition, Offset | None]:
    """Do the look-ups for one side of the read; the ends are known already."""
    answers: dict[TopicPartition, Offset | None] = {}
    timestamps: dict[TopicPartition, int] = {}
    for lookup in lookups(bound.rule, topic_partitions, option=bound.option):
        topic_partition = lookup.topic_partition
        if lookup.timestamp == EARLIEST_OFFSET:
            answers[topic_partition] = log_ends.earliest[topic_partition]
        elif lookup.timestamp == LATEST_OFFSET:
            answers[topic_partition] = log_ends.latest[topic_partition]
        else:
            timestamps[topic_partition] = lookup.timestamp
    return answers | topics.at_times(timestamps)


def _range(
    options: SourceOptions,
    topic_partition: TopicPartition,
    wanted: tuple[Offset, Offset],
    log_ends: tuple[Offset, Offset],
) -> OffsetRange:
    """Return the range to read of one partition, after lost offsets have been reported or
    skipped.
    """
    start, end = wanted
    earliest, latest = log_ends
    if start > end and _states_offsets(options.starting) and _states_offsets(options.ending):
        raise ConfigError(
            f"option {options.starting.option}: {start} is after {end} of "
            f"{options.ending.option} in {topic_partition}"
        )
    lost = [
        f"[{low}, {high})"
        for low, high in ((start, min(end, earliest)), (max(start, latest), end))
        if low < high
    ]
    if start > latest:
        lost = [f"[{latest}, {start})"]
    if lost:
        _report_loss(options, topic_partition, lost, f"it holds [{earliest}, {latest})")
    start = min(max(start, earliest), latest)
    return OffsetRange(topic_partition, start, max(start, min(end, latest)))


def _states_offsets(bound: BoundOption) -> bool:
    return isinstance(bound.rule, AtOffsets)


def _report_loss(
    options: SourceOptions, topic_partition: TopicPartition, lost: Sequence[str], holds: str
) -> None:
    text = f"offsets {' and '.join(lost)} of {topic_partition} are not in the log: {holds}"
    if options.fail_on_data_loss:
        raise DataLossError(f"{text} (option failOnDataLoss=false reads what is there)")
    log.warning("%s", text)
