"""`millstream produce`: lines of standard input to records, as `kcat -P` does it."""

from __future__ import annotations

import json
import sys
import time
from base64 import b64decode
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    WAIT_MS,
    Bootstrap,
    bootstrap_servers,
    key_values,
)
from millstream.cli.failures import CommandFailedError, complain, sentence
from millstream.cli.interruption import LAST_SENDS_S, StoppableInput
from millstream.cli.output import counted
from millstream.client import Producer, RecordMetadata
from millstream.records.compression import Codec
from millstream.records.record import Header

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


class Line(NamedTuple):
    """What one line of input says."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    timestamp_ms: int | None


class LineRules(NamedTuple):
    """How lines are read."""

    is_json: bool
    key: bytes | None
    key_separator: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    empty_is_null: bool


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    key: Annotated[str | None, typer.Option("--key", "-k", help="The same key for all.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", help="Text between key and value in each line."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="KEY=VALUE", help="A header; may be repeated."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="By default the key decides.")
    ] = None,
    empty_is_null: Annotated[
        bool, typer.Option("--null", "-Z", help="Empty keys and values are null.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Each line is an object as `consume --json` prints it.")
    ] = False,
    acks: Annotated[Acks, typer.Option("--acks", help="Who must have a record.")] = Acks.ALL,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="Codec of the batches.")
    ] = Compression.NONE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write the lines of standard input to a topic, one record each."""
    rules = LineRules(
        is_json=as_json,
        key=None if key is None else key.encode(),
        key_separator=None if key_separator is None else key_separator.encode(),
        headers=tuple(
            (name, value.encode()) for name, value in key_values(header, "--header").items()
        ),
        partition=partition,
        empty_is_null=empty_is_null,
    )
    failures = Failures()
    with open_producer(bootstrap, acks, compression) as producer:
        producer.partitions_for(topic)
        with StoppableInput(sys.stdin.fileno()) as source:
            for lines in _lines_of(source):
                now_ms = int(time.time() * 1000)
                for text in lines:
                    line = parse_line(text, rules)
                    producer.send(
                        topic,
                        line.value,
                        line.key,
                        partition=line.partition,
                        timestamp_ms=now_ms if line.timestamp_ms is None else line.timestamp_ms,
                        headers=line.headers,
                        on_delivery=failures,
                    )
                failures.raise_first()
            producer.close(LAST_SENDS_S if source.exit_code else None)
    if source.exit_code:
        failures.tell()
        raise typer.Exit(source.exit_code)
    failures.raise_first()


class Failures:
    """The records that were not delivered, as ``on_delivery`` hears of them."""

    def __init__(self) -> None:
        self.first: Exception | None = None
        self.count = 0

    def __call__(self, _: RecordMetadata | None, error: Exception | None) -> None:
        """Keep the first error."""
        if error is not None:
            self.first = self.first or error
            self.count += 1

    def tell(self) -> None:
        """Say how many records an interrupted command could not send any more."""
        if self.first is not None:
            complain(
                f"{counted(self.count, 'record')} may not have arrived: {sentence(self.first)}"
            )

    def raise_first(self) -> None:
        """Raise the first error if there was one."""
        if self.first is not None:
            raise self.first


def open_producer(bootstrap: str, acks: Acks, compression: Compression) -> Producer:
    """Return a producer with these settings; nothing is sent yet."""
    return Producer(
        bootstrap_servers=bootstrap_servers(bootstrap),
        client_id="millstream-cli",
        acks=acks.value,
        compression_type=compression.value,
        linger_ms=LINGER_MS,
        max_block_ms=WAIT_MS,
    )


def _lines_of(source: StoppableInput) -> Iterator[list[bytes]]:
    """Yield the lines that have come, without their line ends."""
    rest = b""
    while data := source.read(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        yield lines
    if rest and not source.exit_code:
        yield [rest]


def parse_line(text: bytes, rules: LineRules) -> Line:
    """Read one line; CommandFailedError when it is not what the rules say."""
    if rules.is_json:
        return _parse_json(text, rules)
    key, value = rules.key, text
    if rules.key_separator:
        before, separator, after = text.partition(rules.key_separator)
        if separator:
            key, value = before, after
    empty = rules.empty_is_null
    return Line(
        None if empty and not key else key,
        None if empty and not value else value,
        rules.headers,
        rules.partition,
        None,
    )


def _parse_json(text: bytes, rules: LineRules) -> Line:
    try:
        line = dict(json.loads(text))
        headers = tuple(
            (str(each["key"]), _payload(each, "value")) for each in line.get("headers", ())
        )
        timestamp = line.get("timestamp")
        return Line(
            _payload(line, "key"),
            _payload(line, "value"),
            headers or rules.headers,
            rules.partition,
            None if timestamp is None else int(timestamp),
        )
    except (ValueError, OverflowError, TypeError, KeyError, AttributeError) as error:
        shown = text[:60].decode(errors="replace")
        raise CommandFailedError(f"no record in JSON: {shown!r} ({error})") from None


def _payload(line: dict[str, object], name: str) -> bytes | None:
    """Return the bytes of ``name`` (text) or ``name_base64``; None when both are null."""
    text, encoded = line.get(name), line.get(f"{name}_base64")
    if encoded is not None:
        return b64decode(str(encoded), validate=True)
    if text is None:
        return None
    return text.encode() if isinstance(text, str) else json.dumps(text).encode()
