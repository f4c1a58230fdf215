"""`millstream consume`: print the records of a topic, as `kcat -C` does it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Final, TypeAlias

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    WAIT_MS,
    AsJson,
    Bootstrap,
    UsageError,
    bootstrap_servers,
    open_admin,
    timestamp_ms,
)
from millstream.cli.client_options import settings_of
from millstream.cli.consume_group import consume_group
from millstream.cli.consume_share import consume_share
from millstream.cli.failures import CommandFailedError
from millstream.cli.output import counted
from millstream.cli.record_text import (
    DECODE_HELP,
    FORMAT_HELP,
    Piece,
    as_json,
    compile_format,
)
from millstream.cli.waiting import Waiting
from millstream.client import Consumer
from millstream.client.core.consumer.errors import RecordError
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.records.record import Record

_WAIT_S: Final = 0.5
_POLL_RECORDS: Final = 10_000


_Offset: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--offset",
        "-o",
        help="Start at beginning, end, an offset, or -N: the last N of each partition.",
        show_default="beginning",
    ),
]
_Since: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Start at a time: 2026-01-31T12:00, @MILLISECONDS, or 15m ago."),
]
_Partition: TypeAlias = Annotated[
    list[int] | None, typer.Option("--partition", "-p", help="By default all; may be repeated.")
]
_Count: TypeAlias = Annotated[
    int | None, typer.Option("--count", "-c", min=1, help="Stop after this many records.")
]
_ExitAtEnd: TypeAlias = Annotated[
    bool, typer.Option("--exit", "-e", help="Stop at the current end.")
]
_ReadUncommitted: TypeAlias = Annotated[
    bool, typer.Option("--uncommitted", help="Also print records of open and aborted transactions.")
]
_Share: TypeAlias = Annotated[
    bool, typer.Option("--share", help="The group is a share group; needs --group.")
]
_Decode: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--decode", "-s", metavar="[key=|value=]FORMAT", help=DECODE_HELP),
]
_SchemaRegistry: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        metavar="URL|FILE",
        help="Schemas that records refer to by id, for -s: a registry or a file.",
    ),
]
_Group: TypeAlias = Annotated[
    str | None,
    typer.Option("--group", "-G", metavar="GROUP", help="Read as a member of this group."),
]


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    offset: _Offset = None,
    since: _Since = None,
    partition: _Partition = None,
    count: _Count = None,
    exit_at_end: _ExitAtEnd = False,
    layout: Annotated[str, typer.Option("--format", "-f", help=FORMAT_HELP)] = r"%s\n",
    record_as_json: AsJson = False,
    read_uncommitted: _ReadUncommitted = False,
    share: _Share = False,
    decode: _Decode = None,
    schema_registry: _SchemaRegistry = None,
    group: _Group = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of a topic and wait for more, until Ctrl-C, --exit or --count.

    With --group the partitions are shared with the other members of the group, and offsets are
    committed after their records are printed; --exit stops when the group has reached the ends of
    the partitions at the start. With --share each record goes to one member of the group, and is
    accepted after it is printed.
    """
    try:
        render = as_json if record_as_json else compile_format(layout)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None
    if decode:
        from millstream.cli.value_formats import decoders_of, decoding

        decoders = decoders_of(decode, schema_registry)
        render = decoding(decoders, render, as_json=record_as_json)
    if since is not None and offset is not None:
        raise UsageError("--since cannot be combined with --offset")
    if share and group is None:
        raise UsageError("--share needs --group")
    if group is not None:
        given = {
            "--offset": offset is not None,
            "--since": since is not None,
            "--partition": bool(partition),
            "--exit": exit_at_end and share,
            "--uncommitted": read_uncommitted,
        }
        _refuse(given, "--share" if share else "--group")
        if share:
            consume_share(bootstrap, topic, group, render=render, count=count)
        else:
            consume_group(
                bootstrap, topic, group, render=render, count=count, exit_at_end=exit_at_end
            )
        return
    topic_partitions = topic_partitions_of(bootstrap, topic, partition)
    with open_consumer(bootstrap, read_committed=not read_uncommitted) as consumer:
        ends = consumer.end_offsets(topic_partitions) if exit_at_end else None
        consumer.assign(topic_partitions)
        for topic_partition, start in starts_of(consumer, topic_partitions, offset, since).items():
            consumer.seek(topic_partition, start)
        try:
            with Waiting(consumer.unreachable):
                _print_records(read(consumer, topic_partitions, ends), render, count)
        except RecordError as error:
            beyond = f"-p {error.topic_partition.partition} -o {error.next_offset}"
            raise CommandFailedError(f"{error} ({beyond})") from error


