"""`millstream ingest`: the lines of a file to records, as fast as they can be read."""

from __future__ import annotations

import itertools
import os
import stat
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedReader
from typing import Annotated, BinaryIO, Final

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    WAIT_MS,
    AsJson,
    Bootstrap,
    bootstrap_servers,
    open_admin,
)
from millstream.cli.client_options import settings_of
from millstream.cli.failures import CommandFailedError
from millstream.cli.interruption import ended_in_time
from millstream.cli.output import human_bytes, print_json
from millstream.cli.produce import Acks, Compression
from millstream.cli.progress import Progress
from millstream.client.core.admin.topics import NewTopic
from millstream.client.core.settings import ProducerSettings
from millstream.client.producer import Producer, RowsFuture
from millstream.model.errors import ErrorCode

SMALLEST_BATCH_BYTES: Final = 16 * 1024
LARGEST_BATCH_BYTES: Final = 512 * 1024
"""A file is cut into batches of these sizes: large ones cost less, and several per partition keep
the partitions even. Both stay under Kafka's default of `max.message.bytes`."""

_MOST_RECORDS: Final = LARGEST_BATCH_BYTES // 16
"""A record without key and headers takes up to 13 bytes besides its value, so short lines fill a
batch by their number."""

_LONGEST_LINE_BYTES: Final = 100 * 1024 * 1024

_MOST_ENCODED_BYTES: Final = 2 * LARGEST_BATCH_BYTES
"""What the lines of one batch take at most with the numbers of their records."""

_MOST_UNDER_WAY: Final = 64
"""Batches that may wait for their acknowledgement: reading is faster than many disks."""


def ingest(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file, or - for standard input.")],
    topic: Annotated[str, typer.Option("--topic", "-t", help="Where the lines go.")],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="Create the topic with so many if need be."),
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="Codec of the batches.")
    ] = Compression.NONE,
    acks: Annotated[Acks, typer.Option("--acks", help="Who must have a record.")] = Acks.ALL,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write every line of a file to a topic, in order, batch by batch to one partition after the
    other.

    A line ends at its line feed, which is not part of the record; all other bytes are.
    """
    with ExitStack() as stack:
        source = sys.stdin.buffer if file == "-" else stack.enter_context(open(file, "rb"))
        if partitions is not None:
            _create(bootstrap, NewTopic(topic, partitions))
        producer = stack.enter_context(open_sender(bootstrap, acks, compression))
        progress = stack.enter_context(Progress(total_bytes=_size(source)))
        started = time.monotonic()
        with ended_in_time(producer):
            ingest_lines(producer, source, topic, progress)
        elapsed = max(time.monotonic() - started, 1e-9)
    if as_json:
        print_json(
            {
                "topic": topic,
                "records": progress.records,
                "bytes": progress.bytes,
                "seconds": round(elapsed, 3),
            }
        )
    else:
        print(
            f"{progress.records:,} records, {human_bytes(progress.bytes)} in {elapsed:.2f} s: "
            f"{progress.records / elapsed:,.0f} records/s, "
            f"{human_bytes(progress.bytes / elapsed)}/s"
        )


def _create(bootstrap: str, topic: NewTopic) -> None:
    with open_admin(bootstrap) as admin:
        error = admin.create_topics([topic])[topic.name].error
    if error is not None and error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise error


def open_sender(bootstrap: str, acks: Acks, compression: Compression) -> Producer:
    """Return a producer for batches that are as large as those that a file is cut into."""
    return Producer(
        {
            "client.id": "millstream-cli",
            "acks": acks.value,
            "compression.type": compression.value,
            "batch.size": _MOST_ENCODED_BYTES,
            # A long line makes a large batch; what a broker takes is its own business.
            "max.request.size": 2 * _LONGEST_LINE_BYTES,
            "buffer.memory": 8 * _LONGEST_LINE_BYTES,
            "max.block.ms": WAIT_MS,
            **settings_of(ProducerSettings),
            "bootstrap.servers": bootstrap_servers(bootstrap),
        }
    )


def ingest_lines(producer: Producer, source: BinaryIO, topic: str, progress: Progress) -> None:
    """Send every line of ``source``; returns when the brokers have them."""
    partitions = [each.topic_partition.partition for each in producer.partitions_for(topic)]
    under_way: deque[RowsFuture] = deque()

    def settle(most: int) -> None:
        while len(under_way) > most or (under_way and under_way[0].done()):
            progress.add_records(under_way.popleft().result().rows)

    batches = read_batches(source, _batch_bytes(_size(source), len(partitions)))
    for partition, lines in zip(itertools.cycle(partitions), batches, strict=False):
        under_way.append(producer.send_values(lines, topic, partition=partition))
        progress.add_bytes(sum(map(len, lines)) + len(lines))
        settle(_MOST_UNDER_WAY)
    settle(0)


def read_batches(source: BinaryIO, batch_bytes: int) -> Iterator[list[bytes]]:
    """Yield lists of lines that fit into one batch each, as soon as they have come.

    A line longer than ``batch_bytes`` gets a batch of its own. CommandFailedError for one that no
    broker would take.
    """
    rest = b""
    while data := _read_some(source, batch_bytes):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _LONGEST_LINE_BYTES:
            raise CommandFailedError(f"a line is longer than {_LONGEST_LINE_BYTES} bytes")
        if lines and len(lines[0]) > batch_bytes:
            yield lines[:1]
            del lines[0]
        for first in range(0, len(lines), _MOST_RECORDS):
            yield lines[first : first + _MOST_RECORDS]
    if rest:
        yield [rest]


def _read_some(source: BinaryIO, size: int) -> bytes:
    """Return what a pipe has, or ``size`` bytes of a file; empty at the end."""
    return source.read1(size) if isinstance(source, BufferedReader) else source.read(size)


def _size(source: BinaryIO) -> int | None:
    """Return the bytes of a regular file, None for what has no size."""
    status = os.fstat(source.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _batch_bytes(size: int | None, partitions: int) -> int:
    if size is None:
        return LARGEST_BATCH_BYTES
    return min(max(size // (4 * partitions), SMALLEST_BATCH_BYTES), LARGEST_BATCH_BYTES)
