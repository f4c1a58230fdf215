"""CreateTopics (key 19), versions 2 to 7.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
4        −1 partitions or replicas: the broker's default (KIP-464); older versions may ask it too
5        flexible; sizes and settings in the answer (KIP-525)
6        a quota of changes refuses topics (KIP-599); before, the client waits
7        topic ids (KIP-516)
=======  ====================================================================================

The client needs CREATE on the cluster or on each topic. What a new topic is like is told to one
that may DESCRIBE_CONFIGS of it.

The answer leaves when the topics are stored and open. Each topic has its own outcome, but a request
for more than 10,000 partitions is refused as a whole. A time-out of 0 or less times out at once.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from millstream.config.describe import describe_topic
from millstream.controller.topic_changes import NewTopic
from millstream.handlers.access import Access, access_of
from millstream.handlers.mutation_quota import charge, mutations_of, throttle_ms
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.runtime.metadata.metadata_cache import TopicImage
from millstream.runtime.services import Services

_FIRST_STRICT_VERSION: Final = 6
_CLUSTER_METADATA: Final = "__cluster_metadata"


async def handle(
    services: Services, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create topics, or check whether they could be created."""
    if request.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    counts = Counter(topic.name for topic in request.topics)
    accepted: list[NewTopic] = []
    refused: dict[str, CreatableTopicResult] = {}
    for topic in request.topics:
        reason = _refusal(topic.name, counts)
        if reason is None:
            accepted.append(_wanted(topic))
        else:
            error = KafkaError(ErrorCode.INVALID_REQUEST, reason)
            refused[topic.name] = _failure(topic.name, error)
    access = access_of(services, context)
    not_allowed: list[CreatableTopicResult] = []
    if access is not None and not access.on_cluster(AclOperation.CREATE, tell_denied=False):
        accepted, others = access.split(
            AclOperation.CREATE, AclResource.TOPIC, accepted, lambda topic: topic.name
        )
        error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        not_allowed = [_failure(topic.name, error) for topic in others]
    mutations = mutations_of(services, context, strict_since=_FIRST_STRICT_VERSION)
    accepted = charge(
        mutations,
        accepted,
        lambda topic: _partition_count(services, topic),
        lambda topic, error: refused.update({topic.name: _failure(topic.name, error)}),
    )
    results = await services.controller.topics.create_topics(
        accepted, validate_only=request.validate_only
    )
    topics = [
        _failure(wanted.name, result)
        if isinstance(result, KafkaError)
        else _success(services, result)
        for wanted, result in zip(accepted, results, strict=True)
    ]
    if access is not None:
        _hide_configs(access, topics)
    return CreateTopicsResponse(
        throttle_time_ms=throttle_ms(mutations),
        topics=[*topics, *refused.values(), *not_allowed],
    )


def _hide_configs(access: Access, topics: list[CreatableTopicResult]) -> None:
    """Leave out the settings of new topics that the client may not DESCRIBE_CONFIGS."""
    created = [topic.name for topic in topics if not topic.error_code]
    allowed = access.allowed_names(
        AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, created, tell_denied=False
    )
    for topic in topics:
        if not topic.error_code and topic.name not in allowed:
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED.code
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []


def failed(
    context: RequestContext, request: CreateTopicsRequest, error: KafkaError
) -> CreateTopicsResponse:
    """Refuse every topic."""
    return CreateTopicsResponse(topics=[_failure(topic.name, error) for topic in request.topics])


def _refusal(name: str, counts: Counter[str]) -> str | None:
    if counts[name] > 1:
        return "Duplicate topic name."
    if name == _CLUSTER_METADATA:
        return f"Creation of internal topic {name} is prohibited."
    return None


def _partition_count(services: Services, topic: NewTopic) -> int:
    """Return how many partitions a topic would have; none of one that is there already."""
    if services.metadata.topic(topic.name) is not None:
        return 0
    if topic.assignments:
        return len(topic.assignments)
    count = topic.partition_count
    return count if count > 0 else services.config.current.num_partitions


def _wanted(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs={config.name: config.value for config in topic.configs},
    )


def _success(services: Services, image: TopicImage) -> CreatableTopicResult:
    configs = [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source.value,
            is_sensitive=entry.sensitive,
        )
        for entry in describe_topic(image.config, services.config)
    ]
    return CreatableTopicResult(
        name=image.name,
        topic_id=image.topic_id,
        error_code=ErrorCode.NONE.code,
        error_message=None,
        num_partitions=len(image.partitions),
        replication_factor=len(image.partitions[0].replicas),
        configs=sorted(configs, key=lambda config: config.name),
    )


def _failure(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.error.code, error_message=error.message)
