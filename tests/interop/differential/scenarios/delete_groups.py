"""DeleteGroups: empty ones go, the others stay."""

from __future__ import annotations

from tests.interop.differential.groups import (
    Member,
    describe,
    empty_group,
    simple_commit,
    stable_group,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def delete(s: Session, version: int, *groups: str) -> None:
    s.call("DeleteGroups", version, groups_names=list(groups))


@scenario(versions="DeleteGroups")
def with_offsets_only(s: Session, version: int) -> None:
    group = s.name("g")
    simple_commit(s, group, s.topic())
    delete(s, version, group)
    describe(s, group)
    s.call("OffsetFetch", 7, group_id=group, topics=None)


@scenario(versions="DeleteGroups")
def empty(s: Session, version: int) -> None:
    empty_group(s, s.name("g"))
    delete(s, version, s.name("g"))
    describe(s, s.name("g"), 6)


@scenario(versions="DeleteGroups")
def stable(s: Session, version: int) -> None:
    member = stable_group(s, s.name("g"))
    delete(s, version, member.group)
    member.heartbeat()


@scenario(versions="DeleteGroups")
def between_join_and_sync(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.quiet_join(2)
    delete(s, version, member.group)


@scenario(versions="DeleteGroups")
def unknown(s: Session, version: int) -> None:
    delete(s, version, s.name("absent"))


@scenario(versions="DeleteGroups")
def empty_group_id(s: Session, version: int) -> None:
    delete(s, version, "")


@scenario(versions="DeleteGroups")
def several(s: Session, version: int) -> None:
    simple_commit(s, s.name("goes"), s.topic())
    stable_group(s, s.name("stays"))
    delete(s, version, s.name("goes"), s.name("stays"), s.name("absent"))


@scenario(versions=[0, 2])
def same_twice(s: Session, version: int) -> None:
    simple_commit(s, s.name("g"), s.topic())
    delete(s, version, s.name("g"), s.name("g"))


@scenario(versions=[0, 2])
def none(s: Session, version: int) -> None:
    delete(s, version)


@scenario
def created_again_starts_anew(s: Session) -> None:
    member = stable_group(s, s.name("g"))
    s.quiet("LeaveGroup", 1, group_id=member.group, member_id=member.member_id)
    delete(s, 2, member.group)
    again = Member(s, member.group, "b")
    again.join(2)


@scenario
def member_that_has_an_id_only(s: Session) -> None:
    member = Member(s, s.name("g"))
    member.join(4)
    delete(s, 2, member.group)
    member.join(4)
