"""A snapshot of a cluster: its brokers, and every replica with its size and its lag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.client.admin import Admin
from millstream.client.core.admin.configs import Resource, ResourceType
from millstream.client.metadata import Broker
from millstream.model.topic import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The replicas of one partition. ``elr`` are out of sync but have all committed records.

    ``lag`` is the number of offsets by which replicas are behind, if their brokers answer.
    """

    topic_partition: TopicPartition
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    min_insync_replicas: int
    lag: Mapping[int, int]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A snapshot of the cluster."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, Broker]
    partitions: tuple[Replicas, ...]
    free_bytes: Mapping[int, int] = field(default_factory=dict)
    """What the disks of a broker have left, as far as it tells (KIP-827)."""


def view_cluster(admin: Admin) -> ClusterView:
    """Query all brokers."""
    cluster = admin.describe_cluster()
    topic_partitions = admin.describe_partitions()
    minimum = _min_insync_replicas(
        admin, {topic_partition.topic for topic_partition in topic_partitions}
    )
    disks = admin.describe_log_dirs().get_all()
    on_disk = {
        (broker_id, topic_partition): replica
        for broker_id, directories in disks.items()
        for directory in directories
        for topic_partition, replica in directory.replicas.items()
        if not replica.is_future
    }
    found = []
    for topic_partition, known in topic_partitions.items():
        kept = {
            broker_id: on_disk[broker_id, topic_partition]
            for broker_id in known.replicas
            if (broker_id, topic_partition) in on_disk
        }
        found.append(
            Replicas(
                topic_partition=topic_partition,
                leader=known.leader,
                replicas=known.replicas,
                isr=known.isr,
                elr=known.elr,
                last_known_elr=known.last_known_elr,
                min_insync_replicas=min(minimum.get(topic_partition.topic, 1), len(known.replicas)),
                lag={broker_id: each.offset_lag for broker_id, each in kept.items()},
                size_bytes=max((each.size_bytes for each in kept.values()), default=0),
            )
        )
    return ClusterView(
        cluster_id=cluster.cluster_id or "",
        controller_id=cluster.controller_id,
        brokers={each.broker_id: each for each in cluster.brokers},
        partitions=tuple(found),
        free_bytes={
            broker_id: sum(each.usable_bytes for each in directories)
            for broker_id, directories in disks.items()
            if directories and all(each.usable_bytes >= 0 for each in directories)
        },
    )


def _min_insync_replicas(admin: Admin, topics: set[str]) -> dict[str, int]:
    """Return the setting of each topic; one that was deleted meanwhile is left out."""
    wanted = {Resource(ResourceType.TOPIC, name): ["min.insync.replicas"] for name in topics}
    return {
        resource.name: int(setting.value or 1)
        for resource, outcome in admin.describe_configs(wanted).items()
        if outcome.error is None
        for setting in outcome.get()
    }
