"""Buffers records in batches until they are sent to the leader.

One deque of batches per partition; the last one is open. ``append`` is called by the application,
everything else on the client's loop: access to a queue requires ``lock``, which each API provides
(Kafka: ``RecordAccumulator``). ``buffer.memory`` counts what batches hold from ``append`` until
their outcome is known; without free memory ``append`` returns None and the API blocks its caller.
Callers get memory in the order in which they began to wait: what comes free is kept for the first
until it is enough, so that small records do not take it away from a large one (Kafka:
``BufferPool``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from millstream.client.core.producer.batch import (
    HELD_BYTES,
    RECORD_OVERHEAD_BYTES,
    DeliveryCallback,
    ProducerBatch,
)
from millstream.client.core.producer.partitioner import StickyChoice
from millstream.client.core.producer.sequences import comes_after
from millstream.client.core.settings import ProducerSettings
from millstream.client.errors import ClosedError, RecordTooLargeError
from millstream.model.topic import TopicPartition
from millstream.records.batch import HEADER_SIZE
from millstream.records.record import Header


class PartitionQueue:
    """The batches of one partition, oldest first."""

    __slots__ = ("batches", "last", "topic", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, topic: TopicBuffer) -> None:
        self.topic_partition = topic_partition
        self.topic = topic
        self.batches: deque[ProducerBatch] = deque()
        self.last: ProducerBatch | None = None
        """The open batch, if there is one."""


@dataclass(slots=True, eq=False)
class MemoryWaiter:
    """A caller of ``send`` that waits for memory."""

    wake: Callable[[], object]
    """Called once the memory is kept for it, with the accumulator's lock held."""
    needed: int = 0
    kept: int = 0


class TopicBuffer:
    """One topic: its partitions' queues and the sticky partition."""

    __slots__ = ("available", "current", "name", "queues", "sticky")

    def __init__(self, name: str, sticky: StickyChoice) -> None:
        self.name = name
        self.queues: list[PartitionQueue] = []
        self.sticky = sticky
        self.available: list[int] = []
        """Partitions that have a leader."""
        self.current: PartitionQueue | None = None
        """The sticky partition of records without a key; None if it has to be chosen."""

    def sticky_queue(self) -> PartitionQueue:
        """Choose the queue for records without a key."""
        self.current = self.queues[self.sticky.partition(len(self.queues), self._available)]
        return self.current

    def ended(self, batch: ProducerBatch) -> None:
        """Count a closed batch towards the change of the sticky partition."""
        self.current = None
        if batch.topic_partition.partition == self.sticky.current:
            self.sticky.produced(batch.size, len(self.queues), self._available)

    def _available(self) -> list[int]:
        return self.available


