"""AlterClientQuotas: right and wrong entities, keys and values, and what is described then."""

from __future__ import annotations

import math
from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.session import (
    ALTER_CONFIGS,
    CLUSTER,
    SecuredSession,
    rule,
)

Entity = list[tuple[str, str | None]]


def entry(entity: Entity, *ops: tuple[str, float | None]) -> dict[str, Any]:
    """Return one entry; an operation without value removes."""
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [
            {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
            for key, value in ops
        ],
    }


def alter(
    s: SecuredSession, *entries: dict[str, Any], version: int = 1, validate_only: bool = False
) -> None:
    """Alter, wait until the broker's metadata has caught up, and describe everything."""
    s.call("AlterClientQuotas", version, entries=list(entries), validate_only=validate_only)
    s.catch_up()
    s.call("DescribeClientQuotas", 1, components=[], strict=False)


ENTITIES: dict[str, Entity] = {
    "user": [("user", "ann")],
    "user_default": [("user", None)],
    "user_empty": [("user", "")],
    "user_default_by_name": [("user", "<default>")],
    "user_unusual": [("user", "CN=ann, O=x/y%+*")],
    "client": [("client-id", "app")],
    "client_default": [("client-id", None)],
    "client_empty": [("client-id", "")],
    "user_client": [("user", "ann"), ("client-id", "app")],
    "client_user": [("client-id", "app"), ("user", "ann")],
    "user_default_client": [("user", None), ("client-id", "app")],
    "user_client_default": [("user", "ann"), ("client-id", None)],
    "both_default": [("user", None), ("client-id", None)],
    "user_twice": [("user", "ann"), ("user", "bob")],
    "user_twice_the_same": [("user", "ann"), ("user", "ann")],
    "group": [("group", "g")],
    "upper_case": [("USER", "ann")],
    "empty_type": [("", "ann")],
    "nothing": [],
    "user_and_unknown": [("user", "ann"), ("group", "g")],
}
IP_ENTITIES: dict[str, Entity] = {
    "ip": [("ip", "192.0.2.7")],
    "ip_6": [("ip", "2001:db8::1")],
    "ip_default": [("ip", None)],
    "ip_empty": [("ip", "")],
    "ip_no_address": [("ip", "not an address!")],
    "ip_network": [("ip", "192.0.2.0/24")],
    "ip_localhost": [("ip", "localhost")],
    "ip_and_user": [("ip", "192.0.2.7"), ("user", "ann")],
    "ip_and_client": [("ip", "192.0.2.7"), ("client-id", "app")],
}


@scenario(cases=ENTITIES)
def entity(s: SecuredSession, entity: Entity) -> None:
    alter(s, entry(entity, ("producer_byte_rate", 1e9)))


@scenario(cases=IP_ENTITIES)
def address(s: SecuredSession, entity: Entity) -> None:
    alter(s, entry(entity, ("connection_creation_rate", 1000.0)))


@scenario(cases=["user", "client", "user_client", "group", "both_default"])
def version_0(s: SecuredSession, name: str) -> None:
    alter(s, entry(ENTITIES[name], ("producer_byte_rate", 1e9)), version=0)


KEYS = [
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
    "SCRAM-SHA-256",
    "",
    "unknown",
    "PRODUCER_BYTE_RATE",
]


@scenario(cases={each or "empty": each for each in KEYS})
def key(s: SecuredSession, name: str) -> None:
    for entity in (ENTITIES["user"], ENTITIES["client"], IP_ENTITIES["ip"]):
        alter(s, entry(entity, (name, 1000.0)))


VALUES = {
    "zero": 0.0,
    "minus_zero": -0.0,
    "negative": -1.0,
    "tiny": 1e-9,
    "fraction": 0.5,
    "with_fraction": 1000.5,
    "just_below": 1000.0 - 1e-7,
    "large": 1e15,
    "beyond_long": 1e19,
    "nan": math.nan,
    "infinity": math.inf,
    "minus_infinity": -math.inf,
}


@scenario(cases=VALUES)
def value_of_bytes(s: SecuredSession, value: float) -> None:
    alter(s, entry(ENTITIES["user"], ("producer_byte_rate", value)))


@scenario(cases=VALUES)
def value_of_percentage(s: SecuredSession, value: float) -> None:
    alter(s, entry([("user", "bob")], ("request_percentage", value)))


@scenario(cases=VALUES)
def value_of_connections(s: SecuredSession, value: float) -> None:
    alter(s, entry(IP_ENTITIES["ip"], ("connection_creation_rate", value)))


