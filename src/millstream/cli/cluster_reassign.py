"""`millstream cluster reassign`: plan where replicas go, show what it costs, and move them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Timeout,
    UsageError,
    bytes_per_second,
    open_admin,
)
from millstream.cli.cluster_mover import Mover
from millstream.cli.failures import FAILED, CommandFailedError, complain, sentence
from millstream.cli.output import (
    Row,
    counted,
    human_bytes,
    is_for_a_person,
    print_done,
    print_json,
    print_note,
    print_rows,
)
from millstream.client import Admin
from millstream.client.core.admin.replicas import Reassignment
from millstream.client.placement import (
    Placement,
    bytes_to_copy,
    bytes_to_receive,
    plan_placement,
)
from millstream.client.replicas import ClusterView, Replicas, view_cluster
from millstream.client.throttle import lift_throttle, plan_throttle, set_throttle
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition

_AT_ONCE: Final = 20

_Throttle: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="With --execute: maximum bytes per second from and to each broker, for example "
        "50MB/s. Replicas that are in sync are not limited. Removed at the end.",
    ),
]
_Verify: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Show moves in progress (exit code 1). If there are none, remove throttles that a"
        " move left behind, also those of kafka-reassign-partitions.",
    ),
]


def reassign(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Topics to move.", show_default="all"),
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option(
            metavar="ID,…",
            help="Brokers that hold the replicas afterwards.",
            show_default="all that are alive",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The new number of replicas.",
            show_default="as many as it has",
        ),
    ] = None,
    execute: Annotated[
        bool,
        typer.Option("--execute", help="Move the replicas; without this only the plan is shown."),
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel all moves in progress.")] = False,
    verify: _Verify = False,
    throttle: _Throttle = None,
    at_once: Annotated[
        int, typer.Option(min=1, help="Partitions that move at the same time.")
    ] = _AT_ONCE,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = None,
) -> None:
    """Spread replicas evenly over brokers: onto new ones, off those left out of --brokers."""
    if execute + cancel + verify > 1:
        raise UsageError("give one of --execute, --cancel and --verify")
    rate = None if throttle is None else bytes_per_second(throttle, "--throttle")
    with open_admin(bootstrap, timeout) as admin:
        if cancel:
            _cancel(admin)
            return
        if verify:
            _verify(admin, as_json=as_json)
            return
        view = view_cluster(admin)
        chosen = _chosen(view, topics)
        if brokers is None and replication_factor is None:
            chosen = _that_fit(chosen, len(view.brokers))
        plan, total = _plan(view, chosen, _ids(brokers, view), replication_factor)
        _show(view, plan, total, as_json=as_json)
        _tell_crowded(view, plan, refuses=execute)
        if not execute or not plan:
            if plan and not as_json:
                print_note("nothing was moved; --execute does it")
            return
        _execute(admin, view, plan, rate=rate, at_once=at_once)
    if not as_json:
        print_note(f"moved {counted(len(plan), 'partition')}, {human_bytes(total)} copied")


def _execute(
    admin: Admin, view: ClusterView, plan: Placement, *, rate: int | None, at_once: int
) -> None:
    """Move, under a limit if there is one, and lift it in the end.

    What was begun goes on without this process, so its limit stays when this one ends before.
    """
    present = {each.topic_partition: each.replicas for each in view.partitions}
    mover = Mover(admin, view, plan, at_once=at_once)
    limits = plan_throttle(present, plan)
    try:
        if rate is not None:
            set_throttle(admin, limits, rate)
        mover.run()
    except BaseException:
        if mover.begun:
            lifting = "" if rate is None else " and lifts the limit in the end"
            complain(
                "the moves in progress continue; millstream cluster reassign --verify looks "
                f"after them{lifting}"
            )
        elif rate is not None:
            lift_throttle(admin, limits.brokers, limits.leader_replicas)
        raise
    if rate is not None:
        lift_throttle(admin, limits.brokers, limits.leader_replicas)


def _ids(text: str | None, view: ClusterView) -> list[int]:
    if text is None:
        return sorted(view.brokers)
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise typer.BadParameter(f"{text!r} is not a list of broker ids", param_hint="--brokers")
    ids = [int(word) for word in words]
    for broker_id in ids:
        if broker_id not in view.brokers:
            raise CommandFailedError(f"there is no live broker {broker_id}")
    return ids


def _chosen(view: ClusterView, topics: Sequence[str] | None) -> list[Replicas]:
    known = {each.topic_partition.topic for each in view.partitions}
    for name in topics or ():
        if name not in known:
            raise CommandFailedError(f"there is no topic {name!r}")
    return [each for each in view.partitions if not topics or each.topic_partition.topic in topics]


def _that_fit(chosen: Sequence[Replicas], live: int) -> list[Replicas]:
    """Leave out, and tell of, partitions with more replicas than there are brokers alive. All of
    them, where none fits: what is planned with them says so.
    """
    fit = [each for each in chosen if len(each.replicas) <= live]
    if not fit or len(fit) == len(chosen):
        return list(chosen)
    topics = sorted({each.topic_partition.topic for each in chosen if len(each.replicas) > live})
    complain(
        f"left where they are, with more replicas than the {counted(live, 'broker')} alive can "
        f"keep: {', '.join(topics)} (--replication-factor {live} lowers them)"
    )
    return fit


def _tell_crowded(view: ClusterView, plan: Placement, *, refuses: bool) -> None:
    """Tell of brokers whose disks have no room for what they would get."""
    present = {each.topic_partition: each.replicas for each in view.partitions}
    sizes = {each.topic_partition: each.size_bytes for each in view.partitions}
    is_crowded = False
    for broker_id, size in sorted(bytes_to_receive(present, plan, sizes).items()):
        left = view.free_bytes.get(broker_id)
        if left is not None and size > left:
            is_crowded = True
            complain(
                f"broker {broker_id} would get {human_bytes(size)}, and its disks have "
                f"{human_bytes(left)} left"
            )
    if is_crowded and refuses:
        raise CommandFailedError("nothing was moved: there is no room for it")


def _plan(
    view: ClusterView,
    chosen: Sequence[Replicas],
    brokers: Sequence[int],
    replication_factor: int | None,
) -> tuple[Placement, int]:
    present = {each.topic_partition: each.replicas for each in chosen}
    racks = {broker_id: broker.rack for broker_id, broker in view.brokers.items()}
    try:
        plan = plan_placement(present, brokers, racks, replication_factor=replication_factor)
    except ValueError as error:
        more = "" if replication_factor else f"; --replication-factor {len(brokers)} lowers it"
        raise UsageError(f"{error}{more}") from None
    return plan, bytes_to_copy(
        present, plan, {each.topic_partition: each.size_bytes for each in chosen}
    )


def _show(view: ClusterView, plan: Placement, total: int, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(view, plan, total))
        return
    if not plan:
        print_note("nothing to move: the replicas are where they should be")
        return
    present = {each.topic_partition: each for each in view.partitions}
    print_rows(
        [
            {
                "topic": topic_partition.topic,
                "partition": topic_partition.partition,
                "from": list(present[topic_partition].replicas),
                "to": list(target),
                "bytes": present[topic_partition].size_bytes,
                "size": human_bytes(present[topic_partition].size_bytes),
            }
            for topic_partition, target in sorted(plan.items())
        ],
        {"topic": "topic", "partition": "partition", "from": "from", "to": "to"}
        | ({"size": "size"} if is_for_a_person() else {"bytes": "bytes"}),
    )
    if is_for_a_person():
        print(f"{counted(len(plan), 'partition')} to move, {human_bytes(total)} to copy")


def _as_json(view: ClusterView, plan: Placement, total: int) -> dict[str, object]:
    present = {each.topic_partition: each for each in view.partitions}
    return {
        "partitions": [
            {
                "topic": topic_partition.topic,
                "partition": topic_partition.partition,
                "from": list(present[topic_partition].replicas),
                "to": list(target),
                "bytes": present[topic_partition].size_bytes,
            }
            for topic_partition, target in sorted(plan.items())
        ],
        "bytes_to_copy": total,
    }


def _cancel(admin: Admin) -> None:
    moving = admin.list_partition_reassignments()
    outcomes = admin.alter_partition_reassignments(dict.fromkeys(moving))
    failed = False
    for topic_partition in sorted(outcomes):
        error = outcomes[topic_partition].error
        if error is None or error.error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
            told = f"canceled the move of {topic_partition}"
            print_done(told, "canceled", topic_partition.topic, topic_partition.partition)
        else:
            failed = True
            complain(f"{topic_partition}: {sentence(error)}")
    if not moving:
        print_note("nothing moves")
    if failed:
        raise typer.Exit(FAILED)
    _tell_lifted(_lift_all(admin))


def _verify(admin: Admin, *, as_json: bool) -> None:
    moving = sorted(admin.list_partition_reassignments().items())
    lifted = not moving and _lift_all(admin)
    if as_json:
        print_json({"moving": [_move_as_json(*each) for each in moving], "limits_lifted": lifted})
    elif moving:
        print_rows(
            [_move_row(*each) for each in moving],
            {
                "topic": "topic",
                "partition": "partition",
                "replicas": "replicas",
                "adding": "adding",
                "off": "removing",
            },
        )
        if is_for_a_person():
            print(f"{counted(len(moving), 'partition')} on the way to other brokers")
    else:
        print_note("nothing moves")
        _tell_lifted(lifted)
    if moving:
        raise typer.Exit(FAILED)


def _move_as_json(topic_partition: TopicPartition, move: Reassignment) -> dict[str, object]:
    return {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "replicas": list(move.replicas),
        "adding": list(move.adding),
        "removing": list(move.removing),
    }


def _move_row(topic_partition: TopicPartition, move: Reassignment) -> Row:
    return {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "replicas": list(move.replicas),
        "adding": list(move.adding),
        "off": list(move.removing),
    }


def _lift_all(admin: Admin) -> bool:
    """Lift what a reassignment that was interrupted has left, ours or that of Kafka's tool."""
    brokers = [each.broker_id for each in admin.describe_cluster().brokers]
    return lift_throttle(admin, brokers, admin.list_topics(include_internal=True))


def _tell_lifted(lifted: bool) -> None:
    if lifted:
        print_note("the limits on replication are lifted")
