"""DescribeClientQuotas (key 48), versions 0 and 1 (KIP-546).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        flexible
=======  ====================================================================================

A filter names parts of entities (user, client-id, ip) with a name, the default, or any; ``strict``
leaves out entities with other parts. Every broker answers from what it knows.
"""

from __future__ import annotations

from typing import Final

from millstream.controller.quota_changes import Component, check_filter, matching
from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from millstream.runtime.services import Services

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2
_NAMES: Final = {_DEFAULT: "DEFAULT", _ANY: "SPECIFIED"}


def handle(
    services: Services, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return the quotas of the entities that a filter matches."""
    components = [_component(each) for each in request.components]
    check_filter(components)
    found = matching(services.metadata.entities, components, strict=request.strict)
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE.code,
        error_message="",
        entries=[
            EntryData(
                entity=[EntityData(entity_type=type_, entity_name=name) for type_, name in entity],
                values=[ValueData(key=name, value=number) for name, number in quotas.items()],
            )
            for entity, quotas in found
        ],
    )


def failed(
    context: RequestContext, request: DescribeClientQuotasRequest, error: KafkaError
) -> DescribeClientQuotasResponse:
    """Refuse the request."""
    return DescribeClientQuotasResponse(
        error_code=error.error.code, error_message=error.message, entries=None
    )


def _component(row: ComponentData) -> Component:
    reason = None
    if row.match_type == _EXACT and row.match is None:
        reason = "Request specified MATCH_TYPE_EXACT, but set match string to null."
    elif row.match_type in _NAMES and row.match is not None:
        name = _NAMES[row.match_type]
        reason = f"Request specified MATCH_TYPE_{name}, but also specified a match string."
    elif row.match_type not in (_EXACT, _DEFAULT, _ANY):
        reason = f"Unknown match type {row.match_type}"
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return Component(row.entity_type, row.match, is_any=row.match_type == _ANY)
