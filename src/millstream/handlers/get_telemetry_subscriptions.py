"""GetTelemetrySubscriptions (key 71), version 0 (KIP-714).

A broker with `metrics.port` tells a client which metrics the subscriptions that it fits name, how
often, and up to which size. Any other broker does not advertise the API; a client that asks all the
same is given an id and told that no metrics are wanted (Kafka: ``ClientMetricsManager`` without a
receiver of telemetry). Kafka remembers its clients and throttles one that asks too often; nothing
is remembered here. Values are asked for as they are, not as what they have grown by.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from millstream.handlers.request import RequestContext
from millstream.model.errors import KafkaError
from millstream.protocol.fields import NO_UUID
from millstream.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from millstream.runtime.services import Services

if TYPE_CHECKING:
    from millstream.runtime.telemetry.client_telemetry import Client

PUSH_INTERVAL_MS: Final = 300_000
MAX_BYTES: Final = 1_048_576
"""The largest push in bytes, Kafka's default of `telemetry.max.bytes`."""
COMPRESSION_TYPES: Final = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: Kafka's order of preference."""

_NO_METRICS: Final = crc32c(f"[]{PUSH_INTERVAL_MS}".encode())
_WORDS: Final = struct.Struct(">IIII")


def subscription_id(client_instance_id: bytes) -> int:
    """Return the number of a client's subscription to no metrics (Kafka:
    ``ClientMetricsManager.computeSubscriptionId``).
    """
    first, second, third, fourth = _WORDS.unpack(client_instance_id)
    number = int(_NO_METRICS ^ first ^ second ^ third ^ fourth)
    return number - (1 << 32) if number >= 1 << 31 else number


def handle(
    services: Services, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Answer that nothing is wanted, to the id that the client has or to a new one."""
    client_instance_id = request.client_instance_id
    if client_instance_id == NO_UUID:
        client_instance_id = uuid.UUID(bytes=services.random_bytes(16), version=4).bytes
    telemetry = services.telemetry
    if telemetry is None:
        return _response(client_instance_id, subscription_id(client_instance_id), 0)
    wanted = telemetry.wanted_of(client_of(context, client_instance_id))
    return GetTelemetrySubscriptionsResponse(
        error_code=0,
        client_instance_id=client_instance_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=list(COMPRESSION_TYPES),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=services.config.current.telemetry_max_bytes,
        delta_temporality=False,
        requested_metrics=list(wanted.metrics),
    )


def client_of(context: RequestContext, client_instance_id: bytes) -> Client:
    """Return who asks or pushes."""
    from millstream.runtime.telemetry.client_telemetry import Client

    connection = context.connection
    return Client(
        client_instance_id,
        context.client_id or "",
        connection.client_software_name,
        connection.client_software_version,
        connection.peer_host,
        connection.peer_port,
    )


def failed(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest, error: KafkaError
) -> GetTelemetrySubscriptionsResponse:
    """Refuse with the error."""
    return _response(request.client_instance_id, 0, error.error.code)


def _response(
    client_instance_id: bytes, number: int, error_code: int
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        error_code=error_code,
        client_instance_id=client_instance_id,
        subscription_id=number,
        accepted_compression_types=list(COMPRESSION_TYPES),
        push_interval_ms=PUSH_INTERVAL_MS,
        telemetry_max_bytes=MAX_BYTES,
        delta_temporality=True,
        requested_metrics=[],
    )