class RecordAccumulator:
    """All buffered records, and the memory accounting."""

    def __init__(
        self,
        settings: ProducerSettings,
        *,
        lock: AbstractContextManager[object],
        now_ms: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self.lock = lock
        self.topics: dict[str, TopicBuffer] = {}
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.free_bytes = settings.buffer_memory
        self.flushing = 0
        """Running flushes."""
        self.is_closed = False
        self.refusal: Callable[[], Exception] | None = None
        """Makes the error of a ``send`` that is not permitted: the producer is closed, or no
        transaction is open. None while records are taken."""
        self.incomplete: dict[ProducerBatch, None] = {}
        """Batches without an outcome, in order of their creation."""
        self.pending: dict[TopicPartition, PartitionQueue] = {}
        """Queues that hold batches."""
        self._waiters: deque[MemoryWaiter] = deque()
        self._callers: set[MemoryWaiter] = set()
        self._refused_bytes = 0
        self.wake: Callable[[], None] = lambda: None
        """Set by the sender; called when a batch may be ready."""
        self._total_bytes = settings.buffer_memory
        self._room = max(min(settings.batch_size, settings.max_request_size) - HEADER_SIZE, 0)
        self._max_request_bytes = settings.max_request_size
        self._batch_size = settings.batch_size
        self._now_ms = now_ms
        self._random = random

    @property
    def held_bytes(self) -> int:
        """Bytes of ``buffer.memory`` in use."""
        return self._total_bytes - self.free_bytes

    @property
    def waiting(self) -> int:
        """Callers that wait for memory, or have been woken and have not appended yet."""
        return len(self._callers)

    def close(self) -> None:
        """Take no more records; with the lock held."""
        self.is_closed = True
        self.refusal = lambda: ClosedError("the producer is closed")

    def topic(self, name: str) -> TopicBuffer:
        """Return a topic's buffer; it has no partitions before :meth:`resize`."""
        known = self.topics.get(name)
        if known is None:
            known = TopicBuffer(name, StickyChoice(self._random, self._batch_size))
            self.topics[name] = known
        return known

    def resize(self, topic: TopicBuffer, partitions: int, available: list[int]) -> None:
        """Set the number of partitions of a topic; batches of a removed partition stay."""
        with self.lock:
            for index in range(len(topic.queues), partitions):
                topic_partition = TopicPartition(topic.name, index)
                known = self.queues.get(topic_partition)
                if known is None:
                    known = self.queues[topic_partition] = PartitionQueue(topic_partition, topic)
                topic.queues.append(known)
            del topic.queues[partitions:]
            topic.available = available
            topic.current = None

    def append(
        self,
        queue: PartitionQueue,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        callback: DeliveryCallback | None,
    ) -> tuple[ProducerBatch, int] | None:
        """Add a record, with the lock held; None when there is no memory for it.

        RecordTooLargeError for one that could never be sent.
        """
        if key is None and not headers and value is not None:
            size = RECORD_OVERHEAD_BYTES + len(value)
        else:
            size = record_bytes(key, value, headers)
        held = size + HELD_BYTES
        if held > self.free_bytes:
            self._check_size(size)
            self._refused_bytes = held
            return None
        batch = queue.last
        if batch is None or size > batch.room:
            batch = self._new_batch(queue, size)
            held += HEADER_SIZE
        batch.room -= size
        batch.held_bytes += held
        self.free_bytes -= held
        return batch, batch.append(timestamp_ms, key, value, headers, callback)

    def _check_size(self, size: int) -> None:
        most = self._max_request_bytes
        if HEADER_SIZE + size > most:
            raise RecordTooLargeError(
                f"a record takes up to {HEADER_SIZE + size} bytes, max.request.size is {most}"
            )
        if HEADER_SIZE + size + HELD_BYTES > self._total_bytes:
            raise RecordTooLargeError(
                f"a record takes up to {size} bytes, buffer.memory is {self._total_bytes}"
            )

    def _new_batch(self, queue: PartitionQueue, size: int) -> ProducerBatch:
        if size > self._room:
            self._check_size(size)
        full = queue.last
        if full is not None:
            self.end(queue)
        batch = ProducerBatch(queue.topic_partition, max(self._room, size), self._now_ms())
        queue.batches.append(batch)
        queue.last = batch
        self.pending[queue.topic_partition] = queue
        self.incomplete[batch] = None
        self.wake()
        return batch

    def append_encoded(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Add an encoded batch, with the lock held; False without memory for it."""
        if batch.size > self.free_bytes:
            self._refused_bytes = batch.size
            return False
        self.end(queue)
        batch.created_ms = self._now_ms()
        batch.held_bytes = batch.size
        self.free_bytes -= batch.held_bytes
        queue.batches.append(batch)
        self.pending[queue.topic_partition] = queue
        self.incomplete[batch] = None
        self.wake()
        return True

    def end(self, queue: PartitionQueue) -> None:
        """Close the open batch."""
        batch, queue.last = queue.last, None
        if batch is not None:
            batch.is_closed = True
            queue.topic.ended(batch)

    # --- waiting for memory, with the lock held --------------------------------------------------

    def wait_for_memory(self, waiter: MemoryWaiter) -> None:
        """Queue for what the ``append`` needed that was just refused.

        The caller calls :meth:`stop_waiting` before it appends again, without giving the lock back
        between, or when it does not wait any longer, and :meth:`wake_waiters` after that.
        """
        # The record may need a new batch, or another thread's has needed one meanwhile.
        waiter.needed = min(self._refused_bytes + HEADER_SIZE, self._total_bytes)
        self._callers.add(waiter)
        self._waiters.append(waiter)
        self.wake_waiters()

    def stop_waiting(self, waiter: MemoryWaiter) -> None:
        """Give back what is kept for a waiter; harmless for one that does not wait."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        # In one step, which no signal handler interrupts.
        self.free_bytes, waiter.kept = self.free_bytes + waiter.kept, 0
        self._callers.discard(waiter)

    def wake_waiters(self) -> None:
        """Keep free memory for the first waiters, and wake those that have enough."""
        while self._waiters and self.free_bytes > 0:
            first = self._waiters[0]
            taken = min(first.needed - first.kept, self.free_bytes)
            first.kept += taken
            self.free_bytes -= taken
            if first.kept < first.needed:
                return
            self._waiters.popleft()
            first.wake()

    # --- on the loop -----------------------------------------------------------------------------

    def take_first(self, queue: PartitionQueue) -> ProducerBatch:
        """Remove the oldest batch from its queue, closed; with the lock held."""
        batch = queue.batches.popleft()
        if batch is queue.last:
            self.end(queue)
        if not queue.batches:
            self.pending.pop(queue.topic_partition, None)
        return batch

    def put_back(self, batches: Sequence[ProducerBatch]) -> None:
        """Put batches of one partition back, in order, before those that were never sent.

        Among those that were sent they are ordered by sequence.
        """
        queue = self.queues[batches[0].topic_partition]
        with self.lock:
            at = 0
            for other in queue.batches:
                if not other.has_sequence or not comes_after(
                    batches[0].identity.base_sequence, other.identity.base_sequence
                ):
                    break
                at += 1
            for batch in reversed(batches):
                queue.batches.insert(at, batch)
                self.incomplete[batch] = None
            self.pending[queue.topic_partition] = queue

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Replace a batch by its parts, which have the same age, among those without an outcome."""
        with self.lock:
            self.incomplete = {
                each: None
                for known in self.incomplete
                for each in (parts if known is batch else (known,))
            }
        self.put_back(parts)

    def remove(self, batch: ProducerBatch) -> None:
        """Remove a batch from any position of its queue; with the lock held."""
        queue = self.queues[batch.topic_partition]
        if batch in queue.batches:
            queue.batches.remove(batch)
        if batch is queue.last:
            self.end(queue)
        if not queue.batches:
            self.pending.pop(queue.topic_partition, None)

    def shrink(self, batch: ProducerBatch, held_bytes: int) -> None:
        """Reduce the memory of a batch that was encoded."""
        if held_bytes < batch.held_bytes:
            self._release(batch.held_bytes - held_bytes)
            batch.held_bytes = held_bytes

    def complete(self, batch: ProducerBatch) -> None:
        """Release the memory of a batch whose outcome is known."""
        self.incomplete.pop(batch, None)
        self._release(batch.held_bytes)
        batch.held_bytes = 0

    def _release(self, size: int) -> None:
        with self.lock:
            self.free_bytes += size
            if self._waiters:
                self.wake_waiters()


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Return the largest size of a record in a batch."""
    size = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        # A name of n characters takes up to 4n bytes, and each length up to 5.
        size += 10 + 4 * len(name) + (0 if content is None else len(content))
    return size
