"""The asyncio share consumer: the same core on the application's own event loop.

No thread is started. Heartbeats and fetches continue while the application awaits something; a
coroutine that computes for long delays them, like everything else on its loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Generic, TypeVar, Unpack, cast

from millstream.client.aio.loop import AsyncioLoop
from millstream.client.aio.user_task import UserTask
from millstream.client.closing import AsyncClosing
from millstream.client.core.consumer.errors import RecordError
from millstream.client.core.consumer.record_reader import Deserializer, RecordReader
from millstream.client.core.keywords import ShareConsumerKeywords
from millstream.client.core.share.acknowledgements import Acknowledged, AcknowledgeType
from millstream.client.core.share.callback import AcknowledgementCallback, report
from millstream.client.core.share.core import ShareConsumerCore, topic_names
from millstream.client.core.share.delivery import ShareDelivery
from millstream.client.core.share.record import ShareRecord
from millstream.client.core.share.settings import ShareConsumerSettings, check_settings
from millstream.client.errors import ClosedError
from millstream.client.references import read_given
from millstream.client.security import open_security
from millstream.client.traced import open_tracing
from millstream.model.errors import ConfigError

K = TypeVar("K")
V = TypeVar("V")

_IDLE_POLL_S = 1.0


class ShareConsumer(AsyncClosing, Generic[K, V]):
    """Reads topics as a member of a share group; see
    :class:`millstream.client.share_consumer.ShareConsumer`.

    Made inside a running event loop and used on it::

        async with ShareConsumer(bootstrap_servers="localhost:9092", group_id="work") as consumer:
            await consumer.subscribe(["orders"])
            async for record in consumer:
                ...

    The acknowledgement callback may be a coroutine.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        **keywords: Unpack[ShareConsumerKeywords],
    ) -> None:
        chosen = read_given(ShareConsumerSettings, settings, keywords)
        check_settings(chosen)
        self.settings = chosen
        self._tracing = open_tracing(chosen, chosen.group_id)
        self._loop = AsyncioLoop(
            send_bytes=chosen.send_buffer_bytes,
            receive_bytes=chosen.receive_buffer_bytes,
            security=open_security(chosen),
        )
        self._core = ShareConsumerCore(self._loop, chosen)
        self._task = UserTask(self._loop, self._core.user)
        reader: RecordReader[K, V] = RecordReader(
            key_deserializer=cast("Deserializer | None", chosen.key_deserializer),
            value_deserializer=cast("Deserializer | None", chosen.value_deserializer),
            check_crcs=chosen.check_crcs,
        )
        self._delivery: ShareDelivery[K, V] = ShareDelivery(
            self._core.fetcher.buffer, reader, self._loop.now_ms, explicit=chosen.is_explicit
        )
        self._iterating: Iterator[ShareRecord[K, V]] | None = None
        self._closed = False
        self.set_acknowledgement_callback(None)

    # --- the subscription ------------------------------------------------------------------------

    async def subscribe(self, topics: Iterable[str] | str) -> None:
        """Read these topics as a member of the group; replaces an earlier subscription.

        An empty list unsubscribes.
        """
        self._end_iteration()
        wanted = topic_names(topics)
        if wanted:
            self._core.subscribe(wanted)
        else:
            await self.unsubscribe()

    async def unsubscribe(self) -> None:
        """Leave the group: send the acknowledgements, and release all other acquired records."""
        self._end_iteration()
        acknowledged = self._delivery.take_acknowledged(accept_rest=False)
        await self._task.drive(self._core.unsubscribe(acknowledged))
        self._delivery.clear()

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to."""
        return self._core.subscription

    # --- records ---------------------------------------------------------------------------------

    async def poll(
        self, timeout: float = 0, *, max_records: int | None = None
    ) -> list[ShareRecord[K, V]]:
        """Return acquired records, at most ``max_records`` (else ``max.poll.records``).

        Waits up to ``timeout`` seconds for the first; the rules are those of the blocking share
        consumer.
        """
        self._end_iteration()
        if self._closed:
            raise ClosedError("the share consumer is closed")
        # Other tasks, heartbeats and fetches among them, run between any two polls.
        await asyncio.sleep(0)
        core, delivery = self._core, self._delivery
        delivery.check_acknowledged()
        acknowledged = delivery.take_acknowledged()
        limit = self.settings.max_poll_records if max_records is None else max_records
        began_ns = 0 if self._tracing is None else time.time_ns()
        deadline = self._loop.now_ms() + timeout * 1000
        if not core.user.attention:
            try:
                records = delivery.take(limit)
            except RecordError:
                core.acknowledge(acknowledged)
                raise
            if records:
                core.acknowledge(acknowledged)
                core.note_poll()
                return self._polled(records, began_ns)
        # The core may have woken this call for something else although there are records: look for
        # records first.
        wait_ms = 0 if core.user.attention else timeout * 1000
        while True:
            await self._task.visit(core.poll(acknowledged, wait_ms))
            records = delivery.take(limit)
            wait_ms = deadline - self._loop.now_ms()
            if records or wait_ms <= 0:
                return self._polled(records, began_ns)
            # Of gaps: fetches may hold nothing else.
            acknowledged = delivery.take_acknowledged()

    async def __aiter__(self) -> AsyncIterator[ShareRecord[K, V]]:
        """Yield records one by one, for ever.

        In the implicit mode one is accepted when the next one is requested.
        """
        while not self._closed:
            records = iter(await self.poll(_IDLE_POLL_S))
            self._iterating = records
            for record in records:
                yield record
                if not self.settings.is_explicit:
                    self._delivery.accept_held(record)

    def wakeup(self) -> None:
        """Make the waiting poll, or the next one, raise WakeupError."""
        self._core.user.wakeup()

    # --- acknowledgements ------------------------------------------------------------------------

    def acknowledge(
        self,
        record: ShareRecord[K, V] | RecordError,
        kind: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Say what becomes of a record of the last poll, or of one that a RecordError was raised
        for.

        It is sent by the next poll, commit or close, and may be changed until then. Records need
        ``share.acknowledgement.mode=explicit``. NotAcquiredError if it is not acquired (any more).
        """
        if not self.settings.is_explicit and not isinstance(record, RecordError):
            raise ConfigError("acknowledge needs share.acknowledgement.mode=explicit")
        self._delivery.acknowledge(record, AcknowledgeType(kind))

    async def commit(self, *, timeout: float | None = None) -> None:
        """Send acknowledgements, and wait until the brokers have them on record.

        In the implicit mode all delivered records are accepted. AcknowledgeFailedError has the
        partitions whose acknowledgements were refused.
        """
        self._end_iteration()
        acknowledged = self._delivery.take_acknowledged()
        await self._task.drive(self._core.commit(acknowledged, self._wait(timeout)))

    def commit_async(self) -> None:
        """Send acknowledgements without waiting; the callback hears of what became of them."""
        self._end_iteration()
        self._core.acknowledge(self._delivery.take_acknowledged())

    def set_acknowledgement_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Call ``callback(offsets by partition, error or None)`` for acknowledgements that were
        taken or have failed; it runs inside later calls of this consumer.
        """
        delivery = self._delivery

        def on_settled(acknowledged: Acknowledged, error: Exception | None) -> object:
            delivery.settled(acknowledged, error)
            return None if callback is None else report(callback, acknowledged, error)

        self._core.on_settled = on_settled
        self._core.reports_all = callback is not None

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long records stay acquired, as last reported by a broker; None before that."""
        return self._core.fetcher.acknowledger.acquisition_lock_timeout_ms

    @property
    def member_id(self) -> str:
        """The id of this member."""
        return self._core.member.member_id

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return the metrics by (group, name), named as in Kafka's Java client."""
        return self._core.metrics.values()

    # --- the end ---------------------------------------------------------------------------------

    async def close(self, timeout: float | None = None) -> None:
        """Send the acknowledgements, release all other acquired records, leave the group, and
        disconnect. Further calls do nothing.
        """
        if self._closed:
            return
        self._end_iteration()
        self._closed = True
        acknowledged = self._delivery.take_acknowledged(accept_rest=False)
        try:
            wait_ms = 30_000 if timeout is None else timeout * 1000
            await self._task.drive(self._core.close(acknowledged, wait_ms))
        finally:
            # If the wait was cancelled, the loop still has to be closed.
            self._core.end()
            await self._loop.close()

    def _polled(self, records: list[ShareRecord[K, V]], began_ns: int) -> list[ShareRecord[K, V]]:
        """Count the records that a poll returns, and make its span."""
        self._core.metrics.records_consumed += len(records)
        if self._tracing is not None and records:
            self._tracing.polled(records, began_ns)
        return records

    def _end_iteration(self) -> None:
        """Take back the records that the iterator has and has not yielded."""
        iterating, self._iterating = self._iterating, None
        if iterating is not None:
            unread = deque(iterating)
            if unread:
                self._delivery.give_back(unread)

    def _wait(self, timeout: float | None) -> float:
        return self.settings.default_api_timeout_ms if timeout is None else timeout * 1000
