"""Where partitions begin and end, for a :class:`Cluster`; ``Admin.list_offsets`` can do more."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.client.cluster import Cluster
from millstream.client.core.admin.offsets import CONSUMER_ID, EARLIEST, LATEST, list_offsets_topics
from millstream.client.errors import raise_for
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

__all__ = ["EARLIEST", "LATEST", "end_offsets"]


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
