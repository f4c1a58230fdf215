"""Kinds of audited events, and to which one a request belongs.

The kind follows from the API; the operation that is asked for moves it where one API does several
things: ClusterAction makes it `interbroker`, a change makes a question `management` (Metadata that
creates a topic), and what a change looks up is `describe`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from millstream.model.acl import AclOperation
from millstream.protocol.api import FIRST_INTERNAL_KEY, ApiKey


class EventKind(Enum):
    """What an event is about; the value is the word in settings and records."""

    AUTHENTICATION = "authentication"
    MANAGEMENT = "management"
    DESCRIBE = "describe"
    PRODUCE = "produce"
    CONSUME = "consume"
    INTERBROKER = "interbroker"


class Outcome(Enum):
    """How an event ended: the first three of authentications, the others of authorizations."""

    FAILED = "failed"
    SUCCEEDED = "succeeded"
    EXPIRED = "expired"
    DENIED = "denied"
    ALLOWED = "allowed"


_OF_AUTHENTICATION: Final = (Outcome.FAILED, Outcome.SUCCEEDED, Outcome.EXPIRED)
CLASSES: Final = tuple(
    (kind, outcome)
    for kind in EventKind
    for outcome in (
        _OF_AUTHENTICATION
        if kind is EventKind.AUTHENTICATION
        else (Outcome.DENIED, Outcome.ALLOWED)
    )
)
"""Every kind with each outcome that it may have: a setting and a rate limit for each."""

REPEATED: Final = frozenset(
    {EventKind.DESCRIBE, EventKind.PRODUCE, EventKind.CONSUME, EventKind.INTERBROKER}
)
"""Kinds of which the same allowed event is counted for a while instead of recorded again."""

UNAUDITED: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
        # What the audit log itself writes.
        ApiKey.WRITE_AUDIT_LOG,
    }
)
"""APIs of which nothing is recorded: nobody is asked whether they are allowed. Authentications are
recorded where they end."""

_BASE: Final = {
    EventKind.PRODUCE: (
        ApiKey.PRODUCE,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    ),
    EventKind.CONSUME: (
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    ),
    EventKind.MANAGEMENT: (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ),
    EventKind.INTERBROKER: (
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        *(key for key in ApiKey if key >= FIRST_INTERNAL_KEY and key not in UNAUDITED),
    ),
    EventKind.DESCRIBE: (
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ),
}

BASE_KINDS: Final[dict[int, EventKind]] = {
    int(key): kind for kind, keys in _BASE.items() for key in keys
}
"""The kind of each audited API."""

_CHANGES: Final = frozenset(
    {
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.ALTER_CONFIGS,
        AclOperation.CREATE_TOKENS,
    }
)
_QUESTIONS: Final = frozenset({AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS})


def kind_of(api_key: int, operation: AclOperation) -> EventKind:
    """Return the kind of an event: a client of an API was asked for an operation."""
    base = BASE_KINDS[api_key]
    if operation is AclOperation.CLUSTER_ACTION:
        return EventKind.INTERBROKER
    if base in (EventKind.DESCRIBE, EventKind.INTERBROKER) and operation in _CHANGES:
        return EventKind.MANAGEMENT
    if base is EventKind.MANAGEMENT and operation in _QUESTIONS:
        return EventKind.DESCRIBE
    return base


def kinds_of(api_key: int) -> frozenset[EventKind]:
    """Return the kinds that the events of an API may have."""
    return frozenset(kind_of(api_key, operation) for operation in AclOperation)
