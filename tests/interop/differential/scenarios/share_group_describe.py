"""ShareGroupDescribe: the state of share groups, and what APIs of other groups say of them."""

from __future__ import annotations

from tests.interop.differential.groups import stable_group
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.share_groups import (
    ShareMember,
    await_group,
    await_stable,
    lasting_topic,
)

API = "ShareGroupDescribe"


def ask(s: Session, *groups: str, operations: bool = False) -> None:
    s.call(API, 1, group_ids=list(groups), include_authorized_operations=operations)


@scenario
def two_members(s: Session) -> None:
    topic, other = lasting_topic(s), lasting_topic(s, "other")
    a = ShareMember(s, s.name("g"))
    a.quiet_join(topic)
    ask(s, a.group)
    b = ShareMember(s, s.name("g"), "b")
    b.quiet_join(topic, other)
    await_stable(s, a, b)
    ask(s, a.group)
    a.leave()
    b.leave()
    ask(s, a.group)


@scenario
def operations(s: Session) -> None:
    a = ShareMember(s, s.name("g"))
    a.quiet_join(lasting_topic(s))
    ask(s, a.group, operations=True)
    ask(s, s.name("nobody"), operations=True)


@scenario
def unknown_and_of_other_kinds(s: Session) -> None:
    classic = stable_group(s, s.name("classic"))
    await_group(s, s.name("nobody"))
    ask(s, s.name("nobody"))
    ask(s, classic.group)
    ask(s, "")
    ask(s)


@scenario
def several(s: Session) -> None:
    a = ShareMember(s, s.name("g"))
    a.quiet_join(lasting_topic(s))
    await_group(s, s.name("nobody"))
    ask(s, a.group, s.name("nobody"))
    ask(s, a.group, a.group)


@scenario
def in_the_apis_of_other_groups(s: Session) -> None:
    topic = lasting_topic(s)
    a = ShareMember(s, s.name("g"))
    a.quiet_join(topic)
    s.call("DescribeGroups", 6, groups=[a.group])
    s.call("DescribeGroups", 5, groups=[a.group])
    s.call("ConsumerGroupDescribe", 1, group_ids=[a.group], include_authorized_operations=False)
    s.call("Heartbeat", 3, group_id=a.group, generation_id=a.epoch, member_id=a.member_id)
    part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    s.call(
        "OffsetCommit",
        9,
        group_id=a.group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": topic, "partitions": [part]}],
    )
    s.call("OffsetFetch", 7, group_id=a.group, topics=None, require_stable=False)
    joining = {"protocols": [{"name": "range", "metadata": b""}], "protocol_type": "other"}
    s.call(
        "JoinGroup",
        2,
        group_id=a.group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        **joining,
    )
    s.call("DeleteGroups", 2, groups_names=[a.group])


@scenario
def a_classic_group_in_its_place(s: Session) -> None:
    classic = stable_group(s, s.name("classic"))
    member = ShareMember(s, classic.group, "b")
    member.join(lasting_topic(s))
