"""FindCoordinator: groups, transactions, many keys at once."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def ask(s: Session, version: int, *keys: str, key_type: int = 0) -> None:
    fields = {"coordinator_keys": list(keys)} if version >= 4 else {"key": keys[0]}
    s.call("FindCoordinator", version, key_type=key_type, **fields)


@scenario(versions="FindCoordinator")
def of_a_group(s: Session, version: int) -> None:
    ask(s, version, s.name("group"))


@scenario(versions="FindCoordinator")
def of_an_empty_group_id(s: Session, version: int) -> None:
    ask(s, version, "")


@scenario(
    versions=range(1, 7),
    cases={"transaction": 1, "share": 2, "three": 3, "negative": -1, "max": 127},
)
def key_type(s: Session, kind: int, version: int) -> None:
    ask(s, version, s.name("key"), key_type=kind)


@scenario(versions=[4, 5, 6])
def of_several_groups(s: Session, version: int) -> None:
    ask(s, version, s.name("a"), s.name("b"), "")


@scenario(versions=[4, 6])
def of_the_same_group_twice(s: Session, version: int) -> None:
    ask(s, version, s.name("a"), s.name("a"))


@scenario(versions=[4, 6])
def of_nothing(s: Session, version: int) -> None:
    ask(s, version)


@scenario(cases={"wrong": "no-colons", "two_parts": "g:t", "right": "g:AAAAAAAAAAAAAAAAAAAAAQ:0"})
def of_a_share_partition(s: Session, key: str) -> None:
    ask(s, 6, key, key_type=2)


@scenario
def of_a_long_group_id(s: Session) -> None:
    ask(s, 4, "g" * 1000)
