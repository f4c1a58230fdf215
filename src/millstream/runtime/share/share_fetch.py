"""One ShareFetch over its partitions: read, lock records for the member, wait where there is less
than it asks for.

What is found at all partitions is counted before anything is locked, so a fetch that waits holds
nothing. It looks again when records arrive, when records become available again, when a state is
loaded, and when its time is up. Records are locked and the answer is put together in one step of
the loop, under the leader's lease (NOT_LEADER_OR_FOLLOWER without it). Kafka:
``DelayedShareFetch``, ``ShareFetchUtils.processFetchResponse``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from millstream.model.offsets import Offset
from millstream.runtime.replicas.waiters import FetchWaiter
from millstream.runtime.share.fetched_records import fetched_records
from millstream.share.acquisition import AcquiredRecords, AcquireRequest
from millstream.share.record_state import AcquireMode
from millstream.share.state import SharePartitionKey
from millstream.storage.log import LogRead, ReadAhead

if TYPE_CHECKING:
    from millstream.runtime.share.led_share_partition import LedSharePartition
    from millstream.runtime.share.share_partitions import SharePartitions
    from millstream.storage.file_slice import FileSlice

log = logging.getLogger(__name__)

_MOST_LOOKS: Final = 3
"""How often one fetch has the disk read, see ``replicas.delayed_fetch``."""

_MOST_ROUNDS: Final = 20
"""How often one fetch goes on where all that it read was aborted or gone."""


@dataclass(frozen=True, slots=True)
class ShareFetchParams:
    """Who fetches, and how much of all partitions together."""

    group_id: str
    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


@dataclass(slots=True)
class FetchedSharePartition:
    """What a member is told of one partition."""

    key: SharePartitionKey
    error: ErrorCode = ErrorCode.NONE
    records: FileSlice | None = None
    acquired: Sequence[AcquiredRecords] = ()


@dataclass(slots=True)
class _Found:
    """A read of one partition whose records are not locked yet."""

    led: LedSharePartition
    fetch_offset: Offset
    read: LogRead


@dataclass(slots=True)
class _Look:
    """What one look at all partitions has found."""

    refused: list[FetchedSharePartition] = field(default_factory=list)
    found: list[_Found] = field(default_factory=list)
    waiting: list[LedSharePartition] = field(default_factory=list)
    """Where more may come."""
    cold: list[ReadAhead] = field(default_factory=list)
    size: int = 0


class ShareFetch:
    """One fetch of the partitions ``keys``, in this order."""

    __slots__ = (
        "_cancelled",
        "_keys",
        "_led",
        "_looks_left",
        "_manager",
        "_params",
        "_settings",
        "_waiter",
    )

    def __init__(
        self, manager: SharePartitions, params: ShareFetchParams, keys: Sequence[SharePartitionKey]
    ) -> None:
        self._manager = manager
        self._params = params
        self._keys = keys
        self._led: dict[SharePartitionKey, LedSharePartition] = {}
        self._settings = manager.settings_of(params.group_id)
        self._looks_left = _MOST_LOOKS
        self._waiter: FetchWaiter | None = None
        self._cancelled = False

    def start(self) -> Deferred[list[FetchedSharePartition]]:
        """Read, and wait where that is less than what is asked for. The answer has what was
        acquired and what is refused, and without records the partitions that had none to acquire.
        """
        params = self._params
        if not self._keys or params.max_records == 0 or params.max_bytes <= 0:
            return Deferred.of([])
        return spawn(self._run())

    def cancel(self) -> None:
        """Give up: nobody is there to be answered, and nothing is locked any more."""
        self._cancelled = True
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None

    async def _run(self) -> list[FetchedSharePartition]:
        clock = self._manager.clock
        end_ms = clock.monotonic_ms() + self._params.max_wait_ms
        rounds = _MOST_ROUNDS
        while True:
            look = self._look()
            if look.cold:
                await self._read_ahead(look.cold)
                if self._cancelled:
                    return []
                continue
            left_ms = end_ms - clock.monotonic_ms()
            # Kafka answers at once where every partition refuses, and else waits for the others.
            is_over = left_ms <= 0 or not (look.waiting or look.found)
            if look.found and (is_over or look.size >= self._params.min_bytes):
                answer = self._acquire(look)
                rounds -= 1
                if answer or is_over or not rounds:
                    return look.refused + answer + _without_records(look, answer)
                continue
            if is_over:
                return look.refused + _without_records(look, [])
            await self._park(look, left_ms)

    # Look

    def _look(self) -> _Look:
        look = _Look()
        params = self._params
        share = params.max_bytes // len(self._keys)
        for key in self._keys:
            try:
                self._look_at(self._find(key), look, max_bytes=share)
            except KafkaError as error:
                look.refused.append(FetchedSharePartition(key, error.error))
        return look

    def _find(self, key: SharePartitionKey) -> LedSharePartition:
        """Return a share partition. One that failed to load while this fetch waited for it is
        dropped: the fetch that waited hears of the failure, and only the next one tries anew.
        """
        known = self._led.get(key)
        if known is not None and known.failure is not None:
            return known
        led = self._led[key] = self._manager.find_or_load(key)
        return led

    def _look_at(self, led: LedSharePartition, look: _Look, *, max_bytes: int) -> None:
        if led.failure is not None:
            raise led.failure
        partition = led.partition
        # What is committed may be read a little longer than the lease lasts, but not locked:
        # another leader may have taken acknowledgements of it.
        partition.check_may_answer()
        machine = led.machine
        if machine is None:
            look.waiting.append(led)
            return
        machine.rules = self._settings.rules
        machine.move_log_start(partition.log_start_offset)
        if not machine.can_acquire:
            led.is_full = True
            look.waiting.append(led)
            return
        offset = machine.next_fetch_offset
        look.waiting.append(led)
        if offset >= partition.visible_end(self._settings.isolation):
            return
        read = partition.read(
            offset,
            max_bytes=max_bytes,
            isolation=self._settings.isolation,
            min_one_batch=not look.found,
            wait_for_disk=self._looks_left == 0,
        )
        if read.cold is not None:
            look.cold.append(read.cold)
        elif read.records is not None:
            look.found.append(_Found(led, offset, read))
            look.size += read.records.size

    async def _read_ahead(self, cold: Sequence[ReadAhead]) -> None:
        self._looks_left -= 1
        partitions = self._manager.partitions
        reading = [partitions.offload.run(f"read {each.log_directory}", each.run) for each in cold]
        for read in reading:
            try:
                await read
            except StorageError as error:
                partitions.storage_failed(error)

    async def _park(self, look: _Look, wait_ms: float) -> None:
        """Wait until something changes or the time is up."""
        woken: Deferred[bool] = Deferred()
        waiter = self._waiter = FetchWaiter(
            self._manager.clock,
            partitions=[led.partition for led in look.waiting],
            missing_bytes=max(1, self._params.min_bytes - look.size),
            wait_ms=wait_ms,
            on_woken=woken.complete,
        )
        for led in look.waiting:
            waiter.stand_at(led.waiters)
        await woken
        self._waiter = None

    # Acquire

    def _acquire(self, look: _Look) -> list[FetchedSharePartition]:
        answer: list[FetchedSharePartition] = []
        room = self._params.max_records
        for found in look.found:
            if room <= 0:
                break
            try:
                fetched = self._acquire_from(found, room)
            except CorruptLogError as error:
                log.error("%s is damaged: %s", found.led, error)
                fetched = FetchedSharePartition(found.led.key, ErrorCode.CORRUPT_MESSAGE)
            if fetched is not None:
                answer.append(fetched)
                room -= sum(last - first + 1 for first, last, _ in fetched.acquired)
        return answer

    def _acquire_from(self, found: _Found, room: int) -> FetchedSharePartition | None:
        led, read, params = found.led, found.read, self._params
        machine = led.machine
        if machine is None or read.records is None:
            return None
        records = fetched_records(
            read.records,
            up_to=max(machine.end_offset, found.fetch_offset) + room,
            aborted=read.aborted,
        )
        if records is None:
            return None
        acquired = machine.acquire(
            AcquireRequest(params.member_id, room, params.batch_size, params.mode),
            records.batches,
            fetch_offset=found.fetch_offset,
            now_ms=self._manager.clock.monotonic_ms(),
        )
        led.changed()
        if not acquired:
            return None
        cut = records.of(acquired[0].first_offset, acquired[-1].last_offset)
        return FetchedSharePartition(led.key, records=cut, acquired=acquired)


def _without_records(
    look: _Look, answer: Sequence[FetchedSharePartition]
) -> list[FetchedSharePartition]:
    """Return the partitions where records may be acquired and ``answer`` has none."""
    answered = {each.key for each in answer}
    return [
        FetchedSharePartition(led.key)
        for led in look.waiting
        if led.key not in answered and led.machine is not None and led.machine.can_acquire
    ]
