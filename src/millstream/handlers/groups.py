"""What the handlers of the group requests share."""

from __future__ import annotations

from millstream.coordinator.group.join_group import Caller
from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.features import GROUP_VERSION, SHARE_VERSION
from millstream.runtime.services import Services


def caller(context: RequestContext) -> Caller:
    """Return the address of the client, as groups store it (Kafka: ``InetAddress.toString``)."""
    return Caller(context.client_id or "", f"/{context.connection.peer_host}", context.version)


def require_consumer_protocol(services: Services) -> None:
    """Raise UNSUPPORTED_VERSION unless the cluster has switched the consumer protocol on (Kafka:
    ``KafkaApis.isConsumerGroupProtocolEnabled``).
    """
    protocols = services.config.current.group_coordinator_rebalance_protocols
    if "consumer" not in protocols or services.metadata.features.level(GROUP_VERSION) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def require_share_groups(services: Services) -> None:
    """Raise UNSUPPORTED_VERSION unless the cluster has switched share groups on (Kafka:
    ``KafkaApis.isShareGroupProtocolEnabled``).
    """
    if services.metadata.features.level(SHARE_VERSION) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
