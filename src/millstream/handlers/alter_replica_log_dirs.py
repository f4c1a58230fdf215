"""AlterReplicaLogDirs (key 34), versions 1 to 2 (KIP-113).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttled after the answer
2        flexible
=======  ====================================================================================

Moves replicas of this broker to other log directories of it. The answer means that a move has
begun; DescribeLogDirs shows how far it is. A move in progress is given up for one to another
directory. Leaders and followers move alike. For a partition that this broker does not keep yet the
directory is remembered until the broker stops, and the log is made there; the answer is an error
all the same, as in Kafka.

==========================  =====================================================================
error                       when
==========================  =====================================================================
LOG_DIR_NOT_FOUND           the directory is not one of ``log.dirs``
KAFKA_STORAGE_ERROR         it is offline, or the partition is
INVALID_REPLICA_ASSIGNMENT  it is cordoned (KIP-1066)
INVALID_TOPIC_EXCEPTION     the topic's name leaves no room for that of the ``-future`` directory
UNKNOWN_TOPIC_OR_PARTITION  there is no such partition
NOT_LEADER_OR_FOLLOWER      this broker keeps no replica of it
==========================  =====================================================================
"""

from __future__ import annotations

from typing import Final

from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from millstream.runtime.services import Services
from millstream.storage.directory import DirectoryKind, directory_name

_MAX_NAME_BYTES: Final = 255
_ANY_ID: Final = "0" * 32


def handle(
    services: Services, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begin to move replicas, each for itself."""
    wanted = {
        TopicPartition(topic.name, index): each.path
        for each in request.dirs
        for topic in each.topics
        for index in topic.partitions
    }
    return _response(
        {
            topic_partition: _move(services, topic_partition, directory)
            for topic_partition, directory in wanted.items()
        }
    )


def failed(
    context: RequestContext, request: AlterReplicaLogDirsRequest, error: KafkaError
) -> AlterReplicaLogDirsResponse:
    """Refuse every partition."""
    return _response(
        {
            TopicPartition(topic.name, index): error.error
            for each in request.dirs
            for topic in each.topics
            for index in topic.partitions
        }
    )


def _move(services: Services, topic_partition: TopicPartition, directory: str) -> ErrorCode:
    try:
        _check(services, topic_partition, directory)
        if services.log_manager.get(topic_partition) is None:
            services.log_manager.placement.prefer(topic_partition, directory)
        partitions = services.partitions
        topic, index = topic_partition.topic, topic_partition.partition
        partition = partitions.replica(topic, index) or partitions.get(topic, index)
        services.replica_mover.move(partition, directory)
    except KafkaError as error:
        return error.error
    except StorageError as error:
        services.partitions.storage_failed(error)
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


def _check(services: Services, topic_partition: TopicPartition, directory: str) -> None:
    log_manager = services.log_manager
    name = directory_name(topic_partition, DirectoryKind.FUTURE, _ANY_ID)
    if len(name) > _MAX_NAME_BYTES:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
    if directory in log_manager.offline_directories:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {directory} is offline")
    if directory not in log_manager.directories:
        raise KafkaError(
            ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {directory} is not found in the config."
        )
    if directory in log_manager.placement.cordoned:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {directory} is cordoned."
        )


def _response(results: dict[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for topic_partition, error in results.items():
        name = topic_partition.topic
        topic = topics.setdefault(
            name, AlterReplicaLogDirTopicResult(topic_name=name, partitions=[])
        )
        topic.partitions.append(
            AlterReplicaLogDirPartitionResult(
                partition_index=topic_partition.partition, error_code=error.code
            )
        )
    return AlterReplicaLogDirsResponse(results=list(topics.values()))
