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
    UsageError,
    connect,
)
from millstream.cli.failures import FAILED, complain
from millstream.cli.output import Row, human_bytes, print_json, print_rows
from millstream.client.cluster import Cluster
from millstream.client.log_dirs import (
    DirectoryOnDisk,
    ReplicaOnDisk,
    describe_directories,
    move_replicas,
)
from millstream.model.errors import ErrorCode
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

    A replica that moves stands in both directories; in the one that it moves to it is a future
    one, and its offset lag is what is still to be copied.
    """
    with connect(bootstrap_server) as cluster:
        found = describe_directories(cluster)
    if as_json:
        print_json([_as_json(each, topics) for each in found])
        return
    for each in found:
        _print_directory(each)
    rows = [_row(replica) for each in found for replica in _shown(each, topics)]
    print_rows(rows, _COLUMNS)


@app.command()
def move(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    directory: Annotated[
        str, typer.Argument(metavar="DIRECTORY", help="A log directory of the broker, as it says.")
    ],
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", help="A partition.", show_default="all of the broker's"),
    ] = None,
    broker: Annotated[int, typer.Option(help="The broker whose replicas move.")] = 1,
    wait: Annotated[bool, typer.Option(help="Return when the replicas are there.")] = True,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move a topic's replicas to another log directory of their broker, while they are used."""
    with connect(bootstrap_server) as cluster:
        own = [
            replica.topic_partition
            for each in describe_directories(cluster)
            if each.broker_id == broker
            for replica in each.replicas
            if replica.topic_partition.topic == topic and not replica.is_future
        ]
        wanted = own if partitions is None else [TopicPartition(topic, p) for p in partitions]
        if not wanted:
            raise UsageError(f"broker {broker} has no replica of {topic}")
        results = move_replicas(cluster, broker, directory, wanted)
        refused = {each: error for each, error in results.items() if error is not ErrorCode.NONE}
        for topic_partition, error in refused.items():
            complain(f"{topic_partition} is not moved: {error.name}")
        begun = set(wanted) - set(refused)
        if wait:
            _wait(cluster, broker, directory, begun)
    if refused:
        raise typer.Exit(FAILED)


def _wait(cluster: Cluster, broker: int, directory: str, moving: set[TopicPartition]) -> None:
    while True:
        there = {
            replica.topic_partition
            for each in describe_directories(cluster)
            if each.broker_id == broker and each.path == directory
            for replica in each.replicas
            if not replica.is_future
        }
        if moving <= there:
            return
        time.sleep(_LOOK_EVERY_S)


def _shown(directory: DirectoryOnDisk, topics: list[str] | None) -> list[ReplicaOnDisk]:
    return [
        replica
        for replica in directory.replicas
        if not topics or replica.topic_partition.topic in topics
    ]


def _print_directory(directory: DirectoryOnDisk) -> None:
    told = f"broker {directory.broker_id}: {directory.path}"
    if directory.error is not ErrorCode.NONE:
        complain(f"{told} is offline ({directory.error.name})")
    elif directory.is_cordoned:
        complain(f"{told} is cordoned")


def _row(replica: ReplicaOnDisk) -> Row:
    return {
        "broker": replica.broker_id,
        "directory": replica.directory,
        "topic": replica.topic_partition.topic,
        "partition": replica.topic_partition.partition,
        "size": human_bytes(replica.size_bytes),
        "lag": replica.offset_lag,
        "future": replica.is_future,
    }


def _as_json(directory: DirectoryOnDisk, topics: list[str] | None) -> dict[str, object]:
    return {
        "broker": directory.broker_id,
        "directory": directory.path,
        "error": None if directory.error is ErrorCode.NONE else directory.error.name,
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "is_cordoned": directory.is_cordoned,
        "replicas": [
            {
                "topic": replica.topic_partition.topic,
                "partition": replica.topic_partition.partition,
                "size_bytes": replica.size_bytes,
                "offset_lag": replica.offset_lag,
                "is_future": replica.is_future,
            }
            for replica in _shown(directory, topics)
        ],
    }
