"""AlterReplicaLogDirs: which directories and partitions are refused, and how."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def directory(s: Session) -> str:
    """Return the one log directory that the broker has."""
    results = s.quiet("DescribeLogDirs", 4, topics=[])["results"]
    return str(results[0]["log_dir"])


def ask(s: Session, version: int, path: str, topic: str, *partitions: int) -> None:
    topics = [{"name": topic, "partitions": list(partitions)}]
    s.call("AlterReplicaLogDirs", version, dirs=[{"path": path, "topics": topics}])


@scenario(versions="AlterReplicaLogDirs")
def where_it_lies_already(s: Session, version: int) -> None:
    ask(s, version, directory(s), s.topic(partitions=2), 0, 1)


@scenario(versions="AlterReplicaLogDirs")
def no_such_directory(s: Session, version: int) -> None:
    topic = s.topic()
    for path in ("/nowhere", "relative", ""):
        ask(s, version, path, topic, 0)
    ask(s, version, "/nowhere", s.name("absent"), 0)


@scenario(versions="AlterReplicaLogDirs")
def no_such_partition(s: Session, version: int) -> None:
    ask(s, version, directory(s), s.name("absent"), 0)
    ask(s, version, directory(s), s.topic(), 0, 7, -1)


@scenario
def a_name_too_long_for_a_future_directory(s: Session) -> None:
    ask(s, 2, directory(s), "x" * 215, 0)


@scenario
def a_partition_named_twice(s: Session) -> None:
    ask(s, 2, directory(s), s.topic(), 0, 0)


@scenario
def nothing(s: Session) -> None:
    s.call("AlterReplicaLogDirs", 2, dirs=[])
