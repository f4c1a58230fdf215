"""DescribeClientQuotas: which quotas a filter finds."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.session import (
    CLUSTER,
    DESCRIBE_CONFIGS,
    SecuredSession,
    rule,
)

EXACT, DEFAULT, ANYTHING = 0, 1, 2


def part(kind: str, match_type: int, match: str | None = None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


def some_quotas(s: SecuredSession) -> None:
    s.quota({"user": "ann"}, producer_byte_rate=1e9, consumer_byte_rate=2e9)
    s.quota({"user": "bob"}, request_percentage=900)
    s.quota({"user": None}, producer_byte_rate=3e9)
    s.quota({"client-id": "app"}, producer_byte_rate=4e9)
    s.quota({"client-id": None}, controller_mutation_rate=5e9)
    s.quota({"user": "ann", "client-id": "app"}, producer_byte_rate=6e9)
    s.quota({"user": "ann", "client-id": None}, producer_byte_rate=7e9)
    s.quota({"user": None, "client-id": None}, producer_byte_rate=8e9)
    s.quota({"ip": "192.0.2.7"}, connection_creation_rate=9000)
    s.quota({"ip": None}, connection_creation_rate=90000)


FILTERS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "any_user": [part("user", ANYTHING)],
    "any_client": [part("client-id", ANYTHING)],
    "any_ip": [part("ip", ANYTHING)],
    "user_ann": [part("user", EXACT, "ann")],
    "user_absent": [part("user", EXACT, "nobody")],
    "user_default": [part("user", DEFAULT)],
    "client_app": [part("client-id", EXACT, "app")],
    "client_default": [part("client-id", DEFAULT)],
    "ip_exact": [part("ip", EXACT, "192.0.2.7")],
    "ip_default": [part("ip", DEFAULT)],
    "ip_no_address": [part("ip", EXACT, "not an address!")],
    "both_any": [part("user", ANYTHING), part("client-id", ANYTHING)],
    "both_exact": [part("user", EXACT, "ann"), part("client-id", EXACT, "app")],
    "both_default": [part("user", DEFAULT), part("client-id", DEFAULT)],
    "user_exact_client_default": [part("user", EXACT, "ann"), part("client-id", DEFAULT)],
    "client_before_user": [part("client-id", ANYTHING), part("user", EXACT, "ann")],
    "user_and_ip": [part("user", ANYTHING), part("ip", ANYTHING)],
    "the_same_type_twice": [part("user", ANYTHING), part("user", EXACT, "ann")],
    "unknown_type": [part("group", ANYTHING)],
    "empty_type": [part("", ANYTHING)],
    "upper_case": [part("USER", ANYTHING)],
    "exact_without_name": [part("user", EXACT)],
    "exact_empty": [part("user", EXACT, "")],
    "default_with_name": [part("user", DEFAULT, "ann")],
    "any_with_name": [part("user", ANYTHING, "ann")],
    "match_type_3": [part("user", 3)],
    "match_type_minus_1": [part("user", -1)],
}


@scenario(cases=FILTERS)
def filters(s: SecuredSession, components: list[dict[str, Any]]) -> None:
    some_quotas(s)
    for strict in (False, True):
        s.call("DescribeClientQuotas", 1, components=components, strict=strict)


@scenario(cases=["none", "any_user", "both_exact", "unknown_type"])
def version_0(s: SecuredSession, name: str) -> None:
    some_quotas(s)
    s.call("DescribeClientQuotas", 0, components=FILTERS[name], strict=False)


@scenario(versions="DescribeClientQuotas")
def when_there_are_none(s: SecuredSession, version: int) -> None:
    s.call("DescribeClientQuotas", version, components=[part("user", ANYTHING)], strict=False)


@scenario(versions="DescribeClientQuotas")
def not_allowed(s: SecuredSession, version: int) -> None:
    s.user().call("DescribeClientQuotas", version, components=[], strict=False)


@scenario
def allowed_by_describe_configs(s: SecuredSession) -> None:
    s.allow(rule(DESCRIBE_CONFIGS, CLUSTER, "kafka-cluster"))
    s.user().call("DescribeClientQuotas", 1, components=[], strict=False)
