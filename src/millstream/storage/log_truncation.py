"""Drops what a log holds at either end: records from an offset on, or all before one.

The order of a truncation, and the flushes that belong to it, are in ``durability``. Kafka:
``UnifiedLog.truncateTo``, ``truncateFullyAndStartAt``, ``maybeIncrementLogStartOffset``.
"""

from __future__ import annotations

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.storage.durability import Durability
from millstream.storage.local_log import LocalLog
from millstream.storage.log_epochs import LogEpochs
from millstream.storage.log_offsets import LogOffsets
from millstream.storage.log_producers import LogProducers


class LogTruncation:
    """Cuts one log, and keeps its parts in line with the segments that are left."""

    __slots__ = ("_durability", "_epochs", "_local", "_offsets", "_producers")

    def __init__(
        self,
        local: LocalLog,
        offsets: LogOffsets,
        epochs: LogEpochs,
        producers: LogProducers,
        durability: Durability,
    ) -> None:
        self._local = local
        self._offsets = offsets
        self._epochs = epochs
        self._producers = producers
        self._durability = durability

    def increment_log_start_offset(self, offset: Offset) -> bool:
        """Move the log start up to ``offset`` (DeleteRecords, retention); False if it is there.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) above the high watermark; StorageError.
        """
        offsets = self._offsets
        if offset > offsets.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the log start cannot move to {offset}, beyond the high watermark "
                f"{offsets.high_watermark}",
            )
        if offset <= offsets.log_start_offset:
            return False
        offsets.move_log_start(offset)
        try:
            self._epochs.truncate_from_start(offset)
        except OSError as error:
            raise self._local.failure(error) from error
        return True

    def truncate_to(self, offset: Offset, *, now_ms: int) -> bool:
        """Drop everything from ``offset`` on; False when nothing is there. Epochs that begin at or
        beyond it are forgotten in either case.

        Raises StorageError; CorruptLogError.
        """
        assert offset >= 0
        log_end_offset = self._offsets.log_end_offset
        if offset >= log_end_offset:
            self._epochs.forget_from(log_end_offset)
            return False
        try:
            if offset < self._local.segments.first.base_offset:
                self._restart_at(offset, now_ms)
                return True
            if self.begin_truncation(offset, now_ms=now_ms):
                self._durability.settle()
            self._durability.cut(offset, self._local.active)
            self._local.active.truncate_to(offset, now_ms=now_ms)
            self._cut_to(offset, now_ms)
        except OSError as error:
            raise self._local.failure(error) from error
        return True

    def begin_truncation(self, offset: Offset, *, now_ms: int) -> bool:
        """Prepare to drop everything from ``offset`` on: drop the segments that lie beyond as a
        whole. Return True when a flush has to come before the rest (``durability``):
        :meth:`truncate_to` does without one when it is called after it, and waits for the disk
        itself when it is not. A log that is never cut is whole as it is.

        Raises StorageError; CorruptLogError.
        """
        local, log_end_offset = self._local, self._offsets.log_end_offset
        if not local.segments.first.base_offset <= offset < log_end_offset:
            return False
        removed = local.bases_beyond(offset)
        end = min(removed, default=log_end_offset)
        # First, for what the log holds of its producers may turn out to be damaged below the cut.
        self._durability.begin_cut(offset, end, removed=bool(removed))
        try:
            if removed:
                local.delete_beyond(offset, now_ms=now_ms)
                self._producers.drop_snapshots(removed)
                self._cut_to(end, now_ms)
            local.active.prepare_append()
        except OSError as error:
            raise self._local.failure(error) from error
        return self._durability.blocks_append

    def truncate_fully_and_start_at(self, offset: Offset, *, now_ms: int) -> None:
        """Drop everything and go on at ``offset``; one that holds nothing and ends there keeps its
        files. Raises StorageError.
        """
        local = self._local
        is_empty = not local.segments.size
        if is_empty and local.active.base_offset == offset == self._offsets.log_end_offset:
            self._epochs.forget_all()
            return
        try:
            self._restart_at(offset, now_ms)
        except OSError as error:
            raise local.failure(error) from error

    def _cut_to(self, offset: Offset, now_ms: int) -> None:
        """Bring epochs, offsets and producers in line with the segments, which now end at
        ``offset``.
        """
        offsets = self._offsets
        self._epochs.truncate_from_end(offset)
        offsets.cut(min(offsets.log_start_offset, offset), offset)
        self._producers.reload(
            self._local.segments,
            log_start_offset=offsets.log_start_offset,
            log_end_offset=offset,
            now_ms=now_ms,
        )
        offsets.update_high_watermark(offsets.high_watermark)

    def _restart_at(self, offset: Offset, now_ms: int) -> None:
        self._local.restart_at(offset, now_ms=now_ms)
        self._epochs.clear()
        self._producers.clear(offset)
        self._offsets.cut(offset, offset)
        self._durability.cut(offset, None)
