"""Requests are metered while metrics or slow requests are wanted, and cost nothing otherwise."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.handlers.admin_broker import AdminBroker
from tests.unit.server.test_audit_switch import set_broker

from millstream.handlers import fetch, produce
from millstream.handlers.routes import ROUTES
from millstream.protocol.api import ApiKey
from millstream.protocol.codec import RequestHeader
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records.builder import BatchBuilder
from millstream.server.metrics.request_meter import TIMED_OF_HOT, RequestMeter

METERED = {"metrics.port": "1"}


def handler(broker: AdminBroker, key: ApiKey) -> Any:
    version = ROUTES[key].last_version
    return broker.dispatcher._prepare(ROUTES[key], RequestHeader(key, version, 1, "x", 0)).handle


def produced(broker: AdminBroker, topic: str, index: int = 0) -> int:
    builder = BatchBuilder()
    builder.append(1, None, b"value")
    data = PartitionProduceData(index=index, records=builder.build())
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = broker.call(request, 9, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def meter_of(broker: AdminBroker) -> RequestMeter:
    meter = broker.dispatcher.monitoring.meter
    assert meter is not None
    return meter


def test_without_metrics_the_handlers_are_called_as_they_are(tmp_path: Path) -> None:
    broker = AdminBroker(tmp_path)
    assert handler(broker, ApiKey.PRODUCE) is produce.handle
    assert handler(broker, ApiKey.FETCH) is fetch.handle
    assert broker.dispatcher.monitoring.meter is None
    broker.close()


@pytest.mark.slow
def test_a_broker_without_metrics_loads_nothing_of_them() -> None:
    code = (
        "import sys, millstream.server.lifecycle; "
        "print([name for name in sys.modules if 'prometheus' in name or 'opentelemetry' in name "
        "or name.startswith('millstream.server.metrics.') and not name.endswith('.switch') "
        "or name in ('millstream.net.http_server', 'millstream.server.diagnosis')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_requests_and_their_errors_are_counted(tmp_path: Path) -> None:
    broker = AdminBroker(tmp_path, METERED)
    broker.create("t")
    for _ in range(2 * TIMED_OF_HOT + 3):
        assert produced(broker, "t") == 0
    assert produced(broker, "absent") == 3
    meter = meter_of(broker).of(ApiKey.PRODUCE)
    assert meter.count == 2 * TIMED_OF_HOT + 4
    assert meter.handler.count == 2
    assert meter.errors == {"UNKNOWN_TOPIC_OR_PARTITION": 1}
    broker.call(MetadataRequest(topics=None), 1, MetadataResponse)
    metadata = meter_of(broker).of(ApiKey.METADATA)
    assert (metadata.count, metadata.handler.count, metadata.name) == (1, 1, "Metadata")
    broker.close()


def test_what_a_client_names_makes_no_long_line_and_no_second_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = SimpleNamespace(peer_host="h", peer_port=1, principal="User:a\nERROR b")
    context: Any = SimpleNamespace(version=0, client_id="c\n" * 16_000, connection=connection)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t" * 30_000)] * 5)
    meter = RequestMeter()
    meter.slow_s = 0.0
    answer = MetadataResponse(brokers=[], topics=[])
    meter.around(ApiKey.METADATA, lambda *_: answer)(cast(Any, None), context, request)
    (line,) = caplog.messages
    assert "\n" not in line
    assert len(line) < 2_000


def test_slow_requests_are_named_with_where_the_time_went(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = AdminBroker(tmp_path)
    broker.create("t")
    assert set_broker(broker, slow_request_log_ms="0") == 0
    with caplog.at_level(logging.WARNING):
        assert produced(broker, "t") == 0
    (line,) = [each for each in caplog.messages if "Produce" in each]
    assert line.startswith("slow request: Produce v9 of client ")
    assert "handler" in line
    assert "waiting" in line
    assert "topics 't'" in line
    assert set_broker(broker, slow_request_log_ms="-1") == 0
    assert handler(broker, ApiKey.PRODUCE) is produce.handle
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert produced(broker, "t") == 0
    assert not caplog.messages
    broker.close()
