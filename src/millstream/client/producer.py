"""The producer for programs with threads: ``send`` from any of them, results as futures.

``send`` puts the record into a batch and returns; a background thread sends batches. One lock is
taken for each record, for as long as it takes to append it.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic, time
from typing import TYPE_CHECKING, Final, Unpack

from millstream.client.closing import Closing
from millstream.client.core.producer.accumulator import TopicBuffer
from millstream.client.core.producer.batch import (
    Delivery,
    DeliveryCallback,
    ProducerBatch,
    RecordMetadata,
)
from millstream.client.core.producer.core import (
    ProducerCore,
    check_timestamp,
    read_producer_settings,
)
from millstream.client.core.producer.encoded import (
    EncodedBatch,
    RowsMetadata,
    RowsOutcome,
    values_batches,
)
from millstream.client.errors import (
    BufferFullError,
    ClosedError,
    ForkedError,
    TimedOutError,
)
from millstream.client.headers import GivenHeaders, header_pairs
from millstream.client.metadata import Partition
from millstream.client.thread_loop import ThreadLoop, check_may_wait
from millstream.model.deferred import Deferred, spawn
from millstream.records.record import Header

if TYPE_CHECKING:
    from millstream.client.core.producer.table import ColumnChoices
    from millstream.records.tables import Rows

log = logging.getLogger("millstream.client.producer")

_NO_HEADERS: Final[tuple[Header, ...]] = ()
_FOREVER_MS: Final = 2.0**53


class RecordFuture(Delivery):
    """The outcome of one ``send``, as ``concurrent.futures.Future`` shows one."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait, ``timeout`` seconds at most, and return where the record lies, or raise why not.

        TimedOutError when it is not known by then; the record is still on its way.
        WaitInCallbackError in a delivery callback: its thread is the one that would be waited for.
        """
        self._wait(timeout)
        return self._outcome()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait as :meth:`result` does and return the error, None for a delivered record."""
        self._wait(timeout)
        return self._batch.error_of(self._index)

    def _wait(self, timeout: float | None) -> None:
        batch = self._batch
        if batch.done:
            return
        check_may_wait()
        event = threading.Event()
        batch.watchers.append(event.set)
        # Who finished the batch in between has not seen the watcher.
        if not batch.done and not event.wait(timeout):
            raise TimedOutError(f"no outcome within {timeout} s; the record is still on its way")


