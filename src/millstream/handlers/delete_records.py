"""DeleteRecords (key 21), versions 0 to 2 (KIP-107).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttled after the answer
2        flexible
=======  ====================================================================================

Moves a partition's log start up to an offset, −1 meaning the high watermark, and returns the new
low watermark. Refused for topics that are compacted only (POLICY_VIOLATION), whose consumers count
on the last value of each key, and for internal topics. A partition named twice is served once, with
the offset named last. Where there are other replicas the answer waits, for at most ``timeout_ms``,
until all live replicas have followed: then no broker serves what was deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from millstream.handlers.access import access_of
from millstream.handlers.request import Answer, RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partition_requests import delete_records_before
from millstream.runtime.replicas.waiters import CommitCallback
from millstream.runtime.services import Services

NO_LOW_WATERMARK: Final = -1


def handle(
    services: Services, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Deferred[Answer]:
    """Delete records of partitions, each for itself; wait for the replicas to follow."""
    access = access_of(services, context)
    allowed = request.topics
    not_allowed = DeleteRecordsResponse(topics=[])
    if access is not None:
        allowed, refused = access.split(
            AclOperation.DELETE, AclResource.TOPIC, request.topics, lambda topic: topic.name
        )
        error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        not_allowed = failed(context, DeleteRecordsRequest(topics=refused, timeout_ms=0), error)
    wanted: dict[str, dict[int, int]] = {}
    for topic in allowed:
        offsets = wanted.setdefault(topic.name, {})
        for partition in topic.partitions:
            offsets[partition.partition_index] = partition.offset
    following: list[_Following] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _delete(services, name, index, o, following) for index, o in offsets.items()
                ],
            )
            for name, offsets in wanted.items()
        ]
        + not_allowed.topics
    )
    if not following:
        return response
    return spawn(_settled(services, response, following, request.timeout_ms))


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


@dataclass(slots=True)
class _Following:
    """A partition whose replicas are still to delete what the leader has."""

    partition: Partition
    result: DeleteRecordsPartitionResult
    deleted: Deferred[KafkaError | None]
    on_deleted: CommitCallback


def _delete(
    services: Services, topic: str, index: int, offset: int, following: list[_Following]
) -> DeleteRecordsPartitionResult:
    try:
        partition = services.partitions.get(topic, index)
        _check_policy(services, topic)
        log_start_offset = delete_records_before(partition, offset)
    except KafkaError as error:
        return _refused(index, error)
    deleted: Deferred[KafkaError | None] = Deferred()
    on_deleted = partial(_fill, deleted)
    partition.wait_until_deleted(log_start_offset, on_deleted)
    result = DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=log_start_offset, error_code=ErrorCode.NONE.code
    )
    if partition.has_followers:
        following.append(_Following(partition, result, deleted, on_deleted))
    return result


def _check_policy(services: Services, topic: str) -> None:
    image = services.metadata.topic(topic)
    assert image is not None
    if image.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"cannot delete records of internal topic {topic}"
        )
    if image.config.compacts and not image.config.deletes:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"topic {topic} is compacted")


def _fill(deleted: Deferred[KafkaError | None], error: KafkaError | None) -> None:
    if not deleted.done:
        deleted.complete(error)


async def _settled(
    services: Services,
    response: DeleteRecordsResponse,
    following: list[_Following],
    timeout_ms: int,
) -> Answer:
    """Answer when every replica that lives has deleted, or the time is up."""
    late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    timers = [
        services.clock.call_later(max(0, timeout_ms), partial(_fill, one.deleted, late))
        for one in following
    ]
    for one in following:
        error = await one.deleted
        if one.partition.leading is not None:
            one.partition.leading.forget_deletion(one.on_deleted)
        one.result.low_watermark = one.partition.low_watermark
        if error is not None:
            one.result.error_code = error.error.code
            one.result.low_watermark = NO_LOW_WATERMARK
    for timer in timers:
        timer.cancel()
    return response


def _refused(index: int, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=error.error.code
    )
