"""Reading records for the browser: from a place on, at most so many, those that match; or live."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

from millstream.client.admin import Admin
from millstream.client.consumer import Consumer
from millstream.client.core.admin.offsets import EARLIEST, LATEST
from millstream.console import decoding
from millstream.console.cluster import offsets
from millstream.console.expression import Predicate
from millstream.console.problems import ProblemError
from millstream.console.schema_values import SchemaValues
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

MAX_RECORDS: Final = 1000
_SCANNED: Final = 50_000
"""Records that one request reads for a filter, over all partitions."""
_SECONDS: Final = 5.0
_POLL_S: Final = 0.25
_CLIENT: Final[Mapping[str, object]] = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "fetch.max.wait.ms": 100,
    "max.poll.records": 500,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which records of a topic: ``partition`` None is all, ``timestamp`` in ms since 1970."""

    topic: str
    partition: int | None
    start: str
    offset: Offset
    timestamp: int
    limit: int
    decoder: str
    matches: Predicate | None
    schemas: SchemaValues | None = None


def read(admin: Admin, client: Mapping[str, object], wanted: Wanted) -> dict[str, Any]:
    """Return records, and how many were looked at.

    The newest come newest first; from an offset, a time or the beginning on, the oldest first.
    Ends after some seconds or many records, whichever is first: ``complete`` is false then.
    """
    partitions = _partitions(admin, wanted)
    first, ends = offsets(admin, partitions, EARLIEST), offsets(admin, partitions, LATEST)
    starts = _starts(admin, wanted, first, ends)
    open_ = {at for at, start in starts.items() if start < ends[at]}
    newest = wanted.start == "newest"
    found: list[dict[str, Any]] = []
    scanned = 0
    deadline = time.monotonic() + _SECONDS
    with Consumer[bytes, bytes]({**client, **_CLIENT}) as consumer:
        consumer.assign(open_)
        for at in open_:
            consumer.seek(at, starts[at])
        while open_ and scanned < _SCANNED and time.monotonic() < deadline:
            for record in consumer.poll(_POLL_S):
                if (
                    record.topic_partition not in open_
                    or record.offset >= ends[record.topic_partition]
                ):
                    continue
                scanned += 1
                shown = decoding.shown(record, wanted.decoder, wanted.schemas)
                if wanted.matches is None or wanted.matches(decoding.plain(shown)):
                    found.append(shown)
            done = {at for at in open_ if consumer.position(at) >= ends[at]}
            consumer.pause(*done)
            open_ -= done
            if not newest and len(found) >= wanted.limit:
                break
    # Between partitions there is no order but time; within one the offsets give it.
    found.sort(
        key=lambda each: (each["timestamp"], each["partition"], each["offset"]), reverse=newest
    )
    return {"records": found[: wanted.limit], "scanned": scanned, "complete": not open_}


def follow(
    admin: Admin, client: Mapping[str, object], wanted: Wanted, ended: Event
) -> Generator[dict[str, Any] | None, None, None]:
    """Yield records from now on as they come, None when there are none for a moment."""
    partitions = _partitions(admin, wanted)
    ends = offsets(admin, partitions, LATEST)
    with closing(Consumer[bytes, bytes]({**client, **_CLIENT})) as consumer:
        consumer.assign(ends)
        for at, end in ends.items():
            consumer.seek(at, end)
        while not ended.is_set():
            records = consumer.poll(1.0)
            if not records:
                yield None
            for record in records:
                shown = decoding.shown(record, wanted.decoder, wanted.schemas)
                if wanted.matches is None or wanted.matches(decoding.plain(shown)):
                    yield shown


def _partitions(admin: Admin, wanted: Wanted) -> list[TopicPartition]:
    topic = admin.describe_topics([wanted.topic])[wanted.topic].get()
    known = [each.topic_partition for each in topic.partitions]
    if wanted.partition is None:
        return known
    chosen = TopicPartition(wanted.topic, wanted.partition)
    if chosen not in known:
        raise ProblemError(
            404,
            f"The topic has no partition {wanted.partition}.",
            wanted.topic,
            f"Its partitions are 0 to {len(known) - 1}.",
        )
    return [chosen]


def _starts(
    admin: Admin,
    wanted: Wanted,
    first: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, Offset],
) -> dict[TopicPartition, Offset]:
    known = {at: (first[at], end) for at, end in ends.items() if at in first}
    if not known:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no partition has a leader that answers")
    if wanted.start == "newest":
        # With a filter as many as are read at all, so that something is found.
        room = wanted.limit if wanted.matches is None else _SCANNED
        room = max(room // len(known), 1) if wanted.matches or len(known) > 10 else room
        return {at: max(begin, end - room) for at, (begin, end) in known.items()}
    if wanted.start == "offset":
        return {at: max(begin, min(end, wanted.offset)) for at, (begin, end) in known.items()}
    if wanted.start == "time":
        found = admin.list_offsets(dict.fromkeys(known, wanted.timestamp))
        return {
            at: end if (place := found[at].get()) is None else place.offset
            for at, (_, end) in known.items()
        }
    return {at: begin for at, (begin, _) in known.items()}
