"""DescribeTopicPartitions: pages over topics and partitions (KIP-966)."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session


def ask(s: Session, *names: str, **more: Any) -> Answer:
    return s.call("DescribeTopicPartitions", 0, topics=[{"name": each} for each in names], **more)


@scenario
def one_topic(s: Session) -> None:
    ask(s, s.topic(partitions=3))


@scenario
def several_topics(s: Session) -> None:
    ask(s, s.topic("b", 2), s.topic("a"), s.name("absent"))


@scenario
def all_topics(s: Session) -> None:
    s.topic("a", 2)
    s.topic("b")

    def own(answer: Answer) -> Answer:
        topics = [each for each in answer["topics"] if s.is_own(each["name"])]
        return answer | {"topics": topics, "next_cursor": None}

    s.call_for(own, "DescribeTopicPartitions", 0, topics=[], response_partition_limit=2**31 - 1)


@scenario(cases={"empty": "", "slash": "a/b", "dot": ".", "too_long": "x" * 250})
def illegal_name(s: Session, name: str) -> None:
    ask(s, name)


@scenario
def same_name_twice(s: Session) -> None:
    topic = s.topic()
    ask(s, topic, topic)


@scenario(cases={"zero": 0, "negative": -1, "one": 1, "two": 2, "three": 3, "four": 4})
def limit(s: Session, partitions: int) -> None:
    ask(s, s.topic("a", 3), s.topic("b", 2), response_partition_limit=partitions)


@scenario
def pages(s: Session) -> None:
    names = [s.topic("a", 3), s.topic("b", 2)]
    cursor = None
    for _ in range(5):
        answer = ask(s, *names, response_partition_limit=2, cursor=cursor)
        cursor = answer["next_cursor"]
        if cursor is None:
            return


CURSORS = {
    "start": ("a", 0),
    "inside": ("a", 2),
    "at_the_end": ("a", 3),
    "second": ("b", 1),
    "behind": ("c", 0),
    "between": ("aa", 0),
    "negative": ("a", -1),
}


@scenario(cases=CURSORS)
def cursor(s: Session, place: tuple[str, int]) -> None:
    names = [s.topic("a", 3), s.topic("b", 2)]
    start = {"topic_name": s.name(place[0]), "partition_index": place[1]}
    ask(s, *names, cursor=start)


@scenario
def cursor_before_unknown_topics(s: Session) -> None:
    names = [s.topic("a"), s.name("b"), s.topic("c")]
    ask(s, *names, cursor={"topic_name": s.name("b"), "partition_index": 0})


@scenario
def cursor_of_a_topic_not_asked_for(s: Session) -> None:
    ask(s, s.topic("b"), cursor={"topic_name": s.topic("a"), "partition_index": 0})


@scenario
def internal_topic(s: Session) -> None:
    ask(s, "__consumer_offsets")
