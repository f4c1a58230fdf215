"""ListOffsets: where partitions begin and end, and which record comes at or after a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from millstream.client.cluster import Cluster
from millstream.client.core.admin.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset
from millstream.client.errors import raise_for
from millstream.model.offsets import NO_OFFSET, Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "FoundOffset",
    "end_offsets",
    "find_offsets",
]

_CONSUMER: Final = -1


def find_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, FoundOffset | None]:
    """Return for each partition the first offset whose timestamp is at or after the one given.

    None where no such record exists. Instead of a timestamp may stand EARLIEST, LATEST or
    MAX_TIMESTAMP. KafkaError names the partition that cannot be asked.
    """
    found: dict[TopicPartition, FoundOffset | None] = {}

    def ask() -> None:
        missing = [place for place in timestamps if place not in found]
        for leader, places in cluster.by_leader(missing):
            wanted = {place: timestamps[place] for place in places}
            found.update(_ask_leader(cluster, leader, wanted, read_committed=read_committed))

    cluster.retrying(ask)
    return found


def _ask_leader(
    cluster: Cluster, leader: int, wanted: Mapping[TopicPartition, int], *, read_committed: bool
) -> dict[TopicPartition, FoundOffset | None]:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for place, timestamp in wanted.items():
        topics.setdefault(place.topic, []).append(
            ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp)
        )
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        timeout_ms=cluster.settings.request_timeout_ms,
    )
    response = cluster.connection_to(leader).call(request, ListOffsetsResponse)
    found: dict[TopicPartition, FoundOffset | None] = {}
    for topic in response.topics:
        for row in topic.partitions:
            place = TopicPartition(topic.name, row.partition_index)
            raise_for(row.error_code, f"offsets of {place}")
            found[place] = (
                None
                if row.offset == NO_OFFSET
                else FoundOffset(row.offset, row.timestamp, row.leader_epoch)
            )
    return found


def end_offsets(
    cluster: Cluster,
    places: Iterable[TopicPartition],
    *,
    which: int,
    read_committed: bool = False,
) -> dict[TopicPartition, Offset]:
    """Return one end, EARLIEST or LATEST, of each partition."""
    asked = dict.fromkeys(places, which)
    found = find_offsets(cluster, asked, read_committed=read_committed)
    return {place: each.offset if each is not None else 0 for place, each in found.items()}
