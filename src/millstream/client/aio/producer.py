"""The producer for asyncio programs: the same core on the application's event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from time import time
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from millstream.client.aio.loop import AsyncioLoop
from millstream.client.closing import AsyncClosing
from millstream.client.core.consumer.record import GroupMetadata, Offsets
from millstream.client.core.keywords import ProducerKeywords
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
from millstream.client.core.producer.transaction_control import (
    TransactionControl,
    checked_offsets,
)
from millstream.client.core.producer.transactions import PreparedTransaction
from millstream.client.core.producer.waiting_append import Append
from millstream.client.core.tracing import TracedHeaders
from millstream.client.errors import AbortableTransactionError, ClosedError
from millstream.client.headers import GivenHeaders, header_pairs
from millstream.client.metadata import Partition
from millstream.client.references import looked_up
from millstream.client.security import open_security
from millstream.client.traced import open_tracing
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import MillstreamError
from millstream.records.record import Header

if TYPE_CHECKING:
    from millstream.client.core.producer.table import ColumnChoices
    from millstream.records.tables import Rows

T = TypeVar("T")

_NO_HEADERS: Final[tuple[Header, ...]] = ()
_FOREVER_MS: Final = 2.0**53


class RecordFuture(Delivery):
    """The outcome of one ``send``: await it for the record's metadata or error."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._batch
        if not batch.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            batch.watchers.append(lambda: None if future.done() else future.set_result(None))
            yield from future
        return self._outcome()

    def exception(self) -> Exception | None:
        """Return the error of a completed record, None if it was delivered."""
        return self._batch.error_of(self._index)


class RowsFuture:
    """The outcome of many rows: await it for their metadata or the first error."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.outcome = RowsOutcome(self._event.set)

    def done(self) -> bool:
        """True once the outcome of every row is known."""
        return self._event.is_set()

    def __await__(self) -> Generator[object, None, RowsMetadata]:
        """Wait, and return the rows' metadata."""
        yield from self._event.wait().__await__()
        return self.outcome.metadata()


