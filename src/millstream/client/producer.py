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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic, time
from typing import TYPE_CHECKING, Final, Self, TypeVar, Unpack

from millstream.client.closing import Closing
from millstream.client.core.consumer.record import GroupMetadata, Offsets
from millstream.client.core.keywords import ProducerKeywords
from millstream.client.core.producer.accumulator import TopicBuffer
from millstream.client.core.producer.batch import (
    DeliveryCallback,
    ProducerBatch,
)
from millstream.client.core.producer.core import (
    ProducerCore,
    check_timestamp,
    read_producer_settings,
)
from millstream.client.core.producer.encoded import (
    EncodedBatch,
    values_batches,
)
from millstream.client.core.producer.transaction_control import (
    TransactionControl,
    checked_offsets,
)
from millstream.client.core.producer.transactions import PreparedTransaction
from millstream.client.core.producer.waiting_append import Append
from millstream.client.core.tracing import TracedHeaders
from millstream.client.errors import (
    AbortableTransactionError,
    ClosedError,
    ForkedError,
    TimedOutError,
)
from millstream.client.headers import GivenHeaders, header_pairs
from millstream.client.metadata import Partition
from millstream.client.producer_futures import RecordFuture, RowsFuture
from millstream.client.references import looked_up
from millstream.client.security import open_security
from millstream.client.settings import Address
from millstream.client.thread_loop import ThreadLoop, check_may_wait
from millstream.client.traced import open_tracing
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import MillstreamError
from millstream.records.record import Header

if TYPE_CHECKING:
    from millstream.client.core.producer.table import ColumnChoices
    from millstream.records.tables import Rows

log = logging.getLogger("millstream.client.producer")

T = TypeVar("T")

_NO_HEADERS: Final[tuple[Header, ...]] = ()
_FOREVER_MS: Final = 2.0**53


