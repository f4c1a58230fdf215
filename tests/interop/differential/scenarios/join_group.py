"""JoinGroup: the member id's round trip, protocols, timeouts, rebalances, static members."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.groups import (
    Member,
    describe,
    stable_group,
    stable_pair,
    subscription,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


@scenario(versions="JoinGroup")
def first_member(s: Session, version: int) -> None:
    """From version 4 on the member gets its id first and joins with it."""
    member = Member(s, s.name("g"))
    answer = member.join(version)
    if answer["error_code"] == 79:
        describe(s, member.group)
        member.join(version)
    describe(s, member.group)


@scenario(versions="JoinGroup")
def second_member(s: Session, version: int) -> None:
    group = s.name("g")
    leader = stable_group(s, group)
    other = Member(s, group, "b")
    if version >= 4:
        other.join(version)
    other.post_join(version)
    leader.await_rebalance()
    leader.join(version)
    other.joined()
    describe(s, group)


@scenario(versions="JoinGroup")
def unknown_member_id(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.member_id = "nobody"
    member.join(version)


@scenario(versions=[0, 5, 9])
def unknown_member_id_of_a_stable_group(s: Session, version: int) -> None:
    group = s.name("g")
    stable_group(s, group)
    member = Member(s, group, "b")
    member.member_id = "nobody"
    member.join(version)


@scenario(versions="JoinGroup")
def empty_group_id(s: Session, version: int) -> None:
    Member(s, "").join(version)


@scenario(
    cases={
        "zero": 0,
        "too_short": 5999,
        "shortest": 6000,
        "longest": 1_800_000,
        "too_long": 1_800_001,
        "negative": -1,
    },
    versions=[0, 3, 9],
)
def session_timeout(s: Session, timeout_ms: int, version: int) -> None:
    member = Member(s, s.name("g"))
    member.session_timeout_ms = timeout_ms
    member.join(version)


@scenario(cases={"zero": 0, "negative": -1, "minus_two": -2}, versions=[1, 9])
def rebalance_timeout(s: Session, timeout_ms: int, version: int) -> None:
    member = Member(s, s.name("g"))
    member.rebalance_timeout_ms = timeout_ms
    if member.join(version)["error_code"] == 79:
        member.join(version)


PROTOCOL_LISTS: dict[str, Any] = {
    "none": (),
    "empty_name": (("", b""),),
    "empty_metadata": (("range", b""),),
    "many": tuple((f"p{index}", b"") for index in range(20)),
}


@scenario(cases=PROTOCOL_LISTS, versions=[2, 5, 9])
def protocols(s: Session, wanted: Any, version: int) -> None:
    member = Member(s, s.name("g"))
    member.protocols = wanted
    if member.join(version)["error_code"] == 79:
        member.join(version)


@scenario(cases={"empty": "", "other": "connect", "long": "x" * 300}, versions=[2, 9])
def protocol_type(s: Session, kind: str, version: int) -> None:
    member = Member(s, s.name("g"))
    member.protocol_type = kind
    if member.join(version)["error_code"] == 79:
        member.join(version)


@scenario(versions=[2, 5, 9])
def other_protocol_type_than_the_group(s: Session, version: int) -> None:
    group = s.name("g")
    stable_group(s, group)
    other = Member(s, group, "b")
    other.protocol_type = "connect"
    other.join(version)


@scenario(versions=[2, 5, 9])
def no_protocol_in_common(s: Session, version: int) -> None:
    group = s.name("g")
    stable_group(s, group)
    other = Member(s, group, "b")
    other.protocols = (("sticky", b""),)
    other.join(version)


CHOICES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "one_in_common": (("x", "y"), ("z", "y")),
    "both_prefer_first": (("x", "y"), ("x", "y")),
    "tie": (("x", "y"), ("y", "x")),
    "three": (("x", "y", "z"), ("z", "y")),
}


@scenario(cases=CHOICES)
def chosen_protocol(s: Session, lists: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    group = s.name("g")
    leader = Member(s, group)
    leader.protocols = tuple((name, subscription(user_data=name.encode())) for name in lists[0])
    leader.quiet_join(2)
    leader.quiet_sync([(leader, b"")])
    other = Member(s, group, "b")
    other.protocols = tuple((name, subscription(user_data=name.encode())) for name in lists[1])
    other.post_join(2)
    leader.await_rebalance()
    leader.join(2)
    other.joined()


@scenario(versions=[2, 5, 9])
def leader_joins_again_unchanged(s: Session, version: int) -> None:
    """The leader's join starts a rebalance; generation goes up."""
    member = stable_group(s, s.name("g"))
    member.join(version)
    describe(s, member.group)


@scenario(versions=[2, 5, 9])
def follower_joins_again_unchanged(s: Session, version: int) -> None:
    """A follower that has nothing new gets the current generation back."""
    _, follower = stable_pair(s, s.name("g"))
    follower.join(version)
    describe(s, follower.group)


@scenario(versions=[2, 9])
def follower_joins_with_new_metadata(s: Session, version: int) -> None:
    leader, follower = stable_pair(s, s.name("g"))
    follower.protocols = (
        ("range", subscription(user_data=b"new")),
        ("roundrobin", subscription(user_data=b"new")),
    )
    follower.post_join(version)
    leader.await_rebalance()
    leader.join(version)
    follower.joined()


@scenario(versions=[2, 9])
def joins_again_before_sync(s: Session, version: int) -> None:
    """The same member asks again in the window between join and sync."""
    member = Member(s, s.name("g"))
    member.quiet_join(version)
    member.join(version)


