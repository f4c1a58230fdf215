"""DescribeUserScramCredentials: users that are there, that are not, all of them."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.scenarios.alter_user_scram_credentials import (
    SHA_512,
    upsertion,
)
from tests.interop.differential.security.session import (
    ALTER,
    CLUSTER,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    SecuredSession,
    rule,
)
from tests.interop.differential.session import Answer


def some_users(s: SecuredSession) -> None:
    for name in ("sam", "max"):
        for mechanism in (1, SHA_512) if name == "sam" else (SHA_512,):
            made = [upsertion(s.name(name), mechanism)]
            s.quiet("AlterUserScramCredentials", 0, upsertions=made, deletions=[])
    s.catch_up()


@scenario(
    cases={"one": ["sam"], "two": ["max", "sam"], "absent": ["nobody"], "mixed": ["sam", "x"]}
)
def named(s: SecuredSession, names: list[str]) -> None:
    some_users(s)
    s.call("DescribeUserScramCredentials", 0, users=[{"name": s.name(each)} for each in names])


@scenario(cases={"there": "sam", "absent": "nobody"})
def named_twice(s: SecuredSession, name: str) -> None:
    some_users(s)
    users = [{"name": s.name(name)}, {"name": s.name("max")}, {"name": s.name(name)}]
    s.call("DescribeUserScramCredentials", 0, users=users)


@scenario(cases={"null": None, "empty": []})
def everybody(s: SecuredSession, users: list[object] | None) -> None:
    some_users(s)

    def own(answer: Answer) -> Answer:
        rows = [each for each in answer["results"] if s.is_own(each["user"])]
        return answer | {"results": rows}

    s.call_for(own, "DescribeUserScramCredentials", 0, users=users)


@scenario
def a_user_of_plain(s: SecuredSession) -> None:
    s.call("DescribeUserScramCredentials", 0, users=[{"name": "ann"}])


@scenario
def a_user_with_quotas_only(s: SecuredSession) -> None:
    s.quota({"user": "carl"}, producer_byte_rate=1e9)
    s.call("DescribeUserScramCredentials", 0, users=[{"name": "carl"}])


@scenario
def an_empty_name(s: SecuredSession) -> None:
    s.call("DescribeUserScramCredentials", 0, users=[{"name": ""}])


@scenario(cases={"two": [{"name": "a"}, {"name": "a"}], "all": None})
def not_allowed(s: SecuredSession, users: list[object] | None) -> None:
    s.user().call("DescribeUserScramCredentials", 0, users=users)


@scenario(cases={"describe": DESCRIBE, "alter": ALTER, "describe_configs": DESCRIBE_CONFIGS})
def allowed_by(s: SecuredSession, operation: int) -> None:
    s.allow(rule(operation, CLUSTER, "kafka-cluster"))
    s.user().call("DescribeUserScramCredentials", 0, users=[{"name": "nobody"}])
