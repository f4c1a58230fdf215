"""The blocking share consumer (KIP-932).

One background thread does all I/O. Records are decoded, and callbacks run, on the thread that
calls. A share consumer is used by one thread at a time; only :meth:`ShareConsumer.wakeup` may be
called from any.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar, Unpack, cast

from millstream.client.closing import Closing
from millstream.client.core.consumer.errors import RecordError
from millstream.client.core.consumer.record_reader import Deserializer, RecordReader
from millstream.client.core.keywords import ShareConsumerKeywords
from millstream.client.core.share.acknowledgements import Acknowledged, AcknowledgeType
from millstream.client.core.share.callback import AcknowledgementCallback, report
from millstream.client.core.share.core import ShareConsumerCore, topic_names
from millstream.client.core.share.delivery import ShareDelivery
from millstream.client.core.share.record import ShareRecord
from millstream.client.core.share.settings import ShareConsumerSettings, check_settings
from millstream.client.errors import ClosedError, ForkedError
from millstream.client.references import read_given
from millstream.client.security import open_security
from millstream.client.thread_loop import ThreadLoop
from millstream.client.traced import open_tracing
from millstream.client.user_thread import UserThread
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConfigError

K = TypeVar("K")
V = TypeVar("V")

_IDLE_POLL_S = 1.0


class ShareConsumer(Closing, Generic[K, V]):
    """Reads topics as a member of a share group: each record goes to one of the members at a time.

    Settings come as a mapping under Kafka's names, as keywords with underscores, or both::

        with ShareConsumer({"bootstrap.servers": "localhost:9092"}, group_id="work") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                ...

    A delivered record is acquired: until it is acknowledged, or its acquisition lock ends, no other
    member gets it. With ``share.acknowledgement.mode`` ``implicit`` the records of a poll are
    accepted by the next poll or commit; with ``explicit`` each one is passed to
    :meth:`acknowledge`. A record that is not acknowledged is delivered again, to any member, up to
    the group's limit: :meth:`close` releases acquired records.

    Settings in ``_ms`` are milliseconds, timeouts of methods seconds. Without deserializers keys
    and values are bytes. ConfigError names a setting that is unknown or does not fit.
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
        self._loop = ThreadLoop(
            "millstream-share-consumer",
            send_bytes=chosen.send_buffer_bytes,
            receive_bytes=chosen.receive_buffer_bytes,
            security=open_security(chosen),
        )
        loop = self._loop
        core = loop.submit(lambda: Deferred.of(ShareConsumerCore(loop, chosen))).result()
        self._core = core
        self._thread = UserThread(self._loop, core.user)
        # The thread of the loop must not keep an unreferenced consumer alive.
        self._loop.belongs_to(self, lambda: spawn(core.abandon()))
        reader: RecordReader[K, V] = RecordReader(
            key_deserializer=cast("Deserializer | None", chosen.key_deserializer),
            value_deserializer=cast("Deserializer | None", chosen.value_deserializer),
            check_crcs=chosen.check_crcs,
        )
        self._delivery: ShareDelivery[K, V] = ShareDelivery(
            core.fetcher.buffer, reader, self._loop.now_ms, explicit=chosen.is_explicit
        )
        self._iterating: Iterator[ShareRecord[K, V]] | None = None
        self._closed = False
        self.set_acknowledgement_callback(None)

    # --- the subscription ------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] | str) -> None:
        """Read these topics as a member of the group; replaces an earlier subscription.

        An empty list unsubscribes.
        """
        self._end_iteration()
        wanted = topic_names(topics)
        if wanted:
            self._thread.call(lambda: self._core.subscribe(wanted))
        else:
            self.unsubscribe()

    def unsubscribe(self) -> None:
        """Leave the group: send the acknowledgements, and release all other acquired records."""
        self._end_iteration()
        acknowledged = self._delivery.take_acknowledged(accept_rest=False)
        self._thread.drive(lambda: self._core.unsubscribe(acknowledged))
        self._delivery.clear()

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to."""
        return self._core.subscription

    # --- records ---------------------------------------------------------------------------------

    def poll(
        self, timeout: float = 0, *, max_records: int | None = None
    ) -> list[ShareRecord[K, V]]:
        """Return acquired records, at most ``max_records`` (else ``max.poll.records``).

        Waits up to ``timeout`` seconds for the first. What earlier polls returned is acknowledged:
        accepted in the implicit mode; in the explicit mode UnacknowledgedError is raised while some
        of it is not. Raises RecordError for a record that cannot be read: it is released, or
        rejected if it is damaged, unless the error is passed to :meth:`acknowledge`; BrokerError
        for refusals. A member that does not poll for ``max.poll.interval.ms`` leaves the group.
        """
        self._end_iteration()
        self._loop.check_process()
        if self._closed:
            raise ClosedError("the share consumer is closed")
        core, delivery = self._core, self._delivery
        delivery.check_acknowledged()
        acknowledged = delivery.take_acknowledged()
        limit = self.settings.max_poll_records if max_records is None else max_records
        began_ns = 0 if self._tracing is None else time.time_ns()
        deadline = time.monotonic() + timeout
        if not core.user.attention:
            try:
                records = delivery.take(limit)
            except RecordError:
                self._send(acknowledged)
                raise
            if records:
                self._send(acknowledged)
                core.note_poll()
                return self._polled(records, began_ns)
        # The core may have woken this call for something else although there are records: look for
        # records first.
        wait_s = 0 if core.user.attention else timeout
        while True:
            self._visit(acknowledged, wait_s)
            records = delivery.take(limit)
            wait_s = deadline - time.monotonic()
            if records or wait_s <= 0:
                return self._polled(records, began_ns)
            # Of gaps: fetches may hold nothing else.
            acknowledged = delivery.take_acknowledged()

    def _visit(self, acknowledged: list[Acknowledged], wait_s: float) -> None:
        self._thread.visit(lambda: self._core.poll(acknowledged, wait_s * 1000))

    def _send(self, acknowledged: list[Acknowledged]) -> None:
        """Send acknowledgements without a fetch, because there are records."""
        if acknowledged:
            self._loop.post(lambda: self._core.acknowledge(acknowledged))

    def __iter__(self) -> Iterator[ShareRecord[K, V]]:
        """Yield records one by one, for ever.

        In the implicit mode one is accepted when the next one is requested.
        """
        while not self._closed:
            records = iter(self.poll(_IDLE_POLL_S))
            self._iterating = records
            for record in records:
                yield record
                if not self.settings.is_explicit:
                    self._delivery.accept_held(record)

    def wakeup(self) -> None:
        """Make the waiting poll, or the next one, raise WakeupError.

        For any thread, and for signal handlers; without effect after close.
        """
        with contextlib.suppress(ClosedError):
            self._loop.post(self._core.user.wakeup)

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

    def commit(self, *, timeout: float | None = None) -> None:
        """Send acknowledgements, and wait until the brokers have them on record.

        In the implicit mode all delivered records are accepted. AcknowledgeFailedError has the
        partitions whose acknowledgements were refused.
        """
        self._end_iteration()
        acknowledged = self._delivery.take_acknowledged()
        self._thread.drive(lambda: self._core.commit(acknowledged, self._wait(timeout)))

    def commit_async(self) -> None:
        """Send acknowledgements without waiting; the callback hears of what became of them."""
        self._end_iteration()
        acknowledged = self._delivery.take_acknowledged()
        self._thread.call(lambda: self._core.acknowledge(acknowledged))

    def set_acknowledgement_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Call ``callback(offsets by partition, error or None)`` for acknowledgements that were
        taken or have failed; it runs inside later calls of this consumer.
        """
        delivery = self._delivery

        def on_settled(acknowledged: Acknowledged, error: Exception | None) -> None:
            delivery.settled(acknowledged, error)
            if callback is not None:
                report(callback, acknowledged, error)

        def install() -> None:
            self._core.on_settled = on_settled
            self._core.reports_all = callback is not None

        self._thread.call(install)

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

    def close(self, timeout: float | None = None) -> None:
        """Send the acknowledgements, release all other acquired records, leave the group, and
        stop the thread. Further calls do nothing.
        """
        if self._closed:
            return
        self._end_iteration()
        self._closed = True
        acknowledged = self._delivery.take_acknowledged(accept_rest=False)
        try:
            self._thread.drive(lambda: self._core.close(acknowledged, self._wait(timeout, 30_000)))
        except ForkedError:
            # Only the parent process closes it.
            return
        finally:
            self._loop.close()

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

    def _wait(self, timeout: float | None, default_ms: float | None = None) -> float:
        if timeout is not None:
            return timeout * 1000
        return self.settings.default_api_timeout_ms if default_ms is None else default_ms
