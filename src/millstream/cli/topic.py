"""`millstream topic`: create, list, describe, alter, delete, offsets, analyze, delete-records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeVar

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Configs,
    Timeout,
    UsageError,
    key_values,
    open_admin,
)
from millstream.cli.failures import FAILED, complain, sentence
from millstream.cli.output import (
    Row,
    counted,
    human_bytes,
    is_for_a_person,
    print_done,
    print_json,
    print_rows,
)
from millstream.cli.partition_ends import offsets_at
from millstream.cli.replica_count import change_replication_factor
from millstream.cli.setting_names import refuse_unknown_settings
from millstream.cli.topic_analyze import analyze
from millstream.cli.topic_records import delete_records, offsets
from millstream.client import Admin
from millstream.client.core.admin.configs import (
    Change,
    Operation,
    Resource,
    ResourceType,
    Source,
)
from millstream.client.core.admin.offsets import EARLIEST, LATEST
from millstream.client.core.admin.outcome import Outcome
from millstream.client.core.admin.topics import BROKER_DEFAULT, NewTopic
from millstream.client.metadata import Topic
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import topic_id_to_text

T = TypeVar("T")

app = typer.Typer(
    help="Topics: create, list, describe, alter, delete; offsets, analyze, delete-records.",
    no_args_is_help=True,
)
app.command("offsets")(offsets)
app.command()(analyze)
app.command("delete-records")(delete_records)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")]


@app.command()
def create(
    names: Names,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            help="Number of partitions; by default num.partitions.",
            show_default=False,
        ),
    ] = BROKER_DEFAULT,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            help="Number of replicas; by default default.replication.factor.",
            show_default=False,
        ),
    ] = BROKER_DEFAULT,
    settings: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Create topics."""
    configs = key_values(settings, "--config")
    wanted = [NewTopic(name, partitions, replication_factor, configs) for name in names]
    tolerated = {ErrorCode.TOPIC_ALREADY_EXISTS} if if_not_exists else set()
    with open_admin(bootstrap, timeout) as admin:
        outcomes = admin.create_topics(wanted)
    _report(outcomes, "created", tolerated)


_INTERNAL: Final = "__"
"""How the names of topics begin that programs keep for themselves."""


@app.command("list")
def list_(
    internal: Annotated[
        bool,
        typer.Option("--internal", help="Also list internal topics (__NAME)."),
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """List topics."""
    with open_admin(bootstrap, timeout) as admin:
        names = admin.list_topics(include_internal=internal)
        if not internal:
            names = [each for each in names if not each.startswith(_INTERNAL)]
        # A topic may be deleted in between.
        found = [each.value for each in admin.describe_topics(names).values() if each.value]
    rows: list[Row] = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": topic.replication_factor,
            "topic_id": topic_id_to_text(topic.topic_id),
        }
        for topic in found
    ]
    if as_json:
        print_json(rows)
    else:
        headings = {
            "topic": "topic",
            "partitions": "partitions",
            "replication_factor": "replicas",
            "topic_id": "id",
        }
        print_rows(rows, headings)


@app.command()
def describe(
    names: Names,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Show partitions, leaders, offsets, sizes and settings of topics."""
    with open_admin(bootstrap, timeout) as admin:
        found = admin.describe_topics(names).get_all()
        described = [_describe(admin, found[name]) for name in names]
    if as_json:
        print_json(described)
        return
    for topic in described:
        _print_description(topic)


def _describe(admin: Admin, topic: Topic) -> dict[str, object]:
    topic_partitions = [partition.topic_partition for partition in topic.partitions]
    earliest = offsets_at(admin, topic_partitions, EARLIEST)
    latest = offsets_at(admin, topic_partitions, LATEST)
    sizes = {
        (topic_partition, broker_id): replica.size_bytes
        for broker_id, directories in admin.describe_log_dirs(topic_partitions=topic_partitions)
        .get_all()
        .items()
        for directory in directories
        for topic_partition, replica in directory.replicas.items()
    }
    resource = Resource(ResourceType.TOPIC, topic.name)
    settings = admin.describe_configs([resource])[resource].get()
    return {
        "topic": topic.name,
        "topic_id": topic_id_to_text(topic.topic_id),
        "internal": topic.is_internal,
        "configs": {
            setting.name: setting.value for setting in settings if setting.source is Source.TOPIC
        },
        "partitions": [
            {
                "partition": topic_partition.partition,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "earliest": earliest[topic_partition],
                "latest": latest[topic_partition],
                "bytes": sizes.get((topic_partition, partition.leader)),
            }
            for partition in topic.partitions
            for topic_partition in (partition.topic_partition,)
        ],
    }


def _print_description(described: dict[str, object]) -> None:
    rows = described["partitions"]
    configs = described["configs"]
    assert isinstance(rows, list)
    assert isinstance(configs, dict)
    headings = {key: key.replace("_", " ") for key in rows[0]}
    if not is_for_a_person():
        named = [{"topic": str(described["topic"]), **row} for row in rows]
        print_rows(named, {"topic": "topic"} | headings)
        return
    total = sum(row["bytes"] or 0 for row in rows)
    print(
        f"topic {described['topic']}  id {described['topic_id']}  "
        f"{counted(len(rows), 'partition')}  "
        f"{human_bytes(total)}"
    )
    for name, value in configs.items():
        print(f"  {name}={value}")
    print_rows(rows, headings)


@app.command()
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The new, larger number of partitions.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            help="The new number of replicas; waits until they are in sync.",
        ),
    ] = None,
    settings: Configs = None,
    delete_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Setting to unset; may be repeated.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Change a topic's number of partitions, number of replicas or settings."""
    values = key_values(settings, "--config")
    if partitions is None and replication_factor is None and not values and not delete_config:
        raise UsageError(
            "nothing to alter: give --partitions, --replication-factor, --config or --delete-config"
        )
    changes = [Change(key, value) for key, value in values.items()]
    changes += [Change(key, None, Operation.DELETE) for key in delete_config or ()]
    topic = Resource(ResourceType.TOPIC, name)
    with open_admin(bootstrap, timeout) as admin:
        if delete_config:
            refuse_unknown_settings(admin, topic, delete_config)
        if changes:
            admin.incremental_alter_configs({topic: changes}).get_all()
        if partitions is not None:
            admin.create_partitions({name: partitions}).get_all()
        if replication_factor is not None:
            change_replication_factor(admin, name, replication_factor)
    print_done(f"altered topic {name}", "altered", "topic", name)


@app.command()
def delete(
    names: Names,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do nothing if the topic does not exist.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Delete topics and everything in them."""
    tolerated = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if if_exists else set()
    with open_admin(bootstrap, timeout) as admin:
        outcomes = admin.delete_topics(names)
    _report(outcomes, "deleted", tolerated)


def _report(outcomes: Mapping[str, Outcome[T]], done: str, tolerated: set[ErrorCode]) -> None:
    """Print a line for each topic; exit with 1 when one of them failed."""
    failed = False
    for name, outcome in outcomes.items():
        error = outcome.error
        if error is None:
            print_done(f"{done} topic {name}", done, "topic", name)
        elif error.error not in tolerated:
            failed = True
            complain(_topic_sentence(name, error))
    if failed:
        raise typer.Exit(FAILED)


def _topic_sentence(name: str, error: KafkaError) -> str:
    if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"there is no topic {name!r}"
    if error.error is ErrorCode.TOPIC_ALREADY_EXISTS:
        return f"topic {name!r} already exists"
    return sentence(error)
