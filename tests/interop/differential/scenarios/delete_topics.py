"""DeleteTopics: by name, by id, wrong in each way."""

from __future__ import annotations

import os
from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def delete(s: Session, version: int, *names: str | None, **more: Any) -> None:
    """Ask by name; from version 6 on in the structure that also has ids."""
    fields: dict[str, Any] = {"timeout_ms": 30_000}
    if version >= 6:
        fields["topics"] = [{"name": each} for each in names]
    else:
        fields["topic_names"] = list(names)
    s.call("DeleteTopics", version, **(fields | more))


@scenario(versions="DeleteTopics")
def one_topic(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    delete(s, version, topic)
    s.await_no_topic(topic)
    s.call("Metadata", 9, **s.metadata_of(topic))


@scenario(versions="DeleteTopics")
def unknown_topic(s: Session, version: int) -> None:
    delete(s, version, s.name("absent"))


@scenario(versions="DeleteTopics")
def same_name_twice(s: Session, version: int) -> None:
    topic, other = s.topic(), s.topic("other")
    delete(s, version, topic, other, topic)


@scenario(versions=[1, 4, 6])
def several(s: Session, version: int) -> None:
    delete(s, version, s.topic("a"), s.name("absent"), s.topic("b"))


@scenario(cases={"empty": "", "slash": "a/b", "dot": ".", "too_long": "x" * 250}, versions=[1, 6])
def illegal_name(s: Session, name: str, version: int) -> None:
    delete(s, version, name)


@scenario(versions=[1, 6])
def nothing(s: Session, version: int) -> None:
    delete(s, version)


@scenario(versions=[1, 6], cases={"zero": 0, "negative": -1})
def odd_timeout(s: Session, timeout_ms: int, version: int) -> None:
    delete(s, version, s.topic(), timeout_ms=timeout_ms)


@scenario
def by_id(s: Session) -> None:
    topic = s.topic()
    s.call(
        "DeleteTopics", 6, topics=[{"name": None, "topic_id": s.topic_id(topic)}], timeout_ms=9999
    )
    s.await_no_topic(topic)
    s.call(
        "DeleteTopics", 6, topics=[{"name": None, "topic_id": s.topic_id(topic)}], timeout_ms=9999
    )


@scenario(cases=["zero", "random"])
def by_unknown_id(s: Session, kind: str) -> None:
    topic_id = os.urandom(16).hex() if kind == "random" else "0" * 32
    s.call("DeleteTopics", 6, topics=[{"name": None, "topic_id": topic_id}], timeout_ms=9999)


@scenario
def by_id_and_name(s: Session) -> None:
    topic = s.topic()
    s.call(
        "DeleteTopics", 6, topics=[{"name": topic, "topic_id": s.topic_id(topic)}], timeout_ms=9999
    )


@scenario
def same_id_twice(s: Session) -> None:
    entry = {"name": None, "topic_id": s.topic_id(s.topic())}
    s.call("DeleteTopics", 6, topics=[entry, entry], timeout_ms=9999)


@scenario
def name_and_id_of_the_same_topic(s: Session) -> None:
    topic = s.topic()
    entries = [{"name": topic}, {"name": None, "topic_id": s.topic_id(topic)}]
    s.call("DeleteTopics", 6, topics=entries, timeout_ms=9999)


@scenario
def created_again_is_empty_and_new(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, batch("a"))
    delete(s, 6, topic)
    s.await_no_topic(topic)
    s.topic()
    s.call("Metadata", 12, **s.metadata_of(topic))
    part = {"partition_index": 0, "timestamp": -1}
    s.call("ListOffsets", 5, replica_id=-1, topics=[{"name": topic, "partitions": [part]}])
