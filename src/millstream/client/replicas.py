"""Replicas as clients see them: who leads and follows, elections, and moves between brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from millstream.client.cluster import Cluster
from millstream.client.configs import Resource, ResourceType, describe_configs
from millstream.client.errors import raise_for
from millstream.client.log_dirs import describe_directories
from millstream.client.metadata import Broker
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from millstream.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
)
from millstream.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from millstream.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

Outcomes = dict[TopicPartition, KafkaError | None]

PREFERRED = 0
UNCLEAN = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """One partition: who keeps it. ``elr`` are out of sync but have all that is committed.

    ``lag`` says for replicas whose brokers answer how many offsets they are behind.
    """

    place: TopicPartition
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    min_insync_replicas: int
    lag: Mapping[int, int]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """One partition that is on its way to other brokers."""

    place: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster at one moment."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, Broker]
    partitions: tuple[Replicas, ...]


def view_cluster(cluster: Cluster) -> ClusterView:
    """Ask everybody about everything."""
    metadata = cluster.metadata()
    minimum = {name: _min_insync_replicas(cluster, name) for name in metadata.topics}
    on_disk = {
        (replica.broker_id, replica.topic_partition): replica
        for directory in describe_directories(cluster)
        for replica in directory.replicas
        if not replica.is_future
    }
    found = []
    for place, row in _partitions(cluster):
        if place.topic not in minimum:
            continue
        kept = {
            broker_id: on_disk[broker_id, place]
            for broker_id in row.replica_nodes
            if (broker_id, place) in on_disk
        }
        found.append(
            Replicas(
                place=place,
                leader=row.leader_id,
                replicas=tuple(row.replica_nodes),
                isr=tuple(row.isr_nodes),
                elr=tuple(row.eligible_leader_replicas or ()),
                last_known_elr=tuple(row.last_known_elr or ()),
                min_insync_replicas=min(minimum[place.topic], len(row.replica_nodes)),
                lag={broker_id: each.offset_lag for broker_id, each in kept.items()},
                size_bytes=max((each.size_bytes for each in kept.values()), default=0),
            )
        )
    return ClusterView(
        cluster_id=metadata.cluster_id or "",
        controller_id=metadata.controller_id,
        brokers=metadata.brokers,
        partitions=tuple(found),
    )


def _partitions(
    cluster: Cluster,
) -> Iterator[tuple[TopicPartition, DescribeTopicPartitionsResponsePartition]]:
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(topics=[], cursor=cursor)
        response = cluster.any_connection().call(request, DescribeTopicPartitionsResponse)
        for topic in response.topics:
            for row in topic.partitions:
                yield TopicPartition(topic.name or "", row.partition_index), row
        cursor = response.next_cursor
        if cursor is None:
            return


def _min_insync_replicas(cluster: Cluster, topic: str) -> int:
    resource = Resource(ResourceType.TOPIC, topic)
    for setting in describe_configs(cluster, resource, ["min.insync.replicas"]):
        return int(setting.value or 1)
    return 1


def elect_leaders(
    cluster: Cluster, election_type: int, places: Iterable[TopicPartition] | None
) -> Outcomes:
    """Have the controller elect leaders; None for ``places`` means wherever it is needed."""
    request = ElectLeadersRequest(
        election_type=election_type,
        topic_partitions=None
        if places is None
        else [
            TopicPartitions(topic=topic, partitions=indices)
            for topic, indices in _by_topic(places).items()
        ],
    )

    def ask() -> Outcomes:
        response = cluster.controller().call(request, ElectLeadersResponse)
        raise_for(response.error_code, "election")
        return {
            TopicPartition(each.topic, row.partition_id): _outcome(
                row.error_code, row.error_message
            )
            for each in response.replica_election_results
            for row in each.partition_result
        }

    return cluster.retrying(ask)


def move_partitions(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> Outcomes:
    """Begin to move partitions to other brokers, or (None) cancel their moves."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for place, target in targets.items():
        topics.setdefault(place.topic, []).append(
            ReassignablePartition(
                partition_index=place.partition,
                replicas=None if target is None else list(target),
            )
        )
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=rows) for name, rows in topics.items()]
    )

    def ask() -> Outcomes:
        response = cluster.controller().call(request, AlterPartitionReassignmentsResponse)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code), response.error_message)
        return {
            TopicPartition(each.name, row.partition_index): _outcome(
                row.error_code, row.error_message
            )
            for each in response.responses
            for row in each.partitions
        }

    return cluster.retrying(ask)


def list_moves(cluster: Cluster) -> list[Moving]:
    """Return every partition that is on its way."""

    def ask() -> list[Moving]:
        request = ListPartitionReassignmentsRequest(topics=None)
        response = cluster.controller().call(request, ListPartitionReassignmentsResponse)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code), response.error_message)
        return [
            Moving(
                place=TopicPartition(topic.name, row.partition_index),
                replicas=tuple(row.replicas),
                adding=tuple(row.adding_replicas),
                removing=tuple(row.removing_replicas),
            )
            for topic in response.topics
            for row in topic.partitions
        ]

    return cluster.retrying(ask)


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    return topics


def _outcome(code: int, message: str | None) -> KafkaError | None:
    return KafkaError(ErrorCode.of(code), message) if code else None
