"""The core of a producer, which the blocking and the asyncio API share."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final, cast

from millstream.client.core.loop import ClientLoop
from millstream.client.core.metadata import MetadataView
from millstream.client.core.network import Network
from millstream.client.core.producer.accumulator import (
    PartitionQueue,
    RecordAccumulator,
    TopicBuffer,
)
from millstream.client.core.producer.metrics import ProducerMetrics
from millstream.client.core.producer.partitioner import KeyPartitioner, chosen
from millstream.client.core.producer.sender import Sender
from millstream.client.core.producer.transaction_control import TransactionControl
from millstream.client.core.producer.waiting_append import Append, Event, WaitingAppend
from millstream.client.core.settings import ProducerSettings, dotted, read_settings
from millstream.client.core.statistics import StatisticsReports
from millstream.client.core.tracing import Tracing
from millstream.client.core.waiting import within
from millstream.client.errors import (
    BrokerError,
    ClosedError,
    SerializationError,
    TimedOutError,
    TransactionStateError,
)
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConfigError, ErrorCode

Serializer = Callable[[str, object], bytes | None]
"""From (topic, key or value) to bytes."""

_MAX_IN_FLIGHT_IDEMPOTENT: Final = 5
_NO_INT64: Final = 1 << 63


class ProducerCore:
    """The parts of a producer. ``lock`` guards the accumulator if several threads append."""

    def __init__(
        self, loop: ClientLoop, settings: ProducerSettings, lock: AbstractContextManager[object]
    ) -> None:
        self.loop = loop
        self.settings = settings
        self.network = Network(loop, settings)
        self.metadata = MetadataView(
            self.network,
            create_topics=settings.allow_auto_create_topics,
            topic_idle_ms=settings.metadata_max_idle_ms,
        )
        self.accumulator = RecordAccumulator(
            settings, lock=lock, now_ms=loop.now_ms, random=loop.random
        )
        self.metrics = ProducerMetrics(loop.now_ms, self.accumulator)
        self.statistics = StatisticsReports(loop, settings, "producer", self.metrics.values)
        self.tracing: Tracing | None = None
        self.sender = Sender(self.network, self.metadata, self.accumulator, settings, self.metrics)
        self.transactions: TransactionControl | None = None
        if self.sender.transaction is not None:
            self.transactions = TransactionControl(
                self.network, settings, self.accumulator, self.sender, self.sender.transaction
            )
        self.accumulator.wake = self.sender.wake
        self.partitioner = chosen(settings.partitioner)
        self.is_plain = self.partitioner is None
        self.keys = None if settings.partitioner_ignore_keys else KeyPartitioner()
        self.key_serializer = cast("Serializer | None", settings.key_serializer)
        self.value_serializer = cast("Serializer | None", settings.value_serializer)
        self.metadata.on_change(self._resize)

    # --- for callers of send ---------------------------------------------------------------------

    def key_bytes(self, topic: str, key: object) -> bytes | None:
        """Return a key as bytes; SerializationError if it cannot be converted."""
        return _serialize(self.key_serializer, topic, key, "key")

    def value_bytes(self, topic: str, value: object) -> bytes | None:
        """Return a value as bytes; SerializationError if it cannot be converted."""
        return _serialize(self.value_serializer, topic, value, "value")

    def plan(
        self, topic: TopicBuffer, key: bytes | None, value: bytes | None, partition: int | None
    ) -> PartitionQueue:
        """Return the queue of a record; BrokerError for a partition that does not exist."""
        if topic.current is not None and key is None and partition is None and self.is_plain:
            return topic.current
        count = len(topic.queues)
        if partition is None:
            if self.partitioner is not None:
                partition = self.partitioner(topic.name, key, value, count)
            elif key is None or self.keys is None:
                return topic.sticky_queue()
            else:
                return topic.queues[self.keys.partition(key, count)]
        if not 0 <= partition < count:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic.name!r} has {count} partitions, no partition {partition}",
            )
        return topic.queues[partition]

    def waiting_append(self, append: Append, event: Event, *, may_wait: bool) -> WaitingAppend:
        """Return a ``send`` that waits for memory, ``max.block.ms`` at most."""
        return WaitingAppend(
            append,
            event,
            self.accumulator,
            self.metrics,
            now_ms=self.loop.now_ms,
            limit_ms=self.settings.max_block_ms,
            may_wait=may_wait,
            where=self.network.whereabouts,
        )

    # --- on the loop -----------------------------------------------------------------------------

    def transactional(self) -> TransactionControl:
        """Return the transactions; TransactionStateError without a ``transactional.id``."""
        if self.transactions is None:
            raise TransactionStateError("the producer has no transactional.id")
        return self.transactions

    async def open_topic(self, name: str) -> None:
        """Wait, ``max.block.ms`` at most, until a topic's partitions are known."""
        await self.metadata.topic(name, self.settings.max_block_ms)
        self.accumulator.topic(name)
        self._resize()

    async def close(self, timeout_ms: float) -> None:
        """Send buffered records, for ``timeout_ms`` at most; then fail those without an outcome.

        An open transaction is aborted instead.
        """
        with self.accumulator.lock:
            # A concurrent append has finished by now, or will see that the producer is closed.
            self.accumulator.close()
        if timeout_ms > 0 and (self.accumulator.incomplete or self.transactions is not None):
            with contextlib.suppress(TimedOutError):
                await within(self.loop, spawn(self._finish()), timeout_ms, "close")
        self.end()

    async def _finish(self) -> None:
        if self.transactions is not None:
            await self.transactions.close()
        await self.sender.flush()

    def end(self) -> None:
        """Stop at once: records without an outcome fail with ClosedError. Further calls do
        nothing.
        """
        self.statistics.stop()
        self.sender.close(ClosedError("the producer was closed before these were delivered"))
        self.metadata.close()
        self.network.close()

    def flush(self) -> Deferred[None]:
        """See :meth:`Sender.flush`."""
        began = self.loop.now_ms()
        flushed = self.sender.flush()

        def count(_: Deferred[None]) -> None:
            self.metrics.flushed_ms += self.loop.now_ms() - began

        flushed.on_done(count)
        return flushed

    def _resize(self) -> None:
        for name, buffer in list(self.accumulator.topics.items()):
            topic = self.metadata.known(name)
            if topic is not None:
                available = [
                    index for index, each in enumerate(topic.partitions) if each.leader >= 0
                ]
                if (len(topic.partitions), available) != (len(buffer.queues), buffer.available):
                    self.accumulator.resize(buffer, len(topic.partitions), available)


