"""Where partitions begin and end, and which record comes at or after a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.client.core.admin.outcome import Outcome, Outcomes, refusal
from millstream.client.core.admin.routing import Routing
from millstream.model.offsets import NO_OFFSET, LeaderEpoch, Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST: Final = -1
"""In place of a timestamp: the high watermark; with read_committed the last stable offset."""
EARLIEST: Final = -2
"""In place of a timestamp: the log start offset."""
MAX_TIMESTAMP: Final = -3
"""In place of a timestamp: the record with the largest one (KIP-734)."""

CONSUMER_ID: Final = -1
"""The ``replica_id`` of clients."""


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An offset and the timestamp of its record (ms), −1 for the ends of the log."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


class Offsets(Routing):
    """Operations on offsets."""

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> Outcomes[TopicPartition, FoundOffset | None]:
        """Return for each partition the first offset at or after a timestamp, None for none.

        A timestamp (ms) may also be EARLIEST, LATEST or MAX_TIMESTAMP.
        """

        async def ask(
            pending: list[TopicPartition],
        ) -> dict[TopicPartition, Outcome[FoundOffset | None]]:
            leaders, failed = await self.by_leader(pending)
            found = await self.apart(leaders, ask_leader)
            return found | {
                topic_partition: Outcome(None, error) for topic_partition, error in failed.items()
            }

        async def ask_leader(
            leader: int, topic_partitions: list[TopicPartition]
        ) -> dict[TopicPartition, Outcome[FoundOffset | None]]:
            request = ListOffsetsRequest(
                replica_id=CONSUMER_ID,
                isolation_level=int(read_committed),
                topics=list_offsets_topics(
                    {
                        topic_partition: timestamps[topic_partition]
                        for topic_partition in topic_partitions
                    }
                ),
                timeout_ms=self.timeout_ms,
            )
            return _read(await self.network.call(leader, request, ListOffsetsResponse))

        return await self.each(timestamps, ask)


def list_offsets_topics(wanted: Mapping[TopicPartition, int]) -> list[ListOffsetsTopic]:
    """Return the look-ups in the form of a request."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic_partition, timestamp in wanted.items():
        topics.setdefault(topic_partition.topic, []).append(
            ListOffsetsPartition(partition_index=topic_partition.partition, timestamp=timestamp)
        )
    return [ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()]


def _read(response: ListOffsetsResponse) -> dict[TopicPartition, Outcome[FoundOffset | None]]:
    found: dict[TopicPartition, Outcome[FoundOffset | None]] = {}
    for topic in response.topics:
        for row in topic.partitions:
            topic_partition = TopicPartition(topic.name, row.partition_index)
            value = (
                None
                if row.offset == NO_OFFSET
                else FoundOffset(row.offset, row.timestamp, row.leader_epoch)
            )
            code = row.error_code
            error = refusal(code, None, f"offsets of {topic_partition}") if code else None
            found[topic_partition] = Outcome(value, error)
    return found
