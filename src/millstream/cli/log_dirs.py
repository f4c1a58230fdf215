"""`millstream log-dirs`: what lies in brokers' log directories, and moving replicas between them.

Does what Apache Kafka's ``kafka-log-dirs`` does, and that part of ``kafka-reassign-partitions``
which moves replicas inside a broker.
"""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    open_admin,
)
from millstream.cli.failures import FAILED, CommandFailedError, complain, sentence
from millstream.cli.output import Row, human_bytes, print_json, print_rows
from millstream.client import Admin
from millstream.client.core.admin.replicas import LogDirectory, ReplicaOnDisk
from millstream.model.topic import TopicPartition

app = typer.Typer(help="Log directories: describe, move replicas.", no_args_is_help=True)

_LOOK_EVERY_S: Final = 0.2
_COLUMNS: Final = {
    "broker": "broker",
    "directory": "directory",
    "topic": "topic",
    "partition": "partition",
    "size": "size",
    "lag": "offset lag",
    "future": "future",
}


@app.command()
def describe(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Topics to show.", show_default="all"),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the log directories of every broker and the replicas in them.

    A replica that is being moved is listed in both directories; in the target directory it is a
    future replica, and its offset lag is what is left to copy.
    """
    with open_admin(bootstrap_server) as admin:
        if topics:
            admin.describe_topics(topics).get_all()  # one that is missing is no empty list
        found = _directories(admin)
    if as_json:
        print_json([_as_json(broker, each, topics) for broker, each in found])
        return
    for broker, each in found:
        _print_directory(broker, each)
    rows = [
        _row(broker, each.path, topic_partition, replica)
        for broker, each in found
        for topic_partition, replica in _shown(each, topics).items()
    ]
    print_rows(rows, _COLUMNS)


@app.command()
def move(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIRECTORY",
            help="A log directory of the broker, as `log-dirs describe` shows it.",
        ),
    ],
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", help="A partition.", show_default="all of the broker's"),
    ] = None,
    broker: Annotated[int, typer.Option(help="The broker whose replicas move.")] = 1,
    wait: Annotated[bool, typer.Option(help="Wait until the replicas have moved.")] = True,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move a topic's replicas to another log directory of their broker, while they stay in use."""
    with open_admin(bootstrap_server) as admin:
        own = [
            topic_partition
            for each in admin.describe_log_dirs([broker])[broker].get()
            for topic_partition, replica in each.replicas.items()
            if topic_partition.topic == topic and not replica.is_future
        ]
        wanted = own if partitions is None else [TopicPartition(topic, p) for p in partitions]
        if not wanted:
            raise CommandFailedError(f"broker {broker} has no replica of {topic}")
        moves = {(topic_partition, broker): directory for topic_partition in wanted}
        refused = admin.alter_replica_log_dirs(moves).errors
        for (topic_partition, _), error in refused.items():
            complain(f"{topic_partition} is not moved to {directory}: {sentence(error)}")
        begun = {
            topic_partition
            for topic_partition in wanted
            if (topic_partition, broker) not in refused
        }
        if wait:
            _wait(admin, broker, directory, begun)
    if refused:
        raise typer.Exit(FAILED)


def _wait(admin: Admin, broker: int, directory: str, moving: set[TopicPartition]) -> None:
    while True:
        there = {
            topic_partition
            for each in admin.describe_log_dirs([broker])[broker].get()
            if each.path == directory
            for topic_partition, replica in each.replicas.items()
            if not replica.is_future
        }
        if moving <= there:
            return
        time.sleep(_LOOK_EVERY_S)


def _directories(admin: Admin) -> list[tuple[int, LogDirectory]]:
    """Return every log directory of every live broker, with the broker's id."""
    brokers = sorted(admin.describe_log_dirs().get_all().items())
    return [(broker, each) for broker, directories in brokers for each in directories]


def _shown(
    directory: LogDirectory, topics: list[str] | None
) -> dict[TopicPartition, ReplicaOnDisk]:
    replicas = directory.replicas.items()
    return {
        topic_partition: each
        for topic_partition, each in replicas
        if not topics or topic_partition.topic in topics
    }


def _print_directory(broker: int, directory: LogDirectory) -> None:
    told = f"broker {broker}: {directory.path}"
    if directory.error is not None:
        complain(f"{told} is offline ({directory.error.error.name})")
    elif directory.is_cordoned:
        complain(f"{told} is cordoned")


def _row(broker: int, path: str, topic_partition: TopicPartition, replica: ReplicaOnDisk) -> Row:
    return {
        "broker": broker,
        "directory": path,
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "size": human_bytes(replica.size_bytes),
        "lag": replica.offset_lag,
        "future": replica.is_future,
    }


def _as_json(broker: int, directory: LogDirectory, topics: list[str] | None) -> dict[str, object]:
    return {
        "broker": broker,
        "directory": directory.path,
        "error": None if directory.error is None else directory.error.error.name,
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "is_cordoned": directory.is_cordoned,
        "replicas": [
            {
                "topic": topic_partition.topic,
                "partition": topic_partition.partition,
                "size_bytes": replica.size_bytes,
                "offset_lag": replica.offset_lag,
                "is_future": replica.is_future,
            }
            for topic_partition, replica in _shown(directory, topics).items()
        ],
    }
