"""How far a group is behind: in offsets, and in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.client.cluster import Cluster
from millstream.client.errors import OffsetOutOfRangeError
from millstream.client.fetch import Fetched, Fetcher, FetchSettings
from millstream.client.offsets import LATEST, end_offsets
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.records.record import iter_records

_SMALL_FETCH: Final = FetchSettings(max_wait_ms=100, max_partition_bytes=1, max_bytes=1)
"""One batch, whatever its size: the broker always sends at least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One partition: what is None is not known.

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
    cluster: Cluster,
    committed: Mapping[TopicPartition, Offset],
    assigned: Iterable[TopicPartition],
    *,
    now_ms: int,
) -> list[PartitionLag]:
    """Return the lag of every partition that is committed or assigned, in order.

    A partition whose topic is gone has no end and no lag.
    """
    places = sorted({*committed, *assigned})
    existing = [place for place in places if _exists(cluster, place)]
    ends = end_offsets(cluster, existing, which=LATEST)
    behind = {
        place: committed[place]
        for place in existing
        if place in committed and committed[place] < ends[place]
    }
    timestamps = first_timestamps(cluster, behind)
    lags: list[PartitionLag] = []
    for place in places:
        offset, end = committed.get(place), ends.get(place)
        known = offset is not None and end is not None
        timestamp = timestamps.get(place)
        seconds = 0.0 if known and place not in behind else None
        if timestamp is not None:
            seconds = max(now_ms - timestamp, 0) / 1000
        lags.append(
            PartitionLag(
                topic_partition=place,
                committed=offset,
                end=end,
                lag=max(end - offset, 0) if offset is not None and end is not None else None,
                lag_seconds=seconds,
            )
        )
    return lags


def first_timestamps(
    cluster: Cluster, offsets: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, int]:
    """Return the timestamp (ms) of the first record at or after each offset.

    A partition is left out when its offset is out of range, or when no data follows.
    """
    found: dict[TopicPartition, int] = {}
    fetcher = Fetcher(cluster, {}, _SMALL_FETCH)
    try:
        for place, offset in offsets.items():
            fetcher.positions = {place: offset}
            try:
                timestamp = _first_timestamp(fetcher)
            except OffsetOutOfRangeError:
                continue
            if timestamp is not None:
                found[place] = timestamp
    finally:
        fetcher.close()
    return found


def _first_timestamp(fetcher: Fetcher) -> int | None:
    """Read on over markers and gaps until a record or the end comes."""
    while True:
        fetched = fetcher.poll()
        if not fetched or not len(fetched[0].data):
            return None
        timestamp = _first_timestamp_in(fetched[0])
        if timestamp is not None:
            return timestamp


def _first_timestamp_in(fetched: Fetched) -> int | None:
    for batch in fetched.batches():
        for record in iter_records(batch):
            if record.offset >= fetched.fetch_offset:
                return record.timestamp
    return None


def _exists(cluster: Cluster, place: TopicPartition) -> bool:
    try:
        cluster.partition(place)
    except KafkaError as error:
        if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        raise
    return True
