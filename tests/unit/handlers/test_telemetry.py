"""Metrics of clients are asked for by nobody, and dropped."""

from __future__ import annotations

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.errors import ErrorCode
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from millstream.protocol.messages.push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)

CLIENT = bytes.fromhex("2864d108664a42428476f1033c9b7953")
KAFKAS_SUBSCRIPTION = 570704068
"""What Apache Kafka 4.3 answers to that client."""


def subscribe(broker: AdminBroker, client: bytes) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=client)
    return broker.call(request, 0, GetTelemetrySubscriptionsResponse)


def test_neither_api_is_advertised(broker: AdminBroker) -> None:
    answer = broker.call(ApiVersionsRequest(), 0, ApiVersionsResponse)
    told = {each.api_key for each in answer.api_keys}
    assert ApiKey.SASL_HANDSHAKE in told
    assert not told & {ApiKey.PUSH_TELEMETRY, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS}


def test_a_client_keeps_its_id_and_one_without_is_given_one(broker: AdminBroker) -> None:
    told = subscribe(broker, CLIENT)
    assert (told.error_code, told.client_instance_id) == (0, CLIENT)
    assert told.subscription_id == KAFKAS_SUBSCRIPTION
    told = subscribe(broker, bytes((CLIENT[0] ^ 0x80,)) + CLIENT[1:])
    assert told.subscription_id == KAFKAS_SUBSCRIPTION - (1 << 31), "32 bits with a sign"
    assert told.requested_metrics == []
    first, second = (subscribe(broker, bytes(16)).client_instance_id for _ in range(2))
    assert bytes(16) not in (first, second)
    assert first != second


@pytest.mark.parametrize(
    ("client", "subscription", "compression", "size", "error"),
    [
        (CLIENT, KAFKAS_SUBSCRIPTION, 0, 3, ErrorCode.NONE),
        (CLIENT, KAFKAS_SUBSCRIPTION, 4, 1_048_576, ErrorCode.NONE),
        (CLIENT, KAFKAS_SUBSCRIPTION, 4, 1_048_577, ErrorCode.TELEMETRY_TOO_LARGE),
        (CLIENT, KAFKAS_SUBSCRIPTION, 5, 3, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (CLIENT, 7, 5, 3, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        (bytes(16), 7, 0, 3, ErrorCode.INVALID_REQUEST),
        (bytes(15) + b"\1", 7, 0, 3, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_pushed_is_dropped(
    broker: AdminBroker,
    client: bytes,
    subscription: int,
    compression: int,
    size: int,
    error: ErrorCode,
) -> None:
    request = PushTelemetryRequest(
        client_instance_id=client,
        subscription_id=subscription,
        terminating=False,
        compression_type=compression,
        metrics=bytes(size),
    )
    answer = broker.call(request, 0, PushTelemetryResponse)
    assert ErrorCode.of(answer.error_code) is error
