"""Metadata: topics by name and by id, all, none, created on the way."""

from __future__ import annotations

import os

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session


def own_topics(s: Session, answer: Answer) -> Answer:
    """The answer without the topics of other scenarios."""
    return answer | {"topics": [each for each in answer["topics"] if s.is_own(each["name"])]}


@scenario(versions="Metadata")
def one_topic(s: Session, version: int) -> None:
    s.call("Metadata", version, topics=[{"name": s.topic(partitions=3)}])


@scenario(versions="Metadata")
def all_topics(s: Session, version: int) -> None:
    """No list means all; in version 0 an empty list does."""
    s.topic("one", 2)
    s.topic("two")
    topics = [] if version == 0 else None
    s.call_for(lambda answer: own_topics(s, answer), "Metadata", version, topics=topics)


@scenario(versions=range(1, 14))
def no_topics(s: Session, version: int) -> None:
    s.topic()
    s.call("Metadata", version, topics=[])


@scenario(versions=range(4, 14))
def unknown_topic_not_created(s: Session, version: int) -> None:
    s.call("Metadata", version, **s.metadata_of(s.name("absent")))


@scenario(versions="Metadata")
def unknown_topic_created(s: Session, version: int) -> None:
    topic = s.name("new")
    s.call("Metadata", version, topics=[{"name": topic}], allow_auto_topic_creation=True)
    s.await_topic(topic, 4)
    s.call("Metadata", version, topics=[{"name": topic}])


@scenario(versions=[1, 4, 9, 12, 13])
def known_and_unknown_topics(s: Session, version: int) -> None:
    names = [s.topic("one"), s.name("absent"), s.topic("two", 2)]
    s.call(
        "Metadata",
        version,
        topics=[{"name": each} for each in names],
        allow_auto_topic_creation=False,
    )


ILLEGAL = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "slash": "a/b",
    "space": "a b",
    "umlaut": "ä",
    "too_long": "x" * 250,
    "newline": "a\nb",
    "null_byte": "a\0b",
}


@scenario(cases=ILLEGAL, versions=[0, 9, 12])
def illegal_name(s: Session, name: str, version: int) -> None:
    s.call("Metadata", version, topics=[{"name": name}])


@scenario(cases=ILLEGAL)
def illegal_name_not_created(s: Session, name: str) -> None:
    s.call("Metadata", 12, **s.metadata_of(name))


@scenario(versions=[1, 9, 12])
def same_name_twice(s: Session, version: int) -> None:
    topic = s.topic()
    s.call("Metadata", version, topics=[{"name": topic}, {"name": topic}])


@scenario(versions=[4, 12])
def same_absent_name_twice(s: Session, version: int) -> None:
    s.call("Metadata", version, **s.metadata_of(s.name("absent"), s.name("absent")))


@scenario(versions=[10, 11, 12, 13])
def by_id(s: Session, version: int) -> None:
    """By id is possible from version 12 (null name); 10 and 11 have the field and refuse it."""
    topic = s.topic()
    name = None if version >= 12 else ""
    s.call("Metadata", version, topics=[{"topic_id": s.topic_id(topic), "name": name}])


@scenario(versions=[12, 13], cases=["random", "zero"])
def by_unknown_id(s: Session, kind: str, version: int) -> None:
    topic_id = os.urandom(16).hex() if kind == "random" else "0" * 32
    s.call("Metadata", version, topics=[{"topic_id": topic_id, "name": None}])


@scenario(versions=[10, 12, 13])
def id_and_name(s: Session, version: int) -> None:
    topic = s.topic()
    s.call("Metadata", version, topics=[{"topic_id": s.topic_id(topic), "name": topic}])


@scenario(versions=[12, 13])
def ids_and_names_mixed(s: Session, version: int) -> None:
    one, two = s.topic("one"), s.topic("two")
    topics = [{"topic_id": s.topic_id(one), "name": None}, {"name": two}]
    s.call("Metadata", version, topics=topics)


@scenario(versions=[12, 13])
def same_id_twice(s: Session, version: int) -> None:
    topic = {"topic_id": s.topic_id(s.topic()), "name": None}
    s.call("Metadata", version, topics=[topic, topic])


@scenario(versions=[10, 11])
def null_name_before_version_12(s: Session, version: int) -> None:
    """The schema has no null there: the request cannot be read."""
    header = b"\0\3" + version.to_bytes(2, "big") + b"\0\0\0\7\0\1x\0"
    s.main.post_raw("Metadata", version, header + b"\x02" + bytes(16) + b"\0\0" + b"\1\0\0\0")
    s.main.expect_unanswered()


@scenario(versions=[8, 9, 10])
def cluster_authorized_operations(s: Session, version: int) -> None:
    s.call("Metadata", version, topics=[], include_cluster_authorized_operations=True)


@scenario(versions=range(8, 14))
def topic_authorized_operations(s: Session, version: int) -> None:
    topics = [{"name": s.topic()}]
    s.call("Metadata", version, topics=topics, include_topic_authorized_operations=True)


@scenario(versions=[9, 12])
def authorized_operations_of_an_absent_topic(s: Session, version: int) -> None:
    fields = s.metadata_of(s.name("absent"))
    s.call("Metadata", version, **fields, include_topic_authorized_operations=True)


@scenario(cases=["__consumer_offsets", "__transaction_state"], versions=[1, 12])
def internal_topics(s: Session, name: str, version: int) -> None:
    """The offsets topic exists since the run was prepared."""
    s.call("Metadata", version, topics=[{"name": name}], allow_auto_topic_creation=False)


@scenario(versions=[4, 12])
def deleted_topic(s: Session, version: int) -> None:
    topic = s.topic()
    s.quiet("DeleteTopics", 5, topic_names=[topic], timeout_ms=10_000)
    s.await_no_topic(topic)
    s.call("Metadata", version, **s.metadata_of(topic))
    if version >= 12:
        s.call("Metadata", version, topics=[{"topic_id": s.topic_id(topic), "name": None}])


@scenario
def created_topic_collides_with_another(s: Session) -> None:
    """Names that differ by a dot and an underscore only cannot both be created."""
    s.topic("a_b")
    name = s.name("a_b").replace("a_b", "a.b")
    s.normaliser.know_name(name, "a.b")
    s.call("Metadata", 9, topics=[{"name": name}])
    s.call("Metadata", 9, **s.metadata_of(name))
