"""OpenTelemetry spans of what a client sends and reads, with the W3C headers between them.

Only loaded for a client whose setting ``tracing`` is true or a TracerProvider; needs
``opentelemetry-api``, the extra ``otel``. Names and attributes follow OpenTelemetry's conventions
for messaging and Kafka:

* ``send TOPIC`` (kind producer) from ``send`` until the outcome is known. Its context goes with the
  record, in the headers of the propagator that is set (by default ``traceparent`` and
  ``tracestate``).
* ``poll TOPIC`` (kind client) for each poll that returned records, linked to the spans that sent
  them.
* ``process TOPIC`` (kind consumer) is the program's own: :func:`processing` begins it, as the child
  of the span that sent the record.

What ``send_table`` and ``send_values`` send has no spans: they never touch single records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from millstream.client.core.producer.batch import DeliveryCallback, RecordMetadata
from millstream.client.core.settings import ObservedSettings
from millstream.client.core.tracing import TracedHeaders, TracedRecord
from millstream.model.errors import ConfigError
from millstream.records.record import Header

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.propagators.textmap import Getter, Setter
except ImportError as missing:
    raise ConfigError(
        "tracing needs opentelemetry-api: pip install 'millstream[otel]'"
    ) from missing

_TRACER: Final = "millstream.client"


class _IntoHeaders(Setter[list[Header]]):
    def set(self, carrier: list[Header], key: str, value: str) -> None:
        # A record that is forwarded with its headers has those of an earlier span.
        carrier[:] = [each for each in carrier if each[0] != key]
        carrier.append((key, value.encode()))


class _FromHeaders(Getter[Sequence[Header]]):
    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        found = [content for name, content in carrier if name == key and content is not None]
        return [each.decode("utf-8", "replace") for each in found[-1:]] or None

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        return [name for name, _ in carrier]


_SETTER: Final = _IntoHeaders()
_GETTER: Final = _FromHeaders()


def context_of(record: TracedRecord) -> context.Context:
    """Return the context that a record was sent with; an empty one if it carries none."""
    return propagate.extract(record.headers, context.Context(), _GETTER)


@contextmanager
def processing(
    record: TracedRecord, provider: trace.TracerProvider | None = None
) -> Iterator[trace.Span]:
    """``with processing(record):`` is a span of the program's own work on a record.

    It is the child of the span that sent the record, and current inside of the block. An exception
    that leaves the block is recorded.
    """
    tracer = trace.get_tracer(_TRACER, tracer_provider=provider)
    attributes = _attributes(record.topic, "process", "process")
    attributes["messaging.destination.partition.id"] = str(record.partition)
    offset = getattr(record, "offset", None)
    if offset is not None:
        attributes["messaging.kafka.offset"] = int(offset)
    with tracer.start_as_current_span(
        f"process {record.topic}",
        context=context_of(record),
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
    ) as span:
        yield span


class _Sending:
    """The span of one record."""

    def __init__(
        self, span: trace.Span, headers: TracedHeaders, after: DeliveryCallback | None
    ) -> None:
        self._span = span
        self._after = after
        self.headers = headers

    def on_delivery(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """End the span with the outcome; then the user's function is called."""
        if error is not None:
            self.fail(error)
        else:
            if metadata is not None:
                self._span.set_attribute(
                    "messaging.destination.partition.id", str(metadata.partition)
                )
                self._span.set_attribute("messaging.kafka.offset", metadata.offset)
            self._span.end()
        if self._after is not None:
            self._after(metadata, error)

    def fail(self, error: BaseException) -> None:
        """End the span with an error."""
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
        self._span.set_attribute("error.type", type(error).__name__)
        self._span.end()


class OpenTelemetryTracing:
    """Implements ``core.tracing.Tracing`` for one client."""

    def __init__(self, settings: ObservedSettings, group: str | None = None) -> None:
        provider: Any = settings.tracing if settings.tracing is not True else None
        self._tracer = trace.get_tracer(_TRACER, tracer_provider=provider)
        self._client_id = settings.client_id
        self._group = group

    @contextmanager
    def sending(
        self,
        topic: str,
        key: object,
        headers: Sequence[Header],
        on_delivery: DeliveryCallback | None,
    ) -> Iterator[_Sending]:
        """See ``core.tracing.Tracing``."""
        attributes = _attributes(topic, "send", "send") | {"messaging.client.id": self._client_id}
        if isinstance(key, str):
            attributes["messaging.kafka.message.key"] = key
        span = self._tracer.start_span(
            f"send {topic}", kind=trace.SpanKind.PRODUCER, attributes=attributes
        )
        carrier = list(headers)
        propagate.inject(carrier, trace.set_span_in_context(span), _SETTER)
        sending = _Sending(span, TracedHeaders(carrier), on_delivery)
        try:
            yield sending
        except BaseException as error:
            sending.fail(error)
            raise

    def polled(self, records: Sequence[TracedRecord], began_ns: int) -> None:
        """See ``core.tracing.Tracing``: a span for each topic of the poll."""
        by_topic: dict[str, list[TracedRecord]] = {}
        for record in records:
            by_topic.setdefault(record.topic, []).append(record)
        for topic, of_topic in by_topic.items():
            contexts = {
                (each.trace_id, each.span_id): each
                for each in map(_span_context_of, of_topic)
                if each.is_valid
            }
            attributes = _attributes(topic, "poll", "receive") | {
                "messaging.client.id": self._client_id,
                "messaging.batch.message_count": len(of_topic),
            }
            if self._group is not None:
                attributes["messaging.consumer.group.name"] = self._group
            self._tracer.start_span(
                f"poll {topic}",
                kind=trace.SpanKind.CLIENT,
                attributes=attributes,
                links=[trace.Link(each) for each in contexts.values()],
                start_time=began_ns,
            ).end()


def _span_context_of(record: TracedRecord) -> trace.SpanContext:
    return trace.get_current_span(context_of(record)).get_span_context()


def _attributes(topic: str, operation: str, kind: str) -> dict[str, str | int]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }
