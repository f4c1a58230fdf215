"""Bytes to lists of lines that fit into one batch each."""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedReader
from typing import Final

from millstream.cli.failures import CommandFailedError
from millstream.cli.ingest_files import Source

SMALLEST_BATCH_BYTES: Final = 16 * 1024
LARGEST_BATCH_BYTES: Final = 512 * 1024
"""A file is cut into batches of these sizes: large ones cost less, and several per partition keep
the partitions even. Both stay under Kafka's default of `max.message.bytes`."""

_MOST_RECORDS: Final = LARGEST_BATCH_BYTES // 16
"""A record without key and headers takes up to 13 bytes besides its value, so short lines fill a
batch by their number."""

LONGEST_LINE_BYTES: Final = 100 * 1024 * 1024


def read_batches(source: Source, batch_bytes: int) -> Iterator[list[bytes]]:
    """Yield lists of lines that fit into one batch each, as soon as they have come.

    A line longer than ``batch_bytes`` gets a batch of its own. CommandFailedError for one that no
    broker would take.
    """
    rest, number = b"", 0
    while data := _read_some(source, batch_bytes):
        *lines, rest = (rest + data).split(b"\n")
        number += len(lines)
        if len(rest) > LONGEST_LINE_BYTES:
            raise CommandFailedError(
                f"line {number + 1:,} is longer than {LONGEST_LINE_BYTES:,} bytes"
            )
        yield from batches_of(lines, batch_bytes)
    if rest:
        yield [rest]


def batches_of(lines: list[bytes], batch_bytes: int) -> Iterator[list[bytes]]:
    """Yield the lines of one reading, of which the first may be longer than a batch."""
    if lines and len(lines[0]) > batch_bytes:
        yield lines[:1]
        lines = lines[1:]
    for first in range(0, len(lines), _MOST_RECORDS):
        yield lines[first : first + _MOST_RECORDS]


def _read_some(source: Source, size: int) -> bytes:
    """Return what a pipe has, or ``size`` bytes of a file; empty at the end."""
    return source.read1(size) if isinstance(source, BufferedReader) else source.read(size)


def batch_bytes_for(size: int | None, partitions: int, topic_bytes: int | None) -> int:
    """Return the size of batches for ``size`` bytes of input, None for an unknown number.

    ``topic_bytes`` is what the topic takes: numbers and headers of records need room in it.
    """
    most = LARGEST_BATCH_BYTES
    if topic_bytes is not None:
        most = max(min(most, topic_bytes // 2), 1)
    if size is None:
        return most
    return min(max(size // (4 * partitions), SMALLEST_BATCH_BYTES), most)
