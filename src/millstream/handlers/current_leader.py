"""Who leads a partition, told with the refusal that makes a client ask (KIP-951).

A client that is told goes to the new leader at once, without a Metadata request in between.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.leadership import NO_LEADER
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch
from millstream.runtime.services import Services


def current_leader(services: Services, topic: str, index: int) -> tuple[BrokerId, LeaderEpoch]:
    """Return a partition's leader and its epoch, both -1 where nobody knows.

    A broker that refuses does not name itself, whatever it was told: its lease may be over, and a
    client that is told who leads asks nobody else.
    """
    image = services.metadata.topic(topic)
    if image is None or not 0 <= index < len(image.partitions):
        return NO_LEADER, NO_LEADER_EPOCH
    state = image.partitions[index]
    if state.leader == services.node.broker_id:
        return NO_LEADER, NO_LEADER_EPOCH
    return state.leader, state.leader_epoch


def live_nodes(
    services: Services, broker_ids: Iterable[BrokerId], listener: str
) -> list[BrokerNode]:
    """Return each broker once, as far as it is alive and has the client's listener."""
    brokers = services.metadata.seen_from(listener)
    return [brokers[each] for each in dict.fromkeys(broker_ids) if each in brokers]
