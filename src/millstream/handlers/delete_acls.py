"""DeleteAcls (key 31), versions 1 to 3 (KIP-140).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        patterns, literal and prefixed (KIP-290)
2        flexible
3        users as resources (KIP-373)
=======  ====================================================================================

Each filter has its own outcome, the rules that it matches. Any broker passes the request on to the
controller. Without an authorizer every filter is refused with SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from millstream.controller.acl_deletion import Deletion, deletion_in_steps
from millstream.handlers.acl_requests import check_enabled, check_filter, filter_of
from millstream.handlers.inter_broker import forward, is_elsewhere
from millstream.handlers.request import RequestContext
from millstream.model.acl import Acl, AclFilter
from millstream.model.deferred import Deferred
from millstream.model.entities import EntityChanges, EntityKind, EntityValue
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from millstream.runtime.pauses import next_pass
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: DeleteAclsRequest
) -> Coroutine[Deferred[Any], None, DeleteAclsResponse]:
    """Delete the rules that filters match."""
    for row in request.filters:
        check_filter(row)
    return _handle(services, context, request)


async def _handle(
    services: Services, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    check_enabled(services, "No Authorizer is configured.")
    if is_elsewhere(services):
        return await forward(services, context, request, DeleteAclsResponse)
    filters = [_read(row) for row in request.filters]
    valid = [each for each in filters if isinstance(each, AclFilter)]
    found: list[list[Acl] | KafkaError] = []

    async def decide(present: Mapping[str, EntityValue]) -> EntityChanges:
        steps = deletion_in_steps(present, valid)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                deletion: Deletion = end.value
                found[:] = deletion.found
                return deletion.changes
            await next_pass(services.clock)

    if valid:
        try:
            await services.controller.change_entities(EntityKind.ACL, decide)
        except KafkaError as error:
            found = [error] * len(valid)
    outcomes = iter(found)
    return DeleteAclsResponse(
        filter_results=[
            _result(next(outcomes) if isinstance(each, AclFilter) else each) for each in filters
        ]
    )


def failed(
    context: RequestContext, request: DeleteAclsRequest, error: KafkaError
) -> DeleteAclsResponse:
    """Refuse every filter."""
    return DeleteAclsResponse(filter_results=[_result(error) for _ in request.filters])


def _read(row: DeleteAclsFilter) -> AclFilter | KafkaError:
    try:
        return filter_of(row)
    except KafkaError as error:
        return error


def _result(found: list[Acl] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(found, KafkaError):
        return DeleteAclsFilterResult(
            error_code=found.error.code, error_message=found.message, matching_acls=[]
        )
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE.code,
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_code=ErrorCode.NONE.code,
                error_message=None,
                resource_type=each.resource,
                resource_name=each.name,
                pattern_type=each.pattern,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in found
        ],
    )
