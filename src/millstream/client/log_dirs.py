"""How much disk each replica takes (DescribeLogDirs)."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.cluster import Cluster
from millstream.client.errors import raise_for
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOnDisk:
    """One replica in one log directory of one broker."""

    broker_id: int
    directory: str
    topic_partition: TopicPartition
    size_bytes: int


def describe_log_dirs(cluster: Cluster) -> list[ReplicaOnDisk]:
    """Return every replica on every live broker."""
    replicas: list[ReplicaOnDisk] = []
    for broker_id in sorted(cluster.metadata([]).brokers):
        connection = cluster.connection_to(broker_id)
        response = connection.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        raise_for(response.error_code, f"log directories of broker {broker_id}")
        for directory in response.results:
            raise_for(directory.error_code, f"log directory {directory.log_dir}")
            replicas += [
                ReplicaOnDisk(
                    broker_id=broker_id,
                    directory=directory.log_dir,
                    topic_partition=TopicPartition(topic.name, row.partition_index),
                    size_bytes=row.partition_size,
                )
                for topic in directory.topics
                for row in topic.partitions
            ]
    return replicas
