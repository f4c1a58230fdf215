"""`millstream group`: groups of all kinds, their members and lag, and setting their offsets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    UsageError,
    bootstrap_servers,
    duration_ms,
    open_admin,
    timestamp_ms,
)
from millstream.cli.client_options import settings_of
from millstream.cli.failures import FAILED, CommandFailedError, complain, sentence
from millstream.cli.group_offsets import delete_offsets
from millstream.cli.output import (
    Row,
    counted,
    human_duration,
    is_for_a_person,
    print_done,
    print_json,
    print_rows,
)
from millstream.cli.partition_ends import offsets_at
from millstream.cli.share_group import (
    describe_share_group,
    find_share_group,
    print_share_description,
    share_starts,
)
from millstream.client import Admin, Consumer
from millstream.client.core.admin.group_descriptions import CLASSIC, GroupMember
from millstream.client.core.admin.offsets import EARLIEST, LATEST
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.lag import SMALL_FETCHES, PartitionLag, measure_lag
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

app = typer.Typer(help="Consumer groups and share groups.", no_args_is_help=True)
app.command("delete-offsets")(delete_offsets)

_TYPES: Final = ("classic", "consumer", "share", "streams")
_STATES: Final = (
    "Assigning",
    "CompletingRebalance",
    "Dead",
    "Empty",
    "NotReady",
    "PreparingRebalance",
    "Reconciling",
    "Stable",
)
"""Kinds and states of groups, as Apache Kafka 4.3 has them; brokers take them in any case."""

_HEADINGS: Final = {
    "topic": "topic",
    "partition": "partition",
    "committed": "committed",
    "end": "end",
    "lag": "lag",
    "lag_seconds": "lag s",
    "client_id": "client",
    "host": "host",
}

_SHARE_HEADINGS: Final = {each: each for each in ("topic", "partition", "start", "end", "lag")}

Names = Annotated[list[str], typer.Argument(metavar="GROUP", help="Names of groups.")]


@app.command("list")
def list_(
    states: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only groups in this state, for example Stable or Empty."),
    ] = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", help="Only groups of: classic, consumer, share.")
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """List groups, their states and kinds."""
    _check_words(states, _STATES, "--state")
    _check_words(types, _TYPES, "--type")
    with open_admin(bootstrap) as admin:
        found = admin.list_groups(states=states or (), types=types or ())
    rows: list[Row] = [
        {
            "group": each.group,
            "state": each.state,
            "type": each.type,
            "protocol_type": each.protocol_type,
        }
        for each in found
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, {"group": "group", "state": "state", "type": "type"})


def _check_words(words: Sequence[str] | None, known: Sequence[str], option: str) -> None:
    """Refuse a word that no group could match: brokers would answer with an empty list."""
    for word in words or ():
        if word.lower() not in {each.lower() for each in known}:
            raise typer.BadParameter(
                f"{word!r} is not one of {', '.join(known)}", param_hint=option
            )


@app.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", help="Names of groups.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All groups of the cluster.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show members, committed offsets and lag, in offsets and in seconds.

    The lag in seconds is the age of the oldest record that the group has not read. For groups whose
    coordinator assigns the partitions, the epochs and the current and target assignments are shown
    too.
    """
    if bool(names) == every:
        raise UsageError("name groups, or give --all")
    settings = {**SMALL_FETCHES, **settings_of(ConsumerSettings)}
    settings["bootstrap.servers"] = bootstrap_servers(bootstrap)
    with open_admin(bootstrap) as admin, Consumer[bytes, bytes](settings) as consumer:
        chosen = names or sorted(each.group for each in admin.list_groups())
        described = [_describe(admin, consumer, name) for name in chosen]
    if as_json:
        print_json(described)
        return
    for group in described:
        if not is_for_a_person():
            print_group_rows(group)
        elif group.get("type") == "share":
            print_share_description(group)
        else:
            _print_description(group)


