"""One fetch over its partitions: read them, have cold bytes read ahead, wait for more.

A fetch that finds fewer than ``min_bytes`` waits at its partitions and is run again as a whole, so
that what it answers is never older than its last look. One that meets bytes that are not in memory
is run again, too, when the disk has been read on a thread of its own: sending them would hold up
everybody. One that names many partitions is run in slices, between which the loop serves others.
Kafka: ``ReplicaManager.fetchMessages``, ``DelayedFetch``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.protocol.messages.fetch import PartitionData
from millstream.runtime.replicas.fetch_reader import (
    FetchParams,
    FetchReader,
    is_urgent,
    not_here,
)
from millstream.runtime.replicas.waiters import FetchWaiter
from millstream.storage.log import ReadAhead

if TYPE_CHECKING:
    from millstream.runtime.replicas.fetch_sessions import PartitionFetch
    from millstream.runtime.replicas.partition import Partition
    from millstream.runtime.replicas.partitions import Partitions
    from millstream.runtime.replicas.replication_throttle import ThrottledSide

SLICE: Final = 500
"""Partitions read before the loop may serve others; one takes some ten microseconds."""

_MOST_LOOKS: Final = 3
"""How often one fetch has the disk read: for indexes, for batches, and once more where memory is so
short that they are gone again. Then it is answered whatever it costs."""

_NOT_KNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class FetchOutcome:
    """What one run over the partitions has found. With anything ``cold`` it is no answer yet."""

    # What is seldom set has its default in the class.
    throttled_size = 0
    """Bytes that count under the leader's rate limit."""
    urgent = False
    """True where there is something to say that is not to wait for records."""
    is_whole = True
    """False while slices of the fetch's partitions are still to be read."""
    looked_at = 0
    """How many partitions the slices have had so far."""
    woken: Deferred[bool] | None = None
    """Filled when a partition of a slice that was read has moved (``FetchWaiter``)."""

    def __init__(self, max_bytes: int) -> None:
        self.reads: list[tuple[PartitionFetch, PartitionData]] = []
        """Partitions that were looked at, in order."""
        self.unknown: list[tuple[PartitionFetch, PartitionData]] = []
        """What is not here."""
        self.partitions: list[Partition] = []
        self.cold: list[ReadAhead] = []
        self.size = 0
        self.bytes_left = max_bytes