def _refuse(given: Mapping[str, bool], mode: str) -> None:
    """Raise UsageError for an option that was given and that the group decides."""
    for name, is_given in given.items():
        if is_given:
            raise UsageError(f"{name} cannot be combined with {mode}: the group decides it")


def open_consumer(bootstrap: str, *, read_committed: bool) -> Consumer[bytes, bytes]:
    """Return a consumer without a group; an offset that is not there is an error."""
    return Consumer(
        {
            "client.id": "millstream-cli",
            "allow.auto.create.topics": False,
            "max.poll.records": _POLL_RECORDS,
            "default.api.timeout.ms": WAIT_MS,
            "request.timeout.ms": WAIT_MS,
            **settings_of(ConsumerSettings),
            "auto.offset.reset": "none",
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "bootstrap.servers": bootstrap_servers(bootstrap),
        }
    )


def topic_partitions_of(
    bootstrap: str, topic: str, wanted: list[int] | None = None
) -> list[TopicPartition]:
    """Return the partitions of a topic, all or those that are wanted."""
    with open_admin(bootstrap) as admin:
        partitions = admin.describe_topics([topic])[topic].get().partitions
    topic_partitions = [partition.topic_partition for partition in partitions]
    missing = sorted(
        set(wanted or ()) - {topic_partition.partition for topic_partition in topic_partitions}
    )
    if missing:
        raise CommandFailedError(
            f"topic {topic!r} has {counted(len(topic_partitions), 'partition')}, and no partition "
            f"{missing[0]}"
        )
    return [
        topic_partition
        for topic_partition in topic_partitions
        if not wanted or topic_partition.partition in wanted
    ]


def starts_of(
    consumer: Consumer[bytes, bytes],
    topic_partitions: list[TopicPartition],
    offset: str | None,
    since: str | None,
) -> dict[TopicPartition, Offset]:
    """Return the first offset to read of each partition."""
    if since is not None:
        moment = timestamp_ms(since, "--since", now_ms=int(time.time() * 1000))
        latest = consumer.end_offsets(topic_partitions)
        found = consumer.offsets_for_times(dict.fromkeys(topic_partitions, moment))
        return {
            topic_partition: latest[topic_partition] if each is None else each.offset
            for topic_partition, each in found.items()
        }
    if offset in (None, "beginning", "earliest"):
        return consumer.beginning_offsets(topic_partitions)
    if offset in ("end", "latest"):
        return consumer.end_offsets(topic_partitions)
    try:
        number = int(offset)
    except ValueError:
        raise typer.BadParameter(
            f"{offset!r} is not beginning, end, N or -N", param_hint="--offset"
        ) from None
    earliest = consumer.beginning_offsets(topic_partitions)
    latest = consumer.end_offsets(topic_partitions)
    if number >= 0:
        for topic_partition in topic_partitions:
            if not earliest[topic_partition] <= number <= latest[topic_partition]:
                raise CommandFailedError(
                    f"offset {number} is not in {topic_partition}: it begins at "
                    f"{earliest[topic_partition]}, and the next record gets "
                    f"{latest[topic_partition]} (-p chooses partitions)"
                )
        return dict.fromkeys(topic_partitions, number)
    return {
        topic_partition: max(earliest[topic_partition], latest[topic_partition] + number)
        for topic_partition in topic_partitions
    }


def read(
    consumer: Consumer[bytes, bytes],
    topic_partitions: Iterable[TopicPartition],
    ends: Mapping[TopicPartition, Offset] | None,
) -> Iterator[list[tuple[TopicPartition, Record]]]:
    """Yield records as they come; with ``ends`` only those before them, and then stop."""
    left = set(topic_partitions)
    while True:
        if ends is not None:
            done = {
                topic_partition
                for topic_partition in left
                if consumer.position(topic_partition) >= ends[topic_partition]
            }
            consumer.pause(*done)
            left -= done
        if not left:
            return
        yield [
            (
                topic_partition,
                Record(each.offset, each.timestamp, each.key, each.value, each.headers),
            )
            for each in consumer.poll(_WAIT_S)
            for topic_partition in (each.topic_partition,)
            if ends is None or each.offset < ends[topic_partition]
        ]


def _print_records(
    groups: Iterator[list[tuple[TopicPartition, Record]]], render: Piece, count: int | None
) -> None:
    output = sys.stdout.buffer
    remaining = count
    for records in groups:
        wanted = records[:remaining]
        output.write(
            b"".join(render(topic_partition, record) for topic_partition, record in wanted)
        )
        output.flush()
        if remaining is not None:
            remaining -= len(wanted)
            if not remaining:
                return
