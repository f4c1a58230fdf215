"""Log directories of brokers: what lies in them (DescribeLogDirs), and moving replicas from one to
another (AlterReplicaLogDirs).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from millstream.client.cluster import Cluster
from millstream.client.errors import raise_for
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from millstream.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOnDisk:
    """One replica in one log directory of one broker.

    A replica that moves is in two: where it is served from, and as ``is_future`` where it moves
    to; then ``offset_lag`` is how many offsets are still to be copied.
    """

    broker_id: int
    directory: str
    topic_partition: TopicPartition
    size_bytes: int
    offset_lag: int = 0
    is_future: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryOnDisk:
    """One log directory of one broker. ``error`` is NONE, or why nothing more is known of it."""

    broker_id: int
    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool
    replicas: list[ReplicaOnDisk] = field(default_factory=list)


def describe_directories(cluster: Cluster) -> list[DirectoryOnDisk]:
    """Return every log directory of every live broker."""
    found: list[DirectoryOnDisk] = []
    for broker_id in sorted(cluster.metadata([]).brokers):
        connection = cluster.connection_to(broker_id)
        response = connection.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        raise_for(response.error_code, f"log directories of broker {broker_id}")
        for result in response.results:
            replicas = [
                ReplicaOnDisk(
                    broker_id=broker_id,
                    directory=result.log_dir,
                    topic_partition=TopicPartition(topic.name, row.partition_index),
                    size_bytes=row.partition_size,
                    offset_lag=row.offset_lag,
                    is_future=row.is_future_key,
                )
                for topic in result.topics
                for row in topic.partitions
            ]
            found.append(
                DirectoryOnDisk(
                    broker_id=broker_id,
                    path=result.log_dir,
                    error=ErrorCode.of(result.error_code),
                    total_bytes=result.total_bytes,
                    usable_bytes=result.usable_bytes,
                    is_cordoned=result.is_cordoned,
                    replicas=replicas,
                )
            )
    return found


def describe_log_dirs(cluster: Cluster) -> list[ReplicaOnDisk]:
    """Return every replica that is served from the directories of live brokers."""
    replicas: list[ReplicaOnDisk] = []
    for directory in describe_directories(cluster):
        raise_for(directory.error.code, f"log directory {directory.path}")
        replicas += [replica for replica in directory.replicas if not replica.is_future]
    return replicas


def move_replicas(
    cluster: Cluster, broker_id: int, directory: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Ask a broker to move its replicas to one of its log directories; return each answer. NONE
    says that the move has begun: ``describe_directories`` shows when it has ended.
    """
    topics: dict[str, list[int]] = {}
    for topic_partition in partitions:
        topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=directory,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=indexes)
                    for name, indexes in topics.items()
                ],
            )
        ]
    )
    response = cluster.connection_to(broker_id).call(request, AlterReplicaLogDirsResponse)
    return {
        TopicPartition(topic.topic_name, row.partition_index): ErrorCode.of(row.error_code)
        for topic in response.results
        for row in topic.partitions
    }