class DelayedFetch:
    """One fetch; its reader waits for at most ``wait_ms``.

    ``skips_quiet`` leaves out partitions that had nothing to say when they were looked at last and
    have no news, which is for the sessions of readers that remember what they were told.
    """

    _cancelled = False
    _end_ms = 0.0
    """Until when a fetch of several slices waits, 0 for one that does not."""
    _looks_left = _MOST_LOOKS
    _throttle: ThrottledSide | None = None
    """The rate limit of a follower's fetch."""
    _waiter: FetchWaiter | None = None

    def __init__(
        self,
        fetches: Sequence[PartitionFetch],
        params: FetchParams,
        partitions: Partitions,
        *,
        skips_quiet: bool = False,
    ) -> None:
        self._fetches = fetches
        self.params = params
        self._partitions = partitions
        self._skips_quiet = skips_quiet
        self._reader = reader = FetchReader(partitions, params)
        if reader.of_replica and partitions.replicas is not None:
            self._throttle = partitions.replicas.context.throttle.leader

    def start(self, wait_ms: float) -> FetchOutcome | Deferred[FetchOutcome]:
        """Read, and wait where that is less than what is asked for; at once where it can be."""
        if len(self._fetches) > SLICE and wait_ms > 0:
            self._end_ms = self._partitions.clock.monotonic_ms() + wait_ms
        outcome = self._begin()
        if outcome.cold or not outcome.is_whole:
            return spawn(self._finish(outcome, wait_ms))
        if outcome.size >= self.params.min_bytes or outcome.urgent or wait_ms <= 0:
            return outcome
        return spawn(self._wait(outcome, wait_ms))

    def cancel(self) -> None:
        """Give up: nobody is there to be answered. A Deferred that was returned stays unfilled."""
        self._cancelled = True
        self._leave()

    async def _finish(self, outcome: FetchOutcome, wait_ms: float) -> FetchOutcome:
        outcome = await self._in_memory(outcome)
        if not self._is_enough(outcome) and wait_ms > 0:
            return await self._wait(outcome, wait_ms)
        self._leave()
        return outcome

    async def _wait(self, outcome: FetchOutcome, wait_ms: float) -> FetchOutcome:
        """Park at the partitions until there is enough, something changes or the time is up."""
        clock = self._partitions.clock
        self._end_ms = self._end_ms or clock.monotonic_ms() + wait_ms
        while True:
            woken = outcome.woken
            if woken is None:
                woken = self._park(outcome.partitions, self.params.min_bytes - outcome.size)
            else:
                assert self._waiter is not None
                self._waiter.data_arrived(outcome.size)
            data_arrived = await woken
            outcome = self._begin()
            if outcome.cold or not outcome.is_whole:
                outcome = await self._in_memory(outcome)
            # Bytes that arrived are not always for this reader: it may see committed ones alone.
            is_over = not data_arrived or clock.monotonic_ms() >= self._end_ms
            if is_over or self._is_enough(outcome):
                self._leave()
                return outcome

    def _park(self, partitions: list[Partition], missing_bytes: int) -> Deferred[bool]:
        woken: Deferred[bool] = Deferred()
        clock = self._partitions.clock
        self._waiter = FetchWaiter(
            clock,
            partitions=partitions,
            missing_bytes=missing_bytes,
            wait_ms=self._end_ms - clock.monotonic_ms(),
            on_woken=woken.complete,
            of_replica=self._reader.of_replica,
        )
        return woken

    def _leave(self) -> None:
        """Wait no more at the partitions."""
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None

    async def _in_memory(self, outcome: FetchOutcome) -> FetchOutcome:
        """Return the outcome of a whole run that met nothing cold, or that looks no more."""
        await self._rest_of(outcome)
        while outcome.cold:
            self._looks_left -= 1
            reading = [
                self._partitions.offload.run(f"read {cold.log_directory}", cold.run)
                for cold in outcome.cold
            ]
            for read in reading:
                try:
                    await read
                except StorageError as error:
                    self._partitions.storage_failed(error)
            if self._cancelled:
                await Deferred[None]()  # a fetch that parked now would wait for its whole time
            outcome = self._begin()
            await self._rest_of(outcome)
        return outcome

    async def _rest_of(self, outcome: FetchOutcome) -> None:
        """Read the partitions that are left, a slice each time the loop has served others."""
        while not outcome.is_whole:
            served: Deferred[None] = Deferred()
            self._partitions.clock.call_soon(partial(self._go_on, served))
            await served
            self._read_slice(outcome)

    def _go_on(self, served: Deferred[None]) -> None:
        if not self._cancelled:
            served.complete(None)

    def _is_enough(self, outcome: FetchOutcome) -> bool:
        """Tell whether there is something to say now."""
        return outcome.urgent or outcome.size >= self.params.min_bytes

    def _begin(self) -> FetchOutcome:
        """Begin to read every partition in order, until the bytes are used up: the first slice."""
        if self._throttle is not None:
            self._reader.is_throttled = self._throttle.is_exceeded()
        outcome = FetchOutcome(self.params.max_bytes)
        fetches = self._fetches
        if len(fetches) <= SLICE:
            self._read(outcome, fetches)
            return outcome
        self._leave()
        if self._end_ms:
            # What moves while later slices are read would otherwise wake nobody.
            outcome.woken = self._park([], self.params.min_bytes)
        self._read_slice(outcome)
        return outcome

    def _read_slice(self, outcome: FetchOutcome) -> None:
        begin = outcome.looked_at
        outcome.looked_at += SLICE
        outcome.is_whole = outcome.looked_at >= len(self._fetches)
        found = len(outcome.partitions)
        self._read(outcome, self._fetches[begin : outcome.looked_at])
        if self._waiter is not None:
            self._waiter.watch(outcome.partitions[found:])

    def _read(self, outcome: FetchOutcome, fetches: Sequence[PartitionFetch]) -> None:
        reader = self._reader
        waits_for_disk = self._looks_left == 0
        for fetch in fetches:
            quiet = fetch.quiet_at
            if quiet is not None and self._skips_quiet and not reader.has_news(quiet, fetch):
                outcome.partitions.append(quiet)
                continue
            try:
                partition = reader.find(fetch)
            except KafkaError as error:
                outcome.unknown.append((fetch, not_here(fetch.partition, error.error)))
                # What nobody knows does not end the wait for the rest, as in Kafka.
                outcome.urgent |= error.error not in _NOT_KNOWN
                continue
            outcome.partitions.append(partition)
            left = outcome.bytes_left
            found = reader.read(
                partition,
                fetch,
                max_bytes=min(fetch.max_bytes, left),
                min_one_batch=not outcome.size,
                wait_for_disk=waits_for_disk,
            )
            if isinstance(found, ReadAhead):
                outcome.cold.append(found)
                outcome.bytes_left = max(0, left - found.size)
                continue
            outcome.reads.append((fetch, found))
            records = found.records
            if records:
                size = len(records)
                outcome.bytes_left = left - size if size < left else 0
                outcome.size += size
                if self._throttle is not None and self._throttle.names(partition):
                    outcome.throttled_size += size
            else:
                if left < 0:  # refused with the first partition; the others find a limit of nothing
                    outcome.bytes_left = 0
                urgent = is_urgent(found)
                outcome.urgent |= urgent
                fetch.quiet_at = None if urgent else partition
        if outcome.is_whole:
            reader.is_recorded = True
            if not outcome.partitions:
                outcome.urgent = True

    def sent(self, outcome: FetchOutcome) -> None:
        """Count what an outcome that is answered sends under the leader's rate limit."""
        if self._throttle is not None:
            self._throttle.record(outcome.throttled_size)
