"""What a consumer hands out, and what it is told about offsets."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset
from millstream.model.topic import TopicPartition
from millstream.records.record import Header

K = TypeVar("K")
V = TypeVar("V")


class TimestampType(IntEnum):
    """Who set a record's timestamp."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record; ``timestamp`` in milliseconds since 1970, −1 for none.

    ``key`` and ``value`` are None where the record has none; a deserializer never sees that.
    ``leader_epoch`` is −1 where the log does not tell.
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
        """Where the record lies."""
        return TopicPartition(self.topic, self.partition)


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next record to read, and what was noted beside it.

    ``leader_epoch`` is that of the record before, −1 when it is not known (KIP-320).
    """

    offset: Offset
    metadata: str = ""
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | Offset]
"""What to commit: an offset alone, or with metadata and leader epoch."""


def read_offset(given: OffsetAndMetadata | Offset) -> OffsetAndMetadata:
    """Return what a user means by an offset."""
    return OffsetAndMetadata(given) if isinstance(given, int) else given


def read_offsets(given: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """Return what a user means by offsets; None stays None."""
    return None if given is None else {place: read_offset(each) for place, each in given.items()}


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


class GroupMetadata(NamedTuple):
    """Who this consumer is in its group: what a transaction commits offsets under (KIP-447)."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
