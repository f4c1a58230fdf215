"""The reader of OTLP against OpenTelemetry's own messages, and against bytes of all kinds."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.runtime.telemetry.otlp import MAX_POINTS, OtlpError, Point, read_metrics

metrics_pb2 = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2")


def pushed() -> bytes:
    data = metrics_pb2.MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    gauge = scope.metrics.add(name="org.apache.kafka.consumer.lag", unit="1")
    point = gauge.gauge.data_points.add(as_double=2.5, time_unix_nano=7)
    point.attributes.add(key="topic").value.string_value = "ü"
    point.attributes.add(key="partition").value.int_value = -3
    total = scope.metrics.add(name="org.apache.kafka.producer.sent")
    total.sum.data_points.add(as_int=-4)
    times = scope.metrics.add(name="rtt")
    times.histogram.data_points.add(count=3, sum=1.5, bucket_counts=[1, 2], explicit_bounds=[1.0])
    return data.SerializeToString()


def test_values_of_gauges_sums_and_histograms_are_read() -> None:
    assert read_metrics(pushed()) == [
        Point("org.apache.kafka.consumer.lag", 2.5, (("partition", "-3"), ("topic", "ü"))),
        Point("org.apache.kafka.producer.sent", -4.0, ()),
        Point("rtt.count", 3.0, ()),
        Point("rtt.sum", 1.5, ()),
    ]


@given(st.data())
def test_damaged_bytes_are_refused_or_read_and_raise_nothing_else(data: st.DataObject) -> None:
    raw = bytearray(pushed())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    with suppress(OtlpError):
        read_metrics(bytes(raw[:cut]))


def test_an_attribute_of_another_kind_than_it_says_is_refused() -> None:
    data = metrics_pb2.MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.gauge.data_points.add().attributes.add(key="k").value.string_value = "v"
    raw = data.SerializeToString()
    with pytest.raises(OtlpError):
        read_metrics(raw.replace(b"\x0a\x01v", b"\x1a\x01v"))


def test_a_push_of_too_many_values_is_refused() -> None:
    data = metrics_pb2.MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    for _ in range(MAX_POINTS + 1):
        metric.gauge.data_points.add(as_int=1)
    with pytest.raises(OtlpError, match="more than"):
        read_metrics(data.SerializeToString())
