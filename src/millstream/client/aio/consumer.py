"""The asyncio consumer: the same core on the application's own event loop.

No thread is started. Heartbeats and fetches continue while the application awaits something; a
coroutine that computes for long delays them, like everything else on its loop.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar, Unpack

from millstream.client.aio.loop import AsyncioLoop
from millstream.client.aio.user_task import UserTask
from millstream.client.closing import AsyncClosing
from millstream.client.core.consumer.core import ConsumerCore
from millstream.client.core.consumer.delivery import Delivery
from millstream.client.core.consumer.fetched import Fetched
from millstream.client.core.consumer.group_commits import CommitCallback
from millstream.client.core.consumer.metrics import lag_of
from millstream.client.core.consumer.record import (
    ConsumerRecord,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Offsets,
    SubscriptionPattern,
    read_offset,
    read_offsets,
)
from millstream.client.core.consumer.record_reader import RecordReader
from millstream.client.core.consumer.reset import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from millstream.client.core.consumer.settings import ConsumerSettings, check_settings
from millstream.client.core.consumer.user_calls import RebalanceListener
from millstream.client.core.keywords import ConsumerKeywords
from millstream.client.errors import ClosedError
from millstream.client.metadata import Partition
from millstream.client.references import read_given
from millstream.client.security import open_security
from millstream.client.traced import open_tracing
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_PATTERNS = (re.Pattern, SubscriptionPattern)
_IDLE_POLL_S = 1.0
_TABLE_BYTES = 16 * 1024 * 1024


class Consumer(AsyncClosing, Generic[K, V]):
    """Reads topics, alone or in a group; see :class:`millstream.client.consumer.Consumer`.

    Made inside a running event loop and used on it::

        async with Consumer({"bootstrap.servers": "localhost:9092"}, group_id="g") as consumer:
            await consumer.subscribe(["orders"])
            async for record in consumer:
                ...

    The functions of a rebalance listener and of commits may be coroutines.
    """

    def __init__(
        self, settings: Mapping[str, object] | None = None, **keywords: Unpack[ConsumerKeywords]
    ) -> None:
        chosen = read_given(ConsumerSettings, settings, keywords)
        check_settings(chosen)
        self.settings = chosen
        self._tracing = open_tracing(chosen, chosen.group_id)
        self._loop = AsyncioLoop(
            send_bytes=chosen.send_buffer_bytes,
            receive_bytes=chosen.receive_buffer_bytes,
            security=open_security(chosen),
        )
        self._core = ConsumerCore(self._loop, chosen)
        self._task = UserTask(self._loop, self._core.user)
        self._core.fetcher.buffer.on_taken = self._core.fetcher.taken
        reader: RecordReader[K, V] = RecordReader.of(chosen)
        self._delivery: Delivery[K, V] = Delivery(self._core.fetcher.buffer, reader)
        self._iterating: Iterator[ConsumerRecord[K, V]] | None = None
        self._closed = False

    # --- what is read ----------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str] | SubscriptionPattern,
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics as a member of the group; a compiled pattern subscribes to all that
        match, a SubscriptionPattern lets the brokers match (``group.protocol`` consumer).

        Replaces an earlier subscription. An empty list unsubscribes.
        """
        self._end_iteration()
        wanted = topics if isinstance(topics, _PATTERNS) else _names(topics)
        if wanted:
            self._core.subscribe(wanted, listener)
        else:
            await self.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group assigns them."""
        self._end_iteration()
        self._core.assign(partitions)

    async def unsubscribe(self) -> None:
        """Unsubscribe; a member leaves its group after its listener was called."""
        self._end_iteration()
        await self._task.drive(self._core.unsubscribe())

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer has now."""
        return frozenset(self._core.subscription.partitions)

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to; with a pattern those that match."""
        return self._core.subscription.topics

    # --- records ---------------------------------------------------------------------------------

    async def poll(
        self, timeout: float = 0, *, max_records: int | None = None
    ) -> list[ConsumerRecord[K, V]]:
        """Return the next records, at most ``max_records`` (else ``max.poll.records``).

        Waits up to ``timeout`` seconds for the first; the rules are those of the blocking consumer.
        """
        self._end_iteration()
        # Other tasks, heartbeats and fetches among them, run between any two polls.
        await asyncio.sleep(0)
        core, delivery = self._core, self._delivery
        limit = self.settings.max_poll_records if max_records is None else max_records
        began_ns = 0 if self._tracing is None else time.time_ns()
        deadline = self._loop.now_ms() + timeout * 1000
        if not core.user.attention and not self._closed:
            records = delivery.take(limit)
            if records:
                core.note_poll()
                return self._polled(records, began_ns)
        wait_ms = 0 if core.user.attention else timeout * 1000
        while True:
            await self._visit(wait_ms)
            records = delivery.take(limit)
            wait_ms = deadline - self._loop.now_ms()
            if records or wait_ms <= 0:
                return self._polled(records, began_ns)

    async def poll_fetched(self, timeout: float = 0) -> Fetched | None:
        """Return the next fetched batches of one partition undecoded, and advance past them.

        None if nothing arrives in time. The rules are those of the blocking consumer.
        """
        self._end_iteration()
        await asyncio.sleep(0)
        deadline = self._loop.now_ms() + timeout * 1000
        await self._visit(0)
        while True:
            fetched = self._delivery.take_fetched()
            left = deadline - self._loop.now_ms()
            if fetched is not None or left <= 0:
                return fetched
            await self._visit(left)

    async def poll_table(
        self,
        timeout: float = 0,
        *,
        columns: Sequence[str] | None = None,
        max_bytes: int = _TABLE_BYTES,
    ) -> pa.Table:
        """Return the next records as an Arrow table; the rules are those of the blocking
        consumer.
        """
        from millstream.client.core.consumer.table import TableReader

        reader = TableReader(columns, check_crcs=self.settings.check_crcs)
        deadline = self._loop.now_ms() + timeout * 1000
        fetched = await self.poll_fetched(timeout)
        while fetched is not None:
            error = reader.add(fetched)
            if error is not None:
                self.seek(fetched.topic_partition, error.offset)
                if not reader.rows:
                    raise error
                break
            if reader.size >= max_bytes:
                break
            fetched = None if self._core.user.attention else self._delivery.take_fetched()
            left_ms = deadline - self._loop.now_ms()
            if fetched is None and not reader.rows and left_ms > 0:
                fetched = await self.poll_fetched(left_ms / 1000)
        self._core.fetch_metrics.records_consumed += reader.rows
        return reader.table()

    async def to_arrow(
        self,
        max_records: int = 100_000,
        timeout: float = 1.0,
        *,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Poll ``max_records`` records into an Arrow table, or those that come within ``timeout``
        seconds.

        Columns, errors and the rules of a group are those of :meth:`poll_table`; the position is
        that of the first record which is not in the table. Needs pyarrow.
        """
        from millstream.client.core.consumer.table import TableReader

        if max_records < 1:
            raise ValueError(f"max_records is at least 1, not {max_records}")
        reader = TableReader(columns, check_crcs=self.settings.check_crcs)
        deadline = self._loop.now_ms() + timeout * 1000
        while reader.rows < max_records:
            fetched = await self.poll_fetched(max(deadline - self._loop.now_ms(), 0) / 1000)
            if fetched is None:
                break
            error = reader.add(fetched)
            if error is not None and reader.rows <= max_records:
                self.seek(fetched.topic_partition, error.offset)
                if not reader.rows:
                    raise error
                break
        rest = reader.cut(max_records)
        if rest is not None:
            self._delivery.give_back_rest(rest.fetched, rest.offset, rest.epoch)
        self._core.fetch_metrics.records_consumed += reader.rows
        return reader.table()

    async def to_polars(
        self,
        max_records: int = 100_000,
        timeout: float = 1.0,
        *,
        columns: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Return what :meth:`to_arrow` does as a frame of polars, which it needs."""
        import polars as pl

        frame = pl.from_arrow(await self.to_arrow(max_records, timeout, columns=columns))
        assert isinstance(frame, pl.DataFrame)
        return frame

    async def to_pandas(
        self,
        max_records: int = 100_000,
        timeout: float = 1.0,
        *,
        columns: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Return what :meth:`to_arrow` does as a frame of pandas, which it needs."""
        return (await self.to_arrow(max_records, timeout, columns=columns)).to_pandas()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Yield records one by one, for ever; one counts as processed when the next one is
        requested.
        """
        while not self._closed:
            records = iter(await self.poll(_IDLE_POLL_S))
            self._iterating = records
            for record in records:
                yield record

    def wakeup(self) -> None:
        """Make the waiting poll, or the next one, raise WakeupError."""
        self._core.user.wakeup()

    # --- positions -------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: Offset | OffsetAndMetadata) -> None:
        """Read on from ``offset``; one with a leader epoch is checked against the log (KIP-320)."""
        self._end_iteration()
        where = read_offset(offset)
        self._core.seek(partition, where.offset, where.leader_epoch)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on from the first record of these partitions, or of all that are assigned."""
        self._end_iteration()
        self._core.reset(partitions, to_end=False)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on from the end of these partitions, or of all that are assigned."""
        self._end_iteration()
        self._core.reset(partitions, to_end=True)

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> Offset:
        """Return the offset of the next record to come; waits until that is known."""
        self._end_iteration()
        return await self._task.run(self._core.position(partition, self._wait(timeout)))

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until they are resumed; causes no rebalance."""
        self._end_iteration()
        self._core.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._end_iteration()
        self._core.resume(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that are paused."""
        states = self._core.subscription.partitions
        return frozenset(
            topic_partition for topic_partition, state in states.items() if state.paused
        )

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the lag of the position behind the end of the last response; None if unknown."""
        state = self._core.state(partition)
        return lag_of(state, read_committed=self.settings.read_committed)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time (ms since 1970); None if there is none."""
        asked = dict(timestamps)
        if any(each < 0 for each in asked.values()):
            raise ValueError("a timestamp must not be negative")
        return await self._task.run(self._core.find_offsets(asked, self._wait(timeout)))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Return the first offset of each partition."""
        return await self._ends(partitions, EARLIEST_TIMESTAMP, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Return the offset after the last record; with read_committed the last stable offset."""
        return await self._ends(partitions, LATEST_TIMESTAMP, timeout)

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[Partition]:
        """Return the partitions of a topic; BrokerError when it is not there."""
        found = await self._task.run(self._core.metadata.topic(topic, self._wait(timeout)))
        return list(found.partitions)

    # --- commits and the group -------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None, *, timeout: float | None = None) -> None:
        """Commit offsets, by default the positions, and wait for the result."""
        self._end_iteration()
        await self._task.run(self._core.commit(read_offsets(offsets), self._wait(timeout)))

    def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit without waiting; ``callback(offsets, error or None)`` runs in a later call."""
        self._end_iteration()
        self._core.commit_async(read_offsets(offsets), callback)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed; None where nothing."""
        return await self._task.run(self._core.committed(list(partitions), self._wait(timeout)))

    def group_metadata(self) -> GroupMetadata:
        """Return the consumer's group metadata, for a producer's transaction."""
        return self._core.group

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        """Trigger a rebalance of the group, beginning with the next poll."""
        self._core.enforce_rebalance(reason)

    # --- the rest --------------------------------------------------------------------------------

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return the metrics by (group, name), named as in Kafka's Java client."""
        return self._core.metrics()

    async def close(self, timeout: float | None = None) -> None:
        """Commit if that is automatic, leave the group, and disconnect. Further calls do
        nothing.
        """
        if self._closed:
            return
        self._end_iteration()
        self._closed = True
        try:
            await self._task.drive(self._core.close(30_000 if timeout is None else timeout * 1000))
        finally:
            # If the wait was cancelled, the loop still has to be closed.
            self._core.end()
            await self._loop.close()

    # --- inside ----------------------------------------------------------------------------------

    async def _visit(self, timeout_ms: float) -> None:
        """Poll the core once, and run the callbacks queued for the application."""
        if self._closed:
            raise ClosedError("the consumer is closed")
        await self._task.visit(self._core.poll(timeout_ms))

    def _polled(
        self, records: list[ConsumerRecord[K, V]], began_ns: int
    ) -> list[ConsumerRecord[K, V]]:
        """Count the records that a poll returns, and make its span."""
        self._core.fetch_metrics.records_consumed += len(records)
        if self._tracing is not None and records:
            self._tracing.polled(records, began_ns)
        return records

    def _end_iteration(self) -> None:
        """Take back the records that the iterator has fetched and not yielded."""
        iterating, self._iterating = self._iterating, None
        if iterating is not None:
            unread = deque(iterating)
            if unread:
                self._delivery.give_back(len(unread))

    async def _ends(
        self, partitions: Iterable[TopicPartition], which: int, timeout: float | None
    ) -> dict[TopicPartition, Offset]:
        asked = dict.fromkeys(partitions, which)
        found = await self._task.run(self._core.find_offsets(asked, self._wait(timeout)))
        return {
            topic_partition: 0 if each is None else each.offset
            for topic_partition, each in found.items()
        }

    def _wait(self, timeout: float | None) -> float:
        return self.settings.default_api_timeout_ms if timeout is None else timeout * 1000


def _names(topics: Iterable[str] | str) -> list[str]:
    return [topics] if isinstance(topics, str) else list(topics)
