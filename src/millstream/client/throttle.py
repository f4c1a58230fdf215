"""Rate limits for replicas that move between brokers (KIP-73): which, set, found, and lifted.

As Apache Kafka's ``kafka-reassign-partitions`` does it: the brokers get a rate in both directions,
and each topic says which of its replicas are under it. The leader's side names the replicas that
are there, for any of them may lead meanwhile; the follower's side names those that are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client.cluster import Cluster
from millstream.client.configs import (
    Resource,
    ResourceType,
    Source,
    alter_configs,
    describe_configs,
)
from millstream.model.topic import TopicPartition

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

_OWN: Final = (Source.DYNAMIC_BROKER, Source.TOPIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """The limits of one reassignment: the brokers that take part, and two lists for each topic."""

    brokers: tuple[int, ...]
    leader_replicas: Mapping[str, str]
    follower_replicas: Mapping[str, str]


def plan_throttle(
    present: Mapping[TopicPartition, Sequence[int]], planned: Mapping[TopicPartition, Sequence[int]]
) -> Throttle:
    """Return what has to be limited while ``planned`` is carried out. Pure."""
    brokers: set[int] = set()
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for place, target in sorted(planned.items()):
        added = [each for each in target if each not in present[place]]
        if not added:
            continue
        brokers.update(present[place], added)
        leaders.setdefault(place.topic, []).extend(
            f"{place.partition}:{each}" for each in present[place]
        )
        followers.setdefault(place.topic, []).extend(f"{place.partition}:{each}" for each in added)
    return Throttle(
        brokers=tuple(sorted(brokers)),
        leader_replicas={topic: ",".join(texts) for topic, texts in leaders.items()},
        follower_replicas={topic: ",".join(texts) for topic, texts in followers.items()},
    )


def set_throttle(cluster: Cluster, throttle: Throttle, bytes_per_second: int) -> None:
    """Limit the replicas first and say how far last, so that no rate meets half a list."""
    for topic, leaders in throttle.leader_replicas.items():
        values = {LEADER_REPLICAS: leaders, FOLLOWER_REPLICAS: throttle.follower_replicas[topic]}
        alter_configs(cluster, Resource(ResourceType.TOPIC, topic), values=values)
    rate = str(bytes_per_second)
    for broker_id in throttle.brokers:
        resource = Resource(ResourceType.BROKER, str(broker_id))
        alter_configs(cluster, resource, values={LEADER_RATE: rate, FOLLOWER_RATE: rate})


def lift_throttle(cluster: Cluster, brokers: Iterable[int], topics: Iterable[str]) -> bool:
    """Take the limits of these brokers and topics away; return whether there were any."""
    wanted = [
        (Resource(ResourceType.BROKER, str(each)), (LEADER_RATE, FOLLOWER_RATE)) for each in brokers
    ]
    wanted += [
        (Resource(ResourceType.TOPIC, each), (LEADER_REPLICAS, FOLLOWER_REPLICAS))
        for each in topics
    ]
    lifted = False
    for resource, names in wanted:
        settings = describe_configs(cluster, resource, names)
        found = [each.name for each in settings if each.source in _OWN]
        if found:
            alter_configs(cluster, resource, delete=found)
            lifted = True
    return lifted