class Producer(AsyncClosing):
    """Sends records to topics, on one event loop.

    ``async with Producer(bootstrap_servers="…") as producer`` starts and closes it; settings as
    for :class:`millstream.client.Producer`.
    """

    def __init__(
        self, settings: Mapping[str, object] | None = None, **keywords: Unpack[ProducerKeywords]
    ) -> None:
        self._settings = read_producer_settings(looked_up(settings), looked_up(keywords))
        self._security = open_security(self._settings)
        self._tracing = open_tracing(self._settings)
        self._topics: dict[str, TopicBuffer] = {}
        self._running: tuple[AsyncioLoop, ProducerCore] | None = None
        self._core: ProducerCore | None = None
        self._yields = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        """Bind to the running event loop; connections are made when they are needed."""
        if self._running is None:
            loop = AsyncioLoop(
                send_bytes=self._settings.send_buffer_bytes,
                receive_bytes=self._settings.receive_buffer_bytes,
                security=self._security,
            )
            core = ProducerCore(loop, self._settings, contextlib.nullcontext())
            core.accumulator.wake = self._wake
            core.tracing = self._tracing
            core.statistics.start()
            self._running = loop, core
            self._core = core

    async def send(
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
        """Queue a record for sending; await the returned future for its outcome.

        Arguments and errors as for :meth:`millstream.client.Producer.send`. Suspends while the
        topic is not known or ``buffer.memory`` is full, ``max.block.ms`` at most, and lets the
        event loop run whenever a batch is full.
        """
        core = self._core or self._started()[1]
        if core.tracing is not None and not isinstance(headers, TracedHeaders):
            given = _NO_HEADERS if headers is None else header_pairs(headers)
            with core.tracing.sending(topic, key, given, on_delivery) as traced:
                return await self.send(
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
        buffer = self._topics.get(topic) or await self._open(topic)
        timestamp_ms = int(time() * 1000) if timestamp_ms is None else check_timestamp(timestamp_ms)
        accumulator = core.accumulator
        appended = None
        if accumulator.refusal is None:
            appended = accumulator.append(
                core.plan(buffer, key, value, partition),
                timestamp_ms,
                key,
                value,
                pairs,
                on_delivery,
            )
        if appended is None:
            appended = await self._append_when_free(
                lambda: accumulator.append(
                    core.plan(buffer, key, value, partition),
                    timestamp_ms,
                    key,
                    value,
                    pairs,
                    on_delivery,
                )
            )
        if self._yields:
            self._yields = False
            await asyncio.sleep(0)
        return RecordFuture(*appended)

    async def send_and_wait(
        self, topic: str, value: object = None, key: object = None, **options: Any
    ) -> RecordMetadata:
        """Send a record and wait for its outcome; options as for :meth:`send`."""
        return await (await self.send(topic, value, key, **options))

    async def send_table(
        self, table: Rows, topic: str, **columns: Unpack[ColumnChoices]
    ) -> RowsFuture:
        """Queue the rows of an Arrow table; await the returned future for their outcome.

        Otherwise as :meth:`millstream.client.Producer.send_table`. The event loop runs
        between batches.
        """
        from millstream.client.core.producer.table import table_batches

        core = self._core or self._started()[1]
        buffer = self._topics.get(topic) or await self._open(topic)
        now_ms = int(time() * 1000)
        return await self._send_batches(table_batches(core, buffer, table, columns, now_ms))

    async def send_values(
        self,
        values: Sequence[bytes],
        topic: str,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RowsFuture:
        """Queue values; await the returned future for their outcome.

        Otherwise as :meth:`millstream.client.Producer.send_values`.
        """
        core = self._core or self._started()[1]
        buffer = self._topics.get(topic) or await self._open(topic)
        stamp = int(time() * 1000) if timestamp_ms is None else check_timestamp(timestamp_ms)
        return await self._send_batches(values_batches(core, buffer, values, partition, stamp))

    async def flush(self) -> None:
        """Send all queued records, and wait until their outcomes are known."""
        loop, core = self._started()
        await loop.future(core.flush())

    # --- transactions ----------------------------------------------------------------------------

    async def init_transactions(self) -> None:
        """See :meth:`millstream.client.Producer.init_transactions`."""
        await self._outcome("init_transactions", TransactionControl.init)

    def begin_transaction(self) -> None:
        """See :meth:`millstream.client.Producer.begin_transaction`."""
        self._transactional()[1].begin()

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group_metadata: GroupMetadata
    ) -> None:
        """See :meth:`millstream.client.Producer.send_offsets_to_transaction`."""
        loop, transactions = self._transactional()
        chosen = checked_offsets(offsets, group_metadata)
        await loop.future(transactions.add_offsets(chosen, group_metadata))

    async def commit_transaction(self) -> None:
        """See :meth:`millstream.client.Producer.commit_transaction`.

        If the task is cancelled, the commit goes on, and the same call again gets its outcome.
        """
        await self._outcome("commit_transaction", TransactionControl.commit)

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """See :meth:`millstream.client.Producer.prepare_transaction`."""
        return await self._outcome("prepare_transaction", TransactionControl.prepare)

    async def abort_transaction(self) -> None:
        """See :meth:`millstream.client.Producer.abort_transaction`."""
        await self._outcome("abort_transaction", TransactionControl.abort)

    async def _outcome(self, name: str, begin: Callable[[TransactionControl], Deferred[T]]) -> T:
        loop, transactions = self._transactional()
        waited = loop.future(begin(transactions))
        try:
            return await waited
        except asyncio.CancelledError:
            transactions.interrupted(name)
            raise

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """``async with producer.transaction():`` begins a transaction, and commits it at the end.

        Otherwise as :meth:`millstream.client.Producer.transaction`; a cancelled task aborts too.
        """
        self.begin_transaction()
        try:
            yield self
        except BaseException as error:
            await self._abort_after(error)
            raise
        try:
            await self.commit_transaction()
        except AbortableTransactionError as error:
            await self._abort_after(error)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        try:
            await self.abort_transaction()
        except MillstreamError as failure:
            error.add_note(f"the transaction was not aborted: {failure}")

    def _transactional(self) -> tuple[AsyncioLoop, TransactionControl]:
        loop, core = self._started()
        loop.check_process()
        return loop, core.transactional()

    async def partitions_for(self, topic: str) -> list[Partition]:
        """Return a topic's partitions; waits for it as :meth:`send` does."""
        _, core = self._started()
        await self._open(topic)
        known = core.metadata.known(topic)
        return list(known.partitions) if known is not None else []

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return the metrics by (group, name), named as in the Java client."""
        return self._started()[1].metrics.values()

    async def close(self, timeout: float | None = None) -> None:
        """Send queued records, for ``timeout`` seconds at most (None: as long as it takes), and
        close.

        Records without an outcome by then, or if this is cancelled, fail with ClosedError. Further
        calls do nothing.
        """
        if self._running is None:
            return
        loop, core = self._running
        limit_ms = _FOREVER_MS if timeout is None else timeout * 1000
        try:
            await loop.future(spawn(core.close(limit_ms)))
        finally:
            # If the wait was cancelled, the loop still has to be closed.
            core.end()
            await loop.close()

    # --- inside ----------------------------------------------------------------------------------

    def _started(self) -> tuple[AsyncioLoop, ProducerCore]:
        if self._running is None:
            raise ClosedError("the producer was not started: use 'async with' or await start()")
        return self._running

    async def _open(self, topic: str) -> TopicBuffer:
        loop, core = self._started()
        loop.check_process()
        if core.accumulator.is_closed:
            raise ClosedError("the producer is closed")
        began = loop.now_ms()
        await loop.future(spawn(core.open_topic(topic)))
        core.metrics.metadata_waited_ms += loop.now_ms() - began
        self._topics[topic] = buffer = core.accumulator.topic(topic)
        return buffer

    async def _send_batches(self, batches: Iterable[EncodedBatch]) -> RowsFuture:
        """Append batches in order; each waits for memory."""
        future = RowsFuture()
        for batch in batches:
            future.outcome.expect(batch)
            await self._append_encoded(batch)
        future.outcome.complete()
        return future

    async def _append_encoded(self, batch: ProducerBatch) -> None:
        """Append an encoded batch, as soon as there is memory for it."""
        _, core = self._started()
        accumulator = core.accumulator

        def append() -> tuple[ProducerBatch, int] | None:
            buffer = accumulator.topic(batch.topic_partition.topic)
            queue = core.plan(buffer, None, None, batch.topic_partition.partition)
            return (batch, 0) if accumulator.append_encoded(queue, batch) else None

        await self._append_when_free(append)
        await asyncio.sleep(0)

    async def _append_when_free(self, append: Append) -> tuple[ProducerBatch, int]:
        """Wait for memory, then append."""
        loop, core = self._started()
        free = asyncio.Event()
        waiting = core.waiting_append(append, free, may_wait=True)
        try:
            while True:
                loop.check_process()
                appended = waiting.attempt()
                if appended is not None:
                    return appended
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(free.wait(), waiting.left_ms / 1000)
        finally:
            waiting.end()

    def _wake(self) -> None:
        self._yields = True
        if self._running is not None:
            self._running[1].sender.wake()
