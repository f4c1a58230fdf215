"""ElectLeaders: on one broker, which leads everything already, so that nothing is left to do."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session

PREFERRED, UNCLEAN = 0, 1


def of(topic: str, *partitions: int) -> dict[str, Any]:
    return {"topic": topic, "partitions": list(partitions)}


def own_topics(s: Session) -> Any:
    """The answer with the topics of this session alone."""

    def shown(answer: Answer) -> Answer:
        results = [each for each in answer["replica_election_results"] if s.is_own(each["topic"])]
        return answer | {"replica_election_results": results}

    return shown


@scenario(versions="ElectLeaders")
def already_led(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    s.call("ElectLeaders", version, topic_partitions=[of(topic, 0, 1)])


@scenario(versions=[1, 2])
def unclean_and_led(s: Session, version: int) -> None:
    topic = s.topic()
    s.call("ElectLeaders", version, election_type=UNCLEAN, topic_partitions=[of(topic, 0)])


@scenario(versions="ElectLeaders")
def all_partitions(s: Session, version: int) -> None:
    s.topic()
    s.call_for(own_topics(s), "ElectLeaders", version, topic_partitions=None)


@scenario(versions="ElectLeaders")
def no_partitions(s: Session, version: int) -> None:
    s.call("ElectLeaders", version, topic_partitions=[])
    s.call("ElectLeaders", version, topic_partitions=[of(s.topic())])


@scenario(versions="ElectLeaders")
def unknown(s: Session, version: int) -> None:
    topic = s.topic()
    absent = s.name("absent")
    s.call("ElectLeaders", version, topic_partitions=[of(absent, 0), of(topic, 7, 0, -1)])


@scenario(versions=[0, 2])
def named_twice(s: Session, version: int) -> None:
    topic = s.topic()
    s.call("ElectLeaders", version, topic_partitions=[of(topic, 0, 0)])
    s.call("ElectLeaders", version, topic_partitions=[of(topic, 0), of(topic, 0)])


@scenario(cases={"two": 2, "negative": -1, "max": 127}, versions=[1, 2])
def election_type(s: Session, kind: int, version: int) -> None:
    s.call("ElectLeaders", version, election_type=kind, topic_partitions=[of(s.topic(), 0)])


@scenario(cases={"empty": "", "slash": "a/b"})
def illegal_topic_name(s: Session, name: str) -> None:
    s.call("ElectLeaders", 2, topic_partitions=[of(name, 0)])


@scenario(cases={"zero": 0, "negative": -1})
def timeout(s: Session, timeout_ms: int) -> None:
    s.call("ElectLeaders", 2, topic_partitions=[of(s.topic(), 0)], timeout_ms=timeout_ms)


@scenario(versions=[0, 1])
def all_partitions_in_no_time(s: Session, version: int) -> None:
    s.call("ElectLeaders", version, topic_partitions=None, timeout_ms=0)
