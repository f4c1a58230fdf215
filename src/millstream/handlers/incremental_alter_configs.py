"""IncrementalAlterConfigs (key 44), versions 0 and 1 (KIP-339).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
0        set 0, delete 1, append 2, subtract 3; the levels of loggers (KIP-412)
1        flexible
=======  ====================================================================================

Settings that are not named stay as they are. A broker is named by its id; no name means all
brokers. Levels of loggers (resource type 8) hold until the broker stops.
The client needs ALTER_CONFIGS on the topic, the group, or for the others the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.controller.config_changes import (
    ConfigOperation,
    OperationType,
    ResourceType,
    apply_operations,
)
from millstream.handlers.access import access_of
from millstream.handlers.config_resources import (
    ResourceChange,
    alter,
    alter_through_controller,
    outcome_of,
    parse_broker_id,
    refusals,
)
from millstream.handlers.inter_broker import forward, is_elsewhere
from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.runtime import logger_levels
from millstream.runtime.services import Services

_OPERATIONS: Final = {each.value: each for each in OperationType}


async def handle(
    services: Services, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change settings of resources, each for itself."""
    not_allowed = refusals(
        access_of(services, context),
        [(each.resource_type, each.resource_name) for each in request.resources],
    )
    settings = [
        each
        for index, each in enumerate(request.resources)
        if not _is_logger(each) and index not in not_allowed
    ]
    outcomes = iter(await _alter_settings(services, context, settings, request.validate_only))
    return IncrementalAlterConfigsResponse(
        responses=[
            _result(
                each,
                not_allowed[index]
                if index in not_allowed
                else _alter_levels(services, each, request)
                if _is_logger(each)
                else next(outcomes),
            )
            for index, each in enumerate(request.resources)
        ]
    )


async def _alter_settings(
    services: Services,
    context: RequestContext,
    settings: list[AlterConfigsResource],
    validate_only: bool,
) -> list[KafkaError | None]:
    """Change settings here, or have the controller do it; loggers are each broker's own."""
    requested = [_requested_change(resource) for resource in settings]
    if not is_elsewhere(services):
        return await alter(services, requested, validate_only=validate_only)

    async def ask(indices: Sequence[int]) -> list[KafkaError | None]:
        some = [settings[index] for index in indices]
        asked = IncrementalAlterConfigsRequest(resources=some, validate_only=validate_only)
        response = await forward(services, context, asked, IncrementalAlterConfigsResponse)
        return [outcome_of(each.error_code, each.error_message) for each in response.responses]

    return await alter_through_controller(services, requested, ask)


def failed(
    context: RequestContext, request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    """Refuse every resource."""
    return IncrementalAlterConfigsResponse(
        responses=[_result(resource, error) for resource in request.resources]
    )


def _is_logger(resource: AlterConfigsResource) -> bool:
    return resource.resource_type == ResourceType.BROKER_LOGGER.value


def _requested_change(resource: AlterConfigsResource) -> ResourceChange:
    operations = [_operation(config) for config in resource.configs]
    known = [operation for operation in operations if operation is not None]
    return ResourceChange(
        type_code=resource.resource_type,
        name=resource.resource_name,
        setting_names=[config.name for config in resource.configs],
        null_names=[config.name for config in resource.configs if _lacks_text(config)],
        check=lambda kind: _check_operations(kind, resource.configs),
        change=lambda texts, keys: apply_operations(texts, known, keys),
    )


def _operation(config: AlterableConfig) -> ConfigOperation | None:
    kind = _OPERATIONS.get(config.config_operation)
    return None if kind is None else ConfigOperation(kind, config.name, config.value)


def _lacks_text(config: AlterableConfig) -> bool:
    return config.value is None and config.config_operation != OperationType.DELETE.value


def _check_operations(kind: ResourceType, configs: list[AlterableConfig]) -> None:
    """Refuse unknown operations; Apache Kafka's controller fails on one for a topic
    and answers UNKNOWN_SERVER_ERROR.
    """
    for config in configs:
        if config.config_operation not in _OPERATIONS:
            if kind is ResourceType.TOPIC:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation}"
            )


def _alter_levels(
    services: Services, resource: AlterConfigsResource, request: IncrementalAlterConfigsRequest
) -> KafkaError | None:
    try:
        operations = _checked_levels(services, resource, request)
    except KafkaError as error:
        return error
    if not request.validate_only:
        logger_levels.apply_operations(operations)
        if services.authorizer is not None:
            services.authorizer.forget_decisions()  # those that are kept are not logged
    return None


def _checked_levels(
    services: Services, resource: AlterConfigsResource, request: IncrementalAlterConfigsRequest
) -> list[ConfigOperation]:
    broker_id, name = services.node.broker_id, resource.resource_name
    reason = None
    if sum(_is_logger(each) and each.resource_name == name for each in request.resources) > 1:
        reason = "Each resource must appear at most once."
    elif parse_broker_id(name, "Node id") != broker_id:
        reason = f"Unexpected node id. Expected {broker_id}, but received {name}"
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    _check_operations(ResourceType.BROKER_LOGGER, resource.configs)
    operations = [each for each in map(_operation, resource.configs) if each is not None]
    logger_levels.check_operations(operations)
    return operations


def _result(
    resource: AlterConfigsResource, error: KafkaError | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=(ErrorCode.NONE if error is None else error.error).code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
