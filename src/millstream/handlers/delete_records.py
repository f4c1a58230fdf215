"""DeleteRecords (key 21), versions 0 to 2 (KIP-107).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttled after the answer
2        flexible
=======  ====================================================================================

Moves a partition's log start up to an offset, −1 meaning the high watermark, and tells the new low
watermark. Refused for topics that are compacted only (POLICY_VIOLATION), whose consumers count on
the last value of each key, and for internal topics. A partition named twice is served once, with
the offset named last. The only replica is the leader, so nothing is waited for.
"""

from __future__ import annotations

from typing import Final

from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from millstream.runtime.services import Services

NO_LOW_WATERMARK: Final = -1


def handle(
    services: Services, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Delete records of partitions, each for itself."""
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        for partition in topic.partitions:
            offsets[partition.partition_index] = partition.offset
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[_delete(services, name, index, o) for index, o in offsets.items()],
            )
            for name, offsets in wanted.items()
        ]
    )


def failed(
    context: RequestContext, request: DeleteRecordsRequest, error: KafkaError
) -> DeleteRecordsResponse:
    """Refuse every partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_refused(each.partition_index, error) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(
    services: Services, topic: str, index: int, offset: int
) -> DeleteRecordsPartitionResult:
    try:
        low_watermark = _low_watermark_after(services, topic, index, offset)
    except KafkaError as error:
        return _refused(index, error)
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=low_watermark, error_code=ErrorCode.NONE.code
    )


def _low_watermark_after(services: Services, topic: str, index: int, offset: int) -> int:
    partition = services.partitions.get(topic, index)
    image = services.metadata.topic(topic)
    assert image is not None
    if image.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"cannot delete records of internal topic {topic}"
        )
    if image.config.compacts and not image.config.deletes:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"topic {topic} is compacted")
    try:
        return partition.delete_records_before(offset)
    except StorageError as error:
        services.partitions.storage_failed(error)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error


def _refused(index: int, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=error.error.code
    )
