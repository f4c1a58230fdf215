"""`millstream consume`: print the records of a topic, as `kcat -C` does it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import typer

from millstream.cli.arguments import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, connect, timestamp_ms
from millstream.cli.failures import CommandFailedError
from millstream.cli.record_text import FORMAT_HELP, Piece, as_json, compile_format
from millstream.client.cluster import Cluster, partitions_of
from millstream.client.fetch import Fetched, Fetcher, FetchSettings
from millstream.client.offsets import EARLIEST, LATEST, end_offsets, find_offsets
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.records.record import Record, iter_records

_WAIT_MS: Final = 500


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    offset: Annotated[
        str,
        typer.Option(
            "--offset",
            "-o",
            help="Start at beginning, end, an offset, or -N: the last N of each partition.",
        ),
    ] = "beginning",
    since: Annotated[
        str | None,
        typer.Option(help="Start at a time: 2026-01-31T12:00, @MILLISECONDS, or 15m ago."),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="By default all; may be repeated.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=1, help="Stop after so many records.")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit", "-e", help="Stop at what is the end now.")
    ] = False,
    layout: Annotated[str, typer.Option("--format", "-f", help=FORMAT_HELP)] = r"%s\n",
    record_as_json: AsJson = False,
    read_uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Records of open and aborted transactions too.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of a topic and wait for more, until Ctrl-C, --exit or --count."""
    try:
        render = as_json if record_as_json else compile_format(layout)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--format") from None
    with connect(bootstrap) as cluster:
        places = _places(cluster, topic, partition)
        ends = (
            end_offsets(cluster, places, which=LATEST, read_committed=not read_uncommitted)
            if exit_at_end
            else None
        )
        starts = _starts(cluster, places, offset, since)
        settings = FetchSettings(max_wait_ms=_WAIT_MS, read_committed=not read_uncommitted)
        fetcher = Fetcher(cluster, starts, settings)
        try:
            _print_records(read(fetcher, ends), render, count)
        finally:
            fetcher.close()


def _places(cluster: Cluster, topic: str, wanted: list[int] | None) -> list[TopicPartition]:
    places = partitions_of([cluster.topic(topic)])
    missing = sorted(set(wanted or ()) - {place.partition for place in places})
    if missing:
        raise CommandFailedError(
            f"topic {topic!r} has {len(places)} partitions, no partition {missing[0]}"
        )
    return [place for place in places if not wanted or place.partition in wanted]


def _starts(
    cluster: Cluster, places: list[TopicPartition], offset: str, since: str | None
) -> dict[TopicPartition, Offset]:
    """Return the first offset to read of each partition."""
    if since is not None:
        moment = timestamp_ms(since, "--since", now_ms=int(time.time() * 1000))
        latest = end_offsets(cluster, places, which=LATEST)
        found = find_offsets(cluster, dict.fromkeys(places, moment))
        return {
            place: latest[place] if each is None else each.offset for place, each in found.items()
        }
    if offset in ("beginning", "earliest"):
        return end_offsets(cluster, places, which=EARLIEST)
    if offset in ("end", "latest"):
        return end_offsets(cluster, places, which=LATEST)
    try:
        number = int(offset)
    except ValueError:
        raise typer.BadParameter(
            f"{offset!r} is none of beginning, end, N and -N", param_hint="--offset"
        ) from None
    if number >= 0:
        return dict.fromkeys(places, number)
    earliest = end_offsets(cluster, places, which=EARLIEST)
    latest = end_offsets(cluster, places, which=LATEST)
    return {place: max(earliest[place], latest[place] + number) for place in places}


def read(
    fetcher: Fetcher, ends: Mapping[TopicPartition, Offset] | None
) -> Iterator[list[tuple[TopicPartition, Record]]]:
    """Yield records as they come; with ``ends`` only those before them, and then stop."""
    while True:
        if ends is not None:
            for place in [p for p, at in fetcher.positions.items() if at >= ends[p]]:
                del fetcher.positions[place]
        if not fetcher.positions:
            return
        yield [
            (fetched.topic_partition, record)
            for fetched in fetcher.poll()
            for record in _records(fetched, None if ends is None else ends[fetched.topic_partition])
        ]


def _records(fetched: Fetched, end: Offset | None) -> Iterator[Record]:
    """Yield the records from the offset asked for up to ``end``: batches may hold others too."""
    for batch in fetched.batches():
        for record in iter_records(batch):
            if record.offset >= fetched.fetch_offset and (end is None or record.offset < end):
                yield record


def _print_records(
    groups: Iterator[list[tuple[TopicPartition, Record]]], render: Piece, count: int | None
) -> None:
    output = sys.stdout.buffer
    remaining = count
    for records in groups:
        wanted = records[:remaining]
        output.write(b"".join(render(place, record) for place, record in wanted))
        output.flush()
        if remaining is not None:
            remaining -= len(wanted)
            if not remaining:
                return
