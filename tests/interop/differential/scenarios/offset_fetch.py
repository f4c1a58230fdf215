"""OffsetFetch: single and batched groups, all topics, requests that do not fit."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.groups import Member, simple_commit, stable_group
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def ask(
    s: Session,
    version: int,
    group: str,
    topics: list[tuple[str, list[int]]] | None,
    **more: Any,
) -> None:
    """One group; from version 8 on in the structure that holds several."""
    asked = None
    if topics is not None:
        asked = [
            s.topic_ref(name, by_id=version >= 10) | {"partition_indexes": partitions}
            for name, partitions in topics
        ]
    if version >= 8:
        stable = more.pop("require_stable", False)
        entry = {"group_id": group, "topics": asked} | more
        s.call("OffsetFetch", version, groups=[entry], require_stable=stable)
    else:
        s.call("OffsetFetch", version, group_id=group, topics=asked, **more)


@scenario(versions="OffsetFetch")
def committed_and_not(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    group = s.name("g")
    simple_commit(s, group, topic)
    ask(s, version, group, [(topic, [0, 1])])


@scenario(versions=range(2, 11))
def all_topics(s: Session, version: int) -> None:
    group = s.name("g")
    for label in ("a", "b"):
        topic = s.topic(label, 2)
        for partition in (0, 1):
            simple_commit(s, group, topic, 5 + partition, partition)
    ask(s, version, group, None)


@scenario(versions="OffsetFetch")
def unknown_group(s: Session, version: int) -> None:
    ask(s, version, s.name("absent"), [(s.topic(), [0])])


@scenario(versions=range(2, 11))
def all_topics_of_an_unknown_group(s: Session, version: int) -> None:
    ask(s, version, s.name("absent"), None)


@scenario(versions="OffsetFetch")
def unknown_topic_and_partition(s: Session, version: int) -> None:
    topic = s.topic()
    group = s.name("g")
    simple_commit(s, group, topic)
    ask(s, version, group, [(topic, [0, 7, -1]), (s.name("absent"), [0])])


@scenario(versions="OffsetFetch")
def empty_group_id(s: Session, version: int) -> None:
    ask(s, version, "", [(s.topic(), [0])])


@scenario(versions="OffsetFetch")
def no_topics(s: Session, version: int) -> None:
    group = s.name("g")
    simple_commit(s, group, s.topic())
    ask(s, version, group, [])


@scenario(versions=[1, 7, 8, 10])
def topic_without_partitions(s: Session, version: int) -> None:
    topic = s.topic()
    group = s.name("g")
    simple_commit(s, group, topic)
    ask(s, version, group, [(topic, [])])


@scenario(versions=[1, 7, 8, 10])
def same_partition_twice(s: Session, version: int) -> None:
    topic = s.topic()
    group = s.name("g")
    simple_commit(s, group, topic)
    ask(s, version, group, [(topic, [0, 0])])


@scenario(versions=[7, 8, 9, 10])
def require_stable(s: Session, version: int) -> None:
    topic = s.topic()
    group = s.name("g")
    simple_commit(s, group, topic)
    ask(s, version, group, [(topic, [0])], require_stable=True)


@scenario(versions=[8, 9, 10])
def several_groups(s: Session, version: int) -> None:
    topic = s.topic()
    simple_commit(s, s.name("one"), topic, 3)
    simple_commit(s, s.name("two"), topic, 4)
    asked = [s.topic_ref(topic, by_id=version >= 10) | {"partition_indexes": [0]}]
    groups = [
        {"group_id": s.name("one"), "topics": asked},
        {"group_id": s.name("two"), "topics": None},
        {"group_id": s.name("absent"), "topics": None},
        {"group_id": "", "topics": asked},
    ]
    s.call("OffsetFetch", version, groups=groups)


@scenario(versions=[8, 10])
def no_groups(s: Session, version: int) -> None:
    s.call("OffsetFetch", version, groups=[])


@scenario(versions=[8, 10])
def same_group_twice(s: Session, version: int) -> None:
    topic = s.topic()
    group = s.name("g")
    simple_commit(s, group, topic)
    s.call("OffsetFetch", version, groups=[{"group_id": group, "topics": None}] * 2)


@scenario(
    versions=[9, 10],
    cases={
        "right": {},
        "stranger": {"member_id": "nobody"},
        "epoch": {"member_epoch": 99},
        "both": {"member_id": "nobody", "member_epoch": 1},
    },
)
def member_of_a_classic_group(s: Session, fields: dict[str, Any], version: int) -> None:
    """Member id and epoch are looked at in the groups of KIP-848 only."""
    topic = s.topic()
    member = stable_group(s, s.name("g"))
    ask(s, version, member.group, [(topic, [0])], **fields)


@scenario(versions=[9, 10])
def member_of_an_unknown_group(s: Session, version: int) -> None:
    ask(s, version, s.name("absent"), [(s.topic(), [0])], member_id="x", member_epoch=1)


@scenario(versions=[1, 8])
def deleted_topic(s: Session, version: int) -> None:
    """The offsets of a deleted topic are deleted with it."""
    topic = s.topic()
    group = s.name("g")
    simple_commit(s, group, topic)
    simple_commit(s, group, s.topic("stays"))
    s.quiet("DeleteTopics", 5, topic_names=[topic], timeout_ms=10_000)
    s.await_no_topic(topic)

    def gone(answer: dict[str, Any]) -> bool:
        return all(each["name"] != topic for each in answer["topics"])

    s.until(gone, "OffsetFetch", 7, group_id=group, topics=None)
    ask(s, version, group, [(topic, [0]), (s.name("stays"), [0])])


@scenario
def commit_of_a_leader_epoch(s: Session) -> None:
    topic = s.topic()
    member = Member(s, s.name("g"))
    part = {"partition_index": 0, "committed_offset": 4, "committed_leader_epoch": 3}
    topics = [{"name": topic, "partitions": [part | {"committed_metadata": None}]}]
    member.commit(topic, 7, topics=topics)
    for version in (4, 5, 7, 8):
        ask(s, version, member.group, [(topic, [0])])


@scenario(cases={"zero": "0" * 32, "random": "abcdef" + "1" * 26})
def unknown_topic_id(s: Session, topic_id: str) -> None:
    group = s.name("g")
    simple_commit(s, group, s.topic())
    topics = [{"topic_id": topic_id, "partition_indexes": [0]}]
    s.call("OffsetFetch", 10, groups=[{"group_id": group, "topics": topics}])