class Producer(Closing):
    """Sends records to topics.

    Settings as in the Java client: ``Producer({"bootstrap.servers": "…", "linger.ms": 5})`` or
    ``Producer(bootstrap_servers="…", linger_ms=5)``; ConfigError for a wrong one. A context
    manager: leaving it sends buffered records and closes. Every method may be called from any
    thread.

    A producer that is garbage-collected without having been closed sends its buffered records and
    closes, with a ResourceWarning; at the end of the program records without an outcome are lost,
    which is logged.
    """

    def __init__(
        self, settings: Mapping[str, object] | None = None, **keywords: Unpack[ProducerKeywords]
    ) -> None:
        self._settings = read_producer_settings(looked_up(settings), looked_up(keywords))
        self._loop = ThreadLoop(
            f"millstream-producer-{self._settings.client_id}",
            send_bytes=self._settings.send_buffer_bytes,
            receive_bytes=self._settings.receive_buffer_bytes,
            security=open_security(self._settings),
        )
        self._lock = threading.Lock()
        self._core = core = ProducerCore(self._loop, self._settings, self._lock)
        core.tracing = open_tracing(self._settings)
        self._loop.post(core.statistics.start)
        self._accumulator = core.accumulator
        self._accumulator.wake = _Waker(self._loop, core).wake
        self._topics: dict[str, TopicBuffer] = {}
        self._close_lock = threading.Lock()
        self._is_closed = False
        # The thread of the loop must not keep an unreferenced producer alive.
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
        """Queue a record for sending and return its future.

        ``key`` and ``value`` are bytes, str (UTF-8) or None, or what the serializers accept.
        Without ``partition`` the partitioner chooses. ``on_delivery(metadata, error)`` runs on the
        background thread and must not wait. Blocks, ``max.block.ms`` at most, for the metadata of a
        new topic and for memory when ``buffer.memory`` is full.

        Raises at once: BufferFullError, RecordTooLargeError, SerializationError, BrokerError for a
        topic or partition that does not exist, ClosedError, ForkedError. Later errors are raised by
        the future.
        """
        core = self._core
        if core.tracing is not None and not isinstance(headers, TracedHeaders):
            given = _NO_HEADERS if headers is None else header_pairs(headers)
            with core.tracing.sending(topic, key, given, on_delivery) as traced:
                return self.send(
                    topic,
                    value,
                    key,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    headers=traced.headers,
                    on_delivery=traced.on_delivery,
                )
        if type(value) is not bytes or core.value_serializer is not None:
            value = core.value_bytes(topic, value)
        if key is not None or core.key_serializer is not None:
            key = core.key_bytes(topic, key)
        pairs = _NO_HEADERS if headers is None else header_pairs(headers)
        buffer = self._topics.get(topic) or self._open(topic)
        timestamp_ms = int(time() * 1000) if timestamp_ms is None else check_timestamp(timestamp_ms)
        accumulator = self._accumulator
        with self._lock:
            if accumulator.refusal is None:
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
        """Queue the rows of an Arrow table for sending and return one future for all.

        ``table`` is a pyarrow Table, RecordBatch or RecordBatchReader. Its columns key, value,
        headers and timestamp become those of the records; ``key=``, ``value=``, ``headers=``,
        ``timestamp=`` and ``partition=`` take other ones, by name or as arrays, None takes none.
        Keys and values are binary or text (UTF-8), and are not copied before they are encoded;
        serializers are not called. Rows of a partition keep their order; rows without a partition
        are partitioned as by :meth:`send`. Batches take up to ``batch.size``.

        Blocks as :meth:`send` does, while rows wait for memory. Raises the errors of ``send``, and
        TypeError or ValueError that names an invalid column; rows queued before that are still
        sent. Needs pyarrow and numpy.
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
        """Queue values, as records without keys, and return one future for all.

        They are divided into batches of up to ``batch.size``, in order. Without ``partition`` each
        batch goes to the next partition. Much faster than as many :meth:`send`, and without Arrow.
        Blocks and raises as :meth:`send_table`; serializers are not called.
        """
        buffer = self._topics.get(topic) or self._open(topic)
        stamp = int(time() * 1000) if timestamp_ms is None else check_timestamp(timestamp_ms)
        return self._send_batches(values_batches(self._core, buffer, values, partition, stamp))

    def flush(self, timeout: float | None = None) -> None:
        """Send all queued records, and wait until their outcomes are known.

        Failures are raised by the futures, not here. TimedOutError after ``timeout`` seconds.
        """
        self._wait(self._core.flush, timeout, "the records under way")

    # --- transactions ----------------------------------------------------------------------------

    def init_transactions(self) -> None:
        """Prepare for transactions: once, before the first, with ``transactional.id`` set.

        Fences earlier producers with this id and ends what they left open. Like the other calls of
        transactions it waits for ``max.block.ms`` at most: after TimedOutError, or Ctrl-C, the same
        call continues to wait. Errors (KIP-1050): AbortableTransactionError requires
        ``abort_transaction``, FatalTransactionError (ProducerFencedError) another producer, and
        TransactionStateError says that the call does not fit the transaction's state.
        """
        self._outcome("init_transactions", TransactionControl.init)

    def begin_transaction(self) -> None:
        """Begin a transaction: everything sent from now on belongs to it."""
        transactions = self._transactions()

        async def run() -> None:
            transactions.begin()

        self._wait(lambda: spawn(run()), None, "begin_transaction")

    def send_offsets_to_transaction(self, offsets: Offsets, group_metadata: GroupMetadata) -> None:
        """Commit consumed offsets with the transaction, or not at all.

        ``offsets`` are the next ones to read, by partition; ``group_metadata`` is the consumer's
        ``group_metadata()``, so that a consumer that lost its partitions cannot commit (KIP-447):
        AbortableTransactionError then.
        """
        chosen = checked_offsets(offsets, group_metadata)
        transactions = self._transactions()

        async def run() -> None:
            await transactions.add_offsets(chosen, group_metadata)

        self._wait(lambda: spawn(run()), None, "send_offsets_to_transaction")

    def commit_transaction(self) -> None:
        """Deliver all records, then commit: readers of committed records see all of them.

        AbortableTransactionError if a record was not delivered: nothing is committed then.
        """
        self._outcome("commit_transaction", TransactionControl.commit)

    def prepare_transaction(self) -> PreparedTransaction | None:
        """Deliver all records, and leave the end of the transaction to another process.

        Pass the result to ``Admin.end_transactions``, which commits or aborts the transaction,
        within ``transaction.timeout.ms`` of its start. This producer can then only be closed.
        Returns None if nothing was sent; the producer then remains usable.
        """
        return self._outcome("prepare_transaction", TransactionControl.prepare)

    def abort_transaction(self) -> None:
        """Abort: records that were not sent fail with TransactionAbortedError, and readers of
        committed records see none.
        """
        self._outcome("abort_transaction", TransactionControl.abort)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """``with producer.transaction():`` begins a transaction, and commits it at the end.

        It is aborted if an exception leaves the block, or if the commit fails with
        AbortableTransactionError; both are raised.
        """
        self.begin_transaction()
        try:
            yield self
        except BaseException as error:
            self._abort_after(error)
            raise
        try:
            self.commit_transaction()
        except AbortableTransactionError as error:
            self._abort_after(error)
            raise

    def _outcome(self, name: str, begin: Callable[[TransactionControl], Deferred[T]]) -> T:
        """Wait for an operation; interrupted (Ctrl-C), its outcome is kept for the next call."""
        transactions = self._transactions()
        begun: list[Deferred[T]] = []

        def start() -> Deferred[T]:
            begun.append(begin(transactions))
            return begun[0]

        def keep() -> None:
            if begun:
                transactions.interrupted(name)

        check_may_wait()
        try:
            return self._loop.submit(start).result()
        except BaseException as error:
            if not isinstance(error, Exception):
                with contextlib.suppress(ClosedError):
                    self._loop.post(keep)
            raise

    def _abort_after(self, error: BaseException) -> None:
        try:
            self.abort_transaction()
        except MillstreamError as failure:
            error.add_note(f"the transaction was not aborted: {failure}")

    def _transactions(self) -> TransactionControl:
        self._loop.check_process()
        return self._core.transactional()

    def partitions_for(self, topic: str) -> list[Partition]:
        """Return a topic's partitions; waits for it as :meth:`send` does."""
        self._open(topic)
        known = self._core.metadata.known(topic)
        return list(known.partitions) if known is not None else []

    def unreachable(self) -> list[Address]:
        """Return the brokers that cannot be connected to, while it is tried."""
        return self._core.network.unreachable()

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return the metrics by (group, name), named as in the Java client."""
        return self._core.metrics.values()

    def close(self, timeout: float | None = None) -> None:
        """Send queued records, for ``timeout`` seconds at most (None: as long as it takes), and
        close.

        Records without an outcome by then, or when the wait is interrupted (Ctrl-C), fail with
        ClosedError. Further calls do nothing. No thread and no socket is left. A call from a
        delivery callback closes without waiting.
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
        """Wait until the metadata of a topic is known."""
        self._loop.check_process()
        began = monotonic()
        self._wait(lambda: spawn(self._core.open_topic(topic)), None, f"topic {topic!r}")
        self._core.metrics.metadata_waited_ms += (monotonic() - began) * 1000
        self._topics[topic] = buffer = self._accumulator.topic(topic)
        return buffer

    def _send_batches(self, batches: Iterable[EncodedBatch]) -> RowsFuture:
        """Append batches in order; each waits for memory."""
        future = RowsFuture()
        for batch in batches:
            future.outcome.expect(batch)
            self._append(batch)
        future.outcome.complete()
        return future

    def _append(self, batch: ProducerBatch) -> None:
        """Append an encoded batch, as soon as there is memory for it."""
        accumulator = self._accumulator
        partition = batch.topic_partition.partition

        def append() -> tuple[ProducerBatch, int] | None:
            queue = self._core.plan(
                accumulator.topic(batch.topic_partition.topic), None, None, partition
            )
            return (batch, 0) if accumulator.append_encoded(queue, batch) else None

        self._loop.check_process()
        self._send_when_free(append)

    def _send_when_free(self, append: Append) -> RecordFuture:
        """Wait for memory, then append."""
        free = threading.Event()
        waiting = self._core.waiting_append(append, free, may_wait=not self._loop.is_own_thread)
        try:
            while (appended := waiting.attempt()) is None:
                free.wait(waiting.left_ms / 1000)
            return RecordFuture(*appended)
        finally:
            waiting.end()

    def _wait(self, begin: Callable[[], Deferred[None]], timeout: float | None, about: str) -> None:
        check_may_wait()
        future = self._loop.submit(begin)
        try:
            future.result(timeout)
        except concurrent.futures.TimeoutError:
            where = self._core.network.whereabouts()
            raise TimedOutError(
                f"timed out waiting for {about} after {timeout} s ({where})"
            ) from None

    def _after_fork(self) -> None:
        """In the child: a lock that another thread held at the fork is never released."""
        self._lock = threading.Lock()
        self._close_lock = threading.Lock()
        self._accumulator.close()


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
    """Log the records that are lost at the end of the program, when the threads are stopped."""
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
