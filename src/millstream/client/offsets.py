"""Where partitions begin and end, for a :class:`Cluster`; ``Admin.list_offsets`` can do more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.client.cluster import Cluster
from millstream.client.core.admin.offsets import CONSUMER_ID, EARLIEST, LATEST, list_offsets_topics
from millstream.client.errors import raise_for
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from millstream.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

__all__ = ["EARLIEST", "LATEST", "end_offsets", "ends_of_epochs"]


def end_offsets(
    cluster: Cluster,
    topic_partitions: Iterable[TopicPartition],
    *,
    which: int,
    read_committed: bool = False,
) -> dict[TopicPartition, Offset]:
    """Return one end, EARLIEST or LATEST, of each partition.

    KafkaError names the partition without an answer.
    """
    wanted = list(topic_partitions)
    found: dict[TopicPartition, Offset] = {}

    def ask() -> None:
        for leader, some in cluster.by_leader(
            [topic_partition for topic_partition in wanted if topic_partition not in found]
        ):
            request = ListOffsetsRequest(
                replica_id=CONSUMER_ID,
                isolation_level=int(read_committed),
                topics=list_offsets_topics(dict.fromkeys(some, which)),
                timeout_ms=cluster.settings.request_timeout_ms,
            )
            answer = cluster.connection_to(leader).call(request, ListOffsetsResponse)
            for topic in answer.topics:
                for row in topic.partitions:
                    topic_partition = TopicPartition(topic.name, row.partition_index)
                    raise_for(row.error_code, f"offsets of {topic_partition}")
                    found[topic_partition] = max(row.offset, 0)

    cluster.retrying(ask)
    return {topic_partition: found[topic_partition] for topic_partition in wanted}


def ends_of_epochs(
    cluster: Cluster, epochs: Mapping[TopicPartition, LeaderEpoch]
) -> dict[TopicPartition, tuple[LeaderEpoch, Offset]]:
    """Return where the leader's log ends for a leader epoch of each partition (KIP-320): the
    largest epoch up to that one, and the offset behind it; −1 where it knows none.

    UnsupportedVersionError from brokers before Kafka 2.0.
    """
    found: dict[TopicPartition, tuple[LeaderEpoch, Offset]] = {}

    def ask() -> None:
        wanted = [each for each in epochs if each not in found]
        for leader, some in cluster.by_leader(wanted):
            topics: dict[str, list[OffsetForLeaderPartition]] = {}
            for each in some:
                row = OffsetForLeaderPartition(
                    partition=each.partition,
                    current_leader_epoch=cluster.partition(each).leader_epoch,
                    leader_epoch=epochs[each],
                )
                topics.setdefault(each.topic, []).append(row)
            request = OffsetForLeaderEpochRequest(
                replica_id=CONSUMER_ID,
                topics=[
                    OffsetForLeaderTopic(topic=name, partitions=rows)
                    for name, rows in topics.items()
                ],
            )
            answer = cluster.connection_to(leader).call(request, OffsetForLeaderEpochResponse)
            for topic in answer.topics:
                for found_row in topic.partitions:
                    topic_partition = TopicPartition(topic.topic, found_row.partition)
                    raise_for(found_row.error_code, f"leader epochs of {topic_partition}")
                    found[topic_partition] = (found_row.leader_epoch, found_row.end_offset)

    cluster.retrying(ask)
    return found