class RowsFuture:
    """The outcome of many rows that were handed over at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.outcome = RowsOutcome(self._event.set)

    def done(self) -> bool:
        """True once the outcome of every row is known."""
        return self._event.is_set()

    def result(self, timeout: float | None = None) -> RowsMetadata:
        """Wait, ``timeout`` seconds at most, and return where the rows lie.

        When some were not delivered the first error is raised, with a note that says how many.
        TimedOutError when it is not known by then. WaitInCallbackError in a delivery callback.
        """
        if not self.done():
            check_may_wait()
        if not self._event.wait(timeout):
            raise TimedOutError(f"no outcome within {timeout} s; the rows are still on their way")
        return self.outcome.metadata()


class Producer(Closing):
    """Sends records to topics.

    Settings as in the Java client: ``Producer({"bootstrap.servers": "…", "linger.ms": 5})`` or
    ``Producer(bootstrap_servers="…", linger_ms=5)``; ConfigError for a wrong one. A context
    manager: leaving it sends what waits and closes. Every method may be called from any thread.

    One that is collected without having been closed sends what waits and ends by itself, with a
    ResourceWarning; at the end of the program what has no outcome is lost, and the log says so.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, **keywords: object) -> None:
        self._settings = read_producer_settings(settings, keywords)
        self._loop = ThreadLoop(
            f"millstream-producer-{self._settings.client_id}",
            send_bytes=self._settings.send_buffer_bytes,
            receive_bytes=self._settings.receive_buffer_bytes,
        )
        self._lock = threading.Lock()
        self._core = core = ProducerCore(self._loop, self._settings, self._lock)
        self._accumulator = core.accumulator
        self._wake = _Waker(self._loop, core).wake
        self._accumulator.wake = self._wake
        self._topics: dict[str, TopicBuffer] = {}
        self._close_lock = threading.Lock()
        self._is_closed = False
        # The thread of the loop must not keep a producer alive that nobody has any more.
        after_fork = weakref.WeakMethod(self._after_fork)
        self._loop.after_fork = lambda: None if (own := after_fork()) is None else own()
        self._loop.belongs_to(self, lambda: spawn(core.close(_FOREVER_MS)))
        _OPEN.add(self)

    # --- sending ---------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> RecordFuture:
        """Hand a record over for sending and return its future.

        ``key`` and ``value`` are bytes, str (UTF-8) or None, or whatever the serializers take.
        Without ``partition`` the partitioner chooses. ``on_delivery(metadata, error)`` runs on the
        background thread and must not wait. Blocks, ``max.block.ms`` at most, for a topic that is
        not known yet and for memory when ``buffer.memory`` is full.

        Raises at once: BufferFullError, RecordTooLargeError, SerializationError, BrokerError for a
        topic or partition that is not there, ClosedError, ForkedError. Everything later comes
        through the future.
        """
        core = self._core
        if type(value) is not bytes or core.value_serializer is not None:
            value = core.value_bytes(topic, value)
        if key is not None or core.key_serializer is not None:
            key = core.key_bytes(topic, key)
        pairs = _NO_HEADERS if headers is None else header_pairs(headers)
        buffer = self._topics.get(topic) or self._open(topic)
        timestamp_ms = int(time() * 1000) if timestamp_ms is None else check_timestamp(timestamp_ms)
        accumulator = self._accumulator
        with self._lock:
            if not accumulator.is_closed:
                appended = accumulator.append(
                    core.plan(buffer, key, value, partition),
                    timestamp_ms,
                    key,
                    value,
                    pairs,
                    on_delivery,
                )
                if appended is not None:
                    return RecordFuture(*appended)
        self._loop.check_process()
        return self._send_when_free(
            lambda: accumulator.append(
                core.plan(buffer, key, value, partition),
                timestamp_ms,
                key,
                value,
                pairs,
                on_delivery,
            )
        )

    def send_table(self, table: Rows, topic: str, **columns: Unpack[ColumnChoices]) -> RowsFuture:
        """Hand the rows of an Arrow table over for sending and return the future of them all.

        ``table`` is a pyarrow Table, RecordBatch or RecordBatchReader. Its columns key, value,
        headers and timestamp become those of the records; ``key=``, ``value=``, ``headers=``,
        ``timestamp=`` and ``partition=`` take other ones, by name or as arrays, None takes none.
        Keys and values are binary or text (UTF-8), and are not copied before they are encoded;
        serializers are not asked. Rows of a partition keep their order; rows without a partition
        go where :meth:`send` would send them. Batches take up to ``batch.size``.

        Blocks as :meth:`send` does, while rows wait for memory. Raises what ``send`` raises, and
        TypeError or ValueError for a column that will not do, by its name; rows handed over
        before that are on their way. Needs pyarrow and numpy.
        """
        from millstream.client.core.producer.table import table_batches

        buffer = self._topics.get(topic) or self._open(topic)
        now_ms = int(time() * 1000)
        return self._send_batches(table_batches(self._core, buffer, table, columns, now_ms))

    def send_values(
        self,
        values: Sequence[bytes],
        topic: str,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RowsFuture:
        """Hand values over at once, records without keys, and return the future of them all.

        They are cut into batches of up to ``batch.size``, in their order. Without ``partition``
        each batch goes to the next one. Much faster than as many :meth:`send`, and without Arrow.
        Blocks and raises as :meth:`send_table`; serializers are not asked.
        """
        buffer = self._topics.get(topic) or self._open(topic)
        stamp = int(time() * 1000) if timestamp_ms is None else check_timestamp(timestamp_ms)
        return self._send_batches(values_batches(self._core, buffer, values, partition, stamp))

    def flush(self, timeout: float | None = None) -> None:
        """Send all that was handed over so far, and wait until its outcome is known.

        Failures come through the futures, not from here. TimedOutError after ``timeout`` seconds.
        """
        self._wait(self._core.flush, timeout, "the records under way")

    def partitions_for(self, topic: str) -> list[Partition]:
        """Return a topic's partitions; waits for it as :meth:`send` does."""
        self._open(topic)
        known = self._core.metadata.known(topic)
        return list(known.partitions) if known is not None else []

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return what was counted, by (group, name) as in the Java client."""
        return self._core.metrics.values()

    def close(self, timeout: float | None = None) -> None:
        """Send what waits, for ``timeout`` seconds at most (None: as long as it takes), and end.

        What has no outcome then fails with ClosedError; so it does when the waiting is interrupted
        (Ctrl-C). Harmless twice. No thread and no socket is left. From a delivery callback it
        closes at once.
        """
        with self._close_lock:
            if self._is_closed:
                return
            self._is_closed = True
        own = self._loop.is_own_thread
        self._topics = {}
        limit_ms = 0 if own else _FOREVER_MS if timeout is None else timeout * 1000
        try:
            closing = self._loop.submit(lambda: spawn(self._core.close(limit_ms)))
        except ForkedError:
            return
        try:
            if not own:
                closing.result()
        except BaseException:
            with contextlib.suppress(ClosedError):
                self._loop.post(self._core.end)
            raise
        finally:
            self._loop.close()

    # --- inside ----------------------------------------------------------------------------------

    def _open(self, topic: str) -> TopicBuffer:
        """Wait until a topic is known."""
        self._loop.check_process()
        began = monotonic()
        self._wait(lambda: spawn(self._core.open_topic(topic)), None, f"topic {topic!r}")
        self._core.metrics.metadata_waited_ms += (monotonic() - began) * 1000
        self._topics[topic] = buffer = self._accumulator.topic(topic)
        return buffer

    def _send_batches(self, batches: Iterable[EncodedBatch]) -> RowsFuture:
        """Hand batches over one after the other; each waits for memory."""
        future = RowsFuture()
        for batch in batches:
            future.outcome.expect(batch)
            self._append(batch)
        future.outcome.complete()
        return future

    def _append(self, batch: ProducerBatch) -> None:
        """Append a batch that is bytes already, as soon as there is memory for it."""
        accumulator = self._accumulator
        partition = batch.topic_partition.partition

        def append() -> tuple[ProducerBatch, int] | None:
            queue = self._core.plan(
                accumulator.topic(batch.topic_partition.topic), None, None, partition
            )
            return (batch, 0) if accumulator.append_encoded(queue, batch) else None

        self._loop.check_process()
        self._send_when_free(append)

    def _send_when_free(
        self, append: Callable[[], tuple[ProducerBatch, int] | None]
    ) -> RecordFuture:
        """Wait for memory, then append."""
        accumulator = self._accumulator
        limit_s = self._settings.max_block_ms / 1000
        began = monotonic()
        while True:
            with self._lock:
                if accumulator.is_closed:
                    raise ClosedError("the producer is closed")
                appended = append()
                if appended is not None:
                    return RecordFuture(*appended)
                left = limit_s - (monotonic() - began)
                if left <= 0 or self._loop.is_own_thread:
                    self._core.metrics.exhausted += 1
                    raise BufferFullError(
                        f"buffer.memory stayed full for {limit_s:.0f} s (max.block.ms)"
                    )
                free = threading.Event()
                accumulator.waiting += 1
                accumulator.memory_waiters.append(free.set)
            waited = monotonic()
            try:
                self._wake()
                free.wait(left)
            finally:
                with self._lock:
                    accumulator.waiting -= 1
                    self._core.metrics.blocked_ms += (monotonic() - waited) * 1000

    def _wait(self, begin: Callable[[], Deferred[None]], timeout: float | None, about: str) -> None:
        check_may_wait()
        future = self._loop.submit(begin)
        try:
            future.result(timeout)
        except concurrent.futures.TimeoutError:
            raise TimedOutError(f"timed out waiting for {about} after {timeout} s") from None

    def _after_fork(self) -> None:
        """In the child: what another thread held at the fork, nobody will ever release."""
        self._lock = threading.Lock()
        self._close_lock = threading.Lock()
        self._accumulator.is_closed = True


class _Waker:
    """Lets the sender run once."""

    def __init__(self, loop: ThreadLoop, core: ProducerCore) -> None:
        self._loop = loop
        self._sender = core.sender
        self._is_woken = False

    def wake(self) -> None:
        """Called with and without the producer's lock, from any thread."""
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(ClosedError):
                self._loop.post(self._run_once)

    def _run_once(self) -> None:
        self._is_woken = False
        self._sender.wake()


_OPEN: Final[weakref.WeakSet[Producer]] = weakref.WeakSet()


def _tell_of_unsent() -> None:
    """Say what the end of the program takes along: the threads end with it, wherever they are."""
    for producer in list(_OPEN):
        with contextlib.suppress(ForkedError):
            producer._loop.check_process()
            unsent = sum(batch.count for batch in list(producer._accumulator.incomplete))
            if unsent:
                log.warning(
                    "%d records have no outcome at the end of the program: call flush() or "
                    "close() of their producer before",
                    unsent,
                )


atexit.register(_tell_of_unsent)
