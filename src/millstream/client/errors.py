"""What can go wrong between a client and its brokers.

Every error has ``retriable`` (the same call may succeed later) and ``advice`` (what the user can
do). An error of a broker is a :class:`BrokerError` with the broker's code; everything else is a
:class:`ClientError`. :func:`is_retriable` works for both.
"""

from __future__ import annotations

from typing import ClassVar, Final

from millstream.model.errors import ErrorCode, KafkaError, MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition


class ClientError(MillstreamError):
    """Base of the errors that are not error codes of a broker."""

    retriable: ClassVar[bool] = False
    advice: ClassVar[str] = "Read the message; it names what was refused."


class ConnectionFailedError(ClientError):
    """No connection could be established, or it broke; a retry may help."""

    retriable = True
    advice = "Check that the brokers run and that bootstrap.servers names their listeners."


class AuthenticationError(ClientError):
    """A broker refused this client, or this client refused the broker; the same will fail again.

    (Kafka: ``AuthenticationException``.)
    """

    advice = "Check security.protocol, sasl.mechanism and the credentials with the brokers' own."


class TlsError(AuthenticationError):
    """No TLS connection: certificates, versions or ciphers do not fit.

    (Kafka: ``SslAuthenticationException``.)
    """

    advice = "Check security.protocol, the ssl.* settings, and the certificates of both sides."


class TimedOutError(ConnectionFailedError):
    """A broker did not answer in time. It is unknown whether it has executed the request."""

    advice = "Look whether the brokers are overloaded or cut off; raise the timeout named."


class TopicRecreatedError(ClientError):
    """The topic was deleted, and another one has its name."""

    advice = "Read the new topic from its beginning; nothing of the old one is left."


class UnsupportedVersionError(ClientError):
    """The broker does not serve the API, or no version of it that this client speaks."""

    advice = "Use a broker that serves the API, or do without this function."


class ClosedError(ClientError):
    """The client was closed before or during the call."""

    advice = "Make a new client; a closed one does nothing any more."


class WaitInCallbackError(ClientError):
    """A callback tried to wait for the thread that runs it, which would be a deadlock."""

    advice = "Wait on another thread, or continue in a callback."


class ForkedError(ClientError):
    """The client was created in another process: threads and connections do not survive a fork."""

    advice = "Make the client after the fork, in the process that uses it."


class BufferFullError(TimedOutError):
    """``buffer.memory`` stayed full for ``max.block.ms``: brokers take less than is sent."""

    advice = "Send more slowly, or raise buffer.memory or max.block.ms."


class RecordTooLargeError(ClientError):
    """A single record exceeds ``max.request.size`` or ``buffer.memory``."""

    advice = "Send smaller records, or raise max.request.size and the topic's max.message.bytes."


class SerializationError(ClientError):
    """A key or value could not be turned into bytes, or bytes could not be read."""

    advice = "Give bytes, or a serializer that takes what you send."


class RequestValueError(ClientError, ValueError):
    """A value does not fit into its field of a request, which was not sent."""

    advice = "Read the message; it names the value that is too long, too large or of another type."


class TransactionStateError(ClientError):
    """The call does not fit the transaction's state, for example a ``send`` outside of one."""

    advice = (
        "Give the producer a transactional_id, call init_transactions once, then begin, send, and "
        "commit or abort, in this order."
    )


