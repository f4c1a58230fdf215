"""What an error means for the transaction in which it occurs (KIP-1050).

===================  ==============================================================================
severity             what happens
===================  ==============================================================================
RETRIABLE            the request is sent again
REFRESH_RETRIABLE    the coordinator is looked up, and the request is sent again
ABORTABLE            the application has to abort the transaction; then it may go on
FATAL                the producer has to be closed: another one has taken over, its state in the
                     cluster is gone, or the request will never be permitted
===================  ==============================================================================

Kafka: ``TransactionManager`` and its handlers. Errors of a group's membership end the transaction
only, because the consumer rejoins by itself and the offsets are read again.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from millstream.client.errors import (
    AbortableTransactionError,
    ConnectionFailedError,
    FatalTransactionError,
    ProducerFencedError,
    RequestValueError,
    TransactionError,
)
from millstream.model.errors import ErrorCode, KafkaError


class Severity(Enum):
    """The classes of errors; see the table above."""

    RETRIABLE = auto()
    REFRESH_RETRIABLE = auto()
    ABORTABLE = auto()
    FATAL = auto()


_REFRESH: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
_RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
)
_FATAL_FOR_BATCHES: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def severity_of(error: Exception) -> Severity:
    """Return what the answer of a coordinator means."""
    if isinstance(error, ConnectionFailedError):
        return Severity.REFRESH_RETRIABLE
    if isinstance(error, RequestValueError):
        # It was not sent: what it was about is the application's, such as metadata of an offset.
        return Severity.ABORTABLE
    code = error.error if isinstance(error, KafkaError) else None
    if code in _REFRESH:
        return Severity.REFRESH_RETRIABLE
    if code in _RETRIABLE:
        return Severity.RETRIABLE
    if code in _ABORTABLE:
        return Severity.ABORTABLE
    return Severity.FATAL


def of_request(error: Exception, about: str) -> TransactionError:
    """Return the error for the application of a request that is not retried."""
    code = error.error if isinstance(error, KafkaError) else None
    if severity_of(error) is Severity.ABORTABLE:
        return _caused(AbortableTransactionError(f"{about}: {error}", code), error)
    if code in _FENCED:
        return _caused(ProducerFencedError(f"{about}: {error}", code), error)
    return _caused(FatalTransactionError(f"{about}: {error}", code), error)


def of_batch(error: Exception) -> TransactionError:
    """Return the error for the application of a batch that was not delivered.

    A leader's INVALID_PRODUCER_EPOCH is abortable: only the coordinator knows whether this
    producer is fenced, and says so when the transaction is aborted (KIP-588).
    """
    code = error.error if isinstance(error, KafkaError) else None
    about = f"records of the transaction were not delivered: {error}"
    if code is ErrorCode.PRODUCER_FENCED:
        return _caused(ProducerFencedError(about, code), error)
    if code in _FATAL_FOR_BATCHES:
        return _caused(FatalTransactionError(about, code), error)
    return _caused(AbortableTransactionError(about, code), error)


def _caused(error: TransactionError, cause: Exception) -> TransactionError:
    error.__cause__ = cause
    return error
