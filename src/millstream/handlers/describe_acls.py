"""DescribeAcls (key 29), versions 1 to 3 (KIP-140).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        patterns, literal and prefixed (KIP-290)
2        flexible
3        users as resources (KIP-373)
=======  ====================================================================================

Every broker answers from the rules that it knows; many are looked through in steps, and rules that
change meanwhile are told as they are when it is their turn. The pattern type MATCH asks for all
rules that are about a resource of a name. Resources are in order of type, pattern type and name.
Without an authorizer the answer is SECURITY_DISABLED.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, Final

from millstream.controller.acl_changes import candidates, matching_of
from millstream.handlers.acl_requests import check_enabled, check_filter, filter_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import Acl
from millstream.model.deferred import Deferred
from millstream.model.entities import EntityKind
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from millstream.runtime.pauses import next_pass
from millstream.runtime.services import Services

KEYS_PER_STEP: Final = 1_000
"""How many resource patterns are looked through before other requests have their turn."""


def handle(
    services: Services, context: RequestContext, request: DescribeAclsRequest
) -> Coroutine[Deferred[Any], None, DescribeAclsResponse]:
    """Return the rules that a filter matches, by resource pattern."""
    check_filter(request)
    return _handle(services, request)


async def _handle(services: Services, request: DescribeAclsRequest) -> DescribeAclsResponse:
    check_enabled(services, "No Authorizer is configured on the broker")
    found: dict[tuple[int, int, str], DescribeAclsResource] = {}
    rules = services.metadata.entities.all(EntityKind.ACL)
    try:
        wanted = filter_of(request)
    except KafkaError:  # of a kind that this broker does not know there are no rules
        return DescribeAclsResponse(error_code=ErrorCode.NONE.code, error_message="", resources=[])
    keys = candidates(rules, wanted)
    for first in range(0, len(keys), KEYS_PER_STEP):
        if first:
            await next_pass(services.clock)
        _add(found, matching_of(rules, wanted, keys[first : first + KEYS_PER_STEP]))
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE.code,
        error_message="",
        resources=[found[pattern] for pattern in sorted(found)],
    )


def _add(found: dict[tuple[int, int, str], DescribeAclsResource], acls: Iterable[Acl]) -> None:
    for acl in acls:
        pattern = acl.resource, acl.pattern, acl.name
        resource = found.get(pattern)
        if resource is None:
            resource = found[pattern] = DescribeAclsResource(
                resource_type=acl.resource,
                resource_name=acl.name,
                pattern_type=acl.pattern,
                acls=[],
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )


def failed(
    context: RequestContext, request: DescribeAclsRequest, error: KafkaError
) -> DescribeAclsResponse:
    """Refuse the request."""
    return DescribeAclsResponse(
        error_code=error.error.code, error_message=error.message, resources=[]
    )
