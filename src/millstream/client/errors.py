"""What can go wrong between a client and its brokers, apart from the answers' own error codes."""

from __future__ import annotations

from millstream.model.errors import ErrorCode, KafkaError, MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition


class ClientError(MillstreamError):
    """Base of the errors that are no answer of a broker."""


class ConnectionFailedError(ClientError):
    """No connection could be made, or the one there was broke; trying again may help."""


class TimedOutError(ConnectionFailedError):
    """A broker did not answer in time. Whether it did what was asked is not known."""


class UnsupportedVersionError(ClientError):
    """The broker does not serve the API, or no version of it that this client speaks."""


class OffsetOutOfRangeError(KafkaError):
    """The offset to read from is not in the log (any more, or yet)."""

    def __init__(self, topic_partition: TopicPartition, offset: Offset) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {topic_partition} is not in the log"
        )
        self.topic_partition = topic_partition
        self.offset = offset


TRANSIENT: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that pass by themselves once the client has learnt anew who leads what. Of the codes that
Kafka calls retriable, an unknown topic is left out: a tool says so at once."""


def raise_for(code: int, about: str) -> None:
    """Raise the KafkaError of a code other than 0; ``about`` says what it is about."""
    if code != 0:
        raise KafkaError(ErrorCode.of(code), about)
