"""What the requests about rules of access have in common: codes of the wire to values, and back."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

from millstream.model.acl import AclFilter, AclOperation, AclResource, PatternType, Permission
from millstream.model.errors import ErrorCode, KafkaError, ProtocolError
from millstream.protocol.messages.create_acls import AclCreation
from millstream.protocol.messages.delete_acls import DeleteAclsFilter
from millstream.protocol.messages.describe_acls import DescribeAclsRequest
from millstream.runtime.services import Services

UNKNOWN: Final = 0
"""The code of what a client cannot name: Kafka refuses the bytes of such a request."""

E = TypeVar("E", bound=IntEnum)


def check_enabled(services: Services, message: str) -> None:
    """Raise SECURITY_DISABLED on a broker without an authorizer."""
    if services.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, message)


def check_known(*codes: int) -> None:
    """Raise ProtocolError, which closes the connection, where a code is that of UNKNOWN."""
    if UNKNOWN in codes:
        raise ProtocolError("a rule of access has UNKNOWN elements")


def value_of(kind: type[E], code: int, field: str) -> E:
    """Return the value with a code. INVALID_REQUEST for a code that this broker does not know."""
    try:
        return kind(code)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid {field} UNKNOWN") from None


def filter_of(row: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return the filter of a request. INVALID_REQUEST for codes that this broker does not know."""
    unknown = "Unknown patternFilter."
    try:
        resource = AclResource(row.resource_type_filter)
        pattern = PatternType(row.pattern_type_filter)
        unknown = "Unknown entryFilter."
        operation = AclOperation(row.operation)
        permission = Permission(row.permission_type)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, unknown) from None
    return AclFilter(
        resource=resource,
        name=row.resource_name_filter,
        pattern=pattern,
        principal=row.principal_filter,
        host=row.host_filter,
        operation=operation,
        permission=permission,
    )


def check_filter(row: DescribeAclsRequest | DeleteAclsFilter) -> None:
    """Raise ProtocolError for a filter with UNKNOWN elements."""
    check_known(
        row.resource_type_filter, row.pattern_type_filter, row.operation, row.permission_type
    )


def check_creation(row: AclCreation) -> None:
    """Raise ProtocolError for a rule with UNKNOWN elements."""
    check_known(row.resource_type, row.resource_pattern_type, row.operation, row.permission_type)
