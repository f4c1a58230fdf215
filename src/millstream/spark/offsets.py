"""Where a read starts and ends: the rules given by options, and their JSON.

Pure: rules are values, and :func:`resolve` turns one into offsets once the cluster's answers are
there. The JSON is Spark's own: ``{"topic": {"0": 23, "1": -2}}``, where −1 is latest and −2 is
earliest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

LATEST_OFFSET: Final = -1
EARLIEST_OFFSET: Final = -2
LARGEST_LONG: Final = 2**63 - 1
"""The greatest offset or timestamp of a request."""


class Limit(Enum):
    """An end of the log, whatever its offset is when the query is planned."""

    EARLIEST = EARLIEST_OFFSET
    LATEST = LATEST_OFFSET


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for every partition; −1 and −2 stand for the ends of the log."""

    offsets: Mapping[TopicPartition, Offset]


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """For every partition the first record whose timestamp is at or after this one (ms)."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The same timestamp (ms) for every partition."""

    timestamp: int


OffsetRule: TypeAlias = Limit | AtOffsets | AtTimestamps | AtTimestamp


@dataclass(frozen=True, slots=True)
class Lookup:
    """The look-up for one partition: a timestamp (ms), or −1 / −2 for an end of the log."""

    topic_partition: TopicPartition
    timestamp: int


def parse_partition_numbers(option: str, text: str) -> dict[TopicPartition, int]:
    """Read ``{"topic": {"0": 23}}``; ConfigError names the option."""
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _parse_object(option, text).items():
        if not isinstance(partitions, dict):
            raise ConfigError(f"option {option}: {topic!r} needs an object of partition: number")
        for partition, number in partitions.items():
            if not partition.isdecimal() or isinstance(number, bool) or not isinstance(number, int):
                raise ConfigError(
                    f"option {option}: {topic!r} needs whole numbers, not "
                    f"{json.dumps({partition: number})}"
                )
            if number > LARGEST_LONG:
                raise ConfigError(f"option {option}: {number} of {topic!r} is above {LARGEST_LONG}")
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def parse_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Read ``{"topicA": [0, 1], "topicB": [2]}``; ConfigError names the option."""
    assigned: dict[TopicPartition, None] = {}
    for topic, partitions in _parse_object(option, text).items():
        if not isinstance(partitions, list) or not all(
            isinstance(number, int) and not isinstance(number, bool) and number >= 0
            for number in partitions
        ):
            raise ConfigError(f"option {option}: {topic!r} needs a list of partition numbers")
        assigned |= {TopicPartition(topic, number): None for number in partitions}
    if not assigned:
        raise ConfigError(f"option {option}: names no partition")
    return tuple(assigned)


def format_partition_numbers(numbers: Mapping[TopicPartition, int]) -> str:
    """Write what :func:`parse_partition_numbers` reads, in order of topic and partition."""
    topics: dict[str, dict[str, int]] = {}
    for topic_partition, number in sorted(numbers.items()):
        topics.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = number
    return json.dumps(topics, separators=(",", ":"))


def _parse_object(option: str, text: str) -> dict[str, object]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"option {option} is not JSON ({error}): {text}") from None
    if not isinstance(parsed, dict):
        raise ConfigError(f"option {option} needs a JSON object, not {text}")
    return parsed


def lookups(rule: OffsetRule, partitions: Iterable[TopicPartition], *, option: str) -> list[Lookup]:
    """Return the look-ups whose results :func:`resolve` needs.

    ConfigError when the rule names other partitions than those that are read.
    """
    topic_partitions = list(partitions)
    match rule:
        case Limit():
            return [Lookup(topic_partition, rule.value) for topic_partition in topic_partitions]
        case AtTimestamp():
            return [Lookup(topic_partition, rule.timestamp) for topic_partition in topic_partitions]
        case AtTimestamps():
            _require_same_partitions(option, rule.timestamps, topic_partitions)
            return [
                Lookup(topic_partition, rule.timestamps[topic_partition])
                for topic_partition in topic_partitions
            ]
        case AtOffsets():
            _require_same_partitions(option, rule.offsets, topic_partitions)
            return [
                Lookup(topic_partition, rule.offsets[topic_partition])
                for topic_partition in topic_partitions
                if rule.offsets[topic_partition] < 0
            ]


def _require_same_partitions(
    option: str, named: Mapping[TopicPartition, int], topic_partitions: list[TopicPartition]
) -> None:
    missing = sorted(set(topic_partitions) - set(named))
    unknown = sorted(set(named) - set(topic_partitions))
    if missing:
        raise ConfigError(
            f"option {option} must name every partition that is read; it lacks "
            f"{', '.join(map(str, missing))} (−1 is latest, −2 is earliest)"
        )
    if unknown:
        raise ConfigError(
            f"option {option} names partitions that are not read: {', '.join(map(str, unknown))}"
        )


def resolve(
    rule: OffsetRule,
    partitions: Iterable[TopicPartition],
    found: Mapping[TopicPartition, Offset | None],
    *,
    when_nothing_matches: Callable[[TopicPartition], Offset],
) -> dict[TopicPartition, Offset]:
    """Return the offset of each partition.

    ``found`` holds the answers to :func:`lookups`; None where no record is at or after the
    timestamp, and then ``when_nothing_matches`` decides (it may raise).
    """
    offsets: dict[TopicPartition, Offset] = {}
    for topic_partition in partitions:
        stated = rule.offsets[topic_partition] if isinstance(rule, AtOffsets) else LATEST_OFFSET
        answer = stated if stated >= 0 else found[topic_partition]
        offsets[topic_partition] = (
            when_nothing_matches(topic_partition) if answer is None else answer
        )
    return offsets