def _describe(admin: Admin, consumer: Consumer[bytes, bytes], name: str) -> dict[str, object]:
    share_group = find_share_group(admin, name)
    if share_group is not None:
        return describe_share_group(admin, share_group)
    description = admin.describe_groups([name])[name].get()
    committed = admin.list_group_offsets([name])[name].get()
    owners = {
        topic_partition: member
        for member in description.members
        for topic_partition in member.partitions
    }
    if description.state == "Dead" and not committed:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, name)
    offsets = {topic_partition: at.offset for topic_partition, at in committed.items()}
    lags = measure_lag(admin, consumer, offsets, owners, now_ms=int(time.time() * 1000))
    return {
        "group": name,
        "type": description.type,
        "state": description.state,
        "group_epoch": description.group_epoch,
        "assignment_epoch": description.assignment_epoch,
        "assignor": description.assignor,
        "coordinator": description.coordinator,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "protocol": member.protocol,
                "epoch": member.member_epoch,
                "rack_id": member.rack_id,
                "topics": list(member.topics),
                "pattern": member.pattern,
                "partitions": [str(topic_partition) for topic_partition in member.partitions],
                "target": [str(topic_partition) for topic_partition in member.target],
            }
            for member in description.members
        ],
        "lag": sum(lag.lag or 0 for lag in lags),
        "lag_seconds": max((lag.lag_seconds or 0.0 for lag in lags), default=0.0),
        "partitions": [_lag_row(lag, owners.get(lag.topic_partition)) for lag in lags],
    }


def _lag_row(lag: PartitionLag, owner: GroupMember | None) -> Row:
    return {
        "topic": lag.topic_partition.topic,
        "partition": lag.topic_partition.partition,
        "committed": lag.committed,
        "end": lag.end,
        "lag": lag.lag,
        "lag_seconds": lag.lag_seconds,
        "client_id": None if owner is None else owner.client_id,
        "host": None if owner is None else owner.host,
        "member_id": None if owner is None else owner.member_id,
    }


def print_group_rows(group: dict[str, object]) -> None:
    """Print a row for each partition, with the group's name first."""
    rows = group["partitions"]
    assert isinstance(rows, list)
    is_share = group.get("type") == "share"
    columns = _SHARE_HEADINGS if is_share else {**_HEADINGS, "member_id": "member"}
    print_rows(
        [{"group": str(group["group"]), **row} for row in rows], {"group": "group"} | columns
    )


def _print_description(group: dict[str, object]) -> None:
    rows, members, seconds = group["partitions"], group["members"], group["lag_seconds"]
    assert isinstance(rows, list)
    assert isinstance(members, list)
    assert isinstance(seconds, float)
    print(
        f"group {group['group']}  {group['type']}  {group['state']}  "
        f"{counted(len(members), 'member')}  "
        f"lag {counted(int(str(group['lag'])), 'record')}, {human_duration(seconds)}"
    )
    if group["type"] != CLASSIC:
        print(
            f"epoch {group['group_epoch']}  assignment of epoch {group['assignment_epoch']}  "
            f"assignor {group['assignor'] or '-'}"
        )
        _print_members(members)
    print_rows(rows, _HEADINGS)


def _print_members(members: list[dict[str, Any]]) -> None:
    """Print what each member has, and where that differs, what it will have."""
    if not members:
        return
    rows: list[Row] = [
        {
            "member_id": member["member_id"],
            "instance_id": member["instance_id"],
            "protocol": member["protocol"],
            "epoch": member["epoch"],
            "has": _short(member["partitions"]),
            "will_have": "the same"
            if set(member["partitions"]) == set(member["target"])
            else _short(member["target"]),
        }
        for member in members
    ]
    headings = {
        "member_id": "member",
        "instance_id": "instance",
        "protocol": "protocol",
        "epoch": "epoch",
        "has": "has",
        "will_have": "will have",
    }
    print_rows(rows, headings)


def _short(partitions: list[str]) -> str:
    """Return partitions by topic: ``orders 0-3,7``."""
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topic, _, number = each.rpartition("-")
        topics.setdefault(topic, []).append(int(number))
    return "; ".join(f"{topic} {_ranges(sorted(topics[topic]))}" for topic in sorted(topics)) or "-"


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


