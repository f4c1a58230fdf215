"""LeaveGroup: one member, several at once, static members, strangers."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.groups import (
    Member,
    describe,
    simple_commit,
    stable_group,
    stable_pair,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def leave(s: Session, version: int, group: str, *members: tuple[str, str | None]) -> None:
    """Leave by (member id, instance id); before version 3 one member without instance."""
    fields: dict[str, Any] = {"group_id": group}
    if version < 3:
        fields["member_id"] = members[0][0]
    else:
        fields["members"] = [
            {"member_id": member, "group_instance_id": instance, "reason": "test"}
            for member, instance in members
        ]
    s.call("LeaveGroup", version, **fields)


@scenario(versions="LeaveGroup")
def last_member(s: Session, version: int) -> None:
    member = stable_group(s, s.name("g"))
    leave(s, version, member.group, (member.member_id, None))
    describe(s, member.group)


@scenario(versions="LeaveGroup")
def leader_of_two(s: Session, version: int) -> None:
    leader, follower = stable_pair(s, s.name("g"))
    leave(s, version, leader.group, (leader.member_id, None))
    follower.await_rebalance()
    follower.join(5)


@scenario(versions="LeaveGroup")
def follower_of_two(s: Session, version: int) -> None:
    leader, follower = stable_pair(s, s.name("g"))
    leave(s, version, leader.group, (follower.member_id, None))
    leader.await_rebalance()
    leader.join(5)


@scenario(versions="LeaveGroup")
def unknown_member(s: Session, version: int) -> None:
    member = stable_group(s, s.name("g"))
    leave(s, version, member.group, ("nobody", None))
    describe(s, member.group)


@scenario(versions="LeaveGroup")
def unknown_group(s: Session, version: int) -> None:
    leave(s, version, s.name("absent"), ("nobody", None))


@scenario(versions="LeaveGroup")
def empty_ids(s: Session, version: int) -> None:
    leave(s, version, "", ("nobody", None))
    leave(s, version, s.name("absent"), ("", None))


@scenario(versions=[3, 4, 5])
def several_members(s: Session, version: int) -> None:
    leader, follower = stable_pair(s, s.name("g"))
    members = [(leader.member_id, None), ("nobody", None), (follower.member_id, None)]
    leave(s, version, leader.group, *members)
    describe(s, leader.group)


@scenario(versions=[3, 5])
def no_members(s: Session, version: int) -> None:
    member = stable_group(s, s.name("g"))
    leave(s, version, member.group)
    leave(s, version, s.name("absent"))


@scenario(versions=[3, 5])
def same_member_twice(s: Session, version: int) -> None:
    member = stable_group(s, s.name("g"))
    leave(s, version, member.group, (member.member_id, None), (member.member_id, None))


STATIC: dict[str, tuple[str | None, str | None]] = {
    "instance_only": ("", "one"),
    "both": (None, "one"),
    "wrong_member": ("nobody", "one"),
    "wrong_instance": ("", "two"),
    "member_only": (None, None),
    "member_and_wrong_instance": (None, "two"),
}


@scenario(cases=STATIC, versions=[3, 5])
def static_member(s: Session, who: tuple[str | None, str | None], version: int) -> None:
    """``None`` for the member stands for its real id."""
    member = stable_group(s, s.name("g"), instance="one")
    member_id = member.member_id if who[0] is None else who[0]
    leave(s, version, member.group, (member_id, who[1]))
    describe(s, member.group)


@scenario(versions=[0, 2])
def static_member_by_an_old_version(s: Session, version: int) -> None:
    member = stable_group(s, s.name("g"), instance="one")
    leave(s, version, member.group, (member.member_id, None))
    describe(s, member.group)


@scenario(versions=[1, 5])
def member_id_before_the_second_join(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.join(4)
    leave(s, version, member.group, (member.member_id, None))
    describe(s, member.group)


@scenario(versions=[1, 5])
def group_with_offsets_only(s: Session, version: int) -> None:
    group = s.name("g")
    simple_commit(s, group, s.topic())
    leave(s, version, group, ("nobody", None))


@scenario
def leaving_lets_the_others_finish_their_join(s: Session) -> None:
    """The one that the rebalance waits for goes."""
    group = s.name("g")
    leader = stable_group(s, group)
    other = Member(s, group, "b")
    other.post_join(2)
    leader.await_rebalance()
    leave(s, 3, group, (leader.member_id, None))
    other.joined()
