"""Heartbeat: in every state of a group, by right and by wrong members."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.groups import Member, describe, simple_commit, stable_group
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


@scenario(versions="Heartbeat")
def stable(s: Session, version: int) -> None:
    stable_group(s, s.name("g")).heartbeat(version)


@scenario(versions="Heartbeat")
def between_join_and_sync(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.quiet_join(2)
    member.heartbeat(version)


@scenario(versions="Heartbeat")
def during_a_rebalance(s: Session, version: int) -> None:
    group = s.name("g")
    leader = stable_group(s, group)
    other = Member(s, group, "b")
    other.post_join(2)
    leader.await_rebalance()
    leader.heartbeat(version)
    leader.heartbeat(version, generation_id=leader.generation - 1)
    leader.quiet_join(5)
    other.joined()


WRONG: dict[str, dict[str, Any]] = {
    "generation_older": {"generation_id": 0},
    "generation_newer": {"generation_id": 99},
    "generation_undefined": {"generation_id": -1},
    "member": {"member_id": "nobody"},
    "member_empty": {"member_id": ""},
    "group": {"group_id": "no-such-group"},
    "group_empty": {"group_id": ""},
}


@scenario(cases=WRONG, versions=[0, 3, 4])
def wrong(s: Session, fields: dict[str, Any], version: int) -> None:
    stable_group(s, s.name("g")).heartbeat(version, **fields)


@scenario(
    versions=[3, 4],
    cases={
        "right": {},
        "other_member": {"member_id": "nobody"},
        "other_instance": {"group_instance_id": "two"},
        "no_instance": {"group_instance_id": None},
        "wrong_generation": {"generation_id": 99},
        "empty_instance": {"group_instance_id": ""},
    },
)
def static_member(s: Session, fields: dict[str, Any], version: int) -> None:
    stable_group(s, s.name("g"), instance="one").heartbeat(version, **fields)


@scenario
def after_leaving(s: Session) -> None:
    member = stable_group(s, s.name("g"))
    s.quiet("LeaveGroup", 1, group_id=member.group, member_id=member.member_id)
    member.heartbeat()


@scenario
def member_id_before_the_second_join(s: Session) -> None:
    """A member that has its id only is not yet in the group."""
    member = Member(s, s.name("g"))
    member.join(4)
    member.heartbeat(generation_id=0)
    member.heartbeat(generation_id=-1)


@scenario
def group_with_offsets_only(s: Session) -> None:
    group = s.name("g")
    simple_commit(s, group, s.topic())
    member = Member(s, group)
    member.heartbeat(member_id="nobody", generation_id=0)


@scenario
def silence_longer_than_the_session_timeout(s: Session) -> None:
    """The silent one is dropped and the other has the group to itself."""
    group = s.name("g")
    silent = Member(s, group, "silent")
    silent.session_timeout_ms = 6_000
    silent.quiet_join(2)
    silent.quiet_sync([(silent, b"")])
    awake = Member(s, group, "awake")
    awake.post_join(2)
    silent.await_rebalance()
    silent.quiet_join(2)
    awake.joined()
    silent.quiet_sync([(silent, b"s"), (awake, b"a")])
    awake.quiet_sync()
    awake.await_rebalance()
    awake.join(2)
    awake.sync([(awake, b"all")])
    silent.heartbeat()
    describe(s, group)
