"""What the pages of the cluster, of topics and of replicas show.

``disks`` is an administrator that waits for a short time only: every broker has to say for itself
what is on its disks, and a page does not wait for one that is paused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Final

from millstream.client.admin import Admin
from millstream.client.core.admin.configs import Resource, ResourceType
from millstream.client.core.admin.offsets import EARLIEST, LATEST
from millstream.client.core.admin.replicas import LogDirectory, PartitionReplicas
from millstream.model.acl import AclFilter
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

_NO_BROKER: Final = -1


def overview(admin: Admin, disks: Admin) -> dict[str, Any]:
    """Return the cluster and its brokers."""
    cluster = admin.describe_cluster()
    partitions = admin.describe_partitions()
    leads = Counter(each.leader for each in partitions.values())
    replicas = Counter(broker for each in partitions.values() for broker in each.replicas)
    on_disk = _log_directories(disks, [each.broker_id for each in cluster.brokers])
    return {
        "cluster_id": cluster.cluster_id,
        "controller": None if cluster.controller_id == _NO_BROKER else cluster.controller_id,
        "topics": len({each.topic for each in partitions}),
        "partitions": len(partitions),
        "under_replicated": sum(map(_is_under_replicated, partitions.values())),
        "offline": sum(each.leader == _NO_BROKER for each in partitions.values()),
        "brokers": [
            {
                "id": broker.broker_id,
                "host": broker.address.host,
                "port": broker.address.port,
                "rack": broker.rack,
                "controller": broker.broker_id == cluster.controller_id,
                "leaders": leads[broker.broker_id],
                "replicas": replicas[broker.broker_id],
                "size_bytes": _size(on_disk.get(broker.broker_id)),
                "log_dirs": [
                    {
                        "path": each.path,
                        "total_bytes": each.total_bytes,
                        "usable_bytes": each.usable_bytes,
                        "error": None if each.error is None else str(each.error),
                    }
                    for each in on_disk.get(broker.broker_id, ())
                ],
            }
            for broker in cluster.brokers
        ],
    }


def topics(admin: Admin, disks: Admin) -> dict[str, Any]:
    """Return all topics, internal ones too, with the bytes of their leaders."""
    partitions = admin.describe_partitions()
    of_topic: defaultdict[str, list[PartitionReplicas]] = defaultdict(list)
    for topic_partition, each in partitions.items():
        of_topic[topic_partition.topic].append(each)
    sizes: Counter[str] = Counter()
    unknown: set[str] = set()
    on_disk = _leaders_on_disk(disks, partitions)
    for topic_partition in partitions:
        size = on_disk.get(topic_partition)
        if size is None:
            unknown.add(topic_partition.topic)
        else:
            sizes[topic_partition.topic] += size
    return {
        "topics": [
            {
                "name": name,
                "internal": name.startswith("__"),
                "partitions": len(rows),
                "replication_factor": max(len(each.replicas) for each in rows),
                "under_replicated": sum(map(_is_under_replicated, rows)),
                "offline": sum(each.leader == _NO_BROKER for each in rows),
                "size_bytes": None if name in unknown else sizes[name],
            }
            for name, rows in sorted(of_topic.items())
        ]
    }


def topic(admin: Admin, disks: Admin, name: str) -> dict[str, Any]:
    """Return the partitions of a topic. KafkaError if there is none of that name."""
    admin.describe_topics([name])[name].get()
    partitions = admin.describe_partitions([name])
    starts, ends = offsets(admin, partitions, EARLIEST), offsets(admin, partitions, LATEST)
    sizes = _leaders_on_disk(disks, partitions)
    return {
        "name": name,
        "partitions": [
            {
                "partition": each.partition,
                "leader": None if found.leader == _NO_BROKER else found.leader,
                "leader_epoch": found.leader_epoch,
                "replicas": found.replicas,
                "isr": found.isr,
                "start_offset": starts.get(each),
                "end_offset": ends.get(each),
                "size_bytes": sizes.get(each),
            }
            for each, found in sorted(partitions.items())
        ],
    }


def settings(admin: Admin, name: str) -> dict[str, Any]:
    """Return the settings of a topic; the values of secrets are not among them."""
    resource = Resource(ResourceType.TOPIC, name)
    found = admin.describe_configs([resource], include_documentation=True)[resource].get()
    return {
        "settings": [
            {
                "name": each.name,
                "value": None if each.is_sensitive else each.value,
                "source": each.source.words,
                "sensitive": each.is_sensitive,
                "read_only": each.is_read_only,
                "documentation": each.documentation,
            }
            for each in found
        ]
    }


def replicas(admin: Admin, disks: Admin, topic_partition: TopicPartition) -> dict[str, Any]:
    """Return how far each replica of a partition is.

    Kafka's protocol tells how far a replica is behind the high watermark, and not what the leader
    has beyond it: ``leo`` is the high watermark less that. None for a broker that does not answer.
    """
    found = admin.describe_partitions([topic_partition.topic]).get(topic_partition)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    high_watermark = offsets(admin, [topic_partition], LATEST).get(topic_partition)
    lags = {
        broker: replica.offset_lag
        for broker, directories in _log_directories(
            disks, found.replicas, [topic_partition]
        ).items()
        for each in directories
        for at, replica in each.replicas.items()
        if at == topic_partition and not replica.is_future
    }
    rows: list[dict[str, Any]] = []
    for broker in found.replicas:
        lag = 0 if broker == found.leader else lags.get(broker)
        known = high_watermark is not None and lag is not None
        rows.append(
            {
                "broker": broker,
                "in_isr": broker in found.isr,
                "lag": lag,
                "leo": (high_watermark or 0) - (lag or 0) if known else None,
            }
        )
    return {
        "leader": None if found.leader == _NO_BROKER else found.leader,
        "leader_epoch": found.leader_epoch,
        "isr": found.isr,
        "high_watermark": high_watermark,
        "replicas": rows,
    }


def transactions(admin: Admin) -> dict[str, Any]:
    """Return the transactions of all coordinators."""
    return {
        "transactions": [
            {"id": each.transactional_id, "producer_id": each.producer_id, "state": each.state}
            for each in admin.list_transactions()
        ]
    }


def transaction(admin: Admin, name: str) -> dict[str, Any]:
    """Return one transaction. KafkaError if there is none of that id."""
    found = admin.describe_transactions([name])[name].get()
    return {
        "id": name,
        "producer_id": found.producer_id,
        "epoch": found.producer_epoch,
        "state": found.state,
        "timeout_ms": found.timeout_ms,
        "started": found.start_time_ms,
        "partitions": [
            {"topic": each.topic, "partition": each.partition} for each in found.partitions
        ],
    }


def acls(admin: Admin) -> dict[str, Any]:
    """Return the access rules; ``enabled`` is false where the brokers have no authorizer."""
    try:
        found = admin.describe_acls(AclFilter())
    except KafkaError as error:
        if error.error is not ErrorCode.SECURITY_DISABLED:
            raise
        return {"enabled": False, "acls": []}
    return {
        "enabled": True,
        "acls": [
            {
                "principal": each.principal,
                "resource_type": each.resource.name.lower().replace("_", " "),
                "name": each.name,
                "pattern": each.pattern.name.lower(),
                "operation": each.operation.name.lower().replace("_", " "),
                "permission": each.permission.name.lower(),
                "host": each.host,
            }
            for each in found
        ],
    }


def offsets(admin: Admin, partitions: Any, timestamp: int) -> dict[TopicPartition, Offset]:
    """Return an offset of each partition whose leader answers."""
    found: dict[TopicPartition, Offset] = {}
    for each, outcome in admin.list_offsets(dict.fromkeys(partitions, timestamp)).items():
        if outcome.error is None:
            found[each] = 0 if outcome.value is None else outcome.value.offset
    return found


def _is_under_replicated(partition: PartitionReplicas) -> bool:
    return len(partition.isr) < len(partition.replicas)


def _log_directories(
    admin: Admin, brokers: Any, partitions: Any = None
) -> dict[int, list[LogDirectory]]:
    """Return what the brokers that answer have on their disks."""
    outcomes = admin.describe_log_dirs(brokers, topic_partitions=partitions)
    return {broker: each.get() for broker, each in outcomes.items() if each.error is None}


def _leaders_on_disk(admin: Admin, partitions: Any) -> dict[TopicPartition, int]:
    brokers = {each.leader for each in partitions.values()} - {_NO_BROKER}
    return {
        at: replica.size_bytes
        for broker, directories in _log_directories(admin, brokers, list(partitions)).items()
        for each in directories
        for at, replica in each.replicas.items()
        if at in partitions and partitions[at].leader == broker and not replica.is_future
    }


def _size(directories: list[LogDirectory] | None) -> int | None:
    if directories is None:
        return None
    return sum(each.size_bytes for one in directories for each in one.replicas.values())
