"""Changes of rules of access: which rules may be made, which rules a filter matches.

Kafka: ``AclControlManager``, ``ResourcePatternFilter``, ``AccessControlEntryFilter``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from millstream.model.acl import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
)
from millstream.model.entities import EntityChanges, EntityValue
from millstream.model.entity_keys import acl_key, acl_value, read_acl_key, read_acls
from millstream.model.errors import ErrorCode, KafkaError

MAX_CHANGES: Final = 10_000
"""How many rules one request may make, or delete with one filter (Kafka:
``MAX_RECORDS_PER_USER_OP``)."""

_PATTERNS: Final = (PatternType.LITERAL, PatternType.PREFIXED)
_PERMISSIONS: Final = (Permission.ALLOW, Permission.DENY)


def check_new_acl(acl: Acl) -> None:
    """Raise INVALID_REQUEST for a rule that cannot be made."""
    reason = None
    if acl.resource is AclResource.CLUSTER and acl.name != CLUSTER_NAME:
        reason = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not acl.name:
        reason = "Invalid empty resource name"
    elif acl.resource is AclResource.ANY:
        reason = f"Invalid resourceType {acl.resource.name}"
    elif acl.pattern not in _PATTERNS:
        reason = f"Invalid patternType {acl.pattern.name}"
    elif acl.operation is AclOperation.ANY:
        reason = f"Invalid operation {acl.operation.name}"
    elif acl.permission not in _PERMISSIONS:
        reason = f"Invalid permissionType {acl.permission.name}"
    elif ":" not in acl.principal:
        reason = (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def with_acls(present: Mapping[str, EntityValue], acls: Iterable[Acl]) -> EntityChanges:
    """Return the changes that add rules. Rules that are there already count as added.

    Raises POLICY_VIOLATION where there are more than ``MAX_CHANGES`` new ones.
    """
    changed: dict[str, dict[str, str]] = {}
    count = 0
    for acl in acls:
        key = acl_key(acl.resource, acl.pattern, acl.name)
        value = changed.get(key)
        if value is None:
            value = changed[key] = dict(present.get(key, {}))
        before = len(value)
        value.update(acl_value([acl]))
        count += len(value) - before
    if count > MAX_CHANGES:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )
    return {key: dict.fromkeys(sorted(value), "") for key, value in changed.items()}


def matching_acls(present: Mapping[str, EntityValue], wanted: AclFilter) -> Iterator[Acl]:
    """Yield the rules that a filter matches, of one resource pattern after the other."""
    return matching_of(present, wanted, candidates(present, wanted))


def matching_of(
    present: Mapping[str, EntityValue], wanted: AclFilter, keys: Iterable[str]
) -> Iterator[Acl]:
    """Yield the rules of some entities that a filter matches; one that is gone has none."""
    for key in keys:
        value = present.get(key)
        if value is not None and matches_pattern(wanted, *read_acl_key(key)):
            for acl in read_acls(key, value):
                if _matches_rule(wanted, acl):
                    yield acl


def candidates(present: Mapping[str, EntityValue], wanted: AclFilter) -> list[str]:
    """Return the keys that a filter may match: all, or the one that it names."""
    if (
        wanted.name is None
        or wanted.resource is AclResource.ANY
        or wanted.pattern is PatternType.MATCH
    ):
        return sorted(present)
    patterns = _PATTERNS if wanted.pattern is PatternType.ANY else (wanted.pattern,)
    return [acl_key(wanted.resource, pattern, wanted.name) for pattern in patterns]


def matches_pattern(
    wanted: AclFilter, resource: AclResource, pattern: PatternType, name: str
) -> bool:
    """Tell whether a filter matches a resource pattern. MATCH matches what is about a resource of
    the name: its own rules, those of ``*`` and of its prefixes.
    """
    if wanted.resource not in (AclResource.ANY, resource):
        return False
    if wanted.pattern not in (PatternType.ANY, PatternType.MATCH, pattern):
        return False
    if wanted.name is None:
        return True
    if wanted.pattern is not PatternType.MATCH:
        return wanted.name == name
    if pattern is PatternType.LITERAL:
        return name in (wanted.name, WILDCARD)
    return wanted.name.startswith(name)


def _matches_rule(wanted: AclFilter, acl: Acl) -> bool:
    return (
        wanted.principal in (None, acl.principal)
        and wanted.host in (None, acl.host)
        and wanted.operation in (AclOperation.ANY, acl.operation)
        and wanted.permission in (Permission.ANY, acl.permission)
    )
