"""ListGroups: filters by state and type."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.groups import (
    Member,
    empty_group,
    simple_commit,
    stable_group,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session


def ask(s: Session, version: int, **more: Any) -> None:
    """Ask and keep the scenario's own groups."""

    def own(answer: Answer) -> Answer:
        return answer | {
            "groups": [each for each in answer["groups"] if s.is_own(each["group_id"])]
        }

    s.call_for(own, "ListGroups", version, **more)


def some_groups(s: Session) -> None:
    """One group in each state that lasts."""
    stable_group(s, s.name("stable"), "a")
    Member(s, s.name("completing"), "b").quiet_join(2)
    empty_group(s, s.name("empty"))
    simple_commit(s, s.name("offsets"), s.topic())
    connect = Member(s, s.name("connect"), "c")
    connect.protocol_type = "connect"
    connect.quiet_join(2)
    connect.quiet_sync([(connect, b"")])


@scenario(versions="ListGroups")
def all_groups(s: Session, version: int) -> None:
    some_groups(s)
    ask(s, version)


STATES = {
    "stable": ["Stable"],
    "empty": ["Empty"],
    "completing": ["CompletingRebalance"],
    "preparing": ["PreparingRebalance"],
    "dead": ["Dead"],
    "two": ["Stable", "Empty"],
    "lower_case": ["stable"],
    "upper_case": ["EMPTY"],
    "unknown": ["Sleeping"],
    "unknown_and_known": ["Sleeping", "Stable"],
    "empty_text": [""],
    "state_of_kip_848": ["Assigning", "Reconciling"],
}


@scenario(cases=STATES, versions=[4, 5])
def states(s: Session, wanted: list[str], version: int) -> None:
    some_groups(s)
    ask(s, version, states_filter=wanted)


TYPES = {
    "classic": ["classic"],
    "consumer": ["consumer"],
    "upper_case": ["CLASSIC"],
    "share": ["share"],
    "streams": ["streams"],
    "unknown": ["modern"],
    "both": ["classic", "consumer"],
    "unknown_and_known": ["modern", "classic"],
    "empty_text": [""],
}


@scenario(cases=TYPES)
def types(s: Session, wanted: list[str]) -> None:
    some_groups(s)
    ask(s, 5, types_filter=wanted)


@scenario
def state_and_type(s: Session) -> None:
    some_groups(s)
    ask(s, 5, states_filter=["Empty"], types_filter=["classic"])
    ask(s, 5, states_filter=["Empty"], types_filter=["consumer"])


@scenario
def deleted_group(s: Session) -> None:
    simple_commit(s, s.name("g"), s.topic())
    ask(s, 5)
    s.quiet("DeleteGroups", 1, groups_names=[s.name("g")])
    ask(s, 5)


@scenario
def group_of_a_member_that_has_an_id_only(s: Session) -> None:
    Member(s, s.name("g")).join(4)
    ask(s, 5)
