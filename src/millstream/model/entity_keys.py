"""The keys of entities, and the rules of access that an entity of kind ACL holds.

Names stand percent-encoded in keys, as in the paths of Kafka's metadata store (Kafka:
``Sanitizer``), so that a user who is called ``<default>`` is not the default user.

====================  ===============================================================
kind                  key
====================  ===============================================================
ACL                   ``<resource type>/<literal or prefixed>/<name>``
USER, CLIENT, IP      ``<name>``, or ``<default>``
USER_CLIENT           ``<user>/clients/<client id>``, each also ``<default>``
DELEGATION_TOKEN      ``<token id>``
CLIENT_METRICS        ``<name>``
====================  ===============================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote

from millstream.model.acl import Acl, AclOperation, AclResource, PatternType, Permission
from millstream.model.entities import EntityValue

DEFAULT: Final = "<default>"
"""Stands in a key for the default of all users, clients or addresses."""

CLIENTS: Final = "/clients/"
"""Between the user and the client id in a key of kind USER_CLIENT."""

RESOURCE_NAMES: Final[dict[AclResource, str]] = {
    AclResource.TOPIC: "Topic",
    AclResource.GROUP: "Group",
    AclResource.CLUSTER: "Cluster",
    AclResource.TRANSACTIONAL_ID: "TransactionalId",
    AclResource.DELEGATION_TOKEN: "DelegationToken",
    AclResource.USER: "User",
}
"""The types of resources, as Kafka writes them in paths."""

PATTERN_NAMES: Final[dict[PatternType, str]] = {
    PatternType.LITERAL: "literal",
    PatternType.PREFIXED: "prefixed",
}

OPERATION_NAMES: Final[dict[AclOperation, str]] = {
    each: each.name.title().replace("_", "")
    for each in AclOperation
    if each is not AclOperation.ANY
}
"""The operations, as Kafka writes them in the metadata store: ``DescribeConfigs``."""

PERMISSION_NAMES: Final[dict[Permission, str]] = {
    Permission.ALLOW: "Allow",
    Permission.DENY: "Deny",
}

_SAFE: Final = "*:=,@/"
"""What stays as it is in the hosts and principals of rules: names of certificates have these."""

_RESOURCES: Final = {name: each for each, name in RESOURCE_NAMES.items()}
_PATTERNS: Final = {name: each for each, name in PATTERN_NAMES.items()}
_OPERATIONS: Final = {name: each for each, name in OPERATION_NAMES.items()}
_PERMISSIONS: Final = {name: each for each, name in PERMISSION_NAMES.items()}


def encode_name(name: str | None) -> str:
    """Return a name as it stands in a key and in a path; None stands for the default."""
    if name is None:
        return DEFAULT
    if name in (".", ".."):
        return name.replace(".", "%2E")  # no part of a path in ZooKeeper may be one of these
    return quote(name, safe="*")


def decode_name(text: str) -> str | None:
    """Return the name that stands in a key; None for the default."""
    return None if text == DEFAULT else unquote(text)


def name_key(name: str | None) -> str:
    """Return the key of a user, a client id, an address or a token; None means the default."""
    return encode_name(name)


def user_client_key(user: str | None, client_id: str | None) -> str:
    """Return the key of a client id of a user; None means the default of either."""
    return f"{encode_name(user)}{CLIENTS}{encode_name(client_id)}"


def read_user_client_key(key: str) -> tuple[str | None, str | None]:
    """Return the user and the client id of a key; None means the default."""
    user, _, client_id = key.partition(CLIENTS)
    return decode_name(user), decode_name(client_id)


def acl_key(resource: AclResource, pattern: PatternType, name: str) -> str:
    """Return the key of the rules of a resource pattern, which is literal or prefixed."""
    return f"{RESOURCE_NAMES[resource]}/{PATTERN_NAMES[pattern]}/{encode_name(name)}"


def read_acl_key(key: str) -> tuple[AclResource, PatternType, str]:
    """Return the resource pattern of a key. ValueError for what is none."""
    resource, pattern, name = key.split("/")
    if resource not in _RESOURCES or pattern not in _PATTERNS:
        raise ValueError(f"{key!r} names no resource pattern")
    return _RESOURCES[resource], _PATTERNS[pattern], unquote(name)


def rule_text(permission: str, operation: str, host: str, principal: str) -> str:
    """Return a rule, without its resource pattern, as a text of four words, names encoded."""
    return " ".join((permission, operation, quote(host, safe=_SAFE), quote(principal, safe=_SAFE)))


def rule_words(text: str) -> tuple[str, str, str, str]:
    """Return permission, operation, host and principal of a rule. ValueError for what is none."""
    permission, operation, host, principal = text.split(" ")
    if permission not in _PERMISSIONS or operation not in _OPERATIONS:
        raise ValueError(f"{text!r} is no rule")
    return permission, operation, unquote(host), unquote(principal)


def acl_value(acls: Iterable[Acl]) -> EntityValue:
    """Return the entity of the rules of one resource pattern: each rule's text, in order."""
    return dict.fromkeys(
        sorted(
            rule_text(
                PERMISSION_NAMES[each.permission],
                OPERATION_NAMES[each.operation],
                each.host,
                each.principal,
            )
            for each in acls
        ),
        "",
    )


def read_acls(key: str, value: Mapping[str, str]) -> list[Acl]:
    """Return the rules that an entity of kind ACL holds. ValueError for what is none."""
    resource, pattern, name = read_acl_key(key)
    acls = []
    for text in value:
        permission, operation, host, principal = rule_words(text)
        acls.append(
            Acl(
                resource=resource,
                name=name,
                pattern=pattern,
                principal=principal,
                operation=_OPERATIONS[operation],
                permission=_PERMISSIONS[permission],
                host=host,
            )
        )
    return acls
