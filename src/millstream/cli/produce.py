"""`millstream produce`: lines of standard input to records, as `kcat -P` does it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    WAIT_MS,
    Bootstrap,
    UsageError,
    bootstrap_servers,
    key_value_pairs,
)
from millstream.cli.client_options import settings_of
from millstream.cli.failures import CommandFailedError, complain, sentence
from millstream.cli.input_lines import LineError, LineRules, parse_line
from millstream.cli.interruption import LAST_SENDS_S, StoppableInput
from millstream.cli.line_limits import LineGate, OnError, limits_of
from millstream.cli.output import counted
from millstream.cli.waiting import Waiting
from millstream.client import Producer, RecordMetadata
from millstream.client.core.settings import ProducerSettings
from millstream.model.errors import MillstreamError
from millstream.records.compression import Codec

LINGER_MS: Final = 50
"""How long a record waits for company."""

_READ_BYTES: Final = 1 << 20


class Acks(StrEnum):
    """When a record counts as sent."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"

    @property
    def number(self) -> int:
        """The value in the request."""
        return -1 if self is Acks.ALL else int(self.value)


class Compression(StrEnum):
    """Codecs by their Kafka names."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"

    @property
    def codec(self) -> Codec:
        """The codec of that name."""
        return Codec[self.name]


_Key: TypeAlias = Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")]
_KeySeparator: TypeAlias = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", help="Text between key and value in each line."),
]
_Headers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="KEY=VALUE", help="A header; may be repeated."),
]
_Partition: TypeAlias = Annotated[
    int | None,
    typer.Option("--partition", "-p", help="Partition to write to; by default the key decides."),
]
_EmptyIsNull: TypeAlias = Annotated[
    bool, typer.Option("--null", "-Z", help="Empty keys and values are null.")
]
_AsJson: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--json", help="Each line is an object as `consume --json` or kcat's -J prints it."
    ),
]
_Acks: TypeAlias = Annotated[
    Acks, typer.Option("--acks", help="Which replicas must acknowledge a record.")
]
_Compression: TypeAlias = Annotated[
    Compression, typer.Option("--compression", "-z", help="Codec of the batches.")
]
_OnError: TypeAlias = Annotated[
    OnError,
    typer.Option(
        "--on-error",
        help="What to do with a line that is too long, or that is not a record (with --json).",
    ),
]


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    key: _Key = None,
    key_separator: _KeySeparator = None,
    header: _Headers = None,
    partition: _Partition = None,
    empty_is_null: _EmptyIsNull = False,
    as_json: _AsJson = False,
    acks: _Acks = Acks.ALL,
    compression: _Compression = Compression.NONE,
    on_error: _OnError = OnError.STOP,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write the lines of standard input to a topic, one record each.

    A line that is too long for the topic, or that is not a record (with --json), ends the command.
    The lines before it are sent; the error names the line and the number of records sent.
    """
    if as_json and (key_separator is not None or empty_is_null):
        raise UsageError("--json cannot be combined with --key-separator and --null")
    if key_separator == "":
        raise typer.BadParameter("it is empty: no line can be split by it", param_hint="-K")
    rules = LineRules(
        is_json=as_json,
        key=None if key is None else key.encode(),
        key_separator=None if key_separator is None else key_separator.encode(),
        headers=tuple(
            (name, value.encode()) for name, value in key_value_pairs(header, "--header")
        ),
        partition=partition,
        empty_is_null=empty_is_null,
    )
    deliveries = Deliveries()
    with open_producer(bootstrap, acks, compression) as producer:
        producer.partitions_for(topic)
        gate = LineGate(limits_of(bootstrap, topic, compression.codec), on_error)
        waiting = Waiting(producer.unreachable, deliveries.unknown)
        with waiting, StoppableInput(sys.stdin.fileno()) as source:
            try:
                _send_lines(source, producer, topic, rules, gate, deliveries)
            except MillstreamError as error:
                producer.close()  # the outcome of what was handed over is known after this
                raise CommandFailedError(f"{sentence(error)}; {deliveries.told()}") from error
            producer.close(LAST_SENDS_S if source.exit_code else None)
    _end(source.exit_code, deliveries)


