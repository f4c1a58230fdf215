"""Where entities are kept in the metadata store, and as what: Kafka's paths and JSON.

::

    /kafka-acl/<type>/<name>                        the rules of a resource
    /kafka-acl-extended/prefixed/<type>/<name>      the rules of all resources with a prefix
    /config/users/<user>                            SCRAM credentials and quotas of a user
    /config/users/<user>/clients/<client>           quotas of a client id of a user
    /config/clients/<client>                        quotas of a client id
    /config/ips/<address>                           quotas of an address
    /delegation_token/tokens/<id>                   a delegation token

Kafka: ``AclAuthorizer``, ``DynamicConfig``, ``DelegationTokenManager`` of its 3.x versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast

from millstream.controller import payloads
from millstream.model.entities import EntityKind, EntityValue
from millstream.model.entity_keys import (
    CLIENTS,
    PATTERN_NAMES,
    RESOURCE_NAMES,
    rule_text,
    rule_words,
)

LITERAL_ACLS: Final = "/kafka-acl"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
USERS: Final = "/config/users"
CLIENT_IDS: Final = "/config/clients"
IPS: Final = "/config/ips"
TOKENS: Final = "/delegation_token/tokens"
CLIENT_METRICS: Final = "/config/client-metrics"
"""Kafka with ZooKeeper had no subscriptions: the path is Millstream's own."""

_ABOVE: Final = (LITERAL_ACLS, "/kafka-acl-extended", PREFIXED_ACLS, "/delegation_token")
_ACL_ROOTS: Final = {"literal": LITERAL_ACLS, "prefixed": PREFIXED_ACLS}
_ROOTS: Final = {
    EntityKind.USER: USERS,
    EntityKind.USER_CLIENT: USERS,
    EntityKind.CLIENT: CLIENT_IDS,
    EntityKind.IP: IPS,
    EntityKind.DELEGATION_TOKEN: TOKENS,
    EntityKind.CLIENT_METRICS: CLIENT_METRICS,
}

PERSISTENT: Final = (
    *_ABOVE,
    *(f"{root}/{resource}" for root in _ACL_ROOTS.values() for resource in RESOURCE_NAMES.values()),
    USERS,
    CLIENT_IDS,
    IPS,
    TOKENS,
    CLIENT_METRICS,
)
"""Empty nodes that exist from the first start on, parents first (as ``paths.PERSISTENT``)."""

_TOKEN_NUMBERS: Final = frozenset({"issueTimestamp", "maxTimestamp", "expiryTimestamp"})
_TOKEN_LISTS: Final = frozenset({"renewers"})
"""Fields of a token's JSON that are numbers, or lists of texts; in an entity a list is JSON."""


LISTED: Final = {
    **{
        f"{_ACL_ROOTS[pattern]}/{resource}": (EntityKind.ACL, f"{resource}/{pattern}/")
        for pattern in PATTERN_NAMES.values()
        for resource in RESOURCE_NAMES.values()
    },
    **{root: (kind, "") for kind, root in _ROOTS.items() if kind is not EntityKind.USER_CLIENT},
}
"""Every node below which entities are, with their kind and what stands in a key before the name of
a child. Clients of users are below their users.
"""


def clients_of(user_key: str) -> str:
    """Return the path below which the client ids of a user are; the user by its key."""
    return f"{USERS}/{user_key}/clients"


def path_of(kind: EntityKind, key: str) -> str:
    """Return the path of an entity."""
    if kind is EntityKind.ACL:
        resource, pattern, name = key.split("/")
        return f"{_ACL_ROOTS[pattern]}/{resource}/{name}"
    return f"{_ROOTS[kind]}/{key}"


def locate(path: str) -> tuple[EntityKind, str] | None:
    """Return the kind and the key of the entity that a path is of; None for any other path."""
    parent, _, name = path.rpartition("/")
    if parent in LISTED:
        kind, before = LISTED[parent]
        return kind, before + name
    user_path = parent.removesuffix("/clients")
    user = user_path.removeprefix(USERS + "/")
    if user_path not in (parent, user) and "/" not in user:
        return EntityKind.USER_CLIENT, f"{user}{CLIENTS}{name}"
    return None


def data_of(kind: EntityKind, value: EntityValue) -> bytes:
    """Return the payload of an entity's node."""
    if kind is EntityKind.ACL:
        return _dump({"version": 1, "acls": [_rule_json(text) for text in value]})
    if kind is EntityKind.DELEGATION_TOKEN:
        return _dump({"version": 1, **{name: _token_json(name, value[name]) for name in value}})
    return payloads.config(value)


def read_value(kind: EntityKind, path: str, data: bytes) -> EntityValue:
    """Return the entity that a node holds, empty where it is there for the sake of its children;
    PayloadError for a payload that cannot be read.
    """
    if not data:
        return {}
    if kind not in (EntityKind.ACL, EntityKind.DELEGATION_TOKEN):
        return payloads.read_config(path, data)
    try:
        value = json.loads(data)
        if kind is EntityKind.ACL:
            found = cast("list[dict[str, str]]", value["acls"])
            return dict.fromkeys(sorted(_rule_text(each) for each in found), "")
        return {
            name: _token_text(name, field) for name, field in value.items() if name != "version"
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise payloads.PayloadError(f"{path}: no {kind.name.lower()}: {error!r}") from error


def _dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _rule_json(text: str) -> Mapping[str, str]:
    permission, operation, host, principal = rule_words(text)
    return {
        "principal": principal,
        "permissionType": permission,
        "operation": operation,
        "host": host,
    }


def _rule_text(rule: Mapping[str, str]) -> str:
    text = rule_text(rule["permissionType"], rule["operation"], rule["host"], rule["principal"])
    rule_words(text)
    return text


def _token_json(name: str, text: str) -> object:
    if name in _TOKEN_NUMBERS:
        return int(text)
    if name in _TOKEN_LISTS:
        return json.loads(text)
    return text


def _token_text(name: str, field: object) -> str:
    if name in _TOKEN_LISTS:
        return json.dumps(field, separators=(",", ":"))
    if not isinstance(field, str | int):
        raise TypeError(f"{name} is neither text nor number")
    return str(field)
