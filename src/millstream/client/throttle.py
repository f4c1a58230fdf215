"""Replication rate limits for reassignments (KIP-73): computes, sets, finds and removes them.

As in Apache Kafka's ``kafka-reassign-partitions``, the brokers get a rate in both directions, and
each topic lists the throttled replicas. The leader's list has the present replicas, because any of
them may become leader meanwhile; the follower's list has the added ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client.admin import Admin
from millstream.client.core.admin.configs import (
    Change,
    Operation,
    Resource,
    ResourceType,
    Source,
)
from millstream.model.topic import TopicPartition

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

_OWN: Final = (Source.DYNAMIC_BROKER, Source.TOPIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """The limits of one reassignment: its brokers, and two lists for each topic."""

    brokers: tuple[int, ...]
    leader_replicas: Mapping[str, str]
    follower_replicas: Mapping[str, str]


def plan_throttle(
    present: Mapping[TopicPartition, Sequence[int]], planned: Mapping[TopicPartition, Sequence[int]]
) -> Throttle:
    """Return the limits for the reassignment ``planned``. Pure."""
    brokers: set[int] = set()
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for topic_partition, target in sorted(planned.items()):
        added = [each for each in target if each not in present[topic_partition]]
        if not added:
            continue
        brokers.update(present[topic_partition], added)
        leaders.setdefault(topic_partition.topic, []).extend(
            f"{topic_partition.partition}:{each}" for each in present[topic_partition]
        )
        followers.setdefault(topic_partition.topic, []).extend(
            f"{topic_partition.partition}:{each}" for each in added
        )
    return Throttle(
        brokers=tuple(sorted(brokers)),
        leader_replicas={topic: ",".join(texts) for topic, texts in leaders.items()},
        follower_replicas={topic: ",".join(texts) for topic, texts in followers.items()},
    )


def set_throttle(admin: Admin, throttle: Throttle, bytes_per_second: int) -> None:
    """Set the lists of replicas first and the rates last, so that a rate never applies to an
    incomplete list.
    """
    admin.incremental_alter_configs(
        {
            Resource(ResourceType.TOPIC, topic): [
                Change(LEADER_REPLICAS, leaders),
                Change(FOLLOWER_REPLICAS, throttle.follower_replicas[topic]),
            ]
            for topic, leaders in throttle.leader_replicas.items()
        }
    ).get_all()
    rate = str(bytes_per_second)
    admin.incremental_alter_configs(
        {
            Resource(ResourceType.BROKER, str(broker_id)): [
                Change(LEADER_RATE, rate),
                Change(FOLLOWER_RATE, rate),
            ]
            for broker_id in throttle.brokers
        }
    ).get_all()


def lift_throttle(admin: Admin, brokers: Iterable[int], topics: Iterable[str]) -> bool:
    """Remove the limits of these brokers and topics; return whether there were any."""
    wanted = {
        Resource(ResourceType.BROKER, str(each)): [LEADER_RATE, FOLLOWER_RATE] for each in brokers
    }
    wanted |= {
        Resource(ResourceType.TOPIC, each): [LEADER_REPLICAS, FOLLOWER_REPLICAS] for each in topics
    }
    found = {
        resource: [each.name for each in settings if each.source in _OWN]
        for resource, settings in admin.describe_configs(wanted).get_all().items()
    }
    changes = {
        resource: [Change(name, operation=Operation.DELETE) for name in names]
        for resource, names in found.items()
        if names
    }
    admin.incremental_alter_configs(changes).get_all()
    return bool(changes)


def limited_brokers(admin: Admin, brokers: Iterable[int]) -> list[int]:
    """Return the brokers with a rate limit of their own or by the default of all brokers."""
    wanted = {
        Resource(ResourceType.BROKER, str(each)): [LEADER_RATE, FOLLOWER_RATE] for each in brokers
    }
    found = admin.describe_configs(wanted).get_all()
    return sorted(int(resource.name) for resource, settings in found.items() if settings)
