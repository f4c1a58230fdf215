"""The options of `format("millstream")` for reading: the stock connector's names, typed.

:func:`parse_options` turns the texts that Spark hands over into one frozen value. Every error is a
ConfigError whose text names the option. Names ignore case, as in Spark. The options that the stock
connector defines for streaming queries and for writing are accepted and do nothing in a batch
read, as there; an unknown name is refused, because ignoring a misspelt option would read the wrong
data.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NoReturn, TypeAlias

from millstream.model.errors import ConfigError
from millstream.model.topic import TopicPartition
from millstream.spark.kafka_settings import KafkaSettings, parse_kafka_settings
from millstream.spark.offsets import (
    EARLIEST_OFFSET,
    LARGEST_LONG,
    LATEST_OFFSET,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Limit,
    OffsetRule,
    parse_assignment,
    parse_partition_numbers,
)
from millstream.spark.schema import COLUMNS, HEADERS

_USED: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "columns",
    "path",
    "logDirs",
    "maxBytesPerPartition",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
_OF_STREAMS_AND_SINKS: Final = (
    "groupIdPrefix",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "topic",
    "checkpointLocation",
    "queryName",
)
_KNOWN: Final = {name.lower(): name for name in (*_USED, *_OF_STREAMS_AND_SINKS)}
_KAFKA_PREFIX: Final = "kafka."
DEFAULT_FILE_TASK_BYTES: Final = 128 << 20
"""Bytes of files that one task reads by default (``maxBytesPerPartition``); Spark's own
``maxPartitionBytes``.
"""
_MILLISECONDS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True)
class Assign:
    """Read these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Read every partition of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """Read every partition of the topics whose whole name matches; internal ones never do."""

    pattern: str


Subscription: TypeAlias = Assign | Subscribe | SubscribePattern


