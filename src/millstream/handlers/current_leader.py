"""The leader of a partition, sent with the refusal that makes a client look for it (KIP-951).

A client that learns it goes to the new leader at once, without a Metadata request.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.leadership import NO_LEADER
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch
from millstream.runtime.services import Services


def current_leader(services: Services, topic: str, index: int) -> tuple[BrokerId, LeaderEpoch]:
    """Return a partition's leader and its epoch, both -1 where they are not known.

    A broker that refuses does not name itself, whatever its metadata: its lease may be over, and a
    client asks no other broker once it knows a leader.
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
