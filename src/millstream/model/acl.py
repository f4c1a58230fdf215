"""Rules of access (ACLs): who may, or may not, do what with which resources (KIP-11, KIP-290).

The numbers are those of the wire (Kafka: ``ResourceType``, ``PatternType``, ``AclOperation``,
``AclPermissionType``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

WILDCARD: Final = "*"
"""As the name of a literal pattern it stands for every resource of its type; as a host, for every
host. The principal ``User:*`` stands for everybody."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class AclResource(IntEnum):
    """The resource type of an ACL (Kafka: ``ResourceType``)."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The pattern type of an ACL's name; ANY and MATCH are for filters only (KIP-290)."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """The operation that is allowed or denied."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


OPERATIONS_OF: Final[Mapping[AclResource, tuple[AclOperation, ...]]] = MappingProxyType(
    {
        AclResource.TOPIC: (
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ),
        AclResource.GROUP: (
            AclOperation.READ,
            AclOperation.DELETE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ),
        AclResource.CLUSTER: (
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        ),
        AclResource.TRANSACTIONAL_ID: (
            AclOperation.WRITE,
            AclOperation.DESCRIBE,
            AclOperation.TWO_PHASE_COMMIT,
        ),
        AclResource.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
        AclResource.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
    }
)
"""The operations that requests need on resources of each type (Kafka:
``AclEntry.supportedOperations``, which lacks DELETE on the cluster: it deletes any topic)."""


class Permission(IntEnum):
    """Whether a rule allows or denies."""

    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One rule: a principal (``User:ann``) may, or may not, do something from a host."""

    resource: AclResource
    name: str
    principal: str
    operation: AclOperation
    permission: Permission = Permission.ALLOW
    pattern: PatternType = PatternType.LITERAL
    host: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """A filter of ACLs; None and ANY match all."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY
