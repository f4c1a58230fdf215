"""What a client tells of itself: OpenTelemetry's spans, and statistics at an interval."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.broker_process import BrokerProcess

from millstream.client import (
    Admin,
    ConfigError,
    Consumer,
    Producer,
    RecordTooLargeError,
    Resource,
    ShareConsumer,
    aio,
)
from millstream.client.core.admin.configs import Change, Operation, ResourceType
from millstream.client.tracing import context_of, processing

pytestmark = pytest.mark.system


class Spans:
    """A provider, and the spans that were ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [each for each in self._exporter.get_finished_spans() if each.name == name]


@pytest.fixture
def spans() -> Spans:
    return Spans()


def context(span: ReadableSpan) -> Any:
    found = span.get_span_context()
    assert found is not None
    return found


def read_from_the_beginning(bootstrap: str, group: str) -> None:
    change = Change("share.auto.offset.reset", "earliest", Operation.SET)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.incremental_alter_configs({Resource(ResourceType.GROUP, group): [change]}).get_all()


def check_story(spans: Spans, topic: str, group: str, records: list[Any]) -> None:
    """A span for each record that was sent, its context in the headers, and a linked poll."""
    sent = spans.named(f"send {topic}")
    assert len(sent) == len(records) == 2
    for span, record in zip(sent, records, strict=True):
        assert span.kind is SpanKind.PRODUCER
        assert span.attributes is not None
        assert span.attributes["messaging.system"] == "kafka"
        assert span.attributes["messaging.operation.type"] == "send"
        assert span.attributes["messaging.kafka.offset"] == record.offset
        assert span.attributes["messaging.destination.partition.id"] == str(record.partition)
        traceparent = dict(record.headers)["traceparent"].decode()
        assert traceparent.split("-")[1:3] == [
            f"{context(span).trace_id:032x}",
            f"{context(span).span_id:016x}",
        ]
    linked = {link.context.span_id for poll in spans.named(f"poll {topic}") for link in poll.links}
    assert linked == {context(each).span_id for each in sent}
    for poll in spans.named(f"poll {topic}"):
        assert poll.kind is SpanKind.CLIENT
        assert poll.attributes is not None
        assert poll.attributes["messaging.consumer.group.name"] == group


def test_spans_from_producer_to_consumer(broker: BrokerProcess, spans: Spans) -> None:
    told: list[object] = []
    with Producer(bootstrap_servers=broker.bootstrap, tracing=spans.provider) as producer:
        first = producer.send(
            "traced", b"1", key="ann", on_delivery=lambda metadata, error: told.append(metadata)
        )
        assert first.result(30) is not None
        producer.send("traced", b"2", headers={"mine": b"x"}).result(30)
        with pytest.raises(RecordTooLargeError):
            producer.send("traced-no", b"0" * 2_000_000)
    assert len(told) == 1
    records: list[Any] = []
    with Consumer(
        bootstrap_servers=broker.bootstrap,
        group_id="traced-group",
        auto_offset_reset="earliest",
        tracing=spans.provider,
    ) as consumer:
        consumer.subscribe(["traced"])
        while len(records) < 2:
            records += consumer.poll(1)
    check_story(spans, "traced", "traced-group", records)
    assert ("mine", b"x") in records[1].headers
    (failed,) = spans.named("send traced-no")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "RecordTooLargeError"

    with pytest.raises(KeyError), processing(records[0], spans.provider):
        raise KeyError
    (worked,) = spans.named("process traced")
    (sender, _) = spans.named("send traced")
    assert worked.parent is not None
    assert worked.parent.span_id == context(sender).span_id
    assert context(worked).trace_id == context(sender).trace_id
    assert worked.status.status_code is StatusCode.ERROR


def test_a_record_that_is_forwarded_has_one_context(broker: BrokerProcess, spans: Spans) -> None:
    """Headers of an earlier span are replaced: the reader continues the newest."""
    with Producer(bootstrap_servers=broker.bootstrap, tracing=spans.provider) as producer:
        producer.send("hops", b"1").result(30)
        with Consumer(
            bootstrap_servers=broker.bootstrap, group_id="hops", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["hops"])
            records: list[Any] = []
            while not records:
                records = consumer.poll(1)
            producer.send("hops", b"2", headers=records[0].headers).result(30)
            while len(records) < 2:
                records += consumer.poll(1)
    names = [name for name, _ in records[1].headers]
    assert names.count("traceparent") == 1
    assert len(context_of(records[1])) == 1
    assert records[0].headers != records[1].headers


