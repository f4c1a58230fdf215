"""From which replica a consumer should read (KIP-392).

Kafka: ``RackAwareReplicaSelector`` and ``ReplicaManager.findPreferredReadReplica``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millstream.model.broker import BrokerId
from millstream.model.offsets import Offset


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A live replica as the leader sees it; the leader itself is always caught up."""

    broker_id: BrokerId
    rack: str | None
    log_start_offset: Offset
    log_end_offset: Offset
    caught_up_ago_ms: float = 0.0


def preferred_read_replica(
    rack: str, fetch_offset: Offset, leader: ReplicaView, followers: Iterable[ReplicaView]
) -> BrokerId | None:
    """Return the follower in the consumer's rack with the highest log end offset, None to read from
    the leader.

    A follower that does not have ``fetch_offset`` is excluded; a leader in the rack is preferred.
    """
    if not rack or leader.rack == rack:
        return None
    near = [
        each
        for each in followers
        if each.rack == rack and each.log_start_offset <= fetch_offset <= each.log_end_offset
    ]
    if not near:
        return None
    return max(near, key=lambda each: (each.log_end_offset, -each.caught_up_ago_ms)).broker_id
