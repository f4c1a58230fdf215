"""CreateAcls (key 30), versions 1 to 3 (KIP-140).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        patterns, literal and prefixed (KIP-290)
2        flexible
3        users as resources (KIP-373)
=======  ====================================================================================

Each rule has its own outcome; a rule that is there already is created. Any broker passes the
request on to the controller. ANY and MATCH are for filters: INVALID_REQUEST. Without an authorizer
every rule is refused with SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from millstream.controller.acl_changes import check_new_acl, with_acls
from millstream.handlers.acl_requests import check_creation, check_enabled, value_of
from millstream.handlers.inter_broker import forward, is_elsewhere
from millstream.handlers.request import RequestContext
from millstream.model.acl import Acl, AclOperation, AclResource, PatternType, Permission
from millstream.model.deferred import Deferred
from millstream.model.entities import EntityKind
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: CreateAclsRequest
) -> Coroutine[Deferred[Any], None, CreateAclsResponse]:
    """Store rules, each for itself."""
    for row in request.creations:
        check_creation(row)
    return _handle(services, context, request)


async def _handle(
    services: Services, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    check_enabled(services, "No Authorizer is configured.")
    if is_elsewhere(services):
        return await forward(services, context, request, CreateAclsResponse)
    outcomes = [_read(row) for row in request.creations]
    valid = [each for each in outcomes if isinstance(each, Acl)]
    refusal: KafkaError | None = None
    if valid:
        try:
            await services.controller.change_entities(
                EntityKind.ACL, lambda present: with_acls(present, valid)
            )
        except KafkaError as error:
            refusal = error
    return CreateAclsResponse(
        results=[_result(refusal if isinstance(each, Acl) else each) for each in outcomes]
    )


def failed(
    context: RequestContext, request: CreateAclsRequest, error: KafkaError
) -> CreateAclsResponse:
    """Refuse every rule."""
    return CreateAclsResponse(results=[_result(error) for _ in request.creations])


def _read(row: AclCreation) -> Acl | KafkaError:
    try:
        acl = Acl(
            resource=value_of(AclResource, row.resource_type, "resourceType"),
            name=row.resource_name,
            pattern=value_of(PatternType, row.resource_pattern_type, "patternType"),
            principal=row.principal,
            host=row.host,
            operation=value_of(AclOperation, row.operation, "operation"),
            permission=value_of(Permission, row.permission_type, "permissionType"),
        )
        check_new_acl(acl)
    except KafkaError as error:
        return error
    return acl


def _result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_code=ErrorCode.NONE.code, error_message="")
    return AclCreationResult(error_code=error.error.code, error_message=error.message)
