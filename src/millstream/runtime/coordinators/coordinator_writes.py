"""The writes of one coordinator shard: batches in order, one on its way, answers that wait.

Records of one turn of the loop, and all that come while a batch is on its way to be committed,
share the next batch (group commit). An answer held here leaves when the batch that was the newest
then is committed; see ``docs/decisions/0003-answers-wait-for-their-records.md``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from millstream.coordinator.result import Answer
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.records.batch import HEADER_SIZE
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.replicas.partition import Partition

Encoded: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record as they stand in the log."""

_RECORD_BYTES: Final = 32
"""More than the lengths and deltas of one record take."""


@dataclass(slots=True)
class _Write:
    """A batch, and the answers that wait for it."""

    builder: BatchBuilder
    answers: list[Answer] = field(default_factory=list)


class CoordinatorWrites:
    """Appends batches to a partition. ``on_failed`` is called once with why an append failed; then
    the queue must be abandoned. ``on_resumed`` is called when a batch that was not committed in
    time is committed after all, with how many milliseconds nothing could be begun.
    """

    def __init__(
        self,
        partition: Partition,
        options: BatchOptions,
        *,
        clock: Clock,
        commit_timeout_ms: int,
        on_failed: Callable[[KafkaError], None],
        on_resumed: Callable[[float], None],
    ) -> None:
        self.is_stuck = False
        """A batch was not committed in time; nothing should be begun until it is."""
        self._partition = partition
        self._options = options
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._on_failed = on_failed
        self._on_resumed = on_resumed
        self._stuck_since_ms = 0.0
        self._in_flight: _Write | None = None
        self._in_flight_since_ms = 0.0
        self._queue: deque[_Write] = deque()
        self._flush_scheduled = False
        self._watching = False

    def fits(self, records: Sequence[Encoded]) -> bool:
        """True when one batch can hold the records."""
        return _size(records) <= self._partition.log.config.max_message_bytes

    def add(self, records: Sequence[Encoded]) -> None:
        """Put records into one batch, to be appended at the end of this turn of the loop."""
        size = _size(records)
        limit = self._partition.log.config.max_message_bytes
        if not self._queue or self._queue[-1].builder.size + size > limit:
            self._queue.append(_Write(BatchBuilder(self._options)))
        builder = self._queue[-1].builder
        timestamp_ms = self._clock.now_ms()
        for key, value in records:
            builder.append(timestamp_ms, key, value)
        if not self._flush_scheduled and self._in_flight is None:
            self._flush_scheduled = True
            self._clock.call_soon(self._flush)

    def send(self, answers: Sequence[Answer]) -> None:
        """Send answers once everything added so far is committed: now, if it is."""
        newest = self._queue[-1] if self._queue else self._in_flight
        if newest is not None:
            newest.answers += answers
            return
        for answer in answers:
            answer.send()

    def hold_until_committed(self, end: Offset) -> None:
        """Let answers wait until what the log holds below ``end`` is committed."""
        write = self._begin(_Write(BatchBuilder(self._options)))

        def settle(error: KafkaError | None) -> None:
            self._settle(write, error)

        self._partition.wait_for_commit(end - 1, settle)
        if self._in_flight is write:
            self._watch(self._commit_timeout_ms)

    def abandon(self, error: KafkaError) -> None:
        """Forget every batch and refuse the answers that wait."""
        self._refuse_all(error)
        self._in_flight = None
        self._queue.clear()
        self.is_stuck = False

    def _flush(self) -> None:
        """Append the oldest batch, unless one is on its way."""
        self._flush_scheduled = False
        if self._in_flight is not None or not self._queue:
            return
        write = self._begin(self._queue.popleft())
        appended = self._partition.append_internal(write.builder.build())
        if not appended.done:
            self._watch(self._commit_timeout_ms)

        def settle(outcome: Deferred[Offset]) -> None:
            try:
                outcome.result()
            except KafkaError as error:
                self._settle(write, error)
            else:
                self._settle(write, None)

        appended.on_done(settle)

    def _begin(self, write: _Write) -> _Write:
        self._in_flight = write
        self._in_flight_since_ms = self._clock.monotonic_ms()
        return write

    def _settle(self, write: _Write, error: KafkaError | None) -> None:
        if self._in_flight is not write:
            return  # abandoned meanwhile
        if error is not None:
            self._on_failed(error)
            return
        if self.is_stuck:
            self.is_stuck = False
            self._on_resumed(self._clock.monotonic_ms() - self._stuck_since_ms)
        self._in_flight = None
        self._flush()
        for answer in write.answers:
            answer.send()

    def _watch(self, delay_ms: float) -> None:
        """See to it that the batch on its way is not waited for beyond the time-out.

        One timer watches over one batch after the other, so that a batch costs none.
        """
        if not self._watching:
            self._watching = True
            self._clock.call_later(delay_ms, self._look)

    def _look(self) -> None:
        self._watching = False
        if self._in_flight is None:
            return
        waited_ms = self._clock.monotonic_ms() - self._in_flight_since_ms
        if waited_ms < self._commit_timeout_ms:
            self._watch(max(1.0, self._commit_timeout_ms - waited_ms))
            return
        self.is_stuck = True
        self._stuck_since_ms = self._clock.monotonic_ms()
        self._refuse_all(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not committed in time"))

    def _refuse_all(self, error: KafkaError) -> None:
        for write in (self._in_flight, *self._queue):
            if write is not None:
                answers, write.answers = write.answers, []
                for answer in answers:
                    answer.refuse(error)


def _size(records: Sequence[Encoded]) -> int:
    """Return a bound for what records take in a batch, its header included."""
    return HEADER_SIZE + sum(_RECORD_BYTES + len(key) + len(value or b"") for key, value in records)
