"""The blocking consumer.

One background thread does all I/O: heartbeats and fetches continue whatever the application does.
Records are decoded, and listeners and callbacks run, on the thread that calls. A consumer is used
by one thread at a time; only :meth:`Consumer.wakeup` may be called from any.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar, Unpack

from millstream.client.closing import Closing
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
from millstream.client.errors import ClosedError, ForkedError
from millstream.client.metadata import Partition
from millstream.client.references import read_given
from millstream.client.security import open_security
from millstream.client.settings import Address
from millstream.client.thread_loop import ThreadLoop
from millstream.client.traced import open_tracing
from millstream.client.user_thread import UserThread
from millstream.model.deferred import Deferred, spawn
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


class Consumer(Closing, Generic[K, V]):
    """Reads topics, alone or in a group.

    Settings come as a mapping under Kafka's names, as keywords with underscores, or both::

        with Consumer({"bootstrap.servers": "localhost:9092"}, group_id="g") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                ...

    Settings in ``_ms`` are milliseconds, timeouts of methods seconds. Without deserializers keys
    and values are bytes. ConfigError names a setting that is unknown or does not fit.

    A consumer that is garbage-collected without having been closed leaves its group without
    committing, with a ResourceWarning.
    """

    def __init__(
        self, settings: Mapping[str, object] | None = None, **keywords: Unpack[ConsumerKeywords]
    ) -> None:
        chosen = read_given(ConsumerSettings, settings, keywords)
        check_settings(chosen)
        self.settings = chosen
        self._tracing = open_tracing(chosen, chosen.group_id)
        self._loop = ThreadLoop(
            "millstream-consumer",
            send_bytes=chosen.send_buffer_bytes,
            receive_bytes=chosen.receive_buffer_bytes,
            security=open_security(chosen),
        )
        self._core: ConsumerCore = self._loop.submit(
            lambda: Deferred.of(ConsumerCore(self._loop, chosen))
        ).result()
        self._thread = UserThread(self._loop, self._core.user)
        # The thread of the loop must not keep an unreferenced consumer alive.
        loop, core = self._loop, self._core
        core.fetcher.buffer.on_taken = lambda fetched: loop.post(
            partial(core.fetcher.taken, fetched)
        )
        loop.belongs_to(self, lambda: spawn(core.abandon()))
        reader: RecordReader[K, V] = RecordReader.of(chosen)
        self._delivery: Delivery[K, V] = Delivery(core.fetcher.buffer, reader)
        self._iterating: Iterator[ConsumerRecord[K, V]] | None = None
        self._closed = False

    # --- what is read ----------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str] | SubscriptionPattern,
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics as a member of the group; replaces an earlier subscription.

        A compiled pattern subscribes to all topics whose whole name matches, now or later; a
        SubscriptionPattern does the same on the brokers (``group.protocol`` consumer). An empty
        list unsubscribes. ``listener`` is called for revoked, assigned and lost partitions.
        """
        self._end_iteration()
        wanted = topics if isinstance(topics, _PATTERNS) else _names(topics)
        if wanted:
            self._thread.call(lambda: self._core.subscribe(wanted, listener))
        else:
            self.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group assigns them."""
        self._end_iteration()
        chosen = list(partitions)
        self._thread.call(lambda: self._core.assign(chosen))

    def unsubscribe(self) -> None:
        """Unsubscribe; a member leaves its group after its listener was called."""
        self._end_iteration()
        self._thread.drive(self._core.unsubscribe)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer has now."""
        return frozenset(self._core.subscription.partitions.copy())

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to; with a pattern those that match."""
        return self._core.subscription.topics

    # --- records ---------------------------------------------------------------------------------

    def poll(
        self, timeout: float = 0, *, max_records: int | None = None
    ) -> list[ConsumerRecord[K, V]]:
        """Return the next records, at most ``max_records`` (else ``max.poll.records``).

        Waits up to ``timeout`` seconds for the first. A consumer in a group must poll at least
        every ``max.poll.interval.ms``; rebalances happen in here, and what earlier polls returned
        counts as done for auto commit. Raises RecordError for a record that cannot be read, errors
        of ``core.consumer.errors`` about positions, BrokerError for refusals.
        """
        self._end_iteration()
        self._loop.check_process()
        core, delivery = self._core, self._delivery
        limit = self.settings.max_poll_records if max_records is None else max_records
        began_ns = 0 if self._tracing is None else time.time_ns()
        if not core.user.attention and not self._closed:
            records = delivery.take(limit)
            if records:
                core.note_poll()
                return self._polled(records, began_ns)
        deadline = time.monotonic() + timeout
        # The core may have woken this call for something else although there are records: check for
        # records first.
        wait_s = 0 if core.user.attention else timeout
        while True:
            self._visit(wait_s * 1000)
            records = delivery.take(limit)
            wait_s = deadline - time.monotonic()
            if records or wait_s <= 0:
                return self._polled(records, began_ns)

    def poll_fetched(self, timeout: float = 0) -> Fetched | None:
        """Return the next fetched batches of one partition undecoded, and advance past them.

        None if nothing arrives in time. The caller must skip records before the ``fetch_offset``
        of the result, transaction markers, and records of aborted transactions.
        """
        self._end_iteration()
        self._loop.check_process()
        deadline = time.monotonic() + timeout
        if not self._core.user.attention and not self._closed:
            fetched = self._delivery.take_fetched()
            if fetched is not None:
                self._core.note_poll()
                return fetched
        wait_s = 0 if self._core.user.attention else timeout
        while True:
            self._visit(wait_s * 1000)
            fetched = self._delivery.take_fetched()
            wait_s = deadline - time.monotonic()
            if fetched is not None or wait_s <= 0:
                return fetched

    def poll_table(
        self,
        timeout: float = 0,
        *,
        columns: Sequence[str] | None = None,
        max_bytes: int = _TABLE_BYTES,
    ) -> pa.Table:
        """Return the next records as an Arrow table; it has no rows if nothing arrives in time.

        Columns topic, partition, offset, timestamp (UTC), key, value and headers, or those that
        ``columns`` names; deserializers are not called. Whole buffered fetches are taken until
        ``max_bytes`` is reached; the table has a chunk for each. For the group, and for errors, the
        same holds as for :meth:`poll`; after a RecordError the position is that of the record, and
        ``seek`` to its ``next_offset`` skips it. Needs pyarrow.
        """
        from millstream.client.core.consumer.table import TableReader

        reader = TableReader(columns, check_crcs=self.settings.check_crcs)
        deadline = time.monotonic() + timeout
        fetched = self.poll_fetched(timeout)
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
            if fetched is None and not reader.rows and time.monotonic() < deadline:
                fetched = self.poll_fetched(deadline - time.monotonic())
        self._core.fetch_metrics.records_consumed += reader.rows
        return reader.table()

    def to_arrow(
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
        deadline = time.monotonic() + timeout
        while reader.rows < max_records:
            fetched = self.poll_fetched(max(deadline - time.monotonic(), 0))
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

    def to_polars(
        self,
        max_records: int = 100_000,
        timeout: float = 1.0,
        *,
        columns: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Return what :meth:`to_arrow` does as a frame of polars, which it needs."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow(max_records, timeout, columns=columns))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_pandas(
        self,
        max_records: int = 100_000,
        timeout: float = 1.0,
        *,
        columns: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Return what :meth:`to_arrow` does as a frame of pandas, which it needs."""
        return self.to_arrow(max_records, timeout, columns=columns).to_pandas()

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Yield records one by one, for ever. A record counts as processed when the next one is
        requested.

        A commit or seek inside the loop sees the position after the present record.
        """
        while not self._closed:
            records = iter(self.poll(_IDLE_POLL_S))
            self._iterating = records
            yield from records

    def wakeup(self) -> None:
        """Make the waiting poll, or the next one, raise WakeupError.

        For any thread, and for signal handlers; without effect after close.
        """
        with contextlib.suppress(ClosedError):
            self._loop.post(self._core.user.wakeup)

    # --- positions -------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: Offset | OffsetAndMetadata) -> None:
        """Read on from ``offset``; one with a leader epoch is checked against the log (KIP-320)."""
        self._end_iteration()
        where = read_offset(offset)
        self._thread.call(lambda: self._core.seek(partition, where.offset, where.leader_epoch))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on from the first record of these partitions, or of all that are assigned."""
        self._end_iteration()
        self._thread.call(lambda: self._core.reset(partitions, to_end=False))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on from the end of these partitions, or of all that are assigned."""
        self._end_iteration()
        self._thread.call(lambda: self._core.reset(partitions, to_end=True))

    def position(self, partition: TopicPartition, timeout: float | None = None) -> Offset:
        """Return the offset of the next record to come; waits until that is known."""
        self._end_iteration()
        return self._thread.run(lambda: self._core.position(partition, self._wait(timeout)))

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until they are resumed; causes no rebalance."""
        self._end_iteration()
        self._thread.call(lambda: self._core.pause(partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        self._end_iteration()
        self._thread.call(lambda: self._core.resume(partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that are paused."""
        states = self._core.subscription.partitions.copy()
        return frozenset(
            topic_partition for topic_partition, state in states.items() if state.paused
        )

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the lag of the position behind the end of the last response; None if unknown."""
        state = self._core.state(partition)
        return lag_of(state, read_committed=self.settings.read_committed)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time (ms since 1970); None if there is none."""
        asked = dict(timestamps)
        if any(each < 0 for each in asked.values()):
            raise ValueError("a timestamp must not be negative")
        return self._thread.run(lambda: self._core.find_offsets(asked, self._wait(timeout)))

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Return the first offset of each partition."""
        return self._ends(partitions, EARLIEST_TIMESTAMP, timeout)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """Return the offset after the last record; with read_committed the last stable offset."""
        return self._ends(partitions, LATEST_TIMESTAMP, timeout)

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[Partition]:
        """Return the partitions of a topic; BrokerError when it is not there."""
        found = self._thread.run(lambda: self._core.metadata.topic(topic, self._wait(timeout)))
        return list(found.partitions)

    # --- commits and the group -------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, *, timeout: float | None = None) -> None:
        """Commit offsets, by default the positions, and wait for the result.

        CommitFailedError when this consumer is no longer in the group; RebalanceInProgressError
        when it must poll first; FencedInstanceIdError; BrokerError.
        """
        self._end_iteration()
        chosen = read_offsets(offsets)
        self._thread.run(lambda: self._core.commit(chosen, self._wait(timeout)))

    def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit without waiting; ``callback(offsets, error or None)`` runs in a later call."""
        self._end_iteration()
        chosen = read_offsets(offsets)
        self._thread.call(lambda: self._core.commit_async(chosen, callback))

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed; None where nothing."""
        wanted = list(partitions)
        return self._thread.run(lambda: self._core.committed(wanted, self._wait(timeout)))

    def group_metadata(self) -> GroupMetadata:
        """Return the consumer's group metadata, for a producer's transaction."""
        return self._thread.call(lambda: self._core.group)

    def enforce_rebalance(self, reason: str = "the application asked for it") -> None:
        """Trigger a rebalance of the group, beginning with the next poll."""
        self._thread.call(lambda: self._core.enforce_rebalance(reason))

    # --- the rest --------------------------------------------------------------------------------

    def unreachable(self) -> list[Address]:
        """Return the brokers that cannot be connected to, while it is tried."""
        return self._core.network.unreachable()

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return the metrics by (group, name), named as in Kafka's Java client."""
        return self._thread.call(self._core.metrics)

    def close(self, timeout: float | None = None) -> None:
        """Commit if that is automatic, leave the group, and stop the thread. Further calls do
        nothing.
        """
        if self._closed:
            return
        self._end_iteration()
        self._closed = True
        try:
            self._thread.drive(lambda: self._core.close(self._wait(timeout, 30_000)))
        except ForkedError:
            # Only the parent process closes it.
            return
        finally:
            self._loop.close()

    # --- inside ----------------------------------------------------------------------------------

    def _visit(self, timeout_ms: float) -> None:
        """Poll the core once, and run the callbacks queued for this thread."""
        if self._closed:
            raise ClosedError("the consumer is closed")
        self._thread.visit(lambda: self._core.poll(timeout_ms))

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

    def _ends(
        self, partitions: Iterable[TopicPartition], which: int, timeout: float | None
    ) -> dict[TopicPartition, Offset]:
        asked = dict.fromkeys(partitions, which)
        found = self._thread.run(lambda: self._core.find_offsets(asked, self._wait(timeout)))
        return {
            topic_partition: 0 if each is None else each.offset
            for topic_partition, each in found.items()
        }

    def _wait(self, timeout: float | None, default_ms: float | None = None) -> float:
        if timeout is not None:
            return timeout * 1000
        return self.settings.default_api_timeout_ms if default_ms is None else default_ms


def _names(topics: Iterable[str] | str) -> list[str]:
    return [topics] if isinstance(topics, str) else list(topics)