@scenario(cases={"one": 1.0, "int_max": 2147483647.0, "above": 2147483648.0, "fraction": 1.5})
def number_of_connections(s: SecuredSession, value: float) -> None:
    alter(s, entry(IP_ENTITIES["ip"], ("connection_creation_rate", value)))


@scenario(versions="AlterClientQuotas")
def validate_only(s: SecuredSession, version: int) -> None:
    alter(
        s,
        entry(ENTITIES["user"], ("producer_byte_rate", 1e9)),
        entry([("user", "bob")], ("unknown", 1.0)),
        version=version,
        validate_only=True,
    )


@scenario(versions="AlterClientQuotas")
def several_keys_and_a_removal(s: SecuredSession, version: int) -> None:
    user = ENTITIES["user"]
    alter(s, entry(user, ("producer_byte_rate", 1e9), ("consumer_byte_rate", 2e9)), version=version)
    alter(s, entry(user, ("producer_byte_rate", None), ("request_percentage", 900.0)))
    alter(s, entry(user, ("consumer_byte_rate", None), ("request_percentage", None)))


@scenario(versions="AlterClientQuotas")
def removal_of_what_is_not_there(s: SecuredSession, version: int) -> None:
    alter(s, entry(ENTITIES["user"], ("producer_byte_rate", None)), version=version)
    alter(s, entry(ENTITIES["user"], ("unknown", None)), version=version)


@scenario
def the_same_key_twice(s: SecuredSession) -> None:
    keys = [("producer_byte_rate", 1e9), ("producer_byte_rate", 2e9)]
    alter(s, entry(ENTITIES["user"], *keys))


@scenario
def set_and_removed_in_one(s: SecuredSession) -> None:
    alter(s, entry(ENTITIES["user"], ("producer_byte_rate", 1e9), ("producer_byte_rate", None)))


@scenario(versions="AlterClientQuotas")
def the_same_entity_twice(s: SecuredSession, version: int) -> None:
    user = ENTITIES["user"]
    alter(
        s,
        entry(user, ("producer_byte_rate", 1e9)),
        entry(user, ("consumer_byte_rate", 2e9)),
        version=version,
    )


@scenario
def the_same_entity_in_another_order(s: SecuredSession) -> None:
    alter(
        s,
        entry(ENTITIES["user_client"], ("producer_byte_rate", 1e9)),
        entry(ENTITIES["client_user"], ("consumer_byte_rate", 2e9)),
    )


@scenario
def good_and_bad_together(s: SecuredSession) -> None:
    alter(
        s,
        entry(ENTITIES["user"], ("producer_byte_rate", 1e9)),
        entry([("user", "bob")], ("producer_byte_rate", 1e9), ("unknown", 1.0)),
        entry(ENTITIES["group"], ("producer_byte_rate", 1e9)),
        entry(IP_ENTITIES["ip"], ("connection_creation_rate", 100.0)),
    )


@scenario
def no_operation(s: SecuredSession) -> None:
    alter(s, entry(ENTITIES["user"]))
    alter(s, entry(ENTITIES["group"]))


@scenario(versions="AlterClientQuotas")
def no_entry(s: SecuredSession, version: int) -> None:
    alter(s, version=version)


@scenario(versions="AlterClientQuotas")
def not_allowed(s: SecuredSession, version: int) -> None:
    entries = [entry(ENTITIES["user"], ("producer_byte_rate", 1e9)), entry(ENTITIES["group"])]
    s.user().call("AlterClientQuotas", version, entries=entries)


@scenario
def allowed_by_alter_configs(s: SecuredSession) -> None:
    s.allow(rule(ALTER_CONFIGS, CLUSTER, "kafka-cluster"))
    entries = [entry(ENTITIES["user"], ("producer_byte_rate", 1e9))]
    s.user().call("AlterClientQuotas", 1, entries=entries)
    s.catch_up()
    s.user().call("DescribeClientQuotas", 1, components=[], strict=False)


@scenario
def a_user_with_a_password_has_quotas_too(s: SecuredSession) -> None:
    from tests.interop.differential.security.scenarios.sasl_scram import scram_user

    name = scram_user(s, "SCRAM-SHA-256", s.name("sam"))
    alter(s, entry([("user", name)], ("producer_byte_rate", 1e9)))
    alter(s, entry([("user", name)], ("producer_byte_rate", None)))
    s.call("DescribeUserScramCredentials", 0, users=[{"name": name}])
