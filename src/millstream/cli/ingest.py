"""`millstream ingest`: the lines of a file to records, as fast as they can be read."""

from __future__ import annotations

import hashlib
import itertools
import shlex
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeAlias, cast

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    WAIT_MS,
    AsJson,
    Bootstrap,
    UsageError,
    bootstrap_servers,
    open_admin,
)
from millstream.cli.client_options import names_on_command_line, settings_of
from millstream.cli.failures import CommandFailedError, complain, sentence
from millstream.cli.ingest_batches import (
    LARGEST_BATCH_BYTES,
    LONGEST_LINE_BYTES,
    batch_bytes_for,
    read_batches,
)
from millstream.cli.ingest_files import Source, files_of, open_source, total_bytes
from millstream.cli.ingest_once import Job, ingest_once
from millstream.cli.ingest_positions import create_positions_topic
from millstream.cli.interruption import ended_in_time
from millstream.cli.line_limits import LineGate, OnError, limits_of
from millstream.cli.output import Row, counted, human_bytes, is_for_a_person, print_json, print_rows
from millstream.cli.produce import Acks, Compression
from millstream.cli.progress import Progress
from millstream.cli.waiting import Waiting
from millstream.client.core.admin.topics import NewTopic
from millstream.client.core.settings import ProducerSettings
from millstream.client.producer import Producer
from millstream.client.producer_futures import RowsFuture
from millstream.model.errors import ErrorCode, MillstreamError

_MOST_ENCODED_BYTES: Final = 2 * LARGEST_BATCH_BYTES
"""What the lines of one batch take at most with the numbers of their records."""

_REQUEST_BYTES: Final = 2 * LONGEST_LINE_BYTES
"""A long line makes a large batch; what a broker takes is its own business."""

_MOST_UNDER_WAY: Final = 64
"""Batches that may wait for their acknowledgement: reading is faster than many disks."""

_TRANSACTIONS_WAIT_MS: Final = 60_000

_STANDARD_INPUT: Final = "standard input"


_Files: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="Files, directories, or - for standard input. Those that end in .gz or .zst are "
        "decompressed.",
    ),
]
_Partitions: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        "-p",
        min=1,
        help="Create the topic with this many partitions if it does not exist.",
    ),
]
_Compression: TypeAlias = Annotated[
    Compression, typer.Option("--compression", "-z", help="Codec of the batches.")
]
_OnError: TypeAlias = Annotated[
    OnError,
    typer.Option("--on-error", help="What to do with a line that is too long for the topic."),
]
_Resume: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue where an earlier run with --resume stopped, each line exactly once. "
        "Positions are stored in the topic __millstream_ingest.",
    ),
]
_Follow: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--follow",
        "-f",
        help="Wait for more lines, until Ctrl-C, also when files are rotated. Implies --resume.",
    ),
]
_Name: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Name under which positions are stored. Set it if the host's name changes, for "
        "example in a container.",
        show_default="the host's name",
    ),
]