class TransactionError(ClientError):
    """Base of the errors that end a transaction; ``error`` is the broker's code, if it was one."""

    def __init__(self, message: str, error: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.error = error


class AbortableTransactionError(TransactionError):
    """The transaction cannot be committed: abort it (KIP-1050). Then a new one may begin."""

    advice = "Call abort_transaction(), then repeat the transaction from its beginning."


class TransactionAbortedError(TransactionError):
    """The records were dropped before they were sent, because their transaction was aborted."""

    advice = "Nothing is left to do: the transaction was aborted."


class FatalTransactionError(TransactionError):
    """The producer cannot go on (KIP-1050: application-recoverable or invalid configuration)."""

    advice = "Close this producer; a new one with the same transactional.id ends what it left."


class ProducerFencedError(FatalTransactionError):
    """Another producer with this ``transactional.id`` has taken over, or the transaction took
    longer than ``transaction.timeout.ms``.
    """

    advice = "Close this producer: a newer one has taken its place, or its transaction timed out."


class BrokerError(KafkaError):
    """A broker refused: ``error`` is its code, ``message`` what it said. A refusal for want of a
    right is an :class:`AuthorizationError`.
    """

    def __new__(cls, *given: object, **named: object) -> BrokerError:
        """Return an error of the class that the code has."""
        if cls is BrokerError:
            error = given[0] if given else named.get("error")
            for code, kind in _AUTHORIZATION_ERRORS.items():
                if error is code:
                    return super().__new__(kind, *given)
        return super().__new__(cls, *given)

    @property
    def retriable(self) -> bool:
        """True when the same request may succeed later."""
        return self.error.retriable

    @property
    def advice(self) -> str:
        """What the user can do."""
        return advice_for(self.error)


class AuthorizationError(BrokerError):
    """The client's user lacks a right; the message names on what (Kafka:
    ``AuthorizationException``). The broker's log, and ``millstream acl check``, say which right.
    """


class TopicAuthorizationError(AuthorizationError):
    """On a topic."""


class GroupAuthorizationError(AuthorizationError):
    """On a group."""


class ClusterAuthorizationError(AuthorizationError):
    """On the cluster."""


class TransactionalIdAuthorizationError(AuthorizationError):
    """On a transactional id."""


_AUTHORIZATION_ERRORS: Final[dict[ErrorCode, type[AuthorizationError]]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: TopicAuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: GroupAuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ClusterAuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TransactionalIdAuthorizationError,
}


class OffsetOutOfRangeError(BrokerError):
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
"""Errors that are temporary and are retried after a metadata update. An unknown topic, which Kafka
calls retriable, is left out: a tool reports it at once.
"""

_ADVICE: Final[dict[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Create the topic, or check its name and the partition.",
    ErrorCode.MESSAGE_TOO_LARGE: (
        "Send smaller records or batches, or raise max.message.bytes of the topic."
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: "Lower batch.size, or raise segment.bytes of the topic.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Use a legal topic name: letters, digits, '.', '_', '-'.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "Ask for the right on this topic: millstream acl check USER OPERATION --topic NAME."
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "Ask for the right on this group: millstream acl check USER OPERATION --group NAME."
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "Ask for the right on the cluster: millstream acl check USER OPERATION --cluster."
    ),
    ErrorCode.OFFSET_OUT_OF_RANGE: "Seek to an offset that is there, or set auto.offset.reset.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Bring replicas back, or lower min.insync.replicas.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "Ask for at most as many replicas as there are brokers.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Use the topic that is there, or another name.",
    ErrorCode.NON_EMPTY_GROUP: "Stop the members of the group first.",
    ErrorCode.GROUP_ID_NOT_FOUND: "Check the name of the group.",
    ErrorCode.FENCED_INSTANCE_ID: "Give each member a different group.instance.id.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "Close this producer: a newer one has taken its place.",
    ErrorCode.PRODUCER_FENCED: "Close this producer: a newer one has taken its place.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        "Records may be missing: look at what was acknowledged before sending on."
    ),
    ErrorCode.INVALID_RECORD: "Read the message: the topic's rules refuse these records.",
    ErrorCode.INVALID_TIMESTAMP: "Send timestamps within the topic's message.timestamp limits.",
    ErrorCode.INVALID_CONFIG: "Correct the setting that the message names.",
    ErrorCode.POLICY_VIOLATION: "The broker's rules forbid this; ask who runs it.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "Choose another compression.type.",
    ErrorCode.TRANSACTION_ABORTABLE: "Abort the transaction, and repeat it from its beginning.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "Lower transaction.timeout.ms, or raise transaction.max.timeout.ms of the brokers."
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "Ask for the right on it: millstream acl check USER OPERATION --transactional-id NAME."
    ),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "Check the transactional id.",
}


def advice_for(error: ErrorCode) -> str:
    """Return what a user can do about an error code."""
    known = _ADVICE.get(error)
    if known is not None:
        return known
    if error.retriable:
        return "Try again later: this is a temporary state of the cluster."
    return "Read the broker's message and its log; the same request will be refused again."


def is_retriable(error: BaseException) -> bool:
    """Return True when trying the same again may help."""
    if isinstance(error, KafkaError):
        return error.error.retriable
    return isinstance(error, ClientError) and error.retriable


def raise_for(code: int, about: str) -> None:
    """Raise the BrokerError of a code other than 0; ``about`` names the subject."""
    if code != 0:
        raise BrokerError(ErrorCode.of(code), about)
