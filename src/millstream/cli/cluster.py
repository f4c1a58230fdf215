"""`millstream cluster`: run a cluster here, look at one, move its leaders and replicas."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

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
from millstream.cli.cluster_api_versions import api_versions
from millstream.cli.cluster_features import app as features
from millstream.cli.cluster_reassign import reassign
from millstream.cli.failures import FAILED, complain, sentence
from millstream.cli.named_partitions import named_partitions
from millstream.cli.output import (
    counted,
    human_bytes,
    is_for_a_person,
    print_done,
    print_json,
    print_note,
    print_rows,
)
from millstream.client import Admin
from millstream.client.core.admin.replicas import ElectionType
from millstream.client.doctor import Severity, diagnose
from millstream.client.replicas import ClusterView, Replicas, view_cluster
from millstream.client.throttle import limited_brokers
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition

app = typer.Typer(
    help="Clusters: start, describe, elect-leaders, reassign, doctor, features, api-versions, "
    "migrate-metadata.",
    no_args_is_help=True,
)
app.command()(reassign)
app.command("api-versions")(api_versions)
app.add_typer(features, name="features")

_CONTROLLER_TIMEOUT: Final = "5s"
"""How long the doctor waits for one to become the controller."""

_SIGNS = {Severity.BROKEN: "broken", Severity.RISK: "at risk", Severity.NOTE: "note"}


@app.command()
def start(
    brokers: Annotated[int, typer.Option(min=1, max=99, help="Brokers.")] = 3,
    directory: Annotated[Path, typer.Option("--dir", help="Directory for all data.")] = Path(
        "millstream-cluster"
    ),
    port: Annotated[
        int,
        typer.Option(help="Port of the first broker, the others follow; 0 lets the system pick."),
    ] = 9092,
    settings: Configs = None,
    zookeeper: Annotated[
        bool,
        typer.Option(
            "--zookeeper", help="Keep the metadata in ZooKeeper, which needs Java and PySpark."
        ),
    ] = False,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Restart a broker that exits, up to three times in five minutes. Without this the"
            " command reports the exit, and how to restart the broker.",
        ),
    ] = False,
) -> None:
    """Run brokers on this machine, with a keeper for their metadata, until Ctrl-C or SIGTERM.

    The first line of output is the address for clients. Data stays in the directory for the next
    start.
    """
    from millstream.cli.cluster_site import ClusterSite
    from millstream.cli.cluster_store import store_in
    from millstream.cli.zookeeper import stop_on_signal

    stopped = stop_on_signal()
    site = ClusterSite(
        directory,
        store_in(directory, zookeeper=zookeeper),
        size=brokers,
        first_port=port,
        settings=key_values(settings, "--config"),
        restarts=restart,
    )
    with site:
        print(f"millstream cluster listening on {site.bootstrap}, data in {directory}", flush=True)
        print(f"another broker joins with: {site.joining}", flush=True)
        while not stopped.wait(0.5):
            for happened in site.look_after():
                complain(happened)


@app.command("migrate-metadata")
def migrate_metadata(
    directory: Annotated[
        Path,
        typer.Option("--dir", help="Data directory of serve --brokers or of cluster start."),
    ],
    zookeeper: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT,…/CHROOT", help="The ensemble, with an empty chroot of its own."
        ),
    ],
) -> None:
    """Move the metadata of a cluster from its keeper to a ZooKeeper, with the brokers stopped.

    Topics, settings, rules, users and quotas are copied and compared. The last lines of output show
    how to start the brokers afterwards; brokers on other machines can then join.
    """
    from millstream.cli.cluster_store import KEEPER_DIRECTORY
    from millstream.cli.metadata_migration import log_directory_of, migrate

    is_site = (directory / KEEPER_DIRECTORY).is_dir()
    moved = migrate(directory / KEEPER_DIRECTORY if is_site else directory, zookeeper, complain)
    print_note(f"{counted(moved.nodes, 'node')} copied to {zookeeper} and compared")
    print_note("start the brokers without --brokers and metadata.keeper.socket, each by itself:")
    for broker_id in moved.brokers:
        place = log_directory_of(directory, broker_id, moved.brokers[0], is_site=is_site)
        print(
            f"millstream serve --data-dir {shlex.quote(str(place))} --override "
            f"{shlex.quote(f'zookeeper.connect={zookeeper}')} --override broker.id={broker_id} "
            "--port PORT"
        )


@app.command()
def describe(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = None, as_json: AsJson = False
) -> None:
    """Show the controller, the brokers, and partitions that are not fully replicated."""
    with open_admin(bootstrap, timeout) as admin:
        view = view_cluster(admin)
    if as_json:
        print_json(_as_json(view))
        return
    short = [each for each in view.partitions if len(each.isr) < len(each.replicas)]
    controller = view.controller_id if view.controller_id in view.brokers else "none"
    known = {each for partition in view.partitions for each in partition.replicas}
    everybody = {**dict.fromkeys(known), **view.brokers}
    brokers = counted(len(view.brokers), "broker")
    if is_for_a_person():
        print(f"cluster {view.cluster_id}  controller {controller}  {brokers}")
    print_rows(
        [
            {
                "broker": broker_id,
                "address": "down" if broker is None else str(broker.address),
                "rack": None if broker is None else broker.rack,
                "leads": sum(each.leader == broker_id for each in view.partitions),
                "keeps": sum(broker_id in each.replicas for each in view.partitions),
                "in_sync": sum(broker_id in each.isr for each in view.partitions),
                "size": human_bytes(
                    sum(each.size_bytes for each in view.partitions if broker_id in each.replicas)
                ),
            }
            for broker_id, broker in sorted(everybody.items())
        ],
        {
            "broker": "broker",
            "address": "address",
            "rack": "rack",
            "leads": "leads",
            "keeps": "replicas",
            "in_sync": "in sync",
            "size": "size",
        },
    )
    if is_for_a_person():
        print(f"{counted(len(view.partitions), 'partition')}, {len(short)} under-replicated")
    if short and is_for_a_person():
        print_rows([_row(each) for each in short], _COLUMNS)


_COLUMNS = {
    "partition": "partition",
    "leader": "leader",
    "replicas": "replicas",
    "isr": "isr",
    "elr": "elr",
    "lag": "lag",
}


def _row(partition: Replicas) -> dict[str, str | int | list[int] | None]:
    lag = ", ".join(
        f"{broker}: {count:,}"
        for broker, count in sorted(partition.lag.items())
        if count or broker not in partition.isr
    )
    return {
        "partition": str(partition.topic_partition),
        "leader": partition.leader if partition.leader >= 0 else None,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.elr),
        "lag": lag or None,
    }


def _as_json(view: ClusterView) -> dict[str, object]:
    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller_id,
        "brokers": [
            {"id": broker_id, "address": str(broker.address), "rack": broker.rack}
            for broker_id, broker in sorted(view.brokers.items())
        ],
        "partitions": [
            {
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "elr": list(each.elr),
                "last_known_elr": list(each.last_known_elr),
                "min_insync_replicas": each.min_insync_replicas,
                "lag": {str(broker): count for broker, count in sorted(each.lag.items())},
                "bytes": each.size_bytes,
            }
            for each in view.partitions
        ],
    }


@app.command("elect-leaders")
def elect(
    topic_partitions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC[:PARTITION]",
            help="The topics or partitions.",
            show_default="all that need an election",
        ),
    ] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="For partitions without a leader: elect the replica with the longest log; records"
            " may be lost.",
        ),
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Elect the preferred replicas as leaders, or elect leaders for partitions without one."""
    if unclean and not topic_partitions:
        raise UsageError("--unclean may lose records: name the topics or partitions")
    with open_admin(bootstrap, timeout) as admin:
        wanted = named_partitions(admin, topic_partitions) if topic_partitions else None
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        elected = admin.elect_leaders(wanted, election_type=kind)
    outcomes = {topic_partition: each.error for topic_partition, each in elected.items()}
    refused = {
        topic_partition: error
        for topic_partition, error in outcomes.items()
        if error is not None and error.error is not ErrorCode.ELECTION_NOT_NEEDED
    }
    if as_json:
        print_json(
            [
                _election(topic_partition, error)
                for topic_partition, error in sorted(outcomes.items())
            ]
        )
    else:
        _tell_elections(outcomes)
    for topic_partition, error in sorted(refused.items()):
        complain(f"{topic_partition}: {sentence(error)}")
    if refused:
        raise typer.Exit(FAILED)