def read_producer_settings(
    settings: Mapping[str, object] | None, keywords: Mapping[str, object]
) -> ProducerSettings:
    """Return the user's settings, checked and completed; ConfigError for an invalid one."""
    given = {name.replace(".", "_") for name in [*(settings or {}), *keywords]}
    return complete_settings(read_settings(ProducerSettings, settings, keywords), given)


def complete_settings(settings: ProducerSettings, given: set[str]) -> ProducerSettings:
    """Check the settings that depend on each other; ``given`` are the names the user set.

    As in Kafka's ``ProducerConfig``: idempotence requires ``acks=all``, retries and at most five
    requests in flight; if it was not set explicitly, conflicting settings disable it.
    """
    chosen(settings.partitioner)
    conflicts = []
    if settings.acks != -1:
        conflicts.append("acks=all")
    if settings.retries == 0:
        conflicts.append("retries above 0")
    if settings.max_in_flight_requests_per_connection > _MAX_IN_FLIGHT_IDEMPOTENT:
        conflicts.append("max.in.flight.requests.per.connection of at most 5")
    if settings.enable_idempotence and conflicts:
        if "enable_idempotence" in given:
            raise ConfigError(f"enable.idempotence needs {' and '.join(conflicts)}")
        if settings.transactional_id is not None:
            raise ConfigError(f"transactional.id needs {' and '.join(conflicts)}")
        settings = replace(settings, enable_idempotence=False)
    if settings.transactional_id is not None and not settings.enable_idempotence:
        raise ConfigError("transactional.id needs enable.idempotence")
    least = settings.linger_ms + settings.request_timeout_ms
    if settings.delivery_timeout_ms < least:
        if "delivery_timeout_ms" in given:
            raise ConfigError(
                f"{dotted('delivery_timeout_ms')} has to be at least linger.ms + "
                f"request.timeout.ms = {least:.0f}"
            )
        settings = replace(settings, delivery_timeout_ms=least)
    return settings


def check_timestamp(timestamp_ms: int) -> int:
    """Return a timestamp as an int of 64 bits; SerializationError when it is none."""
    try:
        number = operator.index(timestamp_ms)
    except TypeError:
        number = _NO_INT64
    if not -_NO_INT64 <= number < _NO_INT64:
        raise SerializationError(
            f"a timestamp is a whole number of milliseconds, not {timestamp_ms!r}"
        )
    return number


def _serialize(serializer: Serializer | None, topic: str, given: object, what: str) -> bytes | None:
    if serializer is not None:
        try:
            given = serializer(topic, given)
        except Exception as error:
            raise SerializationError(f"the {what} serializer refused {given!r}: {error}") from error
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError as error:
            raise SerializationError(f"the {what} is no text that UTF-8 has: {error}") from error
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    raise SerializationError(
        f"a {what} is bytes, str or None, not {type(given).__name__}; or set {what}.serializer"
    )
