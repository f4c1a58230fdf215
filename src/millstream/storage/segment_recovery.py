"""Reads one segment after a crash: checks every batch and rebuilds everything derived from them.

Most batches are sound and follow one another, so they are checked many at a time, in C if the
kernel is there (``records.scan_kernel``). Where that stops, one batch is checked on its own: it is
cut off by the end of the buffer, larger than the buffer, or the bad batch at which the log ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import MAX_RELATIVE_OFFSET, LeaderEpoch, Offset
from millstream.records.batch import Batch
from millstream.records.scan_kernel import new_batch_scanner
from millstream.storage.producer_recovery import replay_batch
from millstream.storage.producer_state import ProducerStateManager
from millstream.storage.recovery_report import RecoveryCounter
from millstream.storage.segment import Segment

_READ_BYTES: Final = 4 << 20
"""How much is read and checked at a time; of each producer only the last batches are needed."""


class SegmentRecovery:
    """One segment under recovery. Producer state goes into ``producers``, for batches from
    ``log_start_offset`` on; leader epochs go to ``add_epoch``.
    """

    def __init__(
        self,
        segment: Segment,
        producers: ProducerStateManager,
        *,
        log_start_offset: Offset,
        add_epoch: Callable[[LeaderEpoch, Offset], None],
        counter: RecoveryCounter,
    ) -> None:
        self._segment = segment
        self._producers = producers
        self._add_epoch = add_epoch
        self._counter = counter
        self._scanner = new_batch_scanner(
            segment.base_offset,
            max_offset=segment.base_offset + MAX_RELATIVE_OFFSET,
            interval_bytes=segment.indexes.interval_bytes,
            producers_from=log_start_offset,
        )
        self.valid_bytes = 0
        """Where the sound batches end."""

    @property
    def next_offset(self) -> Offset:
        """The offset after the last sound batch."""
        return self._scanner.next_offset

    def run(self) -> CorruptLogError | None:
        """Read the segment up to its end or to the first bad batch; return the error there, if any.

        Raises OSError; UnsupportedFormatError on messages older than v2.
        """
        segment = self._segment
        segment.indexes.collect()
        segment.transaction_index.reset()
        while self.valid_bytes < segment.records.size:
            scanned = self._take(segment.records.chunk(self.valid_bytes, _READ_BYTES))
            if scanned:
                continue
            try:
                _, batch = next(segment.records.batches(self.valid_bytes))
                batch.ensure_valid()
                self._check_offsets(batch)
            except CorruptLogError as error:
                return error
            taken = self._take(batch.buffer)
            assert taken == batch.size, "a batch that is sound by itself is accepted"
        return None

    def _take(self, view: memoryview) -> int:
        scanner, segment = self._scanner, self._segment
        taken = scanner.scan(view, self.valid_bytes)
        segment.indexes.extend(scanner)
        for epoch, offset in scanner.epochs:
            self._add_epoch(epoch, offset)
        for batch in scanner.producer_batches:
            aborted = replay_batch(self._producers, batch)
            if aborted is not None:
                segment.transaction_index.append(aborted)
        scanner.epochs.clear()
        scanner.producer_batches.clear()
        self.valid_bytes += taken
        self._counter.scanned_bytes += taken
        return taken

    def _check_offsets(self, batch: Batch) -> None:
        segment, next_offset = self._segment, self.next_offset
        last_possible = segment.base_offset + MAX_RELATIVE_OFFSET
        if batch.base_offset < next_offset or batch.last_offset > last_possible:
            raise CorruptLogError(
                f"{segment.records.path}: offsets {batch.base_offset} to {batch.last_offset} where "
                f"{next_offset} is next and {last_possible} the last possible"
            )
