"""What the messages between brokers have in common."""

from __future__ import annotations

from millstream.model.errors import ErrorCode, KafkaError
from millstream.runtime.cluster_member import ClusterMember
from millstream.runtime.services import Services


def cluster_of(services: Services) -> ClusterMember:
    """Return this broker's part in its cluster; NOT_CONTROLLER for one that is in none."""
    if services.cluster is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is on its own")
    return services.cluster
