"""PushTelemetry (key 72), version 0 (KIP-714).

==============================  ================================================================
INVALID_REQUEST                 the id of the client is a reserved one
UNKNOWN_SUBSCRIPTION_ID         the subscription is not the one of GetTelemetrySubscriptions
UNSUPPORTED_COMPRESSION_TYPE    a compression that was not offered
TELEMETRY_TOO_LARGE             more bytes than GetTelemetrySubscriptions allows
INVALID_RECORD                  what was pushed is damaged, or too much once it is decompressed
==============================  ================================================================

A broker with `metrics.port` keeps the newest values of each client and shows them at `/metrics`.
For any other the API is not advertised, and what is pushed is dropped unread (Kafka:
``ClientMetricsManager`` without a receiver of telemetry).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.handlers.get_telemetry_subscriptions import (
    COMPRESSION_TYPES,
    MAX_BYTES,
    client_of,
    subscription_id,
)
from millstream.handlers.request import Reply, RequestContext
from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError
from millstream.protocol.fields import NO_UUID
from millstream.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from millstream.records.compression import decompress
from millstream.runtime.services import Services

if TYPE_CHECKING:
    from millstream.runtime.telemetry.client_telemetry import Client, ClientTelemetry
    from millstream.runtime.telemetry.otlp import Point

_RESERVED_IDS: Final = frozenset({NO_UUID, bytes(15) + b"\1"})
_UNCOMPRESSED: Final = 0


def handle(services: Services, context: RequestContext, request: PushTelemetryRequest) -> Reply:
    """Keep what was pushed where it is shown, drop it elsewhere."""
    telemetry = services.telemetry
    if telemetry is not None:
        return _keep(services, telemetry, context, request)
    if request.client_instance_id in _RESERVED_IDS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.subscription_id != subscription_id(request.client_instance_id):
        raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    if request.compression_type not in (_UNCOMPRESSED, *COMPRESSION_TYPES):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if len(request.metrics) > MAX_BYTES:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
    return PushTelemetryResponse(error_code=ErrorCode.NONE.code)


async def _keep(
    services: Services,
    telemetry: ClientTelemetry,
    context: RequestContext,
    request: PushTelemetryRequest,
) -> PushTelemetryResponse:
    """Keep what was pushed, which is read off the loop: a mebibyte of it takes a while."""
    try:
        client = _checked(services, telemetry, context, request)
        codec, data = request.compression_type, bytes(request.metrics)
        max_bytes = services.config.current.telemetry_max_bytes
        points = await services.offload.run("telemetry", partial(_read, codec, data, max_bytes))
        telemetry.take(client, points, terminating=request.terminating)
    except KafkaError:
        telemetry.refused += 1
        raise
    return PushTelemetryResponse(error_code=ErrorCode.NONE.code)


def _checked(
    services: Services,
    telemetry: ClientTelemetry,
    context: RequestContext,
    request: PushTelemetryRequest,
) -> Client:
    """Return who pushes; raise what refuses that before it is read."""
    if request.client_instance_id in _RESERVED_IDS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    client = client_of(context, request.client_instance_id)
    if request.subscription_id != telemetry.wanted_of(client).subscription_id:
        raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    if request.compression_type not in (_UNCOMPRESSED, *COMPRESSION_TYPES):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if len(request.metrics) > services.config.current.telemetry_max_bytes:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
    return client


def _read(codec: int, data: bytes, max_bytes: int) -> list[Point]:
    from millstream.runtime.telemetry.otlp import OtlpError, read_metrics

    try:
        if codec != _UNCOMPRESSED:
            data = bytes(decompress(codec, data, max_bytes))
        return read_metrics(data)
    except (CorruptLogError, OtlpError) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


def failed(
    context: RequestContext, request: PushTelemetryRequest, error: KafkaError
) -> PushTelemetryResponse:
    """Refuse with the error."""
    return PushTelemetryResponse(error_code=error.error.code)
