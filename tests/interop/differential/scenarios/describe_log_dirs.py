"""DescribeLogDirs: sizes of partitions, the volume's size, unknown partitions."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session


def ask(s: Session, version: int, topics: list[dict[str, Any]] | None) -> None:
    def own(answer: Answer) -> Answer:
        results = [
            each | {"topics": [t for t in each["topics"] if s.is_own(t["name"])]}
            for each in answer["results"]
        ]
        return answer | {"results": results}

    s.call_for(own, "DescribeLogDirs", version, topics=topics)


def filled(s: Session) -> str:
    topic = s.topic(partitions=2)
    s.fill(topic, batch("a", "b"), batch("x" * 100))
    return topic


@scenario(versions="DescribeLogDirs")
def one_topic(s: Session, version: int) -> None:
    ask(s, version, [{"topic": filled(s), "partitions": [0, 1]}])


@scenario(versions="DescribeLogDirs")
def all_topics(s: Session, version: int) -> None:
    filled(s)
    ask(s, version, None)


@scenario(versions="DescribeLogDirs")
def unknown_topic_and_partition(s: Session, version: int) -> None:
    ask(s, version, [{"topic": s.name("absent"), "partitions": [0]}])
    ask(s, version, [{"topic": filled(s), "partitions": [0, 9, -1]}])


@scenario(versions=[1, 5])
def nothing(s: Session, version: int) -> None:
    ask(s, version, [])
    ask(s, version, [{"topic": filled(s), "partitions": []}])


@scenario
def same_partition_twice(s: Session) -> None:
    ask(s, 4, [{"topic": filled(s), "partitions": [0, 0]}])


@scenario
def size_after_delete_records(s: Session) -> None:
    """Whole segments go, so a partition with one segment stays as it is."""
    topic = filled(s)
    part = {"partition_index": 0, "offset": 2}
    s.quiet("DeleteRecords", 1, topics=[{"name": topic, "partitions": [part]}], timeout_ms=5000)
    ask(s, 4, [{"topic": topic, "partitions": [0]}])
