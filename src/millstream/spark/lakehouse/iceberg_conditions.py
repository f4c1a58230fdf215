"""Conditions on the rows of raw Iceberg tables, as pyiceberg has them.

Not as text: its parser takes minutes for some thousand numbers. Its classes are made of other
arguments than their annotations say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    Or,
)

from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition


def of_records(topic_partition: TopicPartition, offsets: Sequence[Offset]) -> BooleanExpression:
    """Return the condition for the rows of these records."""
    make: Callable[..., BooleanExpression] = In
    return And(_of_partition(topic_partition), make("offset", list(offsets)))


def from_positions(positions: Mapping[TopicPartition, Offset]) -> BooleanExpression:
    """Return the condition for the rows of partitions from these offsets on."""
    make: Callable[..., BooleanExpression] = GreaterThanOrEqual
    found: BooleanExpression = AlwaysFalse()
    for topic_partition, position in positions.items():
        found = Or(found, And(_of_partition(topic_partition), make("offset", position)))
    return found


def _of_partition(topic_partition: TopicPartition) -> BooleanExpression:
    make: Callable[..., BooleanExpression] = EqualTo
    return And(make("topic", topic_partition.topic), make("partition", topic_partition.partition))
