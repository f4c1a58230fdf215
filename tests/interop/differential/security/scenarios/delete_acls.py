"""DeleteAcls: which rules filters delete, and what is left."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.scenarios.describe_acls import FILTERS, some_rules
from tests.interop.differential.security.session import (
    ALTER,
    CLUSTER,
    DESCRIBE,
    EVERYTHING,
    READ,
    TOPIC,
    SecuredSession,
    rule,
)


def delete(s: SecuredSession, version: int, *filters: dict[str, Any]) -> None:
    """Delete, wait until that can be seen, and record what is left."""
    s.call("DeleteAcls", version, filters=[EVERYTHING | each for each in filters])
    s.catch_up()
    s.call("DescribeAcls", 3, **EVERYTHING)


@scenario(cases=FILTERS)
def filters(s: SecuredSession, fields: dict[str, Any]) -> None:
    some_rules(s)
    delete(s, 3, fields)


@scenario(versions="DeleteAcls")
def one(s: SecuredSession, version: int) -> None:
    some_rules(s)
    delete(s, version, {"resource_name_filter": "orders-2", "pattern_type_filter": 3})


@scenario(versions="DeleteAcls")
def none_that_is_there(s: SecuredSession, version: int) -> None:
    some_rules(s)
    delete(s, version, {"resource_name_filter": "nothing"})


@scenario(versions="DeleteAcls")
def several(s: SecuredSession, version: int) -> None:
    some_rules(s)
    delete(
        s,
        version,
        {"resource_name_filter": "orders", "pattern_type_filter": 3},
        {"principal_filter": "User:bob"},
        {"resource_name_filter": "nothing"},
    )


@scenario(versions="DeleteAcls")
def the_same_filter_twice(s: SecuredSession, version: int) -> None:
    some_rules(s)
    fields = {"resource_name_filter": "orders", "pattern_type_filter": 3}
    delete(s, version, fields, fields)


@scenario(versions="DeleteAcls")
def no_filter(s: SecuredSession, version: int) -> None:
    some_rules(s)
    delete(s, version)


@scenario
def good_and_bad_together(s: SecuredSession) -> None:
    some_rules(s)
    delete(s, 3, {"operation": READ}, {"operation": 77}, {"principal_filter": "User:bob"})


@scenario
def again(s: SecuredSession) -> None:
    some_rules(s)
    delete(s, 3, {"operation": READ})
    delete(s, 3, {"operation": READ})


@scenario(versions="DeleteAcls")
def not_allowed(s: SecuredSession, version: int) -> None:
    s.allow(rule(DESCRIBE, CLUSTER, "kafka-cluster"))
    s.user().call("DeleteAcls", version, filters=[EVERYTHING, EVERYTHING])


@scenario
def ones_own_right(s: SecuredSession) -> None:
    s.allow(rule(ALTER, CLUSTER, "kafka-cluster"), rule(READ, TOPIC, "t"))
    s.user().call("DeleteAcls", 3, filters=[EVERYTHING])
    s.catch_up()
    s.user().call("DeleteAcls", 3, filters=[EVERYTHING])
