"""DescribeLogDirs (key 35), versions 1 to 5 (KIP-113).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        one entry per log directory: topics, partitions, sizes in bytes
2        flexible
3        an error for the answer as a whole
4        size of the volume and what is free (KIP-827)
5        whether a directory is cordoned (KIP-1066)
=======  ====================================================================================

A directory that has failed is listed with KAFKA_STORAGE_ERROR and no replicas. Partitions without a
replica here are left out. A replica that moves between directories is listed in both: in the one
that it moves to as a future key, whose offset lag is what is still to be copied.
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
from millstream.storage.log import Log


def handle(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """List the replicas in each log directory."""
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
                is_cordoned=directory in services.log_manager.placement.cordoned,
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
    log_manager = services.log_manager
    for log in (*log_manager.logs(), *log_manager.future_logs):
        name = log.topic_partition.topic
        if wanted is not None and log.topic_partition not in wanted:
            continue
        topics = by_directory.setdefault(log.log_directory, {})
        topic = topics.setdefault(name, DescribeLogDirsTopic(name=name, partitions=[]))
        topic.partitions.append(_partition(log, log_manager.get(log.topic_partition)))
    return by_directory


def _partition(log: Log, current: Log | None) -> DescribeLogDirsPartition:
    is_future = log is not current
    end = 0 if current is None else current.log_end_offset
    behind = end - log.log_end_offset if is_future else log.high_watermark - log.log_end_offset
    return DescribeLogDirsPartition(
        partition_index=log.topic_partition.partition,
        partition_size=log.size,
        offset_lag=max(0, behind),
        is_future_key=is_future,
    )


def _offline(directory: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR.code, log_dir=directory, topics=[]
    )
