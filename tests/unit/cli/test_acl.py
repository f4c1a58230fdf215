"""Rules of access in words, and words that name operations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.cli.acl import _operation, _read, _sentence
from millstream.cli.arguments import UsageError
from millstream.cli.main import main
from millstream.model.acl import Acl, AclOperation, AclResource, PatternType, Permission

READ = Acl(resource=AclResource.TOPIC, name="t", principal="User:ann", operation=AclOperation.READ)


@pytest.mark.parametrize(
    ("acl", "words"),
    [
        (READ, "User:ann may read topic t from any host"),
        (replace(READ, name="*", host="10.0.0.1"), "User:ann may read any topic from 10.0.0.1"),
        (
            replace(
                READ,
                principal="User:*",
                permission=Permission.DENY,
                name="a",
                pattern=PatternType.PREFIXED,
            ),
            "everybody may not read topics that begin with a from any host",
        ),
        (
            replace(READ, resource=AclResource.CLUSTER, operation=AclOperation.ALL),
            "User:ann may do everything with the cluster from any host",
        ),
    ],
)
def test_a_rule_in_words(acl: Acl, words: str) -> None:
    assert _sentence(acl) == words


@pytest.mark.parametrize("text", ["DescribeConfigs", "describe-configs", "DESCRIBE_CONFIGS"])
def test_operations_by_any_spelling(text: str) -> None:
    assert _read(AclOperation, text) is AclOperation.DESCRIBE_CONFIGS


@pytest.mark.parametrize("text", ["any", "fly"])
def test_what_is_no_operation_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="two-phase-commit"):
        _read(AclOperation, text)


RULE = ("--principal", "User:ann", "--operation")
TOPIC = ("--topic", "t", *RULE)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add", *TOPIC, "cluster-action"), "cluster-action has no meaning for a topic: it takes"),
        (("add", "--group", "g", *RULE, "write"), "write has no meaning for a group"),
        (
            ("add", *TOPIC, "read", "--host", "10.0.0.0/8"),
            "'10.0.0.0/8' is not the address of a client",
        ),
        (
            ("add", *TOPIC, "read", "--host", "example.com"),
            "'example.com' is not the address of a client",
        ),
        (("add", "--topic", "", *RULE, "read"), "the name of the resource is empty"),
        (("add", "--cluster", "--prefix", *RULE, "create"), "--prefix is for names"),
        (("check", "User:ann", "read", "--topic", "t", "--host", "nonsense"), "'nonsense' is no"),
        (("check", "User:ann", "create-tokens", "--topic", "t"), "has no meaning for a topic"),
        (("list", "--principal", "ann"), "'ann' is not a principal such as User:ann"),
    ],
)
def test_what_would_never_match_is_refused_before_a_broker_is_asked(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nobody listens there: a command that got so far would say so, and end with 1.
    assert main(["acl", *words, "--bootstrap-server", "127.0.0.1:1"]) == 2
    assert told in capsys.readouterr().err


def test_everything_is_an_operation_of_every_resource() -> None:
    for resource in AclResource:
        if resource is not AclResource.ANY:
            assert _operation(resource, "all") is AclOperation.ALL
