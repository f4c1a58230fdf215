"""CreatePartitions (key 37), versions 0 to 3.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttled after the answer
2        flexible
3        throttling by quota (KIP-599); this broker has no such quota
=======  ====================================================================================

Each topic has its own outcome, but a request for more than 10,000 new partitions is refused as a
whole (POLICY_VIOLATION). A time-out of 0 or less times out at once.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from millstream.controller.topic_changes import NewPartitions
from millstream.handlers.access import access_of
from millstream.handlers.mutation_quota import charge, mutations_of, throttle_ms
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from millstream.runtime.services import Services

_FIRST_STRICT_VERSION: Final = 3


async def handle(
    services: Services, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to topics, or check whether that is possible."""
    if request.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    counts = Counter(topic.name for topic in request.topics)
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    answers = [_result(name, twice) for name, count in counts.items() if count > 1]
    once = [topic for topic in request.topics if counts[topic.name] == 1]
    access = access_of(services, context)
    if access is not None:
        once, refused = access.split(
            AclOperation.ALTER, AclResource.TOPIC, once, lambda topic: topic.name
        )
        not_allowed = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        answers += [_result(topic.name, not_allowed) for topic in refused]
    wanted = [_wanted(topic) for topic in once]
    mutations = mutations_of(services, context, strict_since=_FIRST_STRICT_VERSION)
    wanted = charge(
        mutations,
        wanted,
        lambda topic: _added(services, topic),
        lambda topic, error: answers.append(_result(topic.topic, error)),
    )
    results = await services.controller.topics.create_partitions(
        wanted, validate_only=request.validate_only
    )
    for topic, result in zip(wanted, results, strict=True):
        answers.append(_result(topic.topic, result if isinstance(result, KafkaError) else None))
    return CreatePartitionsResponse(throttle_time_ms=throttle_ms(mutations), results=answers)


def failed(
    context: RequestContext, request: CreatePartitionsRequest, error: KafkaError
) -> CreatePartitionsResponse:
    """Refuse every topic."""
    return CreatePartitionsResponse(
        results=[_result(topic.name, error) for topic in request.topics]
    )


def _added(services: Services, topic: NewPartitions) -> int:
    """Return how many partitions a topic would get."""
    image = services.metadata.topic(topic.topic)
    return 0 if image is None else max(0, topic.total - len(image.partitions))


def _wanted(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        topic=topic.name,
        total=topic.count,
        assignments=None if assignments is None else [each.broker_ids for each in assignments],
    )


def _result(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NONE.code)
    return CreatePartitionsTopicResult(
        name=name, error_code=error.error.code, error_message=error.message
    )
