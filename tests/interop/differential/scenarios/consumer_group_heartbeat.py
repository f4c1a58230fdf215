"""ConsumerGroupHeartbeat: members of the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.consumer_groups import ConsumerMember
from tests.interop.differential.groups import Member
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session

API = "ConsumerGroupHeartbeat"


@scenario(versions=API)
def alone(s: Session, version: int) -> None:
    """Joins, goes on, and leaves."""
    topic = s.topic(partitions=3)
    a = ConsumerMember(s, s.name("g"))
    a.join(version, topic)
    a.settle(version)
    a.beat(version)
    a.beat(version, member_epoch=-1)
    a.beat(version)


@scenario(versions=API)
def owned_partitions_are_reported(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    a = ConsumerMember(s, s.name("g"))
    a.quiet_join(version, topic)
    a.settle(version)
    a.beat(version, topic_partitions=[{"topic_id": s.topic_id(topic), "partitions": [0, 1]}])
    a.beat(version, topic_partitions=[])


@scenario(versions=API)
def two_members_share(s: Session, version: int) -> None:
    topic = s.topic(partitions=4)
    group = s.name("g")
    a, b = ConsumerMember(s, group, "a"), ConsumerMember(s, group, "b")
    a.quiet_join(version, topic)
    a.settle(version)
    b.quiet_join(version, topic)
    a.settle(version)
    b.settle(version)
    a.beat(version)
    b.beat(version)
    s.call("ConsumerGroupDescribe", 1, group_ids=[group], include_authorized_operations=False)


@scenario(
    versions=API,
    cases={
        "no_group": {"group_id": ""},
        "no_member": {"member_id": ""},
        "negative_epoch": {"member_epoch": -5},
        "no_topics": {"subscribed_topic_names": None},
        "no_owned": {"topic_partitions": None},
        "some_owned": {"topic_partitions": [{"topic_id": "f" * 32, "partitions": [0]}]},
        "no_rebalance_timeout": {"rebalance_timeout_ms": -1},
        "unknown_assignor": {"server_assignor": "nothing"},
        "empty_assignor": {"server_assignor": ""},
        "range_assignor": {"server_assignor": "range"},
        "empty_instance": {"instance_id": ""},
        "empty_rack": {"rack_id": ""},
        "leaves": {"member_epoch": -1},
        "leaves_for_a_while": {"member_epoch": -2, "instance_id": "i"},
        "leaves_for_a_while_without_name": {"member_epoch": -2},
        "unknown_epoch": {"member_epoch": 3},
        "no_names": {"subscribed_topic_names": []},
        "absent_topic": {"subscribed_topic_names": ["differential-absent"]},
    },
)
def first_heartbeat(s: Session, more: dict[str, Any], version: int) -> None:
    topic = s.topic()
    a = ConsumerMember(s, s.name("g"))
    a.await_coordinator()
    a.join(version, topic, **more)


@scenario(
    versions=[1],
    cases={
        "all": ".*",
        "own": "OWN",
        "wrong": "(",
        "look_ahead": "(?=a)",
        "back_reference": r"(a)\1",
        "empty": "",
        "huge_repeat": "(a{1000}){1000}",
    },
)
def expression(s: Session, text: str, version: int) -> None:
    a = ConsumerMember(s, s.name("g"))
    a.await_coordinator()
    pattern = s.name("no-such-topic") if text == "OWN" else text
    fields = {"subscribed_topic_names": None, "subscribed_topic_regex": pattern}
    answer = a.quiet_join(version, "", **fields)
    s.record("what became of it", {"error_code": answer["error_code"]})


@scenario(versions=API)
def wrong_epochs(s: Session, version: int) -> None:
    topic = s.topic()
    a = ConsumerMember(s, s.name("g"))
    a.quiet_join(version, topic)
    a.settle(version)
    a.beat(version, member_epoch=a.epoch + 1)
    a.beat(version, member_epoch=a.epoch - 1)
    a.beat(version, member_id="nobody")
    a.beat(version)


@scenario(versions=API)
def joins_again_with_its_id(s: Session, version: int) -> None:
    topic = s.topic()
    a = ConsumerMember(s, s.name("g"))
    a.quiet_join(version, topic)
    a.settle(version)
    a.join(version, topic)


@scenario(versions=API)
def static_member_comes_back(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    group = s.name("g")
    a = ConsumerMember(s, group, "a", instance="i")
    a.quiet_join(version, topic)
    a.settle(version)
    b = ConsumerMember(s, group, "b", instance="i")
    b.join(version, topic)
    a.beat(version, member_epoch=-2)
    b.join(version, topic)
    a.beat(version)


@scenario(versions=API)
def in_a_classic_group_of_another_kind(s: Session, version: int) -> None:
    group = s.name("g")
    classic = Member(s, group, "classic")
    classic.protocol_type = "connect"
    classic.quiet_join(5)
    a = ConsumerMember(s, group)
    a.join(version, s.topic())


@scenario(versions=API)
def offsets_of_a_member(s: Session, version: int) -> None:
    """Commits with the right epoch, an older one, and by nobody."""
    topic = s.topic()
    a = ConsumerMember(s, s.name("g"))
    a.quiet_join(version, topic)
    a.settle(version)
    a.commit(topic)
    a.commit(topic, generation_id_or_member_epoch=a.epoch - 1)
    a.commit(topic, generation_id_or_member_epoch=a.epoch + 1)
    a.commit(topic, member_id="nobody")
    a.commit(topic, generation_id_or_member_epoch=-1, member_id="")
    for member_id, epoch in ((a.member_id, a.epoch), (a.member_id, a.epoch + 1), ("nobody", 1)):
        group = {
            "group_id": a.group,
            "member_id": member_id,
            "member_epoch": epoch,
            "topics": [{"name": topic, "partition_indexes": [0]}],
        }
        s.call("OffsetFetch", 9, groups=[group], require_stable=False)
