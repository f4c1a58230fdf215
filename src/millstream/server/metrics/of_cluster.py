"""Metrics of what this broker knows of its cluster: the controller, brokers, topics, partitions."""

from __future__ import annotations

from typing import Final

from millstream.model.leadership import NO_LEADER
from millstream.runtime.services import Services
from millstream.server.metrics import catalogue
from millstream.server.metrics.families import gauge
from millstream.server.metrics.of_logs import Part

_PARTITIONS_AT_ONCE: Final = 1_000


def of_cluster(services: Services) -> Part:
    """Yield the families of the controller."""
    metadata = services.metadata
    is_alone = services.cluster is None
    active = services.controller.is_active
    known = active or metadata.controller_id in metadata.brokers
    yield gauge(catalogue.CONTROLLER_ACTIVE, active)
    yield gauge(catalogue.CONTROLLER_KNOWN, known)
    yield gauge(catalogue.BROKERS, 1 if is_alone else len(metadata.brokers))
    topics = partitions = offline = not_preferred = looked_at = 0
    for image in tuple(metadata.topics()):
        topics += 1
        for state in image.partitions:
            partitions += 1
            leads = state.leader != NO_LEADER and (is_alone or state.leader in metadata.brokers)
            offline += not leads
            not_preferred += bool(leads and state.replicas and state.leader != state.replicas[0])
        looked_at += len(image.partitions)
        if looked_at >= _PARTITIONS_AT_ONCE:
            looked_at = 0
            yield None
    yield gauge(catalogue.TOPICS, topics)
    yield gauge(catalogue.CLUSTER_PARTITIONS, partitions)
    yield gauge(catalogue.OFFLINE_PARTITIONS, offline)
    yield gauge(catalogue.NOT_PREFERRED, not_preferred)