def _end(exit_code: int, deliveries: Deliveries) -> None:
    """Tell what became of the records; Exit or CommandFailedError where not all are written."""
    if exit_code:
        complain(f"{counted(deliveries.delivered, 'record')} written")
        deliveries.tell_unsent()
        raise typer.Exit(exit_code)
    if deliveries.first_error is not None:
        raise CommandFailedError(f"{sentence(deliveries.first_error)}; {deliveries.told()}")


def _send_lines(
    source: StoppableInput,
    producer: Producer,
    topic: str,
    rules: LineRules,
    gate: LineGate,
    deliveries: Deliveries,
) -> None:
    """Hand every line over until the input ends or a record could not be delivered.

    Raises BadLineError with the number of a line that is not a record of the topic, and what
    ``Producer.send`` raises.
    """
    number = 0
    for lines in _lines_of(source):
        now_ms = int(time.time() * 1000)
        for text in lines:
            number += 1
            try:
                line = parse_line(text, rules)
            except LineError as error:
                gate.reject(f"line {number:,}", f"it is not a record: {error}")
                continue
            reason = gate.limits.refusal(line.value, line.key, line.headers)
            if reason is not None:
                gate.reject(f"line {number:,}", reason)
                continue
            deliveries.handed_over += 1
            producer.send(
                topic,
                line.value,
                line.key,
                partition=line.partition,
                timestamp_ms=now_ms if line.timestamp_ms is None else line.timestamp_ms,
                headers=line.headers,
                on_delivery=deliveries,
            )
        if deliveries.first_error is not None:
            return


class Deliveries:
    """Counts the records that were delivered and those that were not, as ``on_delivery``."""

    def __init__(self) -> None:
        self.first_error: Exception | None = None
        self.delivered = 0
        self.failed = 0
        self.handed_over = 0

    def __call__(self, _: RecordMetadata | None, error: Exception | None) -> None:
        """Count one outcome, and keep the first error."""
        if error is None:
            self.delivered += 1
        else:
            self.first_error = self.first_error or error
            self.failed += 1

    def unknown(self) -> int:
        """Return how many of the records that were handed over have no outcome yet."""
        return self.handed_over - self.delivered - self.failed

    def told(self) -> str:
        """Return how many records were sent, and how many failed."""
        sent = f"{counted(self.delivered, 'record')} {_was(self.delivered)} sent"
        if not self.failed:
            return f"{sent} before it" if self.delivered else "nothing was sent"
        return f"{sent}, {self.failed} {_was(self.failed)} not acknowledged"

    def tell_unsent(self) -> None:
        """Print how many records an interrupted command could not send any more."""
        if self.first_error is not None:
            reason = sentence(self.first_error)
            complain(f"{counted(self.failed, 'record')} may not have arrived: {reason}")

    def raise_first(self) -> None:
        """Raise the first error if there was one."""
        if self.first_error is not None:
            raise self.first_error


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def open_producer(bootstrap: str, acks: Acks, compression: Compression) -> Producer:
    """Return a producer with these settings; nothing is sent yet."""
    return Producer(
        {
            "client.id": "millstream-cli",
            "linger.ms": LINGER_MS,
            "max.block.ms": WAIT_MS,
            "acks": acks.value,
            "compression.type": compression.value,
            **settings_of(ProducerSettings),
            "bootstrap.servers": bootstrap_servers(bootstrap),
        }
    )


def _lines_of(source: StoppableInput) -> Iterator[list[bytes]]:
    """Yield the lines that have come, without their line ends."""
    rest = b""
    while data := source.read(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        yield lines
    if rest and not source.exit_code:
        yield [rest]