def test_spans_of_asyncio(broker: BrokerProcess, spans: Spans) -> None:
    async def run() -> list[Any]:
        async with aio.Producer(
            bootstrap_servers=broker.bootstrap, tracing=spans.provider
        ) as producer:
            await producer.send_and_wait("traced-aio", b"1")
            await producer.send_and_wait("traced-aio", b"2")
        records: list[Any] = []
        async with aio.Consumer(
            bootstrap_servers=broker.bootstrap,
            group_id="traced-aio",
            auto_offset_reset="earliest",
            tracing=spans.provider,
        ) as consumer:
            await consumer.subscribe(["traced-aio"])
            while len(records) < 2:
                records += await consumer.poll(1)
        return records

    check_story(spans, "traced-aio", "traced-aio", asyncio.run(run()))


@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_spans_and_metrics_of_share_consumers(
    broker: BrokerProcess, spans: Spans, face: str
) -> None:
    topic = group = f"traced-share-{face}"
    read_from_the_beginning(broker.bootstrap, group)
    with Producer(bootstrap_servers=broker.bootstrap, tracing=spans.provider) as producer:
        producer.send(topic, b"1").result(30)
        producer.send(topic, b"2").result(30)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "tracing": spans.provider,
    }
    records: list[Any] = []

    async def run() -> dict[tuple[str, str], float]:
        async with aio.ShareConsumer(settings) as consumer:
            await consumer.subscribe([topic])
            while len(records) < 2:
                records.extend(await consumer.poll(1))
            await consumer.commit()
            return consumer.metrics()

    if face == "asyncio":
        metrics = asyncio.run(run())
    else:
        with ShareConsumer(settings) as shared:
            shared.subscribe([topic])
            while len(records) < 2:
                records.extend(shared.poll(1))
            shared.commit()
            metrics = shared.metrics()
    check_story(spans, topic, group, records)
    named = {name: value for (_, name), value in metrics.items()}
    assert named["records-consumed-total"] == 2
    assert named["acknowledgements-send-total"] == 2
    assert named["acknowledgements-error-total"] == 0


def test_nothing_is_loaded_that_was_not_asked_for() -> None:
    program = (
        "import sys\n"
        "from millstream.client import Consumer, Producer\n"
        "Producer(bootstrap_servers='127.0.0.1:1').close()\n"
        "Consumer(bootstrap_servers='127.0.0.1:1', tracing=False).close()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_tracing_without_opentelemetry_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "millstream.client.tracing")
    with pytest.raises(ConfigError, match=r"millstream\[otel\]"):
        Producer(bootstrap_servers="127.0.0.1:1", tracing=True)


def test_statistics_at_an_interval(broker: BrokerProcess) -> None:
    told: list[dict[str, Any]] = []
    twice = threading.Event()
    where: set[str] = set()

    def tell(statistics: dict[str, Any]) -> None:
        where.add(threading.current_thread().name)
        told.append(statistics)
        if statistics["metrics"]["producer-metrics"]["record-send-total"] == 3 and len(told) > 2:
            twice.set()
        raise ZeroDivisionError  # is logged, and the next one comes

    with Producer(
        bootstrap_servers=broker.bootstrap,
        client_id="shop",
        statistics_interval_ms=20,
        statistics_callback=tell,
    ) as producer:
        for number in range(3):
            producer.send("told", str(number)).result(30)
        assert twice.wait(30)
    told_at_the_end = len(told)
    assert told[0]["type"] == "producer"
    assert told[0]["client_id"] == "shop"
    assert told[1]["time"] >= told[0]["time"] > 1_700_000_000_000
    assert where == {"millstream-producer-shop"}
    assert len(told) == told_at_the_end


@pytest.mark.parametrize("kind", ["consumer", "share consumer"])
def test_statistics_of_asyncio(broker: BrokerProcess, kind: str) -> None:
    told: list[dict[str, Any]] = []

    async def run() -> None:
        of_kind: Any = {"consumer": aio.Consumer, "share consumer": aio.ShareConsumer}[kind]
        async with of_kind(
            bootstrap_servers=broker.bootstrap,
            group_id=f"told-{kind}",
            statistics_interval_ms=10,
            statistics_callback=told.append,
        ):
            while len(told) < 2:
                await asyncio.sleep(0.01)
        count = len(told)
        await asyncio.sleep(0.05)
        assert len(told) == count

    asyncio.run(run())
    assert [each["type"] for each in told[:2]] == [kind, kind]
    assert told[0]["metrics"]
