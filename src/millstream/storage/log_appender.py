"""Appends to a log as its leader, and the segments that appends go to.

An append goes through these steps (Kafka: ``UnifiedLog.append``)::

    validated batch -> offsets and leader epoch -> epoch file -> maybe roll -> producer check
      -> write -> log end offset -> producer state -> transaction index

What a leader has sent is appended by ``follower_appender``, which rolls segments here.
"""

from __future__ import annotations

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.records.batch import (
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Batch,
)
from millstream.records.control import MARKER_BATCH_SIZE, MarkerBatch
from millstream.storage.append_result import AppendResult
from millstream.storage.durability import Durability
from millstream.storage.local_log import LocalLog
from millstream.storage.log_epochs import LogEpochs
from millstream.storage.log_offsets import LogOffsets
from millstream.storage.log_producers import LogProducers
from millstream.storage.producer_state import BatchMetadata, VerificationState
from millstream.storage.segment import Segment


class LogAppender:
    """Appends to one log at its end. The parts are those of the log."""

    __slots__ = ("_durability", "_epochs", "_local", "_offsets", "_producers", "_state")

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
        self._state = producers.state
        self._durability = durability

    def append_as_leader(
        self, batch: Batch, *, leader_epoch: LeaderEpoch, now_ms: int
    ) -> AppendResult:
        """Append one validated batch at the log end.

        The batch gets its base offset and leader epoch; its buffer may be reused after the call.

        Raises KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
        INVALID_TXN_STATE, RECORD_LIST_TOO_LARGE; StorageError when the bytes could not be written
        (what was written of them is undone).
        """
        offsets = self._offsets
        base_offset = offsets.log_end_offset
        delta = batch.last_offset_delta
        last_offset = base_offset + delta
        size = batch.length + LENGTH_OVERHEAD
        max_timestamp = batch.max_timestamp
        producer_id = batch.producer_id
        transactional = batch.attributes & TRANSACTIONAL_BIT != 0
        try:
            if self._durability.blocks_append:
                self._durability.settle()
            if leader_epoch != self._epochs.appended:
                self._epochs.begin(leader_epoch, base_offset)
            segment = self._local.active
            if (
                segment.records.size + size > segment.roll_size
                or max_timestamp > segment.roll_timestamp
                or last_offset > segment.roll_offset
            ):
                segment = self._maybe_roll(size, max_timestamp, last_offset, now_ms)
            if producer_id >= 0:
                repeated = self._state.check(
                    producer_id, batch.producer_epoch, batch.base_sequence, delta, transactional
                )
                if repeated is not None:
                    return self._duplicate(repeated)
            batch.assign(base_offset=base_offset, leader_epoch=leader_epoch)
            segment.append(_bytes_of(batch), size, last_offset, max_timestamp)
        except OSError as error:
            raise self._local.failure(error) from error
        offsets.advance_log_end(last_offset + 1)
        if producer_id >= 0:
            self._state.add_batch(
                producer_id,
                batch.producer_epoch,
                BatchMetadata(batch.last_sequence, last_offset, delta, max_timestamp),
                transactional,
            )
        return AppendResult(
            base_offset,
            last_offset,
            max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else -1,
            offsets.log_start_offset,
        )

    def check_verified(
        self, batch: Batch, verified: VerificationState | None, *, bumps_epoch: bool
    ) -> None:
        """Check that a transactional batch may be appended, unless it is a duplicate: see
        :meth:`ProducerStateManager.check_verified`. Raises KafkaError, also as
        :meth:`append_as_leader` does.
        """
        producers = self._state
        producer_id, epoch, base_sequence = (
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
        )
        if producers.is_in_transaction(producer_id, epoch):
            return
        known = producers.producers.get(producer_id)
        if known is not None and known.repeats(epoch, base_sequence, batch.last_offset_delta):
            return
        producers.check_verified(
            producer_id, epoch, base_sequence, verified, bumps_epoch=bumps_epoch
        )

    def append_marker(
        self,
        batch: MarkerBatch,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append the control batch that ends a transaction.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; StorageError.
        """
        producers, marker = self._state, batch.marker
        producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
        producers.check_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=transaction_version,
        )
        offsets, timestamp_ms = self._offsets, batch.timestamp_ms
        offset = offsets.log_end_offset
        try:
            if self._durability.blocks_append:
                self._durability.settle()
            if leader_epoch != self._epochs.appended:
                self._epochs.begin(leader_epoch, offset)
            segment = self._local.active
            if (
                segment.records.size + MARKER_BATCH_SIZE > segment.roll_size
                or timestamp_ms > segment.roll_timestamp
                or offset > segment.roll_offset
            ):
                # A segment takes its first marker even where segment.bytes was made too small.
                segment = self._next_segment(MARKER_BATCH_SIZE, timestamp_ms, offset, now_ms)
            segment.append(
                batch.placed(offset, leader_epoch), MARKER_BATCH_SIZE, offset, timestamp_ms
            )
            offsets.advance_log_end(offset + 1)
            aborted = producers.add_marker(
                marker,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                offset=offset,
                timestamp=timestamp_ms,
            )
            if aborted is not None:
                segment.transaction_index.append(aborted)
        except OSError as error:
            raise self._local.failure(error) from error
        return AppendResult(offset, offset, -1, offsets.log_start_offset)

    def _duplicate(self, repeated: BatchMetadata) -> AppendResult:
        return AppendResult(
            repeated.base_offset,
            repeated.last_offset,
            repeated.timestamp,
            self._offsets.log_start_offset,
            duplicate=True,
        )

    # Rolling

    def roll(self, *, now_ms: int) -> None:
        """Close the active segment and begin one at the log end; an empty one stays.

        Raises StorageError.
        """
        try:
            self.roll_at(self._offsets.log_end_offset, now_ms)
        except OSError as error:
            raise self._local.failure(error) from error

    def roll_at(self, base_offset: Offset, now_ms: int) -> Segment:
        """Close the active segment and return one that begins at ``base_offset``, at the log end or
        beyond; an empty one that is there already stays. Raises OSError.
        """
        self._durability.settle()
        if self._local.roll(base_offset, now_ms=now_ms):
            self._producers.write_snapshot(base_offset)
        return self._local.active

    def skip_to(self, offset: Offset, *, now_ms: int) -> None:
        """Go on at ``offset`` in a new segment: compaction left nothing of what lay before it.

        Raises StorageError.
        """
        assert offset > self._offsets.log_end_offset
        try:
            self.roll_at(offset, now_ms)
        except OSError as error:
            raise self._local.failure(error) from error
        self._offsets.advance_log_end(offset)

    def _maybe_roll(
        self, size: int, max_timestamp: int, last_offset: Offset, now_ms: int
    ) -> Segment:
        config = self._local.config
        if size > config.roll_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes exceeds segment.bytes = {config.roll_bytes}",
            )
        return self._next_segment(size, max_timestamp, last_offset, now_ms)

    def _next_segment(
        self, size: int, max_timestamp: int, last_offset: Offset, now_ms: int
    ) -> Segment:
        """Return the segment that a batch of ``size`` bytes goes to. Raises OSError."""
        segment = self._local.active
        segment.prepare_append()
        if segment.should_roll(
            size=size, max_timestamp=max_timestamp, last_offset=last_offset, now_ms=now_ms
        ):
            return self.roll_at(self._offsets.log_end_offset, now_ms)
        return segment


def _bytes_of(batch: Batch) -> memoryview | bytes:
    """Return the bytes of a batch as they are to be written, its assigned fields included."""
    buffer = batch.buffer
    return batch.prefix + buffer[16:] if buffer.readonly else buffer