@dataclass(frozen=True, slots=True)
class BoundOption:
    """One side of the read: the rule, and the name of the option that states it."""

    option: str
    rule: OffsetRule
    is_stated: bool = field(default=True, compare=False)
    """False if the option was not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLimits:
    """How much a micro-batch reads; None sets no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    """Fewer are waited for, up to ``max_delay_ms``."""
    max_delay_ms: int = 900_000
    max_bytes: int | None = None
    """Bytes of log, estimated from the size of the partitions."""

    @property
    def limits_anything(self) -> bool:
        """True if a micro-batch may be limited."""
        return (self.max_offsets, self.min_offsets, self.max_bytes) != (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All options of one read."""

    subscription: Subscription
    starting: BoundOption
    ending: BoundOption
    latest_when_no_timestamp_matches: bool
    """What happens if no record is at or after the starting timestamp: start at the end, or
    fail.
    """
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    columns: tuple[str, ...]
    retries: int
    retry_interval_ms: int
    poll_timeout_ms: int
    kafka: KafkaSettings
    log_dirs: tuple[str, ...] = ()
    """Log directories whose files are read instead of fetching from brokers."""
    max_bytes_per_partition: int | None = None
    """The approximate bytes of log that one task reads, if files are read."""
    trigger: TriggerLimits = TriggerLimits()


def load_source(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a load's source: it reads committed records unless they say
    otherwise.
    """
    given = dict(options)
    if "kafka.isolation.level" not in {name.lower() for name in given}:
        given["kafka.isolation.level"] = "read_committed"
    return given


def parse_options(options: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
    """Read the options of ``spark.read.format("millstream")``; ConfigError names the wrong one.

    A ``streaming`` query may start at the latest offsets, and has no end: see :func:`check_no_end`.
    """
    given = _by_known_name(options)
    include_headers = _boolean(given, "includeHeaders", default=False)
    strategy = given.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        _refuse("startingOffsetsByTimestampStrategy", "error or latest", strategy)
    log_dirs, only = _log_dirs(given)
    return SourceOptions(
        subscription=_subscription(given, is_path="path" in given, only=only),
        starting=_starting(given, streaming=streaming),
        ending=_ending(given),
        latest_when_no_timestamp_matches=strategy == "latest",
        fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
        min_partitions=_optional_count(given, "minPartitions"),
        max_records_per_partition=_optional_count(given, "maxRecordsPerPartition"),
        columns=_columns(given, include_headers=include_headers),
        retries=_count(given, "fetchOffset.numRetries", default=3, least=0),
        retry_interval_ms=_count(given, "fetchOffset.retryIntervalMs", default=10, least=0),
        poll_timeout_ms=_count(given, "kafkaConsumer.pollTimeoutMs", default=120_000, least=1),
        kafka=parse_kafka_settings(
            {
                name.lower().removeprefix(_KAFKA_PREFIX): text
                for name, text in options.items()
                if name.lower().startswith(_KAFKA_PREFIX)
            },
            needs_broker=not log_dirs,
        ),
        log_dirs=log_dirs,
        max_bytes_per_partition=_optional_count(given, "maxBytesPerPartition")
        or (DEFAULT_FILE_TASK_BYTES if log_dirs else None),
        trigger=_trigger(given) if streaming else TriggerLimits(),
    )


def check_no_end(options: SourceOptions) -> None:
    """Raise ConfigError for an option with an end, in a read without one."""
    if options.ending.is_stated:
        raise ConfigError(
            f"option {options.ending.option} is of batch reads: a stream or a load has no end"
        )


def check_known(names: Iterable[str], besides: Mapping[str, str] = MappingProxyType({})) -> None:
    """Raise ConfigError for an unknown option; the message names the nearest one.

    ``besides`` are further options, by their names in lower case.
    """
    known = {**_KNOWN, **besides}
    for name in names:
        lowered = name.lower()
        if not lowered.startswith(_KAFKA_PREFIX) and lowered not in known:
            near = difflib.get_close_matches(lowered, [*known, "kafka.bootstrap.servers"], n=1)
            hint = f"; did you mean {known.get(near[0], near[0])}?" if near else ""
            raise ConfigError(f"option {name} is unknown{hint}")


def _by_known_name(options: Mapping[str, str]) -> dict[str, str]:
    check_known(options)
    return {
        _KNOWN[name.lower()]: text.strip()
        for name, text in options.items()
        if not name.lower().startswith(_KAFKA_PREFIX)
    }


def _log_dirs(given: Mapping[str, str]) -> tuple[tuple[str, ...], TopicPartition | None]:
    """Return the log directories, and the one partition that ``path`` names if it does."""
    if "path" in given:
        if "logDirs" in given:
            raise ConfigError("only one of the options path and logDirs can be given")
        from millstream.spark.log_files.paths import read_path

        directory, only = read_path(given["path"])
        return (directory,), only
    if "logDirs" not in given:
        return (), None
    directories = tuple(part.strip() for part in given["logDirs"].split(",") if part.strip())
    if not directories:
        _refuse("logDirs", "directories with commas between them", given["logDirs"])
    return directories, None


def _subscription(
    given: Mapping[str, str], *, is_path: bool, only: TopicPartition | None
) -> Subscription:
    """Read what is subscribed to; a ``path`` without a subscription is read whole."""
    stated = [name for name in ("assign", "subscribe", "subscribePattern") if name in given]
    if not stated and is_path:
        return SubscribePattern(".*") if only is None else Assign((only,))
    if len(stated) != 1:
        seen = " and ".join(stated) or "none"
        raise ConfigError(
            f"exactly one of the options assign, subscribe and subscribePattern is needed: {seen}"
        )
    name = stated[0]
    text = given[name]
    if name == "assign":
        return Assign(parse_assignment(name, text))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            _refuse(name, "topic names with commas between them", text)
        return Subscribe(topics)
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"option {name} is no regular expression ({error}): {text}") from None
    if not text:
        _refuse(name, "a regular expression", text)
    return SubscribePattern(text)


def _starting(given: Mapping[str, str], *, streaming: bool) -> BoundOption:
    return _bound(
        given,
        ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
        default=Limit.LATEST if streaming else Limit.EARLIEST,
        forbidden=None if streaming else LATEST_OFFSET,
    )


def _ending(given: Mapping[str, str]) -> BoundOption:
    return _bound(
        given,
        ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"),
        default=Limit.LATEST,
        forbidden=EARLIEST_OFFSET,
    )


def _bound(
    given: Mapping[str, str], names: tuple[str, str, str], *, default: Limit, forbidden: int | None
) -> BoundOption:
    """Read one side of the range; the first given option of ``names`` takes precedence, as in
    Spark.
    """
    at_timestamp, by_timestamp, by_offset = names
    if at_timestamp in given:
        return BoundOption(at_timestamp, AtTimestamp(_count(given, at_timestamp, least=0)))
    if by_timestamp in given:
        timestamps = parse_partition_numbers(by_timestamp, given[by_timestamp])
        if any(number < 0 for number in timestamps.values()):
            _refuse(by_timestamp, "timestamps in milliseconds", given[by_timestamp])
        return BoundOption(by_timestamp, AtTimestamps(timestamps))
    text = given.get(by_offset, default.name.lower())
    if text.lower() in ("earliest", "latest"):
        limit = Limit[text.upper()]
        if limit.value == forbidden:
            _refuse(by_offset, f"{default.name.lower()} or JSON in a batch query", text)
        return BoundOption(by_offset, limit, by_offset in given)
    if not text.startswith("{"):
        _refuse(by_offset, f'{default.name.lower()} or JSON like {{"topic":{{"0":23}}}}', text)
    offsets = parse_partition_numbers(by_offset, text)
    for number in offsets.values():
        if number == forbidden or number < EARLIEST_OFFSET:
            _refuse(by_offset, f"offsets from 0 on, or {default.value} in a batch query", text)
    return BoundOption(by_offset, AtOffsets(offsets))


def _trigger(given: Mapping[str, str]) -> TriggerLimits:
    limits = TriggerLimits(
        max_offsets=_optional_count(given, "maxOffsetsPerTrigger"),
        min_offsets=_optional_count(given, "minOffsetsPerTrigger"),
        max_delay_ms=_duration_ms(given, "maxTriggerDelay", default="15m"),
        max_bytes=_optional_count(given, "maxBytesPerTrigger"),
    )
    if limits.max_offsets and limits.min_offsets and limits.min_offsets > limits.max_offsets:
        _refuse("minOffsetsPerTrigger", "at most maxOffsetsPerTrigger", str(limits.min_offsets))
    return limits


def _duration_ms(given: Mapping[str, str], name: str, *, default: str) -> int:
    text = given.get(name, default)
    match = re.fullmatch(r"(\d{1,9})\s*(ms|s|m|min|h|d)?", text, re.ASCII)
    if match is None:
        _refuse(name, "a time such as 30s, 15m or 1h", text)
    return int(match[1]) * _MILLISECONDS[match[2] or "ms"]


def _columns(given: Mapping[str, str], *, include_headers: bool) -> tuple[str, ...]:
    everything = (*COLUMNS, HEADERS) if include_headers else COLUMNS
    if "columns" not in given:
        return everything
    chosen = tuple(dict.fromkeys(part.strip() for part in given["columns"].split(",")))
    for name in chosen:
        if name not in everything:
            _refuse("columns", f"some of {', '.join(everything)}", given["columns"])
    return chosen


def _boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        _refuse(name, "true or false", text)
    return text == "true"


def _count(given: Mapping[str, str], name: str, *, least: int, default: int | None = None) -> int:
    text = given.get(name, "" if default is None else str(default))
    if not re.fullmatch(r"\d{1,19}", text, re.ASCII) or not least <= int(text) <= LARGEST_LONG:
        _refuse(name, f"a whole number, at least {least} and at most {LARGEST_LONG}", text[:100])
    return int(text)


def _optional_count(given: Mapping[str, str], name: str) -> int | None:
    return _count(given, name, least=1) if name in given else None


def _refuse(option: str, wanted: str, text: str) -> NoReturn:
    raise ConfigError(f"option {option} takes {wanted}, not {text!r}")
