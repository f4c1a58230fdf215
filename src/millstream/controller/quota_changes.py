"""Changes and descriptions of clients' quotas (KIP-546).

Kafka: ``ClientQuotaControlManager``, ``ClientQuotasImage``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, TypeAlias

from millstream.model.entities import EntitiesView, EntityChanges, EntityKind, EntityValue
from millstream.model.entity_keys import (
    decode_name,
    name_key,
    read_user_client_key,
    user_client_key,
)
from millstream.model.errors import ErrorCode, KafkaError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

MAX_CHANGES: Final = 10_000
"""How many quotas one request may change (Kafka: ``MAX_RECORDS_PER_USER_OP``)."""

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Pairs of a type and a name, in order of types; no name stands for the default."""

_LARGEST_LONG: Final = float((1 << 63) - 1)
_LARGEST_INT: Final = float((1 << 31) - 1)

_OF_CLIENTS: Final = {
    "producer_byte_rate": ("LONG", _LARGEST_LONG),
    "consumer_byte_rate": ("LONG", _LARGEST_LONG),
    "request_percentage": ("DOUBLE", math.inf),
    "controller_mutation_rate": ("DOUBLE", math.inf),
}
_OF_ADDRESSES: Final = {"connection_creation_rate": ("INT", _LARGEST_INT)}

QUOTA_NAMES: Final = frozenset({*_OF_CLIENTS, *_OF_ADDRESSES})
"""The settings of entities that are quotas; a user has others, its credentials."""

_KINDS: Final = (EntityKind.USER_CLIENT, EntityKind.USER, EntityKind.CLIENT, EntityKind.IP)


@dataclass(frozen=True, slots=True)
class Alteration:
    """What is to become of the quotas of one entity: new values, None for those to be removed."""

    kind: EntityKind
    key: str
    values: Mapping[str, float | None]


def read_alteration(
    entity: Sequence[tuple[str, str | None]], operations: Iterable[tuple[str, float | None]]
) -> Alteration:
    """Return a checked alteration; INVALID_REQUEST with the reason for one that cannot be made."""
    values: dict[str, float | None] = {}
    for name, number in operations:
        if name in values:
            raise _invalid(f"Duplicate quota key {name} not updating quota for this entity")
        values[name] = number
    kind, key = _locate(dict(entity))
    keys = _OF_ADDRESSES if kind is EntityKind.IP else _OF_CLIENTS
    for name, number in values.items():
        if number is not None:
            _check(name, number, keys)
    return Alteration(kind, key, values)


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _locate(entity: Mapping[str, str | None]) -> tuple[EntityKind, str]:
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for type_, name in entity.items():
        if type_ not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {type_}")
        if name == "":
            raise _invalid(f"Empty {type_} not supported")
    if IP in entity:
        if len(entity) > 1:
            raise _invalid(
                "Invalid quota entity combination, IP entity should"
                "not be combined with User or ClientId"
            )
        return EntityKind.IP, name_key(_address(entity[IP]))
    if len(entity) == 2:
        return EntityKind.USER_CLIENT, user_client_key(entity[USER], entity[CLIENT_ID])
    if USER in entity:
        return EntityKind.USER, name_key(entity[USER])
    return EntityKind.CLIENT, name_key(entity[CLIENT_ID])


def _address(text: str | None) -> str | None:
    """Return an address as connections have it. No name is looked up: that would take as long as
    its server likes.
    """
    if text is None:
        return None
    try:
        return str(ip_address(text))
    except ValueError:
        raise _invalid(f"{text} is not a valid IP or resolvable host.") from None


def _check(name: str, number: float, keys: Mapping[str, tuple[str, float]]) -> None:
    if name not in keys:
        raise _invalid(f"Invalid configuration key {name}")
    kind, largest = keys[name]
    if math.isnan(number) or number <= 0:
        raise _invalid(f"Quota {name} must be greater than 0")
    if number > largest or (kind != "DOUBLE" and math.isinf(number)):
        article = "an" if kind == "INT" else "a"
        raise _invalid(f"Proposed value for {name} is too large for {article} {kind}.")
    if kind != "DOUBLE" and number % 1.0 > 1e-6:
        raise _invalid(f"{name} cannot be a fractional value.")


def altered(present: Mapping[str, EntityValue], alterations: Iterable[Alteration]) -> EntityChanges:
    """Return the changes of entities of one kind that alterations ask for."""
    changes: dict[str, EntityValue | None] = {}
    for each in alterations:
        value = dict(present.get(each.key, {}))
        for name, number in each.values.items():
            if number is None:
                value.pop(name, None)
            else:
                value[name] = _text(name, number)
        changes[each.key] = value
    return changes


def _text(name: str, number: float) -> str:
    kind, _ = (_OF_CLIENTS | _OF_ADDRESSES)[name]
    is_whole = kind != "DOUBLE" and number.is_integer()
    return str(int(number)) if is_whole else repr(float(number))


# --- describing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Component:
    """A part of a filter: an entity has this type, with one name, the default (no name), or (for
    ``is_any``) whatever.
    """

    type: str
    name: str | None
    is_any: bool = False


def check_filter(components: Sequence[Component]) -> None:
    """Raise INVALID_REQUEST, or UNSUPPORTED_VERSION for another type, for what is no filter."""
    types = [each.type for each in components]
    for each in components:
        if not each.type:
            raise _invalid("Invalid empty entity type.")
        if types.count(each.type) > 1:
            raise _invalid(f"Entity type {each.type} cannot appear more than once in the filter.")
        if each.type not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {each.type}")
    if IP in types and len(types) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )


def matching(
    entities: EntitiesView, components: Sequence[Component], *, strict: bool
) -> Iterator[tuple[QuotaEntity, dict[str, float]]]:
    """Yield the entities that have all parts of a filter, and with ``strict`` no others, with their
    quotas.
    """
    if strict and not components:
        return
    for kind in _KINDS:
        for key, value in sorted(entities.all(kind).items()):
            quotas = _quotas(value)
            entity = _entity(kind, key)
            if quotas and _matches(dict(entity), components, strict):
                yield entity, quotas


def _quotas(value: EntityValue) -> dict[str, float]:
    found = {}
    for name in sorted(QUOTA_NAMES & value.keys()):
        try:
            found[name] = float(value[name])
        except ValueError:
            continue
    return found


def _entity(kind: EntityKind, key: str) -> QuotaEntity:
    if kind is EntityKind.USER_CLIENT:
        user, client_id = read_user_client_key(key)
        return (USER, user), (CLIENT_ID, client_id)
    types = {EntityKind.USER: USER, EntityKind.CLIENT: CLIENT_ID, EntityKind.IP: IP}
    return ((types[kind], decode_name(key)),)


def _matches(
    entity: Mapping[str, str | None], components: Sequence[Component], strict: bool
) -> bool:
    if strict and len(entity) != len(components):
        return False
    return all(
        each.type in entity and (each.is_any or entity[each.type] == each.name)
        for each in components
    )
