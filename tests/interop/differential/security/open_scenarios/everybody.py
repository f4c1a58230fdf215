"""`allow.everyone.if.no.acl.found`: a resource without a rule is everybody's (KIP-11)."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.scenarios.authorization import (
    CREATIONS,
    IDEMPOTENCE,
    PATTERNS,
    creating_topics,
    describe,
    everything_of,
    fetch,
    offsets,
    producer_ids,
    tell_operations,
    with_topics,
)
from tests.interop.differential.security.session import (
    ALL,
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


@scenario
def without_any_rule(s: SecuredSession) -> None:
    topic, group = s.topic(), s.name("g")
    everything_of(s, topic, s.user())
    offsets(s.user(), group, topic)
    tell_operations(s.user(), topic, group)
    s.user().call("DescribeAcls", 3, **EVERYTHING)


RULES: dict[str, tuple[int, str, dict[str, Any]]] = {
    "of_another_user": (READ, "t", {"principal": "User:bob"}),
    "of_this_user": (READ, "t", {}),
    "denied_another_user": (READ, "t", {"principal": "User:bob", "permission": DENY}),
    "denied_this_user": (READ, "t", {"permission": DENY}),
    "another_operation": (WRITE, "t", {}),
    "of_another_host": (READ, "t", {"host": "10.0.0.1"}),
    "prefix_that_matches": (READ, "", {"principal": "User:bob", "pattern": PREFIXED}),
    "wildcard": (READ, "*", {"principal": "User:bob"}),
    "of_another_topic": (READ, "u", {"principal": "User:bob"}),
}


@scenario(cases=RULES)
def one_rule(s: SecuredSession, case: tuple[int, str, dict[str, Any]]) -> None:
    topic = s.topic()
    operation, name, more = case
    names = {"t": topic, "u": s.name("u"), "": "t", "*": "*"}
    s.allow(rule(operation, TOPIC, names[name], **more))
    everything_of(s, topic, s.user())
    tell_operations(s.user(), topic, s.name("g"))


@scenario(cases=PATTERNS)
def patterns(s: SecuredSession, rules: list[tuple[Any, ...]]) -> None:
    with_topics(s, *rules)


@scenario(cases=IDEMPOTENCE)
def ids_of_producers(s: SecuredSession, rules: list[tuple[Any, ...]]) -> None:
    producer_ids(s, rules)


@scenario(cases=CREATIONS)
def new_topics(s: SecuredSession, rules: list[tuple[Any, ...]]) -> None:
    creating_topics(s, rules)


@scenario(cases={"describe": DESCRIBE, "all": ALL})
def a_rule_for_the_cluster(s: SecuredSession, operation: int) -> None:
    s.allow(rule(operation, CLUSTER, "kafka-cluster", "User:bob"))
    peer = s.user()
    peer.call("DescribeCluster", 2, include_cluster_authorized_operations=True)
    peer.call("DescribeAcls", 3, **EVERYTHING)
    describe(peer, s.topic())


@scenario
def a_rule_for_a_group(s: SecuredSession) -> None:
    topic, group = s.topic(), s.name("g")
    s.allow(rule(READ, GROUP, group, "User:bob"))
    offsets(s.user(), group, topic)
    offsets(s.user(), s.name("another"), topic)


@scenario
def a_rule_that_is_taken_away(s: SecuredSession) -> None:
    topic = s.topic()
    fetch(s.user(), topic)
    s.allow(rule(READ, TOPIC, topic, "User:bob"))
    fetch(s.user(), topic)
    s.forget_rules()
    fetch(s.user(), topic)
