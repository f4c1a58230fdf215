"""The APIs that the runner compares, with the versions that both brokers must serve."""

from __future__ import annotations

from typing import Final

SERVED: Final[dict[str, tuple[int, range]]] = {
    "Produce": (0, range(3, 14)),
    "Fetch": (1, range(4, 19)),
    "ListOffsets": (2, range(1, 12)),
    "Metadata": (3, range(14)),
    "OffsetCommit": (8, range(2, 11)),
    "OffsetFetch": (9, range(1, 11)),
    "FindCoordinator": (10, range(7)),
    "JoinGroup": (11, range(10)),
    "Heartbeat": (12, range(5)),
    "LeaveGroup": (13, range(6)),
    "SyncGroup": (14, range(6)),
    "DescribeGroups": (15, range(7)),
    "ListGroups": (16, range(6)),
    "SaslHandshake": (17, range(2)),
    "ApiVersions": (18, range(5)),
    "CreateTopics": (19, range(2, 8)),
    "DeleteTopics": (20, range(1, 7)),
    "DeleteRecords": (21, range(3)),
    "InitProducerId": (22, range(6)),
    "OffsetForLeaderEpoch": (23, range(2, 5)),
    "AddPartitionsToTxn": (24, range(6)),
    "AddOffsetsToTxn": (25, range(5)),
    "EndTxn": (26, range(6)),
    "WriteTxnMarkers": (27, range(1, 3)),
    "TxnOffsetCommit": (28, range(6)),
    "DescribeAcls": (29, range(1, 4)),
    "CreateAcls": (30, range(1, 4)),
    "DeleteAcls": (31, range(1, 4)),
    "DescribeConfigs": (32, range(1, 5)),
    "AlterConfigs": (33, range(3)),
    "AlterReplicaLogDirs": (34, range(1, 3)),
    "DescribeLogDirs": (35, range(1, 6)),
    "SaslAuthenticate": (36, range(3)),
    "CreatePartitions": (37, range(4)),
    "CreateDelegationToken": (38, range(1, 4)),
    "RenewDelegationToken": (39, range(1, 3)),
    "ExpireDelegationToken": (40, range(1, 3)),
    "DescribeDelegationToken": (41, range(1, 4)),
    "DeleteGroups": (42, range(3)),
    "ElectLeaders": (43, range(3)),
    "IncrementalAlterConfigs": (44, range(2)),
    "AlterPartitionReassignments": (45, range(2)),
    "ListPartitionReassignments": (46, range(1)),
    "OffsetDelete": (47, range(1)),
    "DescribeClientQuotas": (48, range(2)),
    "AlterClientQuotas": (49, range(2)),
    "DescribeUserScramCredentials": (50, range(1)),
    "AlterUserScramCredentials": (51, range(1)),
    "UpdateFeatures": (57, range(3)),
    "DescribeCluster": (60, range(3)),
    "DescribeProducers": (61, range(1)),
    "DescribeTransactions": (65, range(1)),
    "ListTransactions": (66, range(3)),
    "ConsumerGroupHeartbeat": (68, range(2)),
    "ConsumerGroupDescribe": (69, range(2)),
    "GetTelemetrySubscriptions": (71, range(1)),
    "PushTelemetry": (72, range(1)),
    "ListConfigResources": (74, range(2)),
    "DescribeTopicPartitions": (75, range(1)),
    "ShareGroupHeartbeat": (76, range(1, 2)),
    "ShareGroupDescribe": (77, range(1, 2)),
    "ShareFetch": (78, range(1, 3)),
    "ShareAcknowledge": (79, range(1, 3)),
    "InitializeShareGroupState": (83, range(1)),
    "ReadShareGroupState": (84, range(1)),
    "WriteShareGroupState": (85, range(2)),
    "DeleteShareGroupState": (86, range(1)),
    "ReadShareGroupStateSummary": (87, range(2)),
    "DescribeShareGroupOffsets": (90, range(2)),
    "AlterShareGroupOffsets": (91, range(1)),
    "DeleteShareGroupOffsets": (92, range(1)),
}
"""API name: (key, versions). The versions are those of Apache Kafka 4.2, which 4.3 serves too."""


def api_key(api: str) -> int:
    """Return the number that stands in the request header."""
    return SERVED[api][0]


def versions(api: str) -> range:
    """Return the versions of ``api`` that are compared."""
    return SERVED[api][1]
