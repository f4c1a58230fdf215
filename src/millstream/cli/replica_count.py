"""`millstream topic alter --replication-factor`: more or fewer replicas of each partition."""

from __future__ import annotations

from typing import Final

from millstream.cli.cluster_mover import Mover
from millstream.cli.failures import CommandFailedError
from millstream.cli.output import counted
from millstream.client import Admin
from millstream.client.placement import plan_placement
from millstream.client.replicas import view_cluster

_AT_ONCE: Final = 20


def change_replication_factor(admin: Admin, topic: str, count: int) -> None:
    """Give every partition so many replicas, and return when they are in sync.

    Replicas that are there stay where they are as far as the balance between brokers allows.
    CommandFailedError if there is no such topic, or there are not enough live brokers.
    """
    view = view_cluster(admin)
    present = {
        each.topic_partition: each.replicas
        for each in view.partitions
        if each.topic_partition.topic == topic
    }
    if not present:
        raise CommandFailedError(f"there is no topic {topic!r}")
    if count > len(view.brokers):
        raise CommandFailedError(
            f"--replication-factor {count}: a broker can have one replica of a partition, and the "
            f"cluster has {counted(len(view.brokers), 'live broker')}"
        )
    racks = {broker_id: broker.rack for broker_id, broker in view.brokers.items()}
    plan = plan_placement(present, sorted(view.brokers), racks, replication_factor=count)
    if plan:
        Mover(admin, view, plan, at_once=_AT_ONCE).run()