@scenario(versions=[2, 9])
def joins_again_before_sync_with_new_metadata(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.quiet_join(version)
    member.protocols = (("range", subscription(user_data=b"new")),)
    member.join(version)


@scenario
def third_member_joins_between_join_and_sync(s: Session) -> None:
    group = s.name("g")
    leader = Member(s, group)
    leader.quiet_join(2)
    other = Member(s, group, "b")
    other.post_join(2)
    leader.await_rebalance()
    leader.sync([(leader, b"late")])
    leader.join(2)
    other.joined()


@scenario(versions=[4, 9])
def pending_member_does_not_join_with_another_protocol(s: Session, version: int) -> None:
    group = s.name("g")
    member = Member(s, group)
    member.join(version)
    stable_group(s, group, "b")
    member.protocols = (("sticky", b""),)
    member.join(version)


@scenario(versions=[4, 9])
def member_ids_given_out_are_valid_once_per_group(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.join(version)
    stranger = Member(s, s.name("h"), "b")
    stranger.member_id = member.member_id
    stranger.join(version)


@scenario
def member_that_does_not_come_back_is_dropped(s: Session) -> None:
    """The rebalance timeout of the group is the largest of its members'."""
    group = s.name("g")
    gone = Member(s, group)
    gone.rebalance_timeout_ms = 300
    gone.quiet_join(2)
    gone.quiet_sync([(gone, b"")])
    other = Member(s, group, "b")
    other.rebalance_timeout_ms = 300
    other.join(2)
    other.sync([(other, b"all")])
    gone.heartbeat()
    describe(s, group)


@scenario(versions=[8, 9])
def reason(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.join(version, reason="because")
    member.join(version, reason="x" * 1000)


@scenario(versions=[2, 9])
def no_client_id(s: Session, version: int) -> None:
    """The member id then begins with a dash."""
    member = Member(s, s.name("g"))
    member.peer = s.peer("nameless", client_id=None)
    if member.join(version)["error_code"] == 79:
        member.join(version)
    describe(s, member.group)


@scenario
def client_ids_of_all_kinds(s: Session) -> None:
    for label, client_id in (("empty", ""), ("umlaut", "käse"), ("long", "c" * 500)):
        member = Member(s, s.name(f"g-{label}"))
        member.peer = s.peer(label, client_id=client_id)
        member.join(2)


# Static members (KIP-345)


@scenario(versions=range(5, 10))
def static_member(s: Session, version: int) -> None:
    """A static member needs no round trip for its id."""
    member = Member(s, s.name("g"), instance="one")
    member.join(version)
    describe(s, member.group)


@scenario(versions=range(5, 10))
def static_leader_returns(s: Session, version: int) -> None:
    """Same metadata, no member id: it keeps its place, with a new id and no rebalance."""
    group = s.name("g")
    leader = stable_group(s, group, instance="one")
    again = Member(s, group, "c", instance="one")
    again.join(version)
    again.sync([(again, b"other share")], version=3)
    again.heartbeat()
    leader.heartbeat()
    describe(s, group)


@scenario(versions=[5, 7, 9])
def static_leader_returns_with_new_metadata(s: Session, version: int) -> None:
    group = s.name("g")
    stable_group(s, group, instance="one")
    again = Member(s, group, "c", instance="one")
    again.protocols = (("range", subscription(user_data=b"new")),)
    again.join(version)
    again.sync([(again, b"new share")], version=3)
    describe(s, group)


@scenario(versions=[5, 9])
def static_follower_returns(s: Session, version: int) -> None:
    group = s.name("g")
    leader = stable_group(s, group, instance="one")
    follower = Member(s, group, "b", instance="two")
    follower.post_join(5)
    leader.await_rebalance()
    leader.quiet_join(5)
    follower.take(follower.peer.quiet_receive())
    leader.quiet_sync([(leader, b"1"), (follower, b"2")])
    follower.quiet_sync()
    again = Member(s, group, "c", instance="two")
    again.join(version)
    again.sync(version=3)
    follower.heartbeat()
    describe(s, group)


@scenario(versions=[5, 9])
def static_member_with_a_wrong_member_id(s: Session, version: int) -> None:
    group = s.name("g")
    stable_group(s, group, instance="one")
    other = Member(s, group, "c", instance="one")
    other.member_id = "nobody"
    other.join(version)


@scenario(versions=[5, 9])
def unknown_instance_with_a_member_id(s: Session, version: int) -> None:
    group = s.name("g")
    stable_group(s, group)
    other = Member(s, group, "c", instance="new")
    other.member_id = "nobody"
    other.join(version)


@scenario(versions=[5, 9])
def dynamic_member_takes_an_instance_id(s: Session, version: int) -> None:
    member = stable_group(s, s.name("g"))
    member.instance = "late"
    member.join(version)


@scenario(cases={"empty": "", "dot": ".", "umlaut": "ä", "too_long": "x" * 250, "slash": "a/b"})
def instance_id(s: Session, instance: str) -> None:
    member = Member(s, s.name("g"), instance=instance)
    if (member.join(5) or {}).get("error_code") == 79:
        member.join(5)


@scenario
def static_member_joins_while_rebalancing(s: Session) -> None:
    group = s.name("g")
    leader = stable_group(s, group, instance="one")
    other = Member(s, group, "b")
    other.post_join(2)
    leader.await_rebalance()
    again = Member(s, group, "c", instance="one")
    again.join(5)
    other.joined()
    leader.heartbeat()
