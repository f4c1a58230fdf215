"""A ``send`` that found ``buffer.memory`` full: when it is tried again, and when it gives up.

Both APIs drive one; they differ in how they wait only::

    waiting = core.waiting_append(append, event, may_wait=…)
    try:
        while (appended := waiting.attempt()) is None:
            wait for event, waiting.left_ms at most
    finally:
        waiting.end()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from millstream.client.core.producer.accumulator import MemoryWaiter, RecordAccumulator
from millstream.client.core.producer.batch import ProducerBatch
from millstream.client.core.producer.metrics import ProducerMetrics
from millstream.client.errors import BufferFullError

Appended = tuple[ProducerBatch, int]
Append = Callable[[], Appended | None]
"""Appends what ``send`` was given; returns None without memory for it."""


class Event(Protocol):
    """What a caller waits for: an event of threads, or of asyncio."""

    def set(self) -> object:
        """Let who waits go on."""

    def clear(self) -> object:
        """Let who waits from now on wait."""


class WaitingAppend:
    """One ``send``. The waiter is made before it is queued, so that whatever interrupts the caller
    finds it in :meth:`end`.
    """

    def __init__(
        self,
        append: Append,
        event: Event,
        accumulator: RecordAccumulator,
        metrics: ProducerMetrics,
        *,
        now_ms: Callable[[], float],
        limit_ms: float,
        may_wait: bool,
        where: Callable[[], str],
    ) -> None:
        self._append = append
        self._event = event
        self._accumulator = accumulator
        self._metrics = metrics
        self._now_ms = now_ms
        self._limit_ms = limit_ms
        self._may_wait = may_wait
        self._where = where
        self._waiter = MemoryWaiter(event.set)
        self._deadline_ms = now_ms() + limit_ms
        self._waits_since_ms: float | None = None

    @property
    def left_ms(self) -> float:
        """How long the caller may wait from now on."""
        return max(self._deadline_ms - self._now_ms(), 0.0)

    def attempt(self) -> Appended | None:
        """Append; None if the caller has to wait for the event first.

        Raises BufferFullError after ``max.block.ms``, or where waiting is not possible, and the
        error of a producer that takes no records.
        """
        accumulator = self._accumulator
        with accumulator.lock:
            self._stop_waiting()
            if accumulator.refusal is not None:
                raise accumulator.refusal()
            appended = self._append()
            if appended is not None:
                return appended
            if not self._may_wait or self._now_ms() >= self._deadline_ms:
                self._metrics.exhausted += 1
                raise BufferFullError(self._words())
            self._event.clear()
            self._waits_since_ms = self._now_ms()
            accumulator.wait_for_memory(self._waiter)
        accumulator.wake()
        return None

    def end(self) -> None:
        """Leave what is kept for this to the next; to be called whatever has happened."""
        with self._accumulator.lock:
            self._stop_waiting()
            self._accumulator.wake_waiters()

    def _stop_waiting(self) -> None:
        self._accumulator.stop_waiting(self._waiter)
        since_ms, self._waits_since_ms = self._waits_since_ms, None
        if since_ms is not None:
            self._metrics.blocked_ms += self._now_ms() - since_ms

    def _words(self) -> str:
        if not self._may_wait:
            return f"buffer.memory is full, and a callback cannot wait ({self._where()})"
        return (
            f"buffer.memory stayed full for {self._limit_ms:.0f} ms (max.block.ms; {self._where()})"
        )
