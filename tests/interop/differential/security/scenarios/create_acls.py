"""CreateAcls: right and wrong rules, and what DescribeAcls answers afterwards."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.session import (
    ALL,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CREATE_TOKENS,
    DENY,
    DESCRIBE,
    EVERYTHING,
    GROUP,
    PREFIXED,
    READ,
    TOKEN,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WRITE,
    SecuredSession,
    rule,
)


def create(s: SecuredSession, version: int, *rules: dict[str, object]) -> None:
    """Create rules, record the answer, wait until they can be seen, and record what is there."""
    s.call("CreateAcls", version, creations=list(rules))
    s.catch_up()
    s.call("DescribeAcls", 3, **EVERYTHING)


@scenario(versions="CreateAcls")
def literal(s: SecuredSession, version: int) -> None:
    create(s, version, rule(READ, TOPIC, s.name("t")))


@scenario(versions="CreateAcls")
def prefixed(s: SecuredSession, version: int) -> None:
    create(s, version, rule(READ, TOPIC, s.name("t"), pattern=PREFIXED))


@scenario(cases={f"type_{each}": each for each in (-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 127)})
def resource_type(s: SecuredSession, kind: int) -> None:
    name = "kafka-cluster" if kind == CLUSTER else "some"
    name = "User:bob" if kind == USER else name
    create(s, 3, rule(DESCRIBE, kind, name))


@scenario(cases={f"type_{each}": each for each in (4, 5, 6, 7)}, versions=[1, 2])
def resource_type_in_older_versions(s: SecuredSession, kind: int, version: int) -> None:
    create(s, version, rule(DESCRIBE, kind, "kafka-cluster"))


@scenario(cases={f"operation_{each}": each for each in (-1, *range(17), 127)})
def operation_on_a_topic(s: SecuredSession, operation: int) -> None:
    create(s, 3, rule(operation, TOPIC, "some"))


KINDS = {
    "group": (GROUP, "g"),
    "cluster": (CLUSTER, "kafka-cluster"),
    "transactional_id": (TRANSACTIONAL_ID, "tx"),
    "token": (TOKEN, "id"),
    "user": (USER, "User:bob"),
}


@scenario(cases=KINDS)
def operations_of(s: SecuredSession, case: tuple[int, str]) -> None:
    """Every operation in one request: which may stand with the resource."""
    create(s, 3, *(rule(operation, *case) for operation in range(2, 16)))


@scenario(cases={f"permission_{each}": each for each in (-1, 0, 1, 2, 3, 4)})
def permission(s: SecuredSession, code: int) -> None:
    create(s, 3, rule(READ, TOPIC, "some", permission=code))


@scenario(cases={f"pattern_{each}": each for each in (-1, 0, 1, 2, 3, 4, 5)}, versions=[1, 3])
def pattern(s: SecuredSession, code: int, version: int) -> None:
    create(s, version, rule(READ, TOPIC, "some", pattern=code))


NAMES = {
    "empty": "",
    "wildcard": "*",
    "asterisk_in_front": "*some",
    "asterisk_behind": "some*",
    "blank": " ",
    "umlaut": "Übung",
    "slash": "a/b",
    "no_topic_name": "a topic with spaces",
    "long": "x" * 300,
    "very_long": "x" * 30_000,
    "dot": ".",
    "nul": "a\0b",
}


@scenario(cases=NAMES)
def name(s: SecuredSession, text: str) -> None:
    create(s, 3, rule(READ, TOPIC, text))


@scenario(cases=NAMES)
def prefix(s: SecuredSession, text: str) -> None:
    create(s, 3, rule(READ, TOPIC, text, pattern=PREFIXED))


@scenario(cases={"other": "my-cluster", "empty": "", "wildcard": "*", "right": "kafka-cluster"})
def name_of_the_cluster(s: SecuredSession, text: str) -> None:
    create(s, 3, rule(ALTER, CLUSTER, text))
    create(s, 3, rule(ALTER, CLUSTER, text, pattern=PREFIXED))


PRINCIPALS = {
    "without_type": "ann",
    "empty": "",
    "empty_name": "User:",
    "empty_type": ":ann",
    "only_colon": ":",
    "everybody": "User:*",
    "everybody_of_group": "Group:*",
    "another_type": "Group:admins",
    "lower_case": "user:ann",
    "colon_in_name": "User:a:b",
    "distinguished_name": "User:CN=ann,OU=x,O=y",
    "blank": "User: ann",
    "blank_in_front": " User:ann",
    "umlaut": "User:Änne",
    "wildcard_alone": "*",
    "prefix": "User:an*",
    "quote": 'User:a"b',
    "backslash": "User:a\\b",
}


@scenario(cases=PRINCIPALS)
def principal(s: SecuredSession, text: str) -> None:
    create(s, 3, rule(READ, TOPIC, "some", text))


HOSTS = {
    "wildcard": "*",
    "address": "192.168.1.7",
    "network": "192.168.1.0/24",
    "name": "host.example.com",
    "address_6": "::1",
    "empty": "",
    "blank": " ",
    "prefix": "192.168.*",
    "garbage": "no host at all!",
}


@scenario(cases=HOSTS)
def host(s: SecuredSession, text: str) -> None:
    create(s, 3, rule(READ, TOPIC, "some", host=text))


@scenario(versions="CreateAcls")
def the_same_twice(s: SecuredSession, version: int) -> None:
    topic = s.name("t")
    create(s, version, rule(READ, TOPIC, topic), rule(READ, TOPIC, topic))


@scenario(versions="CreateAcls")
def again(s: SecuredSession, version: int) -> None:
    topic = s.name("t")
    create(s, version, rule(READ, TOPIC, topic))
    create(s, version, rule(READ, TOPIC, topic))


@scenario(versions="CreateAcls")
def allowed_and_denied(s: SecuredSession, version: int) -> None:
    topic = s.name("t")
    create(s, version, rule(READ, TOPIC, topic), rule(READ, TOPIC, topic, permission=DENY))


@scenario(versions="CreateAcls")
def literal_and_prefixed(s: SecuredSession, version: int) -> None:
    topic = s.name("t")
    create(s, version, rule(READ, TOPIC, topic), rule(READ, TOPIC, topic, pattern=PREFIXED))


@scenario(versions="CreateAcls")
def good_and_bad_together(s: SecuredSession, version: int) -> None:
    create(
        s,
        version,
        rule(READ, TOPIC, "good"),
        rule(READ, TOPIC, "bad", "nobody"),
        rule(READ, TOPIC, ""),
        rule(WRITE, TOPIC, "good"),
        rule(READ, CLUSTER, "another"),
    )


@scenario(versions="CreateAcls")
def none_at_all(s: SecuredSession, version: int) -> None:
    create(s, version)


@scenario
def many(s: SecuredSession) -> None:
    create(s, 3, *(rule(READ, TOPIC, f"t{number}") for number in range(200)))


@scenario
def every_field_at_once(s: SecuredSession) -> None:
    create(
        s,
        3,
        rule(ALL, GROUP, "g", "User:*", host="10.0.0.1"),
        rule(CREATE_TOKENS, USER, "User:bob", "User:carl"),
        rule(ALTER_CONFIGS, CLUSTER, "kafka-cluster", permission=DENY),
        rule(DESCRIBE, TOKEN, "id", pattern=PREFIXED),
        rule(WRITE, TRANSACTIONAL_ID, "tx"),
    )


@scenario(versions="CreateAcls")
def not_allowed(s: SecuredSession, version: int) -> None:
    s.user().call(
        "CreateAcls", version, creations=[rule(READ, TOPIC, "a"), rule(WRITE, GROUP, "g")]
    )


@scenario
def allowed_by_alter_on_the_cluster(s: SecuredSession) -> None:
    s.allow(rule(ALTER, CLUSTER, "kafka-cluster"))
    s.user().call("CreateAcls", 3, creations=[rule(READ, TOPIC, "mine")])
    s.catch_up()
    s.user().call("DescribeAcls", 3, **EVERYTHING)


@scenario
def by_a_super_user_who_is_denied(s: SecuredSession) -> None:
    s.allow(rule(ALTER, CLUSTER, "kafka-cluster", "User:root", permission=DENY))
    s.user("root").call("CreateAcls", 3, creations=[rule(READ, TOPIC, "mine")])
