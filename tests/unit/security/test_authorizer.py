"""What the rules of access decide, rule by rule (Kafka: ``StandardAuthorizerTest``)."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from millstream.model.acl import Acl, AclOperation, AclResource, PatternType, Permission
from millstream.model.principal import KafkaPrincipal
from millstream.security import authorizer as module
from millstream.security.authorizer import (
    DEFAULT_ALLOW,
    DEFAULT_DENY,
    SUPER_USER,
    Authorizer,
    Decision,
    parse_super_users,
)

ANN, BEN = KafkaPrincipal("User", "ann"), KafkaPrincipal("User", "ben")
HERE, THERE = "127.0.0.1", "10.0.0.7"
TOPIC, GROUP = AclResource.TOPIC, AclResource.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
DENY = Permission.DENY


def acl(
    name: str,
    operation: AclOperation = READ,
    permission: Permission = Permission.ALLOW,
    *,
    principal: str = "User:ann",
    host: str = "*",
    pattern: PatternType = LITERAL,
    resource: AclResource = TOPIC,
) -> Acl:
    return Acl(
        resource=resource,
        name=name,
        principal=principal,
        operation=operation,
        permission=permission,
        pattern=pattern,
        host=host,
    )


def authorizer(*acls: Acl, super_users: str = "", allow_if_none: bool = False) -> Authorizer:
    made = Authorizer(parse_super_users(super_users), allow_everyone_if_no_acl_found=allow_if_none)
    by_pattern: dict[tuple[AclResource, PatternType, str], list[Acl]] = {}
    for each in acls:
        by_pattern.setdefault((each.resource, each.pattern, each.name), []).append(each)
    made.replace(by_pattern)
    return made


def may(
    rules: Authorizer,
    operation: AclOperation,
    name: str,
    *,
    principal: KafkaPrincipal = ANN,
    host: str = HERE,
    resource: AclResource = TOPIC,
) -> bool:
    """Decide, and see that the explanation agrees."""
    decided = rules.allows(principal, host, operation, resource, name)
    assert rules.explain(principal, host, operation, resource, name).is_allowed is decided
    return decided


def test_without_rules_only_super_users_may_do_anything() -> None:
    rules = authorizer(super_users="User:ann; User:a;User:c:d")
    assert may(rules, READ, "t")
    assert not may(rules, READ, "t", principal=BEN)
    assert may(rules, READ, "t", principal=KafkaPrincipal("User", "c:d"))
    assert not may(rules, READ, "t", principal=KafkaPrincipal("Group", "ann"))


def test_a_super_user_is_not_kept_out_by_a_rule() -> None:
    rules = authorizer(acl("*", AclOperation.ALL, DENY), super_users="User:ann")
    assert may(rules, READ, "t")


def test_a_literal_name_a_prefix_and_every_name() -> None:
    rules = authorizer(
        acl("orders"), acl("pay-", WRITE, pattern=PREFIXED), acl("*", AclOperation.DELETE)
    )
    assert may(rules, READ, "orders")
    assert not may(rules, READ, "orders2")
    assert not may(rules, READ, "order")
    assert may(rules, WRITE, "pay-in")
    assert may(rules, WRITE, "pay-")
    assert not may(rules, WRITE, "pay")
    assert may(rules, AclOperation.DELETE, "anything")


def test_a_prefix_that_is_an_asterisk_is_a_prefix_only() -> None:
    rules = authorizer(acl("*", pattern=PREFIXED, resource=GROUP))
    assert may(rules, READ, "*x", resource=GROUP)
    assert not may(rules, READ, "x", resource=GROUP)


def test_a_rule_of_another_kind_of_resource_says_nothing() -> None:
    assert not may(authorizer(acl("x")), READ, "x", resource=GROUP)


@pytest.mark.parametrize(
    "denying", [acl("ab", READ, DENY), acl("a", READ, DENY, pattern=PREFIXED), acl("*", READ, DENY)]
)
@pytest.mark.parametrize("allowing", [acl("ab"), acl("a", pattern=PREFIXED), acl("*")])
def test_what_denies_counts_before_what_allows(denying: Acl, allowing: Acl) -> None:
    assert not may(authorizer(denying, allowing), READ, "ab")


def test_a_host_is_one_or_every_one() -> None:
    rules = authorizer(acl("a", host=HERE), acl("b", host="*"), acl("b", READ, DENY, host=THERE))
    assert may(rules, READ, "a")
    assert not may(rules, READ, "a", host=THERE)
    assert may(rules, READ, "b")
    assert not may(rules, READ, "b", host=THERE)


def test_everybody_is_every_principal_of_every_type() -> None:
    rules = authorizer(acl("a", principal="User:*"), acl("b", principal="Group:*"))
    assert may(rules, READ, "a", principal=BEN)
    assert may(rules, READ, "a", principal=KafkaPrincipal("Group", "g"))
    assert not may(rules, READ, "b", principal=KafkaPrincipal("Group", "g"))


@pytest.mark.parametrize(
    "operation",
    [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, DESCRIBE, AclOperation.ALL],
)
def test_what_implies_to_describe(operation: AclOperation) -> None:
    assert may(authorizer(acl("a", operation)), DESCRIBE, "a")


@pytest.mark.parametrize(
    "operation",
    [AclOperation.CREATE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS],
)
def test_what_does_not_imply_to_describe(operation: AclOperation) -> None:
    assert not may(authorizer(acl("a", operation)), DESCRIBE, "a")


def test_altering_settings_implies_describing_them_and_not_the_other_way() -> None:
    rules = authorizer(
        acl("a", AclOperation.ALTER_CONFIGS), acl("b", AclOperation.DESCRIBE_CONFIGS)
    )
    assert may(rules, AclOperation.DESCRIBE_CONFIGS, "a")
    assert not may(rules, AclOperation.ALTER_CONFIGS, "b")


def test_denying_implies_nothing() -> None:
    rules = authorizer(acl("a", READ, DENY), acl("a", WRITE))
    assert not may(rules, READ, "a")
    assert may(rules, DESCRIBE, "a")


def test_denying_all_denies_each_operation() -> None:
    rules = authorizer(acl("a", AclOperation.ALL, DENY), acl("a", AclOperation.ALL))
    assert not any(may(rules, operation, "a") for operation in AclOperation if operation > 2)


def test_everyone_is_allowed_where_no_rule_is_found_if_so_told() -> None:
    rules = authorizer(
        acl("a", principal="User:ben"), acl("p", pattern=PREFIXED, host=THERE), allow_if_none=True
    )
    assert may(rules, READ, "other")
    assert not may(rules, READ, "a"), "a rule is about it, though not about ann"
    assert not may(rules, READ, "pq")


def test_the_rule_that_decided_is_told() -> None:
    denying, allowing = acl("ab", READ, DENY, host=THERE), acl("a", READ, pattern=PREFIXED)
    rules = authorizer(denying, allowing, super_users="User:root")
    explain = rules.explain
    assert explain(ANN, THERE, READ, TOPIC, "ab") == Decision(False, denying)
    assert explain(ANN, HERE, READ, TOPIC, "ab") == Decision(True, allowing)
    assert explain(ANN, HERE, READ, TOPIC, "x") == Decision(False, DEFAULT_DENY)
    assert explain(KafkaPrincipal("User", "root"), HERE, READ, TOPIC, "x").reason == SUPER_USER
    assert authorizer(allow_if_none=True).explain(ANN, HERE, READ, TOPIC, "x") == Decision(
        True, DEFAULT_ALLOW
    )


def test_a_rule_is_worded_as_kafka_words_it() -> None:
    decision = authorizer(acl("a", pattern=PREFIXED)).explain(ANN, HERE, READ, TOPIC, "ab")
    assert str(decision) == (
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=a, patternType=PREFIXED, "
        "principal=User:ann, host=*, operation=READ, permissionType=ALLOW))"
    )


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl("a", WRITE)], True),
        ([acl("a", WRITE, pattern=PREFIXED)], True),
        ([acl("*", WRITE)], True),
        ([acl("a", AclOperation.ALL)], True),
        ([acl("a", READ)], False),
        ([acl("a", WRITE, host=THERE)], False),
        ([acl("a", WRITE, principal="User:*")], True),
        ([acl("a", WRITE, principal="User:ben")], False),
        ([acl("a", WRITE), acl("*", WRITE, DENY)], False),
        ([acl("a", WRITE), acl("a", WRITE, DENY)], False),
        ([acl("a", WRITE), acl("a", AclOperation.ALL, DENY, principal="User:*")], False),
        ([acl("ab", WRITE), acl("a", WRITE, DENY, pattern=PREFIXED)], False),
        ([acl("ab", WRITE, pattern=PREFIXED), acl("a", WRITE, DENY, pattern=PREFIXED)], False),
        ([acl("a", WRITE, pattern=PREFIXED), acl("ab", WRITE, DENY, pattern=PREFIXED)], True),
        ([acl("a", WRITE, pattern=PREFIXED), acl("a", WRITE, DENY)], True),
        ([acl("a", WRITE), acl("a", WRITE, DENY, host=THERE)], True),
        ([acl("*", WRITE), acl("a", WRITE, DENY)], True),
        ([acl("a", WRITE, resource=GROUP)], False),
    ],
)
def test_whether_there_is_any_resource_to_write_to(acls: list[Acl], expected: bool) -> None:
    assert authorizer(*acls).allows_any(ANN, HERE, WRITE, TOPIC) is expected


def test_any_resource_will_do_for_super_users_and_where_everyone_is_allowed() -> None:
    denying = acl("*", AclOperation.ALL, DENY)
    assert authorizer(denying, super_users="User:ann").allows_any(ANN, HERE, WRITE, TOPIC)
    assert authorizer(allow_if_none=True).allows_any(ANN, HERE, WRITE, TOPIC)
    assert not authorizer(denying, allow_if_none=True).allows_any(ANN, HERE, WRITE, TOPIC)


def test_rules_of_a_pattern_are_replaced_as_a_whole() -> None:
    rules = authorizer(acl("a"), acl("a", WRITE), acl("b", pattern=PREFIXED))
    assert rules.count == 3
    rules.set_rules(TOPIC, LITERAL, "a", [acl("a", WRITE)])
    assert not may(rules, READ, "a")
    assert rules.count == 2
    rules.set_rules(TOPIC, PREFIXED, "b", [])
    assert not may(rules, READ, "b")
    rules.replace({(GROUP, LITERAL, "*"): [acl("*", resource=GROUP)]})
    assert rules.count == 1
    assert not may(rules, WRITE, "a")
    assert not rules.allows_any(ANN, HERE, WRITE, TOPIC)
    assert may(rules, READ, "g", resource=GROUP)


@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED], ids=lambda pattern: pattern.name)
@pytest.mark.parametrize("name", ["*", "a"])
def test_what_a_rule_decided_ends_with_it(name: str, pattern: PatternType) -> None:
    """Also that of the name which stands for every name, whether it allowed or denied."""
    asked = "*x" if (name, pattern) == ("*", PREFIXED) else "a"
    rules = authorizer(acl(name, pattern=pattern))
    assert may(rules, READ, asked)
    rules.set_rules(TOPIC, pattern, name, [])
    assert not may(rules, READ, asked)
    assert not rules.allows_any(ANN, HERE, READ, TOPIC)
    rules = authorizer(acl("a"), acl("*x"), acl(name, DESCRIBE, DENY, pattern=pattern))
    assert not may(rules, DESCRIBE, asked)
    rules.replace({(TOPIC, LITERAL, each): [acl(each)] for each in ("a", "*x")})
    assert may(rules, DESCRIBE, asked)
    assert rules.count == 2


def test_one_of_two_prefixes_of_one_length_goes_and_the_other_stays() -> None:
    rules = authorizer(acl("aa", pattern=PREFIXED), acl("bb", pattern=PREFIXED))
    rules.set_rules(TOPIC, PREFIXED, "aa", [])
    assert may(rules, READ, "bbx")
    assert not may(rules, READ, "aax")


def test_decisions_of_a_client_are_kept_until_a_rule_changes() -> None:
    rules = authorizer(acl("a"))
    client = rules.client(ANN, HERE)
    assert client.operations(TOPIC, "a") >> READ & 1
    assert not client.operations(TOPIC, "b") >> READ & 1
    rules.set_rules(TOPIC, LITERAL, "b", [acl("b")])
    rules.set_rules(TOPIC, LITERAL, "a", [])
    assert not client.operations(TOPIC, "a") >> READ & 1
    assert client.operations(TOPIC, "b") >> READ & 1


@pytest.mark.parametrize("change", ["a rule", "all rules"])
def test_what_a_client_was_found_to_read_and_write_is_forgotten_with_the_rules(change: str) -> None:
    rules = authorizer(acl("a"), acl("a", WRITE))
    client = rules.client(ANN, HERE)
    readable, writable, since = client.readable, client.writable, client.kept_since
    client.operations(TOPIC, "a")
    readable.add("a")
    writable.add("a")
    if change == "a rule":
        rules.set_rules(TOPIC, LITERAL, "a", [])
    else:
        rules.replace({})
    assert readable == writable == set()  # connections hold these very sets
    assert (client.readable, client.writable) == (readable, writable)
    assert client.readable is readable
    assert client.writable is writable
    assert client.kept_since is not since
    client.operations(TOPIC, "a")
    readable.add("b")
    writable.add("b")
    rules.set_rules(TOPIC, LITERAL, "b", [acl("b", permission=DENY)])  # and every time
    assert readable == writable == set()


def test_no_more_decisions_are_kept_than_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DECISIONS", 10)
    client = authorizer(acl("1", pattern=PREFIXED)).client(ANN, HERE)
    for number in range(100):
        allowed = client.operations(TOPIC, str(number)) >> READ & 1
        assert allowed == str(number).startswith("1")
        assert len(client._kept) <= 10


def _lines_run(do: Callable[[], object]) -> int:
    """Count the lines of Python that a call runs."""
    count = 0

    def trace(*_: object) -> Callable[..., object]:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.slow
def test_a_decision_costs_the_same_however_many_rules_there_are() -> None:
    def rules(count: int) -> Authorizer:
        return authorizer(
            acl("team-a.", pattern=PREFIXED),
            *(acl(f"topic-{n:06}", WRITE) for n in range(count)),
            *(acl(f"team-{n:06}.", pattern=PREFIXED) for n in range(count)),
            *(acl("team-a.orders", READ, principal=f"User:{n}") for n in range(count)),
            *(acl("*", WRITE, host=f"10.0.{n // 256}.{n % 256}") for n in range(count)),
        )

    few, many = rules(10), rules(10_000)

    def decide(of: Authorizer) -> None:
        assert of.allows(ANN, HERE, READ, TOPIC, "team-a.orders")
        assert not of.allows(ANN, HERE, WRITE, TOPIC, "team-a.orders")

    assert _lines_run(lambda: decide(many)) == _lines_run(lambda: decide(few))


@pytest.mark.slow
def test_telling_the_rule_costs_the_same_however_many_rules_there_are() -> None:
    def rules(count: int) -> Authorizer:
        return authorizer(
            acl("team-a.", pattern=PREFIXED),
            acl("team-a.secret", permission=DENY),
            *(acl(f"team-{n:06}.", pattern=PREFIXED) for n in range(count)),
            *(acl("team-a.secret", READ, principal=f"User:{n}") for n in range(count)),
            *(acl("*", WRITE, host=f"10.0.{n // 256}.{n % 256}") for n in range(count)),
        )

    few, many = rules(10), rules(10_000)

    def tell(of: Authorizer) -> None:
        assert not of.explain(ANN, HERE, READ, TOPIC, "team-a.secret").is_allowed
        assert of.explain(ANN, HERE, READ, TOPIC, "team-a.orders").is_allowed
        assert of.explain(ANN, HERE, WRITE, TOPIC, "another").reason == DEFAULT_DENY

    assert _lines_run(lambda: tell(many)) == _lines_run(lambda: tell(few))


def test_looking_for_any_resource_does_not_cost_the_length_of_names() -> None:
    def look(length: int) -> None:
        rules = authorizer(
            acl("x" * length, WRITE, DENY, pattern=PREFIXED), acl("x" * length + "y", WRITE)
        )
        assert not rules.allows_any(ANN, HERE, WRITE, TOPIC)

    assert _lines_run(lambda: look(10_000)) == _lines_run(lambda: look(10))


def test_a_decision_about_a_name_that_no_resource_has_is_not_kept() -> None:
    client = authorizer(acl("long", pattern=PREFIXED)).client(ANN, HERE)
    for number in range(10):
        name = f"long{number}" + "x" * 30_000
        assert client.operations(TOPIC, name) >> READ & 1
    assert not client._kept
    rules = authorizer(acl("*"))
    other = rules.client(ANN, HERE)
    since = other.kept_since
    other.operations(TOPIC, "x" * 30_000)
    rules.set_rules(TOPIC, LITERAL, "*", [])
    assert other.kept_since is not since, "what follows from it is forgotten"


def test_the_decisions_of_all_clients_together_have_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_DECISIONS", 10)
    monkeypatch.setattr(module, "MAX_ALL_DECISIONS", 50)
    rules = authorizer(acl("1", pattern=PREFIXED))
    clients = [rules.client(ANN, HERE) for _ in range(20)]
    for number in range(200):
        client = clients[number % len(clients)]
        allowed = client.operations(TOPIC, str(number)) >> READ & 1
        assert allowed == str(number).startswith("1")
        assert sum(len(each._kept) for each in clients) <= 50


@pytest.mark.parametrize("text", ["ann", "User:ann;ben", ":ann"])
def test_a_super_user_is_a_principal(text: str) -> None:
    with pytest.raises(ValueError, match="principalType:principalName"):
        parse_super_users(text)


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users(" User:CN=a,O=b ;; User:c ") == {"User:CN=a,O=b", "User:c"}
    assert parse_super_users("") == frozenset()
