"""What the handlers of the group requests share."""

from __future__ import annotations

from millstream.coordinator.group.join_group import Caller
from millstream.handlers.request import RequestContext


def caller(context: RequestContext) -> Caller:
    """Return the address of the client, as groups store it (Kafka: ``InetAddress.toString``)."""
    return Caller(context.client_id or "", f"/{context.connection.peer_host}", context.version)
