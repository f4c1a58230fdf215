"""Holds replicas that catch up to the rates that an operator has set (KIP-73).

Two limits, each for the whole broker: what it sends as leader
(``leader.replication.throttled.rate``) and what it fetches as follower
(``follower.replication.throttled.rate``). They act on the replicas that a topic names in
``leader.replication.throttled.replicas`` and ``follower.replication.throttled.replicas``; bytes of
all replicas that are named count, and only those that are not in sync are held back, so that no
limit takes a replica out of the ISR. Kafka: ``ReplicationQuotaManager``,
``ReplicaManager.shouldLeaderThrottle``, ``RemoteLeaderEndPoint.shouldFollowerThrottle``.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.config.topic import TopicConfig
from millstream.model.broker import BrokerId
from millstream.model.clock import Clock
from millstream.replication.quota import UNLIMITED, ReplicationQuota, throttled_partitions

if TYPE_CHECKING:
    from millstream.runtime.replicas.partition import Partition


class ThrottledSide:
    """One of the two limits; ``limit`` and ``named`` say by which settings."""

    def __init__(
        self,
        broker_id: BrokerId,
        clock: Clock,
        config: DynamicConfig,
        *,
        limit: Callable[[DynamicConfig], int],
        named: Callable[[TopicConfig], tuple[str, ...]],
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._quota = _quota(config.static)
        self._config = config
        self._limit = limit
        self._named = named
        self._read: dict[str, tuple[tuple[str, ...], frozenset[int] | None]] = {}

    def is_exceeded(self) -> bool:
        """Tell whether replicas that are named have to wait."""
        limit = self._limit(self._config)
        return limit < UNLIMITED and self._quota.is_exceeded(limit, self._clock.monotonic_ms())

    def exceeded_for_ms(self) -> float:
        """Return after how long it is worth asking again, in milliseconds."""
        return self._quota.exceeded_for_ms(self._limit(self._config), self._clock.monotonic_ms())

    def names(self, partition: Partition) -> bool:
        """Tell whether this broker's replica of a partition is under the limit."""
        texts = self._named(partition.config)
        if not texts:
            return False
        topic, index = partition.topic_partition.topic, partition.topic_partition.partition
        known = self._read.get(topic)
        if known is None or known[0] is not texts:
            known = self._read[topic] = (texts, throttled_partitions(texts, self._broker_id))
        return known[1] is None or index in known[1]

    def record(self, count: int) -> None:
        """Count bytes of replicas that are named."""
        self._quota.record(count, self._clock.monotonic_ms())


class ReplicationThrottle:
    """Both limits of one broker."""

    def __init__(self, broker_id: BrokerId, clock: Clock, config: DynamicConfig) -> None:
        self.leader = ThrottledSide(
            broker_id,
            clock,
            config,
            limit=attrgetter("current.leader_replication_throttled_rate"),
            named=attrgetter("leader_replication_throttled_replicas"),
        )
        self.follower = ThrottledSide(
            broker_id,
            clock,
            config,
            limit=attrgetter("current.follower_replication_throttled_rate"),
            named=attrgetter("follower_replication_throttled_replicas"),
        )


def _quota(config: BrokerConfig) -> ReplicationQuota:
    return ReplicationQuota(
        windows=config.replication_quota_window_num,
        window_ms=config.replication_quota_window_size_seconds * 1000,
    )
