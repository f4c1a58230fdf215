"""The records of a consumer, and the offsets and patterns that users pass to it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset
from millstream.model.topic import TopicPartition
from millstream.records.record import Header

_INT64_END: Final = 1 << 63
_INT32_END: Final = 1 << 31
_LONGEST_METADATA: Final = 32_767

K = TypeVar("K")
V = TypeVar("V")


class TimestampType(IntEnum):
    """The type of a record's timestamp."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record; ``timestamp`` in milliseconds since 1970, −1 for none.

    ``key`` and ``value`` are None if the record has none; deserializers are not called with it.
    ``leader_epoch`` is −1 if it is unknown.
    """

    topic: str
    partition: int
    offset: Offset
    timestamp: int
    timestamp_type: int
    key: K | None
    value: V | None
    headers: tuple[Header, ...]
    leader_epoch: LeaderEpoch

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's topic partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """An expression of RE2 that the group's coordinator matches whole topic names with.

    For ``group.protocol`` consumer (Kafka: ``SubscriptionPattern``). Topics that come later are
    assigned without this client listing all topics.
    """

    pattern: str

    def __post_init__(self) -> None:
        if not self.pattern:
            raise ValueError("an expression that topics are matched with is not empty")


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next record to read, and its metadata.

    ``leader_epoch`` is that of the record before, −1 when it is not known (KIP-320).
    """

    offset: Offset
    metadata: str = ""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | Offset]
"""What to commit: an offset alone, or with metadata and leader epoch."""


def read_offset(given: OffsetAndMetadata | Offset) -> OffsetAndMetadata:
    """Convert a user's offset; ValueError or TypeError if it is invalid.

    The ranges of offsets and epochs are checked here, because an error while encoding could not be
    reported.
    """
    if isinstance(given, OffsetAndMetadata):
        where = given
    else:
        try:
            where = OffsetAndMetadata(operator.index(given))
        except TypeError:
            raise TypeError(
                f"an offset is a whole number or an OffsetAndMetadata, not {given!r}"
            ) from None
    if not 0 <= where.offset < _INT64_END:
        raise ValueError(f"an offset is a number from 0 to 2^63 - 1, not {where.offset}")
    if not NO_LEADER_EPOCH <= where.leader_epoch < _INT32_END:
        raise ValueError(f"a leader epoch is a number up to 2^31 - 1, not {where.leader_epoch}")
    if len((where.metadata or "").encode()) > _LONGEST_METADATA:
        raise ValueError(f"the metadata of an offset takes at most {_LONGEST_METADATA} bytes")
    return where


def read_offsets(given: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """Convert a user's offsets; None stays None. Errors as for :func:`read_offset`."""
    if given is None:
        return None
    for topic_partition in given:
        if not isinstance(topic_partition, TopicPartition):
            raise TypeError(f"offsets are given by TopicPartition, not by {topic_partition!r}")
    return {topic_partition: read_offset(each) for topic_partition, each in given.items()}


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


class GroupMetadata(NamedTuple):
    """The group metadata of a consumer, for committing offsets in a transaction (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
