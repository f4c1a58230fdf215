"""A request of each API that touches a resource of each kind, and what it needs to be allowed.

``CALLS`` has a row for each request: the API, its version, its fields (those that are left out are
zero or empty), and the rules of access that it needs, each with the error without it. The topic is
called ``t``, its id stands as ``T``; the group is ``g`` and the transactional id ``x``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from millstream.model.acl import CLUSTER_NAME, AclOperation, AclResource
from millstream.model.errors import ErrorCode
from millstream.protocol.api import APIS, ApiKey, request_class
from millstream.protocol.message import Request
from millstream.protocol.schema import Field, Struct
from millstream.records.builder import BatchBuilder, BatchOptions

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
)
CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
NOBODY: Final = 7_777
"""A producer id that nobody was given."""
TOPIC_ID: Final = "T"
"""Stands in fields for the id of the topic ``t``."""


@dataclass(frozen=True)
class Need:
    """A rule of access that a request needs, and how it is refused without it."""

    operation: AclOperation
    resource: AclResource
    name: str
    error: ErrorCode


def topic(operation: AclOperation) -> Need:
    return Need(operation, AclResource.TOPIC, "t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def group(operation: AclOperation) -> Need:
    return Need(operation, AclResource.GROUP, "g", ErrorCode.GROUP_AUTHORIZATION_FAILED)


def cluster(operation: AclOperation) -> Need:
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return Need(operation, AclResource.CLUSTER, CLUSTER_NAME, error)


def transaction(operation: AclOperation) -> Need:
    error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return Need(operation, AclResource.TRANSACTIONAL_ID, "x", error)


@dataclass(frozen=True)
class Call:
    """One request."""

    label: str
    key: ApiKey
    fields: Mapping[str, Any]
    needs: tuple[Need, ...]
    version: int

    def request(self, topic_id: bytes) -> Request:
        """Return the request with the id of the topic filled in."""
        made = _struct(request_class(self.key), self.version, self.fields, topic_id)
        assert isinstance(made, Request)
        return made


def _struct(kind: type[Struct], version: int, fields: Mapping[str, Any], topic_id: bytes) -> Struct:
    unknown = set(fields) - {field.name for field in kind.FIELDS}
    assert not unknown, f"{kind.__name__} has no {unknown}"
    return kind(
        **{
            field.name: _value(field, version, fields[field.name], topic_id)
            if field.name in fields and field.in_version(version)
            else _absent(field)
            for field in kind.FIELDS
        }
    )


def _value(field: Field, version: int, value: Any, topic_id: bytes) -> Any:
    if value is None:
        return None
    if isinstance(field.element, type):
        if isinstance(value, list):
            return [_struct(field.element, version, each, topic_id) for each in value]
        return _struct(field.element, version, value, topic_id)
    return topic_id if field.kind == "uuid" and value == TOPIC_ID else value


def _absent(field: Field) -> Any:
    if not field.required:
        return field.default_value()
    empty = {"bool": False, "string": "", "bytes": b"", "records": b"", "uuid": bytes(16)}
    return [] if field.kind == "array" else empty.get(field.kind, 0)


_CALLS: list[Call] = []
_SETTINGS_OF_NEW = Need(
    AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, "n", ErrorCode.TOPIC_AUTHORIZATION_FAILED
)
_MEMBER = Need(READ, AclResource.GROUP, "h", ErrorCode.GROUP_AUTHORIZATION_FAILED)


def _add(
    key: ApiKey, *needs: Need, label: str = "", version: int | None = None, **fields: Any
) -> None:
    last = APIS[key].last_version if version is None else version
    name = f"{key.name.lower()}{f'-{label}' if label else ''}"
    _CALLS.append(Call(name, key, fields, needs, last))


def one_batch() -> bytes:
    """Return a batch of one record."""
    builder = BatchBuilder(BatchOptions())
    builder.append(1_700_000_000_000, None, b"x")
    return bytes(builder.build())


_RECORDS = [{"index": 0, "records": one_batch()}]
_add(
    ApiKey.PRODUCE,
    topic(WRITE),
    label="by-name",
    version=12,
    acks=1,
    topic_data=[{"name": "t", "partition_data": _RECORDS}],
)
_add(
    ApiKey.PRODUCE,
    topic(WRITE),
    label="by-id",
    acks=1,
    topic_data=[{"topic_id": TOPIC_ID, "partition_data": _RECORDS}],
)
_PARTITION = [{"partition": 0, "partition_max_bytes": 100}]
_add(
    ApiKey.FETCH,
    topic(READ),
    label="by-name",
    version=12,
    topics=[{"topic": "t", "partitions": _PARTITION}],
)
_add(
    ApiKey.FETCH,
    topic(READ),
    label="by-id",
    topics=[{"topic_id": TOPIC_ID, "partitions": _PARTITION}],
)
_add(
    ApiKey.FETCH,
    Need(CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER_NAME, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    label="of-a-follower",
    replica_state={"replica_id": 2, "replica_epoch": 1},
    topics=[{"topic_id": TOPIC_ID, "partitions": _PARTITION}],
)
_add(
    ApiKey.LIST_OFFSETS,
    topic(DESCRIBE),
    topics=[{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
)
_add(ApiKey.METADATA, topic(DESCRIBE), label="by-name", topics=[{"name": "t"}])
_add(
    ApiKey.METADATA,
    topic(DESCRIBE),
    label="by-id",
    topics=[{"name": None, "topic_id": TOPIC_ID}],
)
_add(
    ApiKey.METADATA,
    Need(DESCRIBE, AclResource.TOPIC, "new", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    Need(CREATE, AclResource.TOPIC, "new", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    label="that-creates",
    topics=[{"name": "new"}],
    allow_auto_topic_creation=True,
)
_COMMITTED = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]
_add(
    ApiKey.OFFSET_COMMIT,
    group(READ),
    topic(READ),
    label="by-name",
    version=9,
    group_id="g",
    topics=[{"name": "t", "partitions": _COMMITTED}],
)
_add(
    ApiKey.OFFSET_COMMIT,
    group(READ),
    topic(READ),
    label="by-id",
    group_id="g",
    topics=[{"topic_id": TOPIC_ID, "partitions": _COMMITTED}],
)
for _label, _version, _topic in (
    ("by-name", 9, {"name": "t"}),
    ("by-id", 10, {"topic_id": TOPIC_ID}),
):
    _add(
        ApiKey.OFFSET_FETCH,
        group(DESCRIBE),
        topic(DESCRIBE),
        label=_label,
        version=_version,
        groups=[{"group_id": "g", "topics": [{**_topic, "partition_indexes": [0]}]}],
    )
_add(
    ApiKey.OFFSET_FETCH,
    group(DESCRIBE),
    label="of-all",
    groups=[{"group_id": "g", "topics": None}],
)
_add(ApiKey.FIND_COORDINATOR, group(DESCRIBE), label="of-a-group", coordinator_keys=["g"])
_add(
    ApiKey.FIND_COORDINATOR,
    transaction(DESCRIBE),
    label="of-a-transaction",
    key_type=1,
    coordinator_keys=["x"],
)
_add(
    ApiKey.FIND_COORDINATOR,
    cluster(CLUSTER_ACTION),
    label="of-shares",
    key_type=2,
    coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAQ:0"],
)
_add(
    ApiKey.JOIN_GROUP,
    group(READ),
    group_id="g",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    protocol_type="consumer",
    protocols=[{"name": "range", "metadata": b""}],
)
_add(ApiKey.HEARTBEAT, group(READ), group_id="g", member_id="m")
_add(ApiKey.LEAVE_GROUP, group(READ), group_id="g", members=[{"member_id": "m"}])
_add(
    ApiKey.SYNC_GROUP,
    group(READ),
    group_id="g",
    member_id="m",
    protocol_type="consumer",
    protocol_name="range",
)
_add(ApiKey.DESCRIBE_GROUPS, group(DESCRIBE), groups=["g"])
_add(
    ApiKey.CREATE_TOPICS,
    Need(CREATE, AclResource.TOPIC, "n", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    _SETTINGS_OF_NEW,
    topics=[{"name": "n", "num_partitions": 1, "replication_factor": 1}],
    timeout_ms=1000,
    validate_only=True,
)
_add(
    ApiKey.CREATE_TOPICS,
    Need(CREATE, AclResource.CLUSTER, CLUSTER_NAME, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    _SETTINGS_OF_NEW,
    label="on-the-cluster",
    topics=[{"name": "n", "num_partitions": 1, "replication_factor": 1}],
    timeout_ms=1000,
    validate_only=True,
)
_add(
    ApiKey.DELETE_RECORDS,
    topic(DELETE),
    topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}],
)
_add(
    ApiKey.DELETE_TOPICS,
    topic(DELETE),
    label="by-name",
    topics=[{"name": "t"}],
    timeout_ms=0x7FFF,
)
_add(
    ApiKey.DELETE_TOPICS,
    topic(DELETE),
    label="by-id",
    topics=[{"name": None, "topic_id": TOPIC_ID}],
    timeout_ms=0x7FFF,
)
_add(
    ApiKey.INIT_PRODUCER_ID,
    transaction(WRITE),
    transactional_id="x",
    transaction_timeout_ms=1000,
    producer_id=-1,
    producer_epoch=-1,
)
_add(
    ApiKey.INIT_PRODUCER_ID,
    Need(WRITE, AclResource.TOPIC, "t", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    label="to-any-topic",
    transactional_id=None,
    producer_id=-1,
    producer_epoch=-1,
)
_add(
    ApiKey.INIT_PRODUCER_ID,
    cluster(AclOperation.IDEMPOTENT_WRITE),
    label="idempotent",
    transactional_id=None,
    producer_id=-1,
    producer_epoch=-1,
)
_EPOCHS = [{"topic": "t", "partitions": [{"partition": 0, "current_leader_epoch": -1}]}]
_add(ApiKey.OFFSET_FOR_LEADER_EPOCH, topic(DESCRIBE), topics=_EPOCHS)
_add(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    Need(CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER_NAME, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    label="of-a-follower",
    topics=_EPOCHS,
)
_add(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    transaction(WRITE),
    topic(WRITE),
    label="of-a-client",
    version=3,
    v3_and_below_transactional_id="x",
    v3_and_below_producer_id=NOBODY,
    v3_and_below_topics=[{"name": "t", "partitions": [0]}],
)
_add(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    cluster(CLUSTER_ACTION),
    label="of-a-broker",
    transactions=[
        {
            "transactional_id": "x",
            "producer_id": NOBODY,
            "topics": [{"name": "t", "partitions": [0]}],
        },
    ],
)
_add(
    ApiKey.ADD_OFFSETS_TO_TXN,
    transaction(WRITE),
    group(READ),
    transactional_id="x",
    producer_id=NOBODY,
    group_id="g",
)
_add(ApiKey.END_TXN, transaction(WRITE), transactional_id="x", producer_id=NOBODY)
for _label, _operation in (("", CLUSTER_ACTION), ("to-abort", ALTER)):
    _add(
        ApiKey.WRITE_TXN_MARKERS,
        cluster(_operation),
        label=_label,
        markers=[{"producer_id": 1, "topics": [{"name": "t", "partition_indexes": [7]}]}],
    )
_add(
    ApiKey.TXN_OFFSET_COMMIT,
    transaction(WRITE),
    group(READ),
    topic(READ),
    transactional_id="x",
    producer_id=NOBODY,
    group_id="g",
    topics=[{"name": "t", "partitions": _COMMITTED}],
)
_RULE = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
_add(ApiKey.DESCRIBE_ACLS, cluster(DESCRIBE), **_RULE, resource_name_filter=None)
_add(
    ApiKey.CREATE_ACLS,
    cluster(ALTER),
    creations=[
        {
            "resource_type": 2,
            "resource_name": "other",
            "resource_pattern_type": 3,
            "principal": "User:b",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
        }
    ],
)
_add(
    ApiKey.DELETE_ACLS,
    cluster(ALTER),
    filters=[{**_RULE, "resource_name_filter": "other"}],
)
for _kind, _name, _need in (
    (2, "t", topic),
    (4, "1", cluster),
    (8, "1", cluster),
    (32, "g", group),
):
    _add(
        ApiKey.DESCRIBE_CONFIGS,
        _need(AclOperation.DESCRIBE_CONFIGS),
        label=f"of-type-{_kind}",
        resources=[{"resource_type": _kind, "resource_name": _name, "configuration_keys": None}],
    )
    for _key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS):
        if (_kind, _key) != (8, ApiKey.ALTER_CONFIGS):
            _add(
                _key,
                _need(AclOperation.ALTER_CONFIGS),
                label=f"of-type-{_kind}",
                resources=[{"resource_type": _kind, "resource_name": _name}],
                validate_only=True,
            )
_add(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    cluster(ALTER),
    dirs=[{"path": "/nowhere", "topics": [{"name": "t", "partitions": [0]}]}],
)
_add(ApiKey.DESCRIBE_LOG_DIRS, cluster(DESCRIBE), topics=None)
_add(
    ApiKey.CREATE_PARTITIONS,
    topic(ALTER),
    topics=[{"name": "t", "count": 2, "assignments": None}],
    timeout_ms=1000,
    validate_only=True,
)
_add(ApiKey.DELETE_GROUPS, group(DELETE), groups_names=["g"])
_add(
    ApiKey.ELECT_LEADERS,
    cluster(ALTER),
    topic_partitions=[{"topic": "t", "partitions": [0]}],
    timeout_ms=1000,
)
_add(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    cluster(ALTER),
    timeout_ms=1000,
    topics=[{"name": "t", "partitions": [{"partition_index": 0, "replicas": None}]}],
)
_add(ApiKey.LIST_PARTITION_REASSIGNMENTS, cluster(DESCRIBE), timeout_ms=1000, topics=None)
_add(
    ApiKey.OFFSET_DELETE,
    group(DELETE),
    topic(READ),
    group_id="g",
    topics=[{"name": "t", "partitions": [{"partition_index": 0}]}],
)
_add(ApiKey.DESCRIBE_CLIENT_QUOTAS, cluster(AclOperation.DESCRIBE_CONFIGS))
_add(
    ApiKey.ALTER_CLIENT_QUOTAS,
    cluster(AclOperation.ALTER_CONFIGS),
    entries=[
        {
            "entity": [{"entity_type": "user", "entity_name": "b"}],
            "ops": [{"key": "producer_byte_rate", "value": 1.0}],
        }
    ],
    validate_only=True,
)
_add(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, cluster(DESCRIBE), users=[{"name": "b"}])
_add(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    cluster(ALTER),
    deletions=[{"name": "b", "mechanism": 1}],
)
_add(
    ApiKey.UPDATE_FEATURES,
    cluster(ALTER),
    timeout_ms=1000,
    feature_updates=[{"feature": "group.version", "max_version_level": 1}],
    validate_only=True,
)
_add(ApiKey.DESCRIBE_PRODUCERS, topic(READ), topics=[{"name": "t", "partition_indexes": [0]}])
_add(ApiKey.UNREGISTER_BROKER, cluster(ALTER), broker_id=77)
_add(ApiKey.DESCRIBE_TRANSACTIONS, transaction(DESCRIBE), transactional_ids=["x"])
_add(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    _MEMBER,
    topic(DESCRIBE),
    group_id="h",
    member_id="m",
    rebalance_timeout_ms=1000,
    subscribed_topic_names=["t"],
    topic_partitions=[],
)
_add(ApiKey.CONSUMER_GROUP_DESCRIBE, group(DESCRIBE), group_ids=["g"])
_add(ApiKey.LIST_CONFIG_RESOURCES, cluster(AclOperation.DESCRIBE_CONFIGS))
_add(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    topic(DESCRIBE),
    topics=[{"name": "t"}],
    response_partition_limit=10,
)
_add(
    ApiKey.SHARE_GROUP_HEARTBEAT,
    _MEMBER,
    topic(DESCRIBE),
    group_id="h",
    member_id="m",
    subscribed_topic_names=["t"],
)
_add(ApiKey.SHARE_GROUP_DESCRIBE, group(DESCRIBE), group_ids=["g"])
_SHARE = [{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 0}]}]
_add(
    ApiKey.SHARE_FETCH,
    group(READ),
    topic(READ),
    group_id="g",
    member_id="m",
    max_records=1,
    batch_size=1,
    max_bytes=1000,
    topics=_SHARE,
)
_add(
    ApiKey.SHARE_ACKNOWLEDGE,
    group(READ),
    group_id="g",
    member_id="m",
    share_session_epoch=1,
    topics=_SHARE,
)
_add(
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    group(DESCRIBE),
    topic(DESCRIBE),
    groups=[{"group_id": "g", "topics": [{"topic_name": "t", "partitions": [0]}]}],
)
_add(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    group(READ),
    group_id="g",
    topics=[{"topic_name": "t", "partitions": [{"partition_index": 0}]}],
)
_add(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    group(DELETE),
    group_id="g",
    topics=[{"topic_name": "t"}],
)
for _key in (
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
):
    _add(
        _key,
        cluster(CLUSTER_ACTION),
        group_id="g",
        topics=[{"topic_id": TOPIC_ID, "partitions": [{"partition": 0}]}],
    )

CALLS: Final = tuple(_CALLS)

OF_TOKENS: Final = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)
"""APIs that nobody may call without having authenticated; a token is its owner's and renewers'."""

HIDING: Final = frozenset({ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER})
"""APIs that refuse nothing: they show less."""
