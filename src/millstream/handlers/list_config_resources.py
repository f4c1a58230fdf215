"""ListConfigResources (key 74), versions 0 and 1 (KIP-714, KIP-1142).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
0        the subscriptions to metrics of clients
1        topics 2, brokers 4, broker loggers 8, client metrics 16, groups 32; no type means all
=======  ====================================================================================

An unknown type refuses the whole request with UNSUPPORTED_VERSION. Groups are those that
have settings of their own.
"""

from __future__ import annotations

from typing import Final

from millstream.controller.config_changes import ResourceType
from millstream.handlers.request import RequestContext
from millstream.model.entities import EntityKind
from millstream.model.entity_keys import decode_name
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_TYPES: Final = 1
_ALL: Final = tuple(each for each in ResourceType if each is not ResourceType.UNKNOWN)


def handle(
    services: Services, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List what may have settings."""
    if context.version < _FIRST_VERSION_WITH_TYPES:
        kinds = {ResourceType.CLIENT_METRICS}
    else:
        kinds = {ResourceType.of(code) for code in request.resource_types} or set(_ALL)
    if ResourceType.UNKNOWN in kinds:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    resources = [
        ConfigResource(resource_name=name, resource_type=kind.value)
        for kind in _ALL
        if kind in kinds
        for name in _names(services, kind)
    ]
    return ListConfigResourcesResponse(error_code=ErrorCode.NONE.code, config_resources=resources)


def failed(
    context: RequestContext, request: ListConfigResourcesRequest, error: KafkaError
) -> ListConfigResourcesResponse:
    """Refuse the request."""
    return ListConfigResourcesResponse(error_code=error.error.code, config_resources=[])


def _names(services: Services, kind: ResourceType) -> list[str]:
    if kind is ResourceType.TOPIC:
        return [image.name for image in services.metadata.topics()]
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in services.metadata.brokers]
    if kind is ResourceType.GROUP:
        return sorted(services.metadata.group_configs)
    if kind is ResourceType.CLIENT_METRICS:
        kept = services.metadata.entities.all(EntityKind.CLIENT_METRICS)
        return sorted(decode_name(key) or "" for key in kept)
    return []
