"""DescribeLogDirs (key 35), versions 1 to 5 (KIP-113).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        one entry per log directory: topics, partitions, sizes in bytes
2        flexible
3        an error for the answer as a whole
4        size of the volume and what is free (KIP-827)
5        cordoned directories (KIP-1066); this broker has none
=======  ====================================================================================

A directory that has failed is told with KAFKA_STORAGE_ERROR and nothing in it. Partitions that are
not here are left out. There are no future replicas: logs do not move between directories.
"""

from __future__ import annotations

from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Tell what lies in each log directory."""
    topics_of = _topics_by_directory(services, _wanted(request))
    results = []
    for directory in services.log_manager.directories:
        try:
            space = services.log_manager.space(directory)
        except StorageError:
            results.append(_offline(directory))
            continue
        results.append(
            DescribeLogDirsResult(
                error_code=ErrorCode.NONE.code,
                log_dir=directory,
                topics=list(topics_of.get(directory, {}).values()),
                total_bytes=space.total_bytes,
                usable_bytes=space.usable_bytes,
            )
        )
    results += [_offline(directory) for directory in services.log_manager.offline_directories]
    return DescribeLogDirsResponse(results=results)


def failed(
    context: RequestContext, request: DescribeLogDirsRequest, error: KafkaError
) -> DescribeLogDirsResponse:
    """Refuse the request."""
    return DescribeLogDirsResponse(error_code=error.error.code, results=[])


def _wanted(request: DescribeLogDirsRequest) -> set[TopicPartition] | None:
    if request.topics is None:
        return None
    return {
        TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
    }


def _topics_by_directory(
    services: Services, wanted: set[TopicPartition] | None
) -> dict[str, dict[str, DescribeLogDirsTopic]]:
    by_directory: dict[str, dict[str, DescribeLogDirsTopic]] = {}
    for log in services.log_manager.logs():
        name, index = log.topic_partition.topic, log.topic_partition.partition
        if wanted is not None and log.topic_partition not in wanted:
            continue
        topics = by_directory.setdefault(log.log_directory, {})
        topic = topics.setdefault(name, DescribeLogDirsTopic(name=name, partitions=[]))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=index, partition_size=log.size, offset_lag=0, is_future_key=False
            )
        )
    return by_directory


def _offline(directory: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR.code, log_dir=directory, topics=[]
    )
