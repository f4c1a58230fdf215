"""The APIs: their keys, the versions whose messages Millstream reads and writes, and their classes.

The handlers decide what a broker advertises; this table only has what can be encoded.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from millstream.model.errors import ProtocolError

if TYPE_CHECKING:
    from millstream.protocol.message import Request, Response

NEVER_FLEXIBLE: Final = 0x7FFF


class ApiKey(IntEnum):
    """The number of an API in the request header."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    PUSH_METADATA = 10000
    PROPOSE_ISR = 10001
    STOP_LEADING = 10002
    ENSURE_TOPIC = 10003
    DESCRIBE_REPLICAS = 10004
    REPORT_OFFLINE = 10005
    REPORT_SILENT_FOLLOWERS = 10006
    DESCRIBE_FETCHERS = 10007
    ENVELOPE = 10008
    WRITE_AUDIT_LOG = 10009


FIRST_INTERNAL_KEY: Final = 10_000
"""From here on keys are Millstream's own: used between brokers, never advertised to clients."""


class Api(NamedTuple):
    """One row: Kafka's name, the first and last version, and the first with tagged fields."""

    name: str
    first_version: int
    last_version: int
    first_flexible: int

    @property
    def module(self) -> str:
        """The module of :mod:`millstream.protocol.messages` that holds both classes."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.name).lower()


APIS: Final[dict[int, Api]] = {
    ApiKey.PRODUCE: Api("Produce", 3, 13, 9),
    ApiKey.FETCH: Api("Fetch", 4, 18, 12),
    ApiKey.LIST_OFFSETS: Api("ListOffsets", 1, 11, 6),
    ApiKey.METADATA: Api("Metadata", 0, 13, 9),
    ApiKey.OFFSET_COMMIT: Api("OffsetCommit", 2, 10, 8),
    ApiKey.OFFSET_FETCH: Api("OffsetFetch", 1, 10, 6),
    ApiKey.FIND_COORDINATOR: Api("FindCoordinator", 0, 6, 3),
    ApiKey.JOIN_GROUP: Api("JoinGroup", 0, 9, 6),
    ApiKey.HEARTBEAT: Api("Heartbeat", 0, 4, 4),
    ApiKey.LEAVE_GROUP: Api("LeaveGroup", 0, 5, 4),
    ApiKey.SYNC_GROUP: Api("SyncGroup", 0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: Api("DescribeGroups", 0, 6, 5),
    ApiKey.LIST_GROUPS: Api("ListGroups", 0, 5, 3),
    ApiKey.SASL_HANDSHAKE: Api("SaslHandshake", 0, 1, NEVER_FLEXIBLE),
    ApiKey.API_VERSIONS: Api("ApiVersions", 0, 4, 3),
    ApiKey.CREATE_TOPICS: Api("CreateTopics", 2, 7, 5),
    ApiKey.DELETE_TOPICS: Api("DeleteTopics", 1, 6, 4),
    ApiKey.DELETE_RECORDS: Api("DeleteRecords", 0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: Api("InitProducerId", 0, 5, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api("OffsetForLeaderEpoch", 2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: Api("AddPartitionsToTxn", 0, 5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: Api("AddOffsetsToTxn", 0, 4, 3),
    ApiKey.END_TXN: Api("EndTxn", 0, 5, 3),
    ApiKey.WRITE_TXN_MARKERS: Api("WriteTxnMarkers", 1, 2, 1),
    ApiKey.TXN_OFFSET_COMMIT: Api("TxnOffsetCommit", 0, 5, 3),
    ApiKey.DESCRIBE_ACLS: Api("DescribeAcls", 1, 3, 2),
    ApiKey.CREATE_ACLS: Api("CreateAcls", 1, 3, 2),
    ApiKey.DELETE_ACLS: Api("DeleteAcls", 1, 3, 2),
    ApiKey.DESCRIBE_CONFIGS: Api("DescribeConfigs", 1, 4, 4),
    ApiKey.ALTER_CONFIGS: Api("AlterConfigs", 0, 2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Api("AlterReplicaLogDirs", 1, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: Api("DescribeLogDirs", 1, 5, 2),
    ApiKey.SASL_AUTHENTICATE: Api("SaslAuthenticate", 0, 2, 2),
    ApiKey.CREATE_PARTITIONS: Api("CreatePartitions", 0, 3, 2),
    ApiKey.CREATE_DELEGATION_TOKEN: Api("CreateDelegationToken", 1, 3, 2),
    ApiKey.RENEW_DELEGATION_TOKEN: Api("RenewDelegationToken", 1, 2, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Api("ExpireDelegationToken", 1, 2, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Api("DescribeDelegationToken", 1, 3, 2),
    ApiKey.DELETE_GROUPS: Api("DeleteGroups", 0, 2, 2),
    ApiKey.ELECT_LEADERS: Api("ElectLeaders", 0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Api("IncrementalAlterConfigs", 0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Api("AlterPartitionReassignments", 0, 1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Api("ListPartitionReassignments", 0, 0, 0),
    ApiKey.OFFSET_DELETE: Api("OffsetDelete", 0, 0, NEVER_FLEXIBLE),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Api("DescribeClientQuotas", 0, 1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: Api("AlterClientQuotas", 0, 1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Api("DescribeUserScramCredentials", 0, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Api("AlterUserScramCredentials", 0, 0, 0),
    ApiKey.DESCRIBE_QUORUM: Api("DescribeQuorum", 0, 2, 0),
    ApiKey.UPDATE_FEATURES: Api("UpdateFeatures", 0, 2, 0),
    ApiKey.DESCRIBE_CLUSTER: Api("DescribeCluster", 0, 2, 0),
    ApiKey.DESCRIBE_PRODUCERS: Api("DescribeProducers", 0, 0, 0),
    ApiKey.UNREGISTER_BROKER: Api("UnregisterBroker", 0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: Api("DescribeTransactions", 0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: Api("ListTransactions", 0, 2, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Api("ConsumerGroupHeartbeat", 0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Api("ConsumerGroupDescribe", 0, 1, 0),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Api("GetTelemetrySubscriptions", 0, 0, 0),
    ApiKey.PUSH_TELEMETRY: Api("PushTelemetry", 0, 0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: Api("ListConfigResources", 0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api("DescribeTopicPartitions", 0, 0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: Api("ShareGroupHeartbeat", 1, 1, 0),
    ApiKey.SHARE_GROUP_DESCRIBE: Api("ShareGroupDescribe", 1, 1, 0),
    ApiKey.SHARE_FETCH: Api("ShareFetch", 1, 2, 0),
    ApiKey.SHARE_ACKNOWLEDGE: Api("ShareAcknowledge", 1, 2, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Api("InitializeShareGroupState", 0, 0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: Api("ReadShareGroupState", 0, 0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: Api("WriteShareGroupState", 0, 1, 0),
    ApiKey.DELETE_SHARE_GROUP_STATE: Api("DeleteShareGroupState", 0, 0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Api("ReadShareGroupStateSummary", 0, 1, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Api("DescribeShareGroupOffsets", 0, 1, 0),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Api("AlterShareGroupOffsets", 0, 0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Api("DeleteShareGroupOffsets", 0, 0, 0),
    ApiKey.PUSH_METADATA: Api("PushMetadata", 0, 0, 0),
    ApiKey.PROPOSE_ISR: Api("ProposeIsr", 0, 0, 0),
    ApiKey.STOP_LEADING: Api("StopLeading", 0, 0, 0),
    ApiKey.ENSURE_TOPIC: Api("EnsureTopic", 0, 0, 0),
    ApiKey.DESCRIBE_REPLICAS: Api("DescribeReplicas", 0, 0, 0),
    ApiKey.REPORT_OFFLINE: Api("ReportOffline", 0, 0, 0),
    ApiKey.REPORT_SILENT_FOLLOWERS: Api("ReportSilentFollowers", 0, 0, 0),
    ApiKey.DESCRIBE_FETCHERS: Api("DescribeFetchers", 0, 0, 0),
    ApiKey.ENVELOPE: Api("Envelope", 0, 0, 0),
    ApiKey.WRITE_AUDIT_LOG: Api("WriteAuditLog", 0, 0, 0),
}


@cache
def request_class(key: int) -> type[Request]:
    """Return the request of an API, importing its module; ProtocolError for an unknown key."""
    return cast("type[Request]", _load(key, "Request"))


@cache
def response_class(key: int) -> type[Response]:
    """Return the response of an API, importing its module; ProtocolError for an unknown key."""
    return cast("type[Response]", _load(key, "Response"))


def _load(key: int, direction: str) -> object:
    api = APIS.get(key)
    if api is None:
        raise ProtocolError(f"there is no API with key {key}")
    module = import_module(f"millstream.protocol.messages.{api.module}")
    return getattr(module, api.name + direction)
