"""What the requests about delegation tokens have in common."""

from __future__ import annotations

from millstream.handlers.access import access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.principal import KafkaPrincipal
from millstream.runtime.services import Services
from millstream.security.delegation_tokens import NO_TIME_MS, check_may_ask


def require_authenticated(context: RequestContext) -> KafkaPrincipal:
    """Return who asks; DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for one who has not authenticated, or
    with a token.
    """
    principal = context.connection.principal
    check_may_ask(principal)
    return principal


def time_of_refusal_ms(error: KafkaError) -> int:
    """Return what stands for the end of a token that is not changed: Kafka's broker says -1, its
    controller 0.
    """
    by_broker = error.error is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return NO_TIME_MS if by_broker else 0


def may(
    services: Services,
    context: RequestContext,
    operation: AclOperation,
    resource: AclResource,
    name: str,
) -> bool:
    """Tell whether a client may do something; everybody may where there is no authorizer."""
    access = access_of(services, context)
    return access is None or access.allows(operation, resource, name)
