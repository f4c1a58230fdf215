"""Subscriptions to metrics of clients, who fits them, and what is pushed (KIP-714)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.protocol.fields import NO_UUID
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from millstream.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from millstream.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from millstream.records.compression import Codec, compress
from millstream.runtime.telemetry.client_telemetry import Client, ClientTelemetry
from millstream.runtime.telemetry.otlp import Point
from millstream.server.metrics.of_clients import of_clients

CLIENT_METRICS = 16
# One gauge, named "a.b", of value 2.
METRIC = b"\x0a\x03a.b\x2a\x0b\x0a\x09\x21" + b"\x00\x00\x00\x00\x00\x00\x00\x40"
PUSH = b"\x0a\x16\x12\x14\x12\x12" + METRIC


@pytest.fixture
def broker(tmp_path: Path) -> AdminBroker:
    broker = AdminBroker(tmp_path)
    broker.services.telemetry = ClientTelemetry(broker.metadata.entities, broker.clock)
    return broker


def alter(broker: AdminBroker, name: str, **settings: str) -> int:
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in settings.items()
    ]
    resource = AlterConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    response = broker.call(request, 1, IncrementalAlterConfigsResponse)
    return response.responses[0].error_code


def subscription(broker: AdminBroker) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=NO_UUID)
    return broker.call(request, 0, GetTelemetrySubscriptionsResponse)


def push(
    broker: AdminBroker,
    wanted: GetTelemetrySubscriptionsResponse,
    metrics: bytes,
    compression: int = 0,
    *,
    terminating: bool = False,
) -> int:
    request = PushTelemetryRequest(
        client_instance_id=wanted.client_instance_id,
        subscription_id=wanted.subscription_id,
        terminating=terminating,
        compression_type=compression,
        metrics=metrics,
    )
    return broker.call(request, 0, PushTelemetryResponse).error_code


def test_a_subscription_is_kept_described_and_listed(broker: AdminBroker) -> None:
    assert alter(broker, "a/b", metrics="org.apache", interval_ms="200", match="client_id=.*") == 0
    resource = DescribeConfigsResource(
        resource_type=CLIENT_METRICS, resource_name="a/b", configuration_keys=None
    )
    described = broker.call(
        DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse
    )
    texts = {each.name: each.value for each in described.results[0].configs}
    assert texts == {"metrics": "org.apache", "interval.ms": "200", "match": "client_id=.*"}
    listed = broker.call(
        ListConfigResourcesRequest(resource_types=[]), 0, ListConfigResourcesResponse
    )
    assert [each.resource_name for each in listed.config_resources] == ["a/b"]


@pytest.mark.parametrize(
    "settings",
    [{"interval_ms": "99"}, {"match": "nothing=x"}, {"match": "client_id=("}, {"color": "red"}],
)
def test_what_no_subscription_may_have_is_refused(
    broker: AdminBroker, settings: dict[str, str]
) -> None:
    assert alter(broker, "a", **settings) == 40
    assert subscription(broker).requested_metrics == []


def test_a_client_is_asked_for_what_all_subscriptions_name_that_it_fits(
    broker: AdminBroker,
) -> None:
    assert subscription(broker).requested_metrics == []
    assert alter(broker, "a", metrics="one,two", interval_ms="1000", match="client_id=test.*") == 0
    assert alter(broker, "b", metrics="two,three", interval_ms="500") == 0
    assert alter(broker, "c", metrics="four", interval_ms="100", match="client_id=other") == 0
    wanted = subscription(broker)
    assert wanted.requested_metrics == ["one", "three", "two"]
    assert wanted.push_interval_ms == 500


def test_what_is_pushed_is_shown_until_the_client_ends(broker: AdminBroker) -> None:
    assert alter(broker, "all", metrics="*", interval_ms="1000") == 0
    wanted = subscription(broker)
    telemetry = broker.services.telemetry
    assert telemetry is not None

    def shown() -> dict[str, float]:
        return {
            name: value
            for family in of_clients(telemetry)
            if family is not None
            for name, _, value in family.samples
            if name.startswith("kafka_client_")
        }

    for codec in Codec:
        data = PUSH if codec is Codec.NONE else bytes(compress(codec, PUSH))
        assert push(broker, wanted, data, codec.value) == 0
        assert shown() == {"kafka_client_a_b": 2.0}
    assert push(broker, wanted, b"\xff\xff") == 87
    assert push(broker, wanted, bytes(2_000_000)) == 118
    assert telemetry.refused == 2
    assert push(broker, wanted, PUSH, terminating=True) == 0
    assert shown() == {}
    assert push(broker, wanted, PUSH) == 0
    broker.clock.advance(4_000)
    assert shown() == {}
    assert alter(broker, "all", interval_ms="2000") == 0
    assert push(broker, wanted, PUSH) == 117


def test_long_texts_and_many_attributes_are_cut(broker: AdminBroker) -> None:
    telemetry = broker.services.telemetry
    assert telemetry is not None
    assert alter(broker, "all", metrics="*") == 0
    client = Client(bytes(16), "c" * 30_000, "", "", "", 0)
    attributes = tuple((f"k{number}" + "x" * 9_999, "y" * 9_999) for number in range(500))
    telemetry.take(client, [Point("m" * 9_999, 1.0, attributes)], terminating=False)
    (pushed,) = telemetry.pushed()
    assert sum(len(name) + len(str(texts)) for name, texts in pushed.points) < 10_000
    (labels,) = (
        labels
        for family in of_clients(telemetry)
        if family is not None
        for name, labels, _ in family.samples
        if name.startswith("kafka_client_")
    )
    assert len(labels["client_id"]) == 200


def test_what_nobody_asked_for_is_not_kept(broker: AdminBroker) -> None:
    telemetry = broker.services.telemetry
    assert telemetry is not None
    wanted = subscription(broker)
    assert push(broker, wanted, PUSH) == 0
    assert [each.points for each in telemetry.pushed()] == [], "no subscription wants any"
    assert alter(broker, "some", metrics="b.,a", interval_ms="1000") == 0
    request = GetTelemetrySubscriptionsRequest(client_instance_id=wanted.client_instance_id)
    wanted = broker.call(request, 0, GetTelemetrySubscriptionsResponse)
    assert push(broker, wanted, PUSH) == 0
    assert [each.points for each in telemetry.pushed()] == [{("a.b", ()): 2.0}]
    assert push(broker, wanted, PUSH.replace(b"a.b", b"c.b")) == 0
    assert [each.points for each in telemetry.pushed()] == [{}]