def _tell_elections(outcomes: Mapping[TopicPartition, KafkaError | None]) -> None:
    for topic_partition, error in sorted(outcomes.items()):
        if error is None:
            _tell_election(f"elected a leader of {topic_partition}", topic_partition, "elected")
        elif error.error is ErrorCode.ELECTION_NOT_NEEDED:
            _tell_election(f"{topic_partition} needs no election", topic_partition, "not needed")
    if not outcomes:
        print_note("every partition that can be is led by its preferred replica")


def _tell_election(told: str, topic_partition: TopicPartition, outcome: str) -> None:
    print_done(told, topic_partition.topic, topic_partition.partition, outcome)


def _election(topic_partition: TopicPartition, error: KafkaError | None) -> dict[str, object]:
    return {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "error": None if error is None else error.error.name,
    }


@app.command()
def doctor(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = None, as_json: AsJson = False
) -> None:
    """Report which partitions are at risk, and why.

    The exit code is 1 if something is broken now.
    """
    with open_admin(bootstrap, timeout) as admin:
        view = view_cluster(admin)
        limited = limited_brokers(admin, view.brokers)
    with open_admin(bootstrap, timeout or _CONTROLLER_TIMEOUT) as admin:
        moves = _moves(admin)
    findings = diagnose(view, moves, limited)
    if as_json:
        print_json([{"severity": _SIGNS[e.severity], "sentence": e.sentence} for e in findings])
    else:
        for each in findings:
            sign = _SIGNS[each.severity]
            print_done(f"{sign}: {each.sentence}", sign, each.sentence)
        if not findings:
            print_note(
                f"All is well: {counted(len(view.partitions), 'partition')} on "
                f"{counted(len(view.brokers), 'broker')}, "
                "all replicas in sync."
            )
    if any(each.severity is Severity.BROKEN for each in findings):
        raise typer.Exit(FAILED)


def _moves(admin: Admin) -> Iterable[TopicPartition] | None:
    """Return the partitions that are moving; None when no controller answers."""
    try:
        return admin.list_partition_reassignments()
    except KafkaError as error:
        if error.error is ErrorCode.NOT_CONTROLLER:
            return None
        raise
