"""DescribeGroups: every state, members and their shares, groups that are not there."""

from __future__ import annotations

from tests.interop.differential.groups import (
    Member,
    describe,
    empty_group,
    simple_commit,
    stable_group,
    stable_pair,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


@scenario(versions="DescribeGroups")
def stable(s: Session, version: int) -> None:
    leader, _ = stable_pair(s, s.name("g"))
    describe(s, leader.group, version)


@scenario(versions="DescribeGroups")
def static_member(s: Session, version: int) -> None:
    member = stable_group(s, s.name("g"), instance="one")
    describe(s, member.group, version)


@scenario(versions="DescribeGroups")
def unknown(s: Session, version: int) -> None:
    describe(s, s.name("absent"), version)


@scenario(versions="DescribeGroups")
def empty(s: Session, version: int) -> None:
    empty_group(s, s.name("g"))
    describe(s, s.name("g"), version)


@scenario(versions="DescribeGroups")
def with_offsets_only(s: Session, version: int) -> None:
    simple_commit(s, s.name("g"), s.topic())
    describe(s, s.name("g"), version)


@scenario(versions="DescribeGroups")
def between_join_and_sync(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.quiet_join(2)
    describe(s, member.group, version)


@scenario(versions="DescribeGroups")
def during_a_rebalance(s: Session, version: int) -> None:
    group = s.name("g")
    leader = stable_group(s, group)
    other = Member(s, group, "b")
    other.post_join(2)
    leader.await_rebalance()
    describe(s, group, version)
    leader.quiet_join(5)
    other.joined()


@scenario(versions=[0, 4, 6])
def member_that_has_an_id_only(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.join(4)
    describe(s, member.group, version)


@scenario(versions=[0, 5, 6])
def empty_group_id(s: Session, version: int) -> None:
    describe(s, "", version)


@scenario(versions=[0, 5, 6])
def several(s: Session, version: int) -> None:
    one = stable_group(s, s.name("one"))
    names = [one.group, s.name("absent"), "", one.group]
    s.call("DescribeGroups", version, groups=names)


@scenario(versions=[0, 6])
def none(s: Session, version: int) -> None:
    s.call("DescribeGroups", version, groups=[])


@scenario(versions=[3, 4, 5, 6])
def authorized_operations(s: Session, version: int) -> None:
    member = stable_group(s, s.name("g"))
    names = [member.group, s.name("absent")]
    s.call("DescribeGroups", version, groups=names, include_authorized_operations=True)


@scenario(versions=[0, 6])
def of_another_protocol_type(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.protocol_type = "connect"
    member.protocols = (("default", b"metadata"),)
    member.quiet_join(5)
    member.quiet_sync([(member, b"task")])
    describe(s, member.group, version)


@scenario
def deleted(s: Session) -> None:
    simple_commit(s, s.name("g"), s.topic())
    s.quiet("DeleteGroups", 1, groups_names=[s.name("g")])
    describe(s, s.name("g"), 5)
    describe(s, s.name("g"), 6)
