"""Who keeps and who leads a partition."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.model.broker import BrokerId
from millstream.model.offsets import LeaderEpoch

NO_LEADER = BrokerId(-1)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the controller decided about one partition (Kafka: ``LeaderAndIsr`` plus the
    assignment).

    ``replicas`` is in assignment order: the first is the preferred leader. ``partition_epoch``
    is the version of the stored state, so that of two states the newer is known.
    """

    replicas: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: int = 0
    controller_epoch: int = 0
