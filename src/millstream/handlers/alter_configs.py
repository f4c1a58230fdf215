"""AlterConfigs (key 33), versions 0 to 2.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttled after the answer
2        flexible
=======  ====================================================================================

The settings given replace all that a topic or a broker has of its own: what is not named goes back
to its default. The client needs ALTER_CONFIGS on the topic, the group, or for brokers the cluster.
A broker is named by its id; no name means all brokers. Loggers and other kinds of
resource are INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.handlers.access import access_of
from millstream.handlers.config_resources import (
    ResourceChange,
    alter,
    alter_through_controller,
    outcome_of,
    refusals,
)
from millstream.handlers.inter_broker import forward, is_elsewhere
from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace the settings of resources, each for itself."""
    not_allowed = refusals(
        access_of(services, context),
        [(each.resource_type, each.resource_name) for each in request.resources],
    )
    resources = [each for i, each in enumerate(request.resources) if i not in not_allowed]
    requested = [_requested_change(resource) for resource in resources]
    if is_elsewhere(services):

        async def ask(indices: Sequence[int]) -> list[KafkaError | None]:
            some = [resources[index] for index in indices]
            asked = AlterConfigsRequest(resources=some, validate_only=request.validate_only)
            response = await forward(services, context, asked, AlterConfigsResponse)
            return [outcome_of(each.error_code, each.error_message) for each in response.responses]

        outcomes = await alter_through_controller(services, requested, ask)
    else:
        outcomes = await alter(services, requested, validate_only=request.validate_only)
    left = iter(outcomes)
    return AlterConfigsResponse(
        responses=[
            _result(resource, not_allowed[index] if index in not_allowed else next(left))
            for index, resource in enumerate(request.resources)
        ]
    )


def failed(
    context: RequestContext, request: AlterConfigsRequest, error: KafkaError
) -> AlterConfigsResponse:
    """Refuse every resource."""
    return AlterConfigsResponse(
        responses=[_result(resource, error) for resource in request.resources]
    )


def _requested_change(resource: AlterConfigsResource) -> ResourceChange:
    texts = {config.name: config.value for config in resource.configs if config.value is not None}
    return ResourceChange(
        type_code=resource.resource_type,
        name=resource.resource_name,
        setting_names=[config.name for config in resource.configs],
        null_names=[config.name for config in resource.configs if config.value is None],
        check=lambda _: None,
        change=lambda _, __: texts,
        replaces_all=True,
    )


def _result(
    resource: AlterConfigsResource, error: KafkaError | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=(ErrorCode.NONE if error is None else error.error).code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
