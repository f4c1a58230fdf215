"""Batches made by hand, written to a topic as they are: codecs, timestamps and gaps of a test."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.client.cluster import Cluster
from millstream.client.errors import raise_for
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records.crc32c import Buffer

ACKS_ALL = -1
LAST_VERSION_WITH_NAMES = 12


def append_batches(bootstrap: str, batches: Iterable[tuple[TopicPartition, Buffer]]) -> None:
    """Write batches in their order, each acknowledged by all replicas before the next."""
    with Cluster.at(bootstrap) as cluster:
        for place, batch in batches:
            rows = [PartitionProduceData(index=place.partition, records=batch)]
            request = ProduceRequest(
                acks=ACKS_ALL,
                timeout_ms=30_000,
                topic_data=[TopicProduceData(name=place.topic, partition_data=rows)],
            )
            connection = cluster.connection_to(cluster.partition(place).leader)
            version = connection.version_for(ProduceRequest, LAST_VERSION_WITH_NAMES)
            answer = connection.call(request, ProduceResponse, version=version)
            row = answer.responses[0].partition_responses[0]
            raise_for(row.error_code, row.error_message or f"a batch for {place}")
