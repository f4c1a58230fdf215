"""Batches of dead letters, made of what a share group gave up and of what the log has of it.

A dead letter has Kafka's headers, which say where its record is and why it was given up, and a copy
of the record's key and value where the group wants that (KIP-1191). A record that the log does not
have any more, that cannot be read, or that is larger than the topic takes has a dead letter without
them. Runs on a worker: records are read from their file and decompressed.

Memory: one record batch, decompressed, and one batch of dead letters. Kafka:
``ShareGroupDLQRecordFetcher``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.model.errors import CorruptLogError, MillstreamError
from millstream.model.offsets import Offset
from millstream.records.batch import Batch, iter_batches
from millstream.records.builder import BatchBuilder
from millstream.records.record import Header, Record, iter_records
from millstream.share.dead_letters import DeadLetters

if TYPE_CHECKING:
    from millstream.storage.file_slice import FileSlice

MAX_RECORDS: Final = 1_000
"""Dead letters in one batch at most."""
MAX_DECOMPRESSED_BYTES: Final = 32 << 20
"""What a compressed batch may decompress to; the records of a larger one are not copied."""

TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
GROUP: Final = "__dlq.errors.group"
DELIVERY_COUNT: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"

_BATCH_RESERVE: Final = 128
"""Bytes of a batch that are not its records'."""
_FIELD_RESERVE: Final = 8
"""More than the lengths of one header, and its part of the record's, take."""


class Origin(NamedTuple):
    """Where records were given up."""

    topic: str
    partition: int
    group_id: str

    def headers(self, letters: DeadLetters, offset: Offset) -> tuple[Header, ...]:
        """Return the headers of one dead letter, in Kafka's order."""
        return (
            (TOPIC, self.topic.encode()),
            (PARTITION, b"%d" % self.partition),
            (OFFSET, b"%d" % offset),
            (GROUP, self.group_id.encode()),
            (DELIVERY_COUNT, b"%d" % letters.delivery_count),
            (MESSAGE, letters.cause.value.encode()),
        )


class MadeBatch(NamedTuple):
    """A batch, what it has dead letters of, and what is left for the next one."""

    data: bytes
    letters: list[DeadLetters]
    rest: list[DeadLetters]


def make_batch(
    origin: Origin,
    runs: Sequence[DeadLetters],
    records: FileSlice | None,
    *,
    max_bytes: int,
    now_ms: int,
) -> MadeBatch:
    """Return a batch that begins with the first of ``runs`` and takes ``max_bytes`` at most, if
    their headers let it.

    Keys and values come out of ``records``, which was read at the first offset; what lies behind it
    is left for the next batch. With None there are no copies.
    """
    copies = None if records is None else _Copies(records)
    builder = BatchBuilder()
    for letters in runs:
        for offset in range(letters.first_offset, letters.last_offset + 1):
            record = None
            if copies is not None:
                try:
                    record = copies.at(offset)
                except _NotReadError:
                    if builder.count:
                        return _made(builder, runs, offset)
                    # Nothing of this can be read.
                    made = make_batch(origin, runs[:1], None, max_bytes=max_bytes, now_ms=now_ms)
                    return made._replace(rest=[*made.rest, *runs[1:]])
            headers = origin.headers(letters, offset)
            room = max_bytes - _BATCH_RESERVE - builder.size * bool(builder.count)
            key, value = (None, None) if record is None else (record.key, record.value)
            if _size(headers, key, value) > max_bytes - _BATCH_RESERVE:
                key = value = None
            if builder.count and (
                builder.count == MAX_RECORDS or _size(headers, key, value) > room
            ):
                return _made(builder, runs, offset)
            builder.append(now_ms, key, value, headers)
    return MadeBatch(builder.build(), list(runs), [])


def split_at(
    runs: Sequence[DeadLetters], offset: Offset
) -> tuple[list[DeadLetters], list[DeadLetters]]:
    """Return what lies below an offset, and what does not."""
    below = [
        each._replace(last_offset=min(each.last_offset, offset - 1))
        for each in runs
        if each.first_offset < offset
    ]
    above = [
        each._replace(first_offset=max(each.first_offset, offset))
        for each in runs
        if each.last_offset >= offset
    ]
    return below, above


def _made(builder: BatchBuilder, runs: Sequence[DeadLetters], offset: Offset) -> MadeBatch:
    return MadeBatch(builder.build(), *split_at(runs, offset))


def _size(headers: Sequence[Header], key: bytes | None, value: bytes | None) -> int:
    """Return a bound for the bytes of a record."""
    fields = (len(name) + len(text or b"") + _FIELD_RESERVE for name, text in headers)
    return sum(fields) + len(key or b"") + len(value or b"")


class _NotReadError(Exception):
    """An offset lies behind what was read."""


class _Copies:
    """The records of a piece of the log, asked for by growing offsets. One record is in memory at a
    time, and the batch that it is of.
    """

    def __init__(self, records: FileSlice) -> None:
        self._batches = _batches(records)
        self._last_offset = -1
        """The last one of the batch that is being looked at."""
        self._records: Iterator[Record] = iter(())
        self._found: Record | None = None

    def at(self, offset: Offset) -> Record | None:
        """Return the record, None where there is none or it cannot be read."""
        while self._last_offset < offset:
            batch = next(self._batches, None)
            if batch is None:
                raise _NotReadError
            self._last_offset = batch.last_offset
            if batch.last_offset >= offset:
                self._records = _records(batch)
                self._found = next(self._records, None)
        while self._found is not None and self._found.offset < offset:
            self._found = next(self._records, None)
        found = self._found
        return found if found is not None and found.offset == offset else None


def _batches(records: FileSlice) -> Iterator[Batch]:
    try:
        yield from iter_batches(records.read())
    except (MillstreamError, OSError):
        return


def _records(batch: Batch) -> Iterator[Record]:
    if batch.is_control:
        return
    try:
        yield from iter_records(batch, MAX_DECOMPRESSED_BYTES)
    except CorruptLogError:
        return