@app.command("reset-offsets")
def reset_offsets(
    name: Annotated[str, typer.Argument(metavar="GROUP")],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="By default all topics that the group has read.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="earliest, latest, an offset, or a time as for --since."),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="Move forward by this many records; negative moves back.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(help="Move to what was written this long ago.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without this only the plan is shown.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set the offsets of a group without members, or the start offsets of a share group."""
    if sum(each is not None for each in (to, shift_by, by_duration)) != 1:
        raise UsageError("give one of --to, --shift-by and --by-duration")
    if by_duration is not None:
        to = f"@{int(time.time() * 1000) - duration_ms(by_duration, '--by-duration')}"
    with open_admin(bootstrap) as admin:
        shares = find_share_group(admin, name) is not None
        if shares:
            committed = share_starts(admin, name)
        else:
            found = admin.list_group_offsets([name])[name].get()
            committed = {topic_partition: at.offset for topic_partition, at in found.items()}
        topic_partitions = _partitions_to_reset(admin, topic, committed)
        planned = _plan(admin, topic_partitions, committed, to, shift_by)
        if execute and shares:
            admin.alter_share_group_offsets(name, planned).get_all()
        elif execute:
            admin.alter_group_offsets(name, planned).get_all()
    rows: list[Row] = [
        {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "from": committed.get(topic_partition),
            "to": planned[topic_partition],
        }
        for topic_partition in sorted(planned)
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows, {key: key for key in ("topic", "partition", "from", "to")})
    if not execute:
        complain("nothing was changed: this is the plan, add --execute to carry it out")


def _partitions_to_reset(
    admin: Admin, topics: list[str] | None, committed: dict[TopicPartition, Offset]
) -> list[TopicPartition]:
    if not topics:
        if not committed:
            raise CommandFailedError("the group has no offsets: name topics with --topic")
        return sorted(committed)
    topic_partitions: list[TopicPartition] = []
    for item in topics:
        name, colon, numbers = item.partition(":")
        partitions = admin.describe_topics([name])[name].get().partitions
        known = [partition.topic_partition for partition in partitions]
        if not colon:
            topic_partitions += known
            continue
        wanted = {
            TopicPartition(name, int(part)) for part in numbers.split(",") if part.isdecimal()
        }
        if not wanted or not wanted <= set(known):
            raise typer.BadParameter(
                f"{item!r}: topic {name!r} has partitions 0 to {len(known) - 1}",
                param_hint="--topic",
            )
        topic_partitions += sorted(wanted)
    return topic_partitions


def _plan(
    admin: Admin,
    topic_partitions: list[TopicPartition],
    committed: dict[TopicPartition, Offset],
    to: str | None,
    shift_by: int | None,
) -> dict[TopicPartition, Offset]:
    """Return the new offset of each partition, inside what its log holds."""
    earliest = offsets_at(admin, topic_partitions, EARLIEST)
    latest = offsets_at(admin, topic_partitions, LATEST)
    if shift_by is not None:
        missing = [
            str(topic_partition)
            for topic_partition in topic_partitions
            if topic_partition not in committed
        ]
        if missing:
            raise CommandFailedError(f"no committed offset to shift: {', '.join(missing)}")
        wanted = {
            topic_partition: committed[topic_partition] + shift_by
            for topic_partition in topic_partitions
        }
    elif to == "earliest":
        wanted = earliest
    elif to == "latest":
        wanted = latest
    elif to is not None and to.isdecimal():
        wanted = dict.fromkeys(topic_partitions, int(to))
    else:
        moment = timestamp_ms(to or "", "--to", now_ms=int(time.time() * 1000))
        found = admin.list_offsets(dict.fromkeys(topic_partitions, moment)).get_all()
        wanted = {
            topic_partition: latest[topic_partition] if each is None else each.offset
            for topic_partition, each in found.items()
        }
    planned = {
        topic_partition: min(
            max(wanted[topic_partition], earliest[topic_partition]), latest[topic_partition]
        )
        for topic_partition in topic_partitions
    }
    for each in sorted(planned):
        if planned[each] != wanted[each]:
            complain(
                f"{each} begins at {earliest[each]:,} and ends at {latest[each]:,}: "
                f"{planned[each]:,} is taken for {wanted[each]:,}"
            )
    return planned


@app.command()
def delete(names: Names, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Delete groups that have no members, with their offsets."""
    with open_admin(bootstrap) as admin:
        outcomes = admin.delete_groups(names)
    for name, outcome in outcomes.items():
        if outcome.error is None:
            print_done(f"deleted group {name}", "deleted", "group", name)
        else:
            complain(sentence(outcome.error))
    if outcomes.errors:
        raise typer.Exit(FAILED)
