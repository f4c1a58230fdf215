"""The lag of a group, in offsets and in seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.client.admin import Admin
from millstream.client.consumer import Consumer
from millstream.client.core.admin.offsets import LATEST
from millstream.client.core.admin.share_groups import ShareOffset
from millstream.client.core.consumer.errors import OffsetsOutOfRangeError, RecordError
from millstream.model.errors import ErrorCode
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

SMALL_FETCHES: Final[Mapping[str, object]] = {
    "max.partition.fetch.bytes": 1,
    "fetch.max.wait.ms": 100,
    "auto.offset.reset": "none",
}
"""Settings of a consumer for :func:`measure_lag`: one batch at a time, whatever its size, because a
broker always sends at least one.
"""

_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """The lag of one partition; None means unknown.

    ``lag`` counts offsets between the committed one and the end (the high watermark).
    ``lag_seconds`` is the age of the oldest record that the group has not read, 0 when there is
    none; records carry the time that their producer gave them.
    """

    topic_partition: TopicPartition
    committed: Offset | None
    end: Offset | None
    lag: int | None
    lag_seconds: float | None


def measure_lag(
    admin: Admin,
    consumer: Consumer[bytes, bytes],
    committed: Mapping[TopicPartition, Offset],
    assigned: Iterable[TopicPartition],
    *,
    now_ms: int,
) -> list[PartitionLag]:
    """Return the lag of every partition that is committed or assigned, in order.

    A partition of a deleted topic has no end and no lag. ``consumer`` has :data:`SMALL_FETCHES` and
    no group; its assignment is replaced.
    """
    topic_partitions = sorted({*committed, *assigned})
    ends = _ends(admin, topic_partitions)
    behind = {
        topic_partition: committed[topic_partition]
        for topic_partition, end in ends.items()
        if topic_partition in committed and committed[topic_partition] < end
    }
    timestamps = first_timestamps(consumer, behind, ends)
    lags: list[PartitionLag] = []
    for topic_partition in topic_partitions:
        offset, end = committed.get(topic_partition), ends.get(topic_partition)
        known = offset is not None and end is not None
        timestamp = timestamps.get(topic_partition)
        seconds = 0.0 if known and topic_partition not in behind else None
        if timestamp is not None:
            seconds = max(now_ms - timestamp, 0) / 1000
        lags.append(
            PartitionLag(
                topic_partition=topic_partition,
                committed=offset,
                end=end,
                lag=max(end - offset, 0) if offset is not None and end is not None else None,
                lag_seconds=seconds,
            )
        )
    return lags


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLag:
    """Where a share group starts in one partition, and how much is left from there; None means
    unknown.
    """

    topic_partition: TopicPartition
    start: Offset
    end: Offset | None
    lag: int | None


def share_lag(
    starts: Mapping[TopicPartition, ShareOffset], ends: Mapping[TopicPartition, Offset]
) -> list[ShareLag]:
    """Return the lag of every partition that a share group has begun to read, in order.

    Brokers before Kafka 4.2 do not tell it: it counts from the start to the end then, records
    that are done with beyond the start included.
    """
    lags: list[ShareLag] = []
    for topic_partition, where in sorted(starts.items()):
        end = ends.get(topic_partition)
        lag = where.lag if where.lag >= 0 else None
        if lag is None and end is not None:
            lag = max(end - where.start_offset, 0)
        lags.append(
            ShareLag(topic_partition=topic_partition, start=where.start_offset, end=end, lag=lag)
        )
    return lags


def first_timestamps(
    consumer: Consumer[bytes, bytes],
    offsets: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, Offset],
    *,
    patience_s: float = _PATIENCE_S,
) -> dict[TopicPartition, int]:
    """Return the timestamp (ms) of the first record at or after each offset.

    A partition is left out when its offset is out of range, when no data lies before its end, or
    when it cannot be read, or not within ``patience_s``.
    """
    found: dict[TopicPartition, int] = {}
    waiting = set(offsets)
    consumer.assign(waiting)
    for topic_partition, offset in offsets.items():
        consumer.seek(topic_partition, offset)
    deadline = time.monotonic() + patience_s
    while waiting and time.monotonic() < deadline:
        try:
            for record in consumer.poll(0.1):
                found.setdefault(record.topic_partition, record.timestamp)
            # Markers and gaps move a position to the end without a record.
            done = {
                each for each in waiting if each in found or consumer.position(each) >= ends[each]
            }
        except OffsetsOutOfRangeError as error:
            done = set(error.offsets)
        except RecordError as error:
            done = {error.topic_partition}
        waiting -= done
        consumer.pause(*done)
    consumer.assign(())
    return found


def _ends(admin: Admin, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
    """Return the high watermarks of the partitions that exist."""
    found: dict[TopicPartition, Offset] = {}
    for topic_partition, outcome in admin.list_offsets(
        dict.fromkeys(topic_partitions, LATEST)
    ).items():
        if outcome.error is None or outcome.error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            end = outcome.get()
            found[topic_partition] = 0 if end is None else end.offset
    return found
