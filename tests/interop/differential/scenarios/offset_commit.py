"""OffsetCommit: in every state of a group, by members and by nobody in particular."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.groups import Member, simple_commit, stable_group
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def look(s: Session, group: str) -> None:
    """Record the offsets that the group has."""
    s.call("OffsetFetch", 7, group_id=group, topics=None)


@scenario(versions="OffsetCommit")
def without_a_group(s: Session, version: int) -> None:
    """A consumer with assigned partitions: generation −1 and no member id."""
    member = Member(s, s.name("g"))
    member.commit(s.topic(), version)
    look(s, member.group)


@scenario(versions="OffsetCommit")
def stable(s: Session, version: int) -> None:
    member = stable_group(s, s.name("g"))
    member.commit(s.topic(), version)
    look(s, member.group)


@scenario(versions="OffsetCommit")
def between_join_and_sync(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.quiet_join(2)
    member.commit(s.topic(), version)


@scenario(versions="OffsetCommit")
def during_a_rebalance(s: Session, version: int) -> None:
    topic = s.topic()
    group = s.name("g")
    leader = stable_group(s, group)
    other = Member(s, group, "b")
    other.post_join(2)
    leader.await_rebalance()
    leader.commit(topic, version)
    leader.quiet_join(5)
    other.joined()


WRONG: dict[str, dict[str, Any]] = {
    "generation_older": {"generation_id_or_member_epoch": 0},
    "generation_newer": {"generation_id_or_member_epoch": 99},
    "generation_undefined": {"generation_id_or_member_epoch": -1},
    "generation_minus_two": {"generation_id_or_member_epoch": -2},
    "member": {"member_id": "nobody"},
    "member_empty": {"member_id": ""},
    "neither": {"member_id": "", "generation_id_or_member_epoch": -1},
    "group": {"group_id": "no-such-group"},
    "group_empty": {"group_id": ""},
}


@scenario(cases=WRONG, versions=[2, 7, 9, 10])
def wrong(s: Session, fields: dict[str, Any], version: int) -> None:
    stable_group(s, s.name("g")).commit(s.topic(), version, **fields)


@scenario(
    cases={
        "generation": {"generation_id_or_member_epoch": 3},
        "member": {"member_id": "nobody"},
        "both": {"generation_id_or_member_epoch": 3, "member_id": "nobody"},
        "instance": {"group_instance_id": "one"},
    },
    versions=[7, 9],
)
def to_a_group_that_is_not_there(s: Session, fields: dict[str, Any], version: int) -> None:
    Member(s, s.name("g")).commit(s.topic(), version, **fields)


@scenario(
    versions=[7, 9],
    cases={
        "right": {},
        "other_member": {"member_id": "nobody"},
        "other_instance": {"group_instance_id": "two"},
        "no_instance": {"group_instance_id": None},
    },
)
def static_member(s: Session, fields: dict[str, Any], version: int) -> None:
    stable_group(s, s.name("g"), instance="one").commit(s.topic(), version, **fields)


@scenario
def to_an_empty_group(s: Session) -> None:
    """The members have left; the generation that was is refused."""
    topic = s.topic()
    member = stable_group(s, s.name("g"))
    s.quiet("LeaveGroup", 1, group_id=member.group, member_id=member.member_id)
    member.commit(topic)
    member.commit(topic, generation_id_or_member_epoch=-1, member_id="")
    look(s, member.group)


def entry(index: int, offset: int = 5, **more: Any) -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": offset, "committed_metadata": ""} | more


@scenario(
    cases={"zero": 0, "minus_one": -1, "minus_two": -2, "max": 2**63 - 1, "beyond_the_end": 77}
)
def offset(s: Session, value: int) -> None:
    topic = s.topic()
    member = Member(s, s.name("g"))
    member.commit(topic, offset=value)
    look(s, member.group)


@scenario(
    cases={
        "null": None,
        "empty": "",
        "longest": "m" * 4096,
        "too_long": "m" * 4097,
        "umlaut": "ä" * 2049,
        "umlaut_longest": "ä" * 2048,
    },
    versions=[2, 8],
)
def metadata(s: Session, text: str | None, version: int) -> None:
    topic = s.topic()
    group = s.name("g")
    parts = [entry(0, committed_metadata=text)]
    member = Member(s, group)
    member.commit(topic, version, topics=[{"name": topic, "partitions": parts}])
    s.call("OffsetFetch", 7, group_id=group, topics=None)


@scenario(versions=[2, 7, 9])
def unknown_topic_and_partition(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    member = Member(s, s.name("g"))
    topics = [
        {"name": topic, "partitions": [entry(0), entry(9), entry(1)]},
        {"name": s.name("absent"), "partitions": [entry(0)]},
    ]
    member.commit(topic, version, topics=topics)
    look(s, member.group)


@scenario
def unknown_topic_id(s: Session) -> None:
    topic = s.topic()
    member = Member(s, s.name("g"))
    topics = [
        {"topic_id": "f" * 32, "partitions": [entry(0)]},
        {"topic_id": "0" * 32, "partitions": [entry(0)]},
        {"topic_id": s.topic_id(topic), "partitions": [entry(0), entry(6)]},
    ]
    member.commit(topic, 10, topics=topics)
    look(s, member.group)


@scenario(versions=[7, 9])
def too_long_among_good_ones(s: Session, version: int) -> None:
    topic = s.topic(partitions=3)
    member = Member(s, s.name("g"))
    parts = [entry(0), entry(1, committed_metadata="m" * 5000), entry(2)]
    member.commit(topic, version, topics=[{"name": topic, "partitions": parts}])
    look(s, member.group)


@scenario(versions=[7, 10])
def nothing(s: Session, version: int) -> None:
    member = Member(s, s.name("g"))
    member.commit(s.topic(), version, topics=[])
    look(s, member.group)


@scenario
def same_partition_twice(s: Session) -> None:
    topic = s.topic()
    member = Member(s, s.name("g"))
    member.commit(topic, topics=[{"name": topic, "partitions": [entry(0, 5), entry(0, 8)]}])
    look(s, member.group)


@scenario(versions=[6, 9], cases={"none": -1, "zero": 0, "some": 7})
def leader_epoch(s: Session, epoch: int, version: int) -> None:
    topic = s.topic()
    member = Member(s, s.name("g"))
    parts = [entry(0, committed_leader_epoch=epoch)]
    member.commit(topic, version, topics=[{"name": topic, "partitions": parts}])
    look(s, member.group)


@scenario(cases={"none": -1, "zero": 0, "some": 1000})
def retention_time(s: Session, retention_ms: int) -> None:
    topic = s.topic()
    member = Member(s, s.name("g"))
    member.commit(topic, 2, retention_time_ms=retention_ms)
    look(s, member.group)


@scenario
def overwritten_and_taken_back(s: Session) -> None:
    topic = s.topic()
    member = Member(s, s.name("g"))
    for value in (5, 9, 3):
        member.commit(topic, offset=value)
        look(s, member.group)


@scenario
def pending_member(s: Session) -> None:
    """A member that has got its id but has not joined."""
    member = Member(s, s.name("g"))
    member.join(4)
    member.commit(s.topic())


@scenario
def internal_topic(s: Session) -> None:
    member = Member(s, s.name("g"))
    member.commit("__consumer_offsets")
    look(s, member.group)


@scenario(cases={"empty": "", "slash": "a/b"})
def illegal_topic_name(s: Session, name: str) -> None:
    Member(s, s.name("g")).commit(name)


@scenario
def two_groups_keep_their_own(s: Session) -> None:
    topic = s.topic()
    simple_commit(s, s.name("one"), topic, 3)
    simple_commit(s, s.name("two"), topic, 4)
    look(s, s.name("one"))
    look(s, s.name("two"))
