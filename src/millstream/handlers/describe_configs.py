"""DescribeConfigs (key 32), versions 1 to 4.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        sources and synonyms (KIP-226)
2        throttled after the answer
3        types and documentation (KIP-569)
4        flexible
=======  ====================================================================================

Topics, groups, this broker, all brokers (an empty name: what was set for them while they run), and
the levels of this broker's loggers. Client metrics have no settings here: INVALID_REQUEST.
The client needs DESCRIBE_CONFIGS on the topic, the group, or for the others the cluster. Sensitive
values are never sent. An unknown resource type refuses the whole request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from millstream.config.describe import (
    ConfigEntry,
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from millstream.config.dynamic import ConfigSource
from millstream.controller.config_changes import ResourceType
from millstream.handlers.access import access_of
from millstream.handlers.config_resources import parse_broker_id, refusal
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation
from millstream.model.entities import EntityKind
from millstream.model.entity_keys import encode_name
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import validate_topic_name
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from millstream.runtime.logger_levels import logger_levels
from millstream.runtime.metadata.metadata_cache import TopicImage
from millstream.runtime.services import Services

_MALFORMED: Final = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker."
)

_OfTopics = dict[
    tuple[frozenset[tuple[str, str]], frozenset[str]], list[DescribeConfigsResourceResult]
]
"""Rows of this answer by a topic's own settings and the keys asked for: tools ask for all topics at
once, and other requests wait meanwhile."""


def handle(
    services: Services, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Tell the settings of resources, each for itself."""
    for resource in request.resources:
        if ResourceType.of(resource.resource_type) is ResourceType.UNKNOWN:
            raise KafkaError(ErrorCode.INVALID_REQUEST, _MALFORMED)
    access = access_of(services, context)
    results, not_allowed = [], []
    of_topics: _OfTopics = {}
    for resource in request.resources:
        refused = refusal(
            access,
            AclOperation.DESCRIBE_CONFIGS,
            resource.resource_type,
            resource.resource_name,
        )
        if refused is not None:
            not_allowed.append(_failure(resource, refused))
            continue
        try:
            configs = _configs(services, resource, request, of_topics)
        except KafkaError as error:
            results.append(_failure(resource, error))
        else:
            results.append(_success(resource, configs))
    return DescribeConfigsResponse(results=[*results, *not_allowed])


def failed(
    context: RequestContext, request: DescribeConfigsRequest, error: KafkaError
) -> DescribeConfigsResponse:
    """Refuse every resource."""
    return DescribeConfigsResponse(
        results=[_failure(resource, error) for resource in request.resources]
    )


def _configs(
    services: Services,
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    of_topics: _OfTopics,
) -> list[DescribeConfigsResourceResult]:
    match ResourceType.of(resource.resource_type):
        case ResourceType.TOPIC:
            overrides = _topic(services, resource.resource_name).config.overrides
            key = frozenset(overrides.items()), frozenset(resource.configuration_keys or ())
            if key not in of_topics:
                of_topics[key] = [_entry(entry, request) for entry in _chosen(services, resource)]
            return of_topics[key]
        case ResourceType.BROKER_LOGGER:
            if not resource.resource_name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _check_broker(services, resource.resource_name, "")
            return list(_levels(resource))
        case _:
            return [_entry(entry, request) for entry in _chosen(services, resource)]


def _chosen(services: Services, resource: DescribeConfigsResource) -> Iterator[ConfigEntry]:
    """Yield the settings that a resource has and the request names; no names mean all."""
    names = set(resource.configuration_keys or ())
    for entry in _settings(services, resource):
        if not names or entry.name in names:
            yield entry


def _settings(services: Services, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    name = resource.resource_name
    match ResourceType.of(resource.resource_type):
        case ResourceType.TOPIC:
            return describe_topic(_topic(services, name).config, services.config)
        case ResourceType.BROKER:
            if not name:
                return describe_all_brokers(services.config)
            _check_broker(services, name, "or empty string, ")
            return describe_broker(services.config)
        case ResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            texts = services.metadata.group_configs.get(name, {})
            return describe_group(texts, services.config)
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
                )
            kept = services.metadata.entities.all(EntityKind.CLIENT_METRICS)
            return describe_client_metrics(kept.get(encode_name(name), {}))
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{other.name} has no settings here")


def _topic(services: Services, name: str) -> TopicImage:
    validate_topic_name(name)
    image = services.metadata.topic(name)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return image


def _check_broker(services: Services, name: str, alternative: str) -> None:
    broker_id = services.node.broker_id
    if parse_broker_id(name, "Broker id") != broker_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker_id} {alternative}but received {name}",
        )


def _entry(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source.value,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source.value)
            for each in synonyms
        ],
        config_type=entry.type.value,
        documentation=entry.doc if request.include_documentation else None,
    )


def _levels(resource: DescribeConfigsResource) -> Iterator[DescribeConfigsResourceResult]:
    names = set(resource.configuration_keys or ())
    for name, level in logger_levels().items():
        if not names or name in names:
            yield DescribeConfigsResourceResult(
                name=name,
                value=level,
                read_only=False,
                config_source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG.value,
                is_sensitive=False,
                synonyms=[],
            )


def _success(
    resource: DescribeConfigsResource, configs: list[DescribeConfigsResourceResult]
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE.code,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _failure(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.error.code,
        error_message=error.message or "",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
