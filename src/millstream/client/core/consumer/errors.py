"""The errors of a consumer. They always say where to continue.

Like all errors of the client they have ``retriable`` and ``advice``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.client.core.consumer.record import OffsetAndMetadata
from millstream.client.errors import BrokerError, ClientError
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition


class RecordError(ClientError):
    """The record at ``offset`` of ``topic_partition`` cannot be read.

    The position stays at it. ``consumer.seek(error.topic_partition, error.next_offset)`` skips it;
    without that, the same error is raised again.
    """

    advice = "Seek past the record, or read it with another deserializer."

    def __init__(
        self,
        topic_partition: TopicPartition,
        offset: Offset,
        reason: str,
        *,
        next_offset: Offset | None = None,
    ) -> None:
        super().__init__(
            f"the record at offset {offset} of {topic_partition} cannot be read: {reason}; "
            f"seek to {offset + 1 if next_offset is None else next_offset} to go past it"
        )
        self.topic_partition = topic_partition
        self.offset = offset
        self.next_offset = offset + 1 if next_offset is None else next_offset


class RecordDeserializationError(RecordError):
    """The deserializer of the key or value (``part``) failed. The cause is attached."""

    def __init__(
        self, topic_partition: TopicPartition, offset: Offset, part: str, cause: Exception
    ) -> None:
        super().__init__(
            topic_partition,
            offset,
            f"{part}.deserializer failed with {type(cause).__name__}: {cause}",
        )
        self.part = part


class CorruptRecordError(RecordError):
    """A batch is damaged; ``next_offset`` is the offset after it, if that is known."""


class NoOffsetError(BrokerError):
    """Nothing was committed for these partitions, and ``auto.offset.reset`` is none."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        names = ", ".join(str(topic_partition) for topic_partition in sorted(self.partitions))
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"no committed offset for {names} and auto.offset.reset is none: seek, or commit one",
        )


class OffsetsOutOfRangeError(BrokerError):
    """The positions are not in the log, and ``auto.offset.reset`` is none."""

    def __init__(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        self.offsets = dict(offsets)
        names = ", ".join(
            f"{topic_partition} at {offset}" for topic_partition, offset in sorted(offsets.items())
        )
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"not in the log: {names}; auto.offset.reset is none: seek to where to read on",
        )


class LogTruncationError(BrokerError):
    """The log was truncated below the position: records that were read are no longer in it
    (KIP-320).

    ``divergent`` has the offset at which each partition's log diverges from what was read; None if
    it is unknown. Raised if ``auto.offset.reset`` is none; otherwise reading continues from there.
    """

    def __init__(
        self,
        positions: Mapping[TopicPartition, Offset],
        divergent: Mapping[TopicPartition, OffsetAndMetadata | None],
    ) -> None:
        self.positions = dict(positions)
        self.divergent = dict(divergent)
        names = ", ".join(
            f"{topic_partition} below {offset}"
            for topic_partition, offset in sorted(positions.items())
        )
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"the log was truncated: {names}; seek to read on"
        )


class CommitFailedError(BrokerError):
    """The consumer is not a member of the group any more, so its offsets are not committed.

    Its partitions are assigned to other members by now: poll to rejoin; records may be read twice.
    If this happens because ``poll`` was called too rarely, raise ``max.poll.interval.ms`` or lower
    ``max.poll.records``.
    """

    def __init__(self, reason: str = "the group has rebalanced without this member") -> None:
        super().__init__(
            ErrorCode.ILLEGAL_GENERATION, f"offsets are not committed: {reason}; poll to rejoin"
        )


class RebalanceInProgressError(BrokerError):
    """The group is rebalancing: poll to take part in it, then commit again."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.REBALANCE_IN_PROGRESS,
            "offsets are not committed: the group is rebalancing; poll, then commit again",
        )

    @property
    def retriable(self) -> bool:
        """True: after a poll the commit may succeed."""
        return True


class RetriableCommitError(BrokerError):
    """An asynchronous commit failed with a temporary error: commit again.

    Asynchronous commits are not retried automatically, because a later one may have succeeded by
    then. ``__cause__`` is the error.
    """

    def __init__(self, cause: Exception) -> None:
        error = cause.error if isinstance(cause, KafkaError) else ErrorCode.NETWORK_EXCEPTION
        super().__init__(error, f"offsets are not committed: {cause}; commit again")

    @property
    def retriable(self) -> bool:
        """True."""
        return True


class FencedInstanceIdError(BrokerError):
    """Another consumer uses this ``group.instance.id``: this one is permanently fenced."""

    def __init__(self, group_instance_id: str | None) -> None:
        super().__init__(
            ErrorCode.FENCED_INSTANCE_ID,
            f"another consumer has taken the group.instance.id {group_instance_id!r}",
        )


class WakeupError(ClientError):
    """``wakeup`` was called while, or before, this call waited."""

    retriable = True
    advice = "Call again, unless the wakeup was meant to end the work."

    def __init__(self) -> None:
        super().__init__("woken up")


class ConcurrentUseError(ClientError):
    """Another thread or task is already waiting in a poll of this consumer."""

    advice = "Use one consumer for each thread or task; only wakeup may be called from others."

    def __init__(self) -> None:
        super().__init__(
            "a consumer is used by one thread or task at a time, and another one polls"
        )
