"""PushTelemetry (key 72), version 0 (KIP-714).

==============================  ================================================================
INVALID_REQUEST                 the id of the client is a reserved one
UNKNOWN_SUBSCRIPTION_ID         the subscription is not the one of GetTelemetrySubscriptions
UNSUPPORTED_COMPRESSION_TYPE    a compression that was not offered
TELEMETRY_TOO_LARGE             more bytes than GetTelemetrySubscriptions allows
==============================  ================================================================

Millstream collects no metrics of clients: the API is not advertised, and what is pushed is dropped
unread (Kafka: ``ClientMetricsManager`` without a receiver of telemetry).
"""

from __future__ import annotations

from typing import Final

from millstream.handlers.get_telemetry_subscriptions import (
    COMPRESSION_TYPES,
    MAX_BYTES,
    subscription_id,
)
from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.fields import NO_UUID
from millstream.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from millstream.runtime.services import Services

_RESERVED_IDS: Final = frozenset({NO_UUID, bytes(15) + b"\1"})
_UNCOMPRESSED: Final = 0


def handle(
    services: Services, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    """Drop what was pushed."""
    if request.client_instance_id in _RESERVED_IDS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.subscription_id != subscription_id(request.client_instance_id):
        raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    if request.compression_type not in (_UNCOMPRESSED, *COMPRESSION_TYPES):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if len(request.metrics) > MAX_BYTES:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
    return PushTelemetryResponse(error_code=ErrorCode.NONE.code)


def failed(
    context: RequestContext, request: PushTelemetryRequest, error: KafkaError
) -> PushTelemetryResponse:
    """Refuse with the error."""
    return PushTelemetryResponse(error_code=error.error.code)
