"""DescribeAcls: which rules a filter finds."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.session import (
    ALL,
    ALTER,
    ANY,
    CLUSTER,
    DENY,
    DESCRIBE,
    EVERYTHING,
    GROUP,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    SecuredSession,
    rule,
)

MATCH = 2


def some_rules(s: SecuredSession) -> None:
    s.allow(
        rule(READ, TOPIC, "orders"),
        rule(WRITE, TOPIC, "orders", "User:bob"),
        rule(READ, TOPIC, "orders", permission=DENY, host="10.0.0.1"),
        rule(READ, TOPIC, "ord", pattern=PREFIXED),
        rule(DESCRIBE, TOPIC, "o", "User:*", pattern=PREFIXED),
        rule(ALL, TOPIC, "*"),
        rule(READ, TOPIC, "*", pattern=PREFIXED),
        rule(READ, GROUP, "orders"),
        rule(ALTER, CLUSTER, "kafka-cluster", "User:bob"),
        rule(READ, TOPIC, "orders-2"),
    )


FILTERS: dict[str, dict[str, Any]] = {
    "everything": {},
    "topics": {"resource_type_filter": TOPIC},
    "groups": {"resource_type_filter": GROUP},
    "the_cluster": {"resource_type_filter": CLUSTER},
    "users": {"resource_type_filter": 7},
    "a_name": {"resource_name_filter": "orders"},
    "a_name_literal": {"resource_name_filter": "orders", "pattern_type_filter": 3},
    "a_name_prefixed": {"resource_name_filter": "ord", "pattern_type_filter": PREFIXED},
    "a_name_that_matches": {"resource_name_filter": "orders", "pattern_type_filter": MATCH},
    "any_name_that_matches": {"pattern_type_filter": MATCH},
    "topics_that_match": {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "orders",
        "pattern_type_filter": MATCH,
    },
    "topics_that_match_others": {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "x",
        "pattern_type_filter": MATCH,
    },
    "wildcard_literal": {"resource_name_filter": "*", "pattern_type_filter": 3},
    "wildcard_any": {"resource_name_filter": "*"},
    "wildcard_matches": {"resource_name_filter": "*", "pattern_type_filter": MATCH},
    "wildcard_prefixed": {"resource_name_filter": "*", "pattern_type_filter": PREFIXED},
    "all_literal": {"pattern_type_filter": 3},
    "all_prefixed": {"pattern_type_filter": PREFIXED},
    "a_principal": {"principal_filter": "User:bob"},
    "everybody": {"principal_filter": "User:*"},
    "principal_without_type": {"principal_filter": "bob"},
    "principal_empty": {"principal_filter": ""},
    "a_host": {"host_filter": "10.0.0.1"},
    "any_host": {"host_filter": "*"},
    "host_empty": {"host_filter": ""},
    "name_empty": {"resource_name_filter": ""},
    "reads": {"operation": READ},
    "all_as_operation": {"operation": ALL},
    "denials": {"permission_type": DENY},
    "allowances": {"permission_type": 3},
    "several": {"resource_type_filter": TOPIC, "principal_filter": "User:ann", "operation": READ},
    "unknown_resource": {"resource_type_filter": 0},
    "unknown_resource_9": {"resource_type_filter": 9},
    "unknown_pattern": {"pattern_type_filter": 0},
    "unknown_pattern_9": {"pattern_type_filter": 9},
    "unknown_operation": {"operation": 0},
    "unknown_operation_99": {"operation": 99},
    "unknown_permission": {"permission_type": 0},
    "unknown_permission_9": {"permission_type": 9},
    "negative": {"operation": -1},
}


@scenario(cases=FILTERS)
def filters(s: SecuredSession, fields: dict[str, Any]) -> None:
    some_rules(s)
    s.call("DescribeAcls", 3, **EVERYTHING | fields)


@scenario(cases={name: FILTERS[name] for name in ("everything", "a_name")}, versions=[1, 2])
def older_versions(s: SecuredSession, fields: dict[str, Any], version: int) -> None:
    some_rules(s)
    s.call("DescribeAcls", version, **EVERYTHING | fields)


@scenario(versions=[1, 2])
def users_in_older_versions(s: SecuredSession, version: int) -> None:
    s.allow(rule(13, 7, "User:bob"))
    s.call("DescribeAcls", version, **EVERYTHING)


@scenario(cases={"any": ANY, "match": MATCH, "literal": 3, "prefixed": PREFIXED})
def pattern_in_version_1(s: SecuredSession, code: int) -> None:
    some_rules(s)
    fields = {"pattern_type_filter": code, "resource_name_filter": "orders"}
    s.call("DescribeAcls", 1, **EVERYTHING | fields)


@scenario(versions="DescribeAcls")
def not_allowed(s: SecuredSession, version: int) -> None:
    s.user().call("DescribeAcls", version, **EVERYTHING)


@scenario(cases={"describe": DESCRIBE, "alter": ALTER, "all": ALL})
def allowed_by(s: SecuredSession, operation: int) -> None:
    name = "kafka-cluster"
    s.allow(rule(operation, CLUSTER, name))
    s.user().call("DescribeAcls", 3, **EVERYTHING)
