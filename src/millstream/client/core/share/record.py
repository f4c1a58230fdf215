"""The records of a share consumer."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import TopicPartition
from millstream.records.record import Header

K = TypeVar("K")
V = TypeVar("V")


class ShareRecord(NamedTuple, Generic[K, V]):
    """One acquired record: a ``ConsumerRecord`` with ``delivery_count``, 1 the first time.

    ``timestamp`` in milliseconds since 1970, −1 for none. ``key`` and ``value`` are None if the
    record has none. ``leader_epoch`` is −1 if it is unknown.
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
    delivery_count: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The record's topic partition."""
        return TopicPartition(self.topic, self.partition)
