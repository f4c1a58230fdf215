"""What a client asks of its tracing. `millstream.client.tracing` does it with OpenTelemetry."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from millstream.client.core.producer.batch import DeliveryCallback
from millstream.records.record import Header


class TracedHeaders(tuple[Header, ...]):
    """Headers that carry the context of a span: the record is traced already."""

    __slots__ = ()


class TracedSend(Protocol):
    """A span of one record that is sent."""

    @property
    def headers(self) -> TracedHeaders:
        """The record's headers, with those of the span's context (W3C Trace Context)."""

    @property
    def on_delivery(self) -> DeliveryCallback:
        """Ends the span, and calls what the user gave."""


class TracedRecord(Protocol):
    """A record that was read."""

    @property
    def topic(self) -> str:
        """Where it was read."""

    @property
    def partition(self) -> int:
        """Where it was read."""

    @property
    def headers(self) -> Sequence[Header]:
        """All of them, with those of the span that has sent it."""


class Tracing(Protocol):
    """Makes the spans of one client."""

    def sending(
        self,
        topic: str,
        key: object,
        headers: Sequence[Header],
        on_delivery: DeliveryCallback | None,
    ) -> AbstractContextManager[TracedSend]:
        """Begin the span of a record; an error inside of the block ends it."""

    def polled(self, records: Sequence[TracedRecord], began_ns: int) -> None:
        """Make the span of a poll that returned records, linked to those of their senders."""
