"""SyncGroup: shares out, wrong generation, wrong member, wrong time."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.groups import Member, describe, stable_group, stable_pair
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


@scenario(versions="SyncGroup")
def leader_alone(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.quiet_join(2)
    member.sync([(member, b"share")], version=version, **PROTOCOL)
    describe(s, member.group)


PROTOCOL = {"protocol_type": "consumer", "protocol_name": "range"}


@scenario(versions="SyncGroup")
def follower_waits_for_the_leader(s: Session, version: int) -> None:
    group = s.name("g")
    leader, follower = joined_pair(s, group)
    follower.peer.post("SyncGroup", version, **follower.sync_fields(**PROTOCOL))
    shares = [(leader, b"share-a"), (follower, b"share-b")]
    leader.sync(shares, version=version, **PROTOCOL)
    follower.peer.receive()


def joined_pair(s: Session, group: str) -> tuple[Member, Member]:
    """Two members between join and sync."""
    leader = stable_group(s, group)
    follower = Member(s, group, "b")
    follower.peer.post("JoinGroup", 2, **follower.join_fields())
    leader.await_rebalance()
    leader.quiet_join(5)
    follower.take(follower.peer.quiet_receive())
    return leader, follower


@scenario(versions="SyncGroup")
def stable_group_gives_the_share_again(s: Session, version: int) -> None:
    leader, follower = stable_pair(s, s.name("g"))
    leader.sync([(leader, b"other")], version=version, **PROTOCOL)
    follower.sync(version=version, **PROTOCOL)


WRONG: dict[str, dict[str, Any]] = {
    "generation_older": {"generation_id": 0},
    "generation_newer": {"generation_id": 99},
    "generation_undefined": {"generation_id": -1},
    "member": {"member_id": "nobody"},
    "member_empty": {"member_id": ""},
    "group": {"group_id": "no-such-group"},
    "group_empty": {"group_id": ""},
}


@scenario(cases=WRONG, versions=[0, 3, 5])
def wrong(s: Session, fields: dict[str, Any], version: int) -> None:
    member = Member(s, s.name("g"))
    member.quiet_join(2)
    member.sync([(member, b"")], version=version, **(PROTOCOL | fields))


@scenario(
    cases={
        "type": {"protocol_type": "connect"},
        "name": {"protocol_name": "sticky"},
        "no_type": {"protocol_type": None},
        "no_name": {"protocol_name": None},
        "neither": {"protocol_type": None, "protocol_name": None},
    }
)
def protocol(s: Session, fields: dict[str, Any]) -> None:
    member = Member(s, s.name("g"))
    member.quiet_join(2)
    member.sync([(member, b"x")], version=5, **(PROTOCOL | fields))


@scenario(versions=[0, 5])
def during_a_rebalance(s: Session, version: int) -> None:
    group = s.name("g")
    leader = stable_group(s, group)
    other = Member(s, group, "b")
    other.post_join(2)
    leader.await_rebalance()
    leader.sync([(leader, b"")], version=version, **PROTOCOL)
    leader.quiet_join(5)
    other.joined()


@scenario
def shares_for_strangers_and_for_nobody(s: Session) -> None:
    leader, follower = joined_pair(s, s.name("g"))
    shares = [
        {"member_id": "stranger", "assignment": b"s"},
        {"member_id": leader.member_id, "assignment": b"1"},
        {"member_id": leader.member_id, "assignment": b"2"},
    ]
    leader.peer.call("SyncGroup", 3, **(leader.sync_fields() | {"assignments": shares}))
    follower.sync(version=3)
    describe(s, leader.group)


@scenario
def follower_sends_shares(s: Session) -> None:
    """Only the leader's shares count."""
    leader, follower = joined_pair(s, s.name("g"))
    fields = follower.sync_fields([(leader, b"f"), (follower, b"f")])
    follower.peer.post("SyncGroup", 3, **fields)
    leader.sync([(leader, b"l"), (follower, b"l")], version=3)
    follower.peer.receive()


@scenario
def rebalance_ends_the_wait(s: Session) -> None:
    """A follower waiting for its share is told when a member leaves."""
    leader, follower = joined_pair(s, s.name("g"))
    follower.peer.post("SyncGroup", 3, **follower.sync_fields())
    follower.s.quiet("DescribeGroups", 5, groups=[leader.group])
    s.call("LeaveGroup", 1, group_id=leader.group, member_id=leader.member_id)
    follower.peer.receive()


@scenario(cases={"fenced": "one", "unknown": "two"}, versions=[3, 5])
def instance_of_another_member(s: Session, instance: str, version: int) -> None:
    member = stable_group(s, s.name("g"), instance="one")
    fields = {"group_instance_id": instance, "member_id": "nobody"}
    member.sync(version=version, **(PROTOCOL | fields))


@scenario
def dynamic_id_with_a_foreign_instance(s: Session) -> None:
    member = stable_group(s, s.name("g"))
    member.sync(version=3, group_instance_id="one")


@scenario
def empty_group(s: Session) -> None:
    member = stable_group(s, s.name("g"))
    s.quiet("LeaveGroup", 1, group_id=member.group, member_id=member.member_id)
    member.sync(version=3)
