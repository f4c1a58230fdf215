"""The authorizer beside a plain model of its rules: a list that is read from end to end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.acl import Acl, AclOperation, AclResource, PatternType, Permission
from millstream.model.principal import KafkaPrincipal
from millstream.security.authorizer import Authorizer, ClientDecisions

OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL]
RESOURCES = [AclResource.TOPIC, AclResource.GROUP]
PATTERNS = [PatternType.LITERAL, PatternType.PREFIXED]

names = st.one_of(st.text("ab*", min_size=1, max_size=4), st.just("*"))
principals = st.sampled_from(["User:ann", "User:ben", "User:*", "Group:ann"])
hosts = st.sampled_from(["10.0.0.1", "10.0.0.2", "*"])
acls = st.builds(
    Acl,
    resource=st.sampled_from(RESOURCES),
    name=names,
    principal=principals,
    operation=st.sampled_from([AclOperation.ALL, *OPERATIONS]),
    permission=st.sampled_from([Permission.ALLOW, Permission.DENY]),
    pattern=st.sampled_from(PATTERNS),
    host=hosts,
)

IMPLIED = {
    AclOperation.DESCRIBE: {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    },
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


class Model:
    """The rules as KIP-11 and KIP-290 tell them."""

    def __init__(self, rules: list[Acl], super_users: set[str], *, allow_if_none: bool) -> None:
        self.rules = rules
        self.super_users = super_users
        self.allow_if_none = allow_if_none

    def allows(
        self, who: str, host: str, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        if who in self.super_users:
            return True
        about = [rule for rule in self.rules if rule.resource is resource and _names(rule, name)]
        if not about:
            return self.allow_if_none
        of_client = [
            rule for rule in about if rule.principal in (who, "User:*") and rule.host in (host, "*")
        ]
        if any(
            rule.permission is Permission.DENY and rule.operation in (operation, AclOperation.ALL)
            for rule in of_client
        ):
            return False
        return any(
            rule.permission is Permission.ALLOW
            and rule.operation in {operation, AclOperation.ALL, *IMPLIED.get(operation, ())}
            for rule in of_client
        )

    def allows_any(
        self, who: str, host: str, operation: AclOperation, resource: AclResource
    ) -> bool:
        if self.allows(who, host, operation, resource, "hardcode"):
            return True
        of_client = [
            rule
            for rule in self.rules
            if rule.resource is resource
            and rule.principal in (who, "User:*")
            and rule.host in (host, "*")
            and rule.operation in (operation, AclOperation.ALL)
        ]
        denying = [rule for rule in of_client if rule.permission is Permission.DENY]
        if any(_is_wildcard(rule) for rule in denying):
            return False
        return any(
            _is_wildcard(rule) or not any(_covers(deny, rule) for deny in denying)
            for rule in of_client
            if rule.permission is Permission.ALLOW
        )


def _is_wildcard(rule: Acl) -> bool:
    return rule.pattern is PatternType.LITERAL and rule.name == "*"


def _names(rule: Acl, name: str) -> bool:
    if rule.pattern is PatternType.PREFIXED:
        return name.startswith(rule.name)
    return rule.name in (name, "*")


def _covers(deny: Acl, allow: Acl) -> bool:
    """Tell whether all that a rule allows is denied by another, wildcards aside."""
    if deny.pattern is PatternType.PREFIXED:
        return allow.name.startswith(deny.name)
    return allow.pattern is PatternType.LITERAL and deny.name == allow.name


def _by_pattern(rules: list[Acl]) -> dict[tuple[AclResource, PatternType, str], list[Acl]]:
    gathered: dict[tuple[AclResource, PatternType, str], list[Acl]] = {}
    for rule in rules:
        gathered.setdefault((rule.resource, rule.pattern, rule.name), []).append(rule)
    return gathered


@given(
    before=st.lists(acls, max_size=8),
    rules=st.lists(acls, max_size=14),
    asked=st.lists(
        st.tuples(
            st.sampled_from(["ann", "ben", "root"]),
            st.sampled_from(["10.0.0.1", "10.0.0.2"]),
            st.sampled_from(OPERATIONS),
            st.sampled_from(RESOURCES),
            st.text("ab*", min_size=1, max_size=5),
        ),
        min_size=1,
        max_size=12,
    ),
    allow_if_none=st.booleans(),
)
def test_every_decision_is_the_models(
    before: list[Acl],
    rules: list[Acl],
    asked: list[tuple[str, str, AclOperation, AclResource, str]],
    allow_if_none: bool,
) -> None:
    model = Model(rules, {"User:root"}, allow_if_none=allow_if_none)
    authorizer = Authorizer({"User:root"}, allow_everyone_if_no_acl_found=allow_if_none)
    authorizer.replace(_by_pattern(before))
    clients = {
        (name, host): authorizer.client(KafkaPrincipal("User", name), host)
        for name, host, *_ in asked
    }
    for name, host, _, resource, of in asked:
        clients[name, host].operations(resource, of)
    authorizer.replace(_by_pattern(rules))
    assert authorizer.count == len(rules)
    for name, host, operation, resource, of in asked:
        principal = KafkaPrincipal("User", name)
        expected = model.allows(str(principal), host, operation, resource, of)
        assert authorizer.allows(principal, host, operation, resource, of) is expected
        assert bool(clients[name, host].operations(resource, of) >> operation & 1) is expected
        told = authorizer.explain(principal, host, operation, resource, of)
        assert told.is_allowed is expected
        assert isinstance(told.reason, str) or told.reason in rules
        expected = model.allows_any(str(principal), host, operation, resource)
        assert authorizer.allows_any(principal, host, operation, resource) is expected


clients = st.tuples(
    st.sampled_from(["ann", "ben", "root"]), st.sampled_from(["10.0.0.1", "10.0.0.2"])
)
changes = st.one_of(
    st.tuples(
        st.just("set"),
        st.sampled_from(RESOURCES),
        st.sampled_from(PATTERNS),
        names,
        st.lists(acls, max_size=3),
    ),
    st.tuples(st.just("replace"), st.lists(acls, max_size=6)),
    st.tuples(st.just("forget")),
    st.tuples(st.just("ask"), clients, st.sampled_from(RESOURCES), st.text("ab*", min_size=1)),
    st.tuples(st.just("read"), st.just(("ann", "10.0.0.1")), st.just("a")),
)


@pytest.mark.slow
@given(steps=st.lists(changes, max_size=25), allow_if_none=st.booleans())
def test_decisions_that_are_kept_follow_every_change(
    steps: list[tuple[Any, ...]], allow_if_none: bool
) -> None:
    """Clients stay, and ask between changes: what is kept of one decision is never an old one."""
    authorizer = Authorizer({"User:root"}, allow_everyone_if_no_acl_found=allow_if_none)
    rules: dict[tuple[AclResource, PatternType, str], list[Acl]] = {}
    kept: dict[tuple[str, str], ClientDecisions] = {}

    def client(who: tuple[str, str]) -> ClientDecisions:
        return kept.setdefault(who, authorizer.client(KafkaPrincipal("User", who[0]), who[1]))

    for kind, *rest in steps:
        model = Model(
            [each for of in rules.values() for each in of],
            {"User:root"},
            allow_if_none=allow_if_none,
        )
        if kind == "set":
            resource, pattern, name, given_rules = rest
            rules[resource, pattern, name] = [
                replace(each, resource=resource, pattern=pattern, name=name) for each in given_rules
            ]
            authorizer.set_rules(resource, pattern, name, rules[resource, pattern, name])
        elif kind == "replace":
            rules = _by_pattern(rest[0])
            authorizer.replace(rules)
        elif kind == "forget":
            authorizer.forget_decisions()
        elif kind == "ask":
            who, resource, name = rest
            bits = client(who).operations(resource, name)
            for operation in OPERATIONS:
                expected = model.allows(f"User:{who[0]}", who[1], operation, resource, name)
                assert bool(bits >> operation & 1) is expected
                expected = model.allows_any(f"User:{who[0]}", who[1], operation, resource)
                assert client(who).allows_any(operation, resource) is expected
        else:
            (who, name), topic = rest, AclResource.TOPIC
            may_read = model.allows(f"User:{who[0]}", who[1], AclOperation.READ, topic, name)
            one = client(who)
            assert name not in one.readable or may_read
            if one.operations(topic, name) >> AclOperation.READ & 1:
                one.readable.add(name)
                authorizer.keeps(one)
    assert authorizer.count == sum(len(each) for each in rules.values())