def ingest(
    files: _Files,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Topic to write to.")],
    partitions: _Partitions = None,
    compression: _Compression = Compression.NONE,
    acks: Annotated[
        Acks, typer.Option("--acks", help="Which replicas must acknowledge a record.")
    ] = Acks.ALL,
    on_error: _OnError = OnError.STOP,
    resume: _Resume = False,
    follow: _Follow = False,
    name: _Name = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write every line of files to a topic, in order, each batch to the next partition.

    The line feed is not part of the record; all other bytes are. With --resume, consumers that read
    only committed records see each line once.
    """
    once = resume or follow
    _check(files, once=once, acks=acks, name=name)
    with ExitStack() as stack:
        paths = [] if files == ["-"] else files_of(files)
        if partitions is not None:
            _create(bootstrap, NewTopic(topic, partitions))
        progress = stack.enter_context(Progress(total_bytes=None if once else _total(paths)))
        started = time.monotonic()
        limits = limits_of(bootstrap, topic, compression.codec, request_bytes=_REQUEST_BYTES)
        gate = LineGate(limits, on_error)
        try:
            if once:
                job = _job(files, topic, name, bootstrap, compression, gate, follow=follow)
                ingest_once(job, gate, progress)
            else:
                producer = stack.enter_context(open_sender(bootstrap, acks, compression))
                waiting = Waiting(producer.unreachable, lambda: progress.under_way)
                with waiting, ended_in_time(producer):
                    ingest_lines(producer, paths, topic, gate, progress)
        except (KeyboardInterrupt, SystemExit):
            complain(_told(progress, gate))
            raise
        elapsed = max(time.monotonic() - started, 1e-9)
    _summarize(topic, progress, gate, elapsed, as_json=as_json)


def _check(files: Sequence[str], *, once: bool, acks: Acks, name: str | None) -> None:
    if "-" in files and (once or len(files) > 1):
        raise UsageError(
            "--resume and --follow need files: standard input has no position"
            if once
            else "standard input cannot be combined with files"
        )
    if once and acks is not Acks.ALL:
        raise UsageError("--resume needs --acks all: it writes transactions")
    if name is not None and not once:
        raise UsageError("--name needs --resume or --follow")
    if once and "transactional.id" in names_on_command_line():
        raise typer.BadParameter("transactional.id: --name decides it", param_hint="-X")


def _total(paths: Sequence[Path]) -> int | None:
    return total_bytes(paths) if paths else None


def _told(progress: Progress, gate: LineGate) -> str:
    skipped = f", {counted(gate.skipped, 'line')} left out" if gate.skipped else ""
    return f"{counted(progress.records, 'record')} written{skipped}"


def _summarize(
    topic: str, progress: Progress, gate: LineGate, elapsed: float, *, as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                "topic": topic,
                "records": progress.records,
                "bytes": progress.bytes,
                "skipped": gate.skipped,
                "seconds": round(elapsed, 3),
            }
        )
        return
    if not is_for_a_person():
        row: Row = {
            "topic": topic,
            "records": progress.records,
            "bytes": progress.bytes,
            "skipped": gate.skipped,
            "seconds": round(elapsed, 3),
        }
        print_rows([row], {each: each for each in row})
        return
    skipped = f", {counted(gate.skipped, 'line')} left out" if gate.skipped else ""
    print(
        f"{progress.records:,} records, {human_bytes(progress.bytes)} in {elapsed:.2f} s: "
        f"{progress.records / elapsed:,.0f} records/s, "
        f"{human_bytes(progress.bytes / elapsed)}/s{skipped}"
    )


def _create(bootstrap: str, topic: NewTopic) -> None:
    """Create a topic that is not there; tell where one that is has another number of partitions."""
    with open_admin(bootstrap) as admin:
        error = admin.create_topics([topic])[topic.name].error
        if error is None:
            return
        if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error
        there = len(admin.describe_topics([topic.name])[topic.name].get().partitions)
    if there != topic.partitions:
        complain(
            f"{topic.name} is there, with {counted(there, 'partition')}: --partitions is for a "
            f"new topic (millstream topic alter {shlex.quote(topic.name)} --partitions)"
        )


def _job(
    files: Sequence[str],
    topic: str,
    name: str | None,
    bootstrap: str,
    compression: Compression,
    gate: LineGate,
    *,
    follow: bool,
) -> Job:
    create_positions_topic(bootstrap)
    name = name or socket.gethostname()
    places = "\0".join(sorted(str(Path(each).resolve()) for each in files))
    digits = hashlib.sha256(f"{topic}\0{places}".encode()).hexdigest()[:16]
    transactional_id = f"millstream-ingest-{name}-{digits}"
    return Job(
        words=files,
        topic=topic,
        name=name,
        transactional_id=transactional_id,
        bootstrap=bootstrap,
        open_producer=partial(open_sender, bootstrap, Acks.ALL, compression, transactional_id),
        batch_bytes=lambda count: batch_bytes_for(None, count, gate.limits.topic_bytes),
        follow=follow,
    )


def open_sender(
    bootstrap: str,
    acks: Acks,
    compression: Compression,
    transactional_id: str | None = None,
) -> Producer:
    """Return a producer for batches that are as large as those that a file is cut into."""
    transactions = {} if transactional_id is None else {"transactional.id": transactional_id}
    return Producer(
        {
            "client.id": "millstream-cli",
            "acks": acks.value,
            "compression.type": compression.value,
            "batch.size": _MOST_ENCODED_BYTES,
            "max.request.size": _REQUEST_BYTES,
            "buffer.memory": 8 * LONGEST_LINE_BYTES,
            "max.block.ms": _TRANSACTIONS_WAIT_MS if transactions else WAIT_MS,
            **settings_of(ProducerSettings),
            **transactions,
            "bootstrap.servers": bootstrap_servers(bootstrap),
        }
    )


class _Sent(NamedTuple):
    """Lines that were handed over: up to which line of which file, and their outcome."""

    file: str
    last: int
    records: int
    outcome: RowsFuture


class _Senders:
    """Lines on their way to one partition after the other."""

    def __init__(self, producer: Producer, topic: str, progress: Progress) -> None:
        self._producer = producer
        self._topic = topic
        self._progress = progress
        places = producer.partitions_for(topic)
        self.count = len(places)
        self._partitions = itertools.cycle(each.topic_partition.partition for each in places)
        self._under_way: deque[_Sent] = deque()
        self._written = ""
        """Up to where everything was written."""

    def send(self, lines: list[bytes], file: str, last: int) -> None:
        """Hand a batch over; ``last`` is the number of the last line that was read."""
        if lines:
            partition = next(self._partitions)
            outcome = self._producer.send_values(lines, self._topic, partition=partition)
            self._under_way.append(_Sent(file, last, len(lines), outcome))
            self._progress.under_way += len(lines)
        self.settle(_MOST_UNDER_WAY)

    def settle(self, most: int) -> None:
        """Wait until no more than ``most`` batches have no outcome."""
        while len(self._under_way) > most or (
            self._under_way and self._under_way[0].outcome.done()
        ):
            first = self._under_way[0]
            self._progress.add_records(first.outcome.result().rows)
            self._under_way.popleft()
            self._progress.under_way -= first.records
            self._written = f"line {first.last:,} of {first.file}"

    def told(self) -> str:
        """Return how far it came, once the producer is closed and all outcomes are known."""
        behind = 0
        while self._under_way:
            sent = self._under_way.popleft()
            try:
                behind += sent.outcome.result(0).rows
            except MillstreamError:
                continue
        before = f"written up to {self._written}" if self._written else "nothing was written"
        self._progress.records += behind
        if not behind:
            return before
        return f"{before}, and {counted(behind, 'line')} behind that"


def ingest_lines(
    producer: Producer, paths: Sequence[Path], topic: str, gate: LineGate, progress: Progress
) -> None:
    """Send every line of the files, or without one of standard input; returns when the brokers
    have them.

    CommandFailedError says how far it came.
    """
    senders = _Senders(producer, topic, progress)
    batch_bytes = batch_bytes_for(_total(paths), senders.count, gate.limits.topic_bytes)
    try:
        for file, source in _sources(paths):
            number = 0
            for lines in read_batches(source, batch_bytes):
                passed, error = gate.passed(lines, file, number + 1)
                number += len(lines)
                progress.add_bytes(sum(map(len, lines)) + len(lines))
                senders.send(
                    passed, file, number if error is None else number - len(lines) + len(passed)
                )
                if error is not None:
                    senders.settle(0)
                    raise error
        senders.settle(0)
    except MillstreamError as error:
        producer.close()  # the outcome of what was handed over is known after this
        raise CommandFailedError(f"{sentence(error)}; {senders.told()}") from error


def _sources(paths: Sequence[Path]) -> Iterator[tuple[str, Source]]:
    if not paths:
        yield _STANDARD_INPUT, cast(Source, sys.stdin.buffer)
    for path in paths:
        source = open_source(path)
        try:
            yield str(path), source
        finally:
            source.close()
