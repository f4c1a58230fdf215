"""Decides what cleaning leaves of each batch.

=====================================  =============================================================
data of an aborted transaction         removed
record with a later one of its key     removed
tombstone                              stays until the delete horizon of its batch, which is set to
                                       ``delete.retention.ms`` from the first cleaning that meets it
record without a key                   removed (only a topic that was not compacted before has them)
marker                                 stays while anything of its transaction does, and then until
                                       a delete horizon like a tombstone's
last batch of a producer, or of the    stays, if need be without records: it holds the producer's
range                                  last sequence, or where the log ends
=====================================  =============================================================

Kafka: ``Cleaner.cleanInto``; KIP-534.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.config.value import MAX_LONG
from millstream.model.offsets import NO_OFFSET, Offset
from millstream.records.batch import Batch
from millstream.records.compaction import (
    RetainedRecords,
    decompressed_records,
    empty_batch,
    record_spans,
    retained_batch,
)
from millstream.storage.cleaned_transactions import CleanedTransactions
from millstream.storage.offset_map import OffsetMap


@dataclass(frozen=True, slots=True)
class ProducerEnd:
    """Where a producer's data ends; -1 when it wrote nothing but markers in its epoch."""

    last_offset: Offset
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRules:
    """The parameters of one cleaning. ``end_offset`` is where the cleaned range ends."""

    now_ms: int
    delete_retention_ms: int
    end_offset: Offset
    producers: Mapping[int, ProducerEnd]


class BatchFilter:
    """Filters batches one by one, in order."""

    def __init__(
        self, rules: FilterRules, offset_map: OffsetMap, transactions: CleanedTransactions
    ) -> None:
        self._rules = rules
        self._map = offset_map
        self._transactions = transactions

    def filter(self, batch: Batch) -> bytes | memoryview | None:
        """Return the filtered batch: the batch itself if nothing is removed, None if everything is.

        Raises CorruptLogError.
        """
        batch.ensure_valid()
        if batch.is_control:
            left = self._filter_marker(batch)
        elif self._transactions.is_aborted(batch):
            left = None
        else:
            left = self._filter_data(batch)
        if left is None and self._must_stay(batch):
            return empty_batch(batch) if batch.count else batch.buffer
        return left

    def _filter_marker(self, batch: Batch) -> bytes | memoryview | None:
        useless = self._transactions.may_discard_marker(batch)
        if batch.count == 0:
            return None
        if not useless:
            return batch.buffer
        horizon_ms = batch.delete_horizon_ms
        if horizon_ms is None:
            data = decompressed_records(batch)
            largest = max(span.timestamp_delta for span in record_spans(data, batch.count))
            records = RetainedRecords(data, batch.count, largest, False)
            return retained_batch(batch, records, delete_horizon_ms=self._next_horizon_ms)
        return None if horizon_ms <= self._rules.now_ms else batch.buffer

    def _filter_data(self, batch: Batch) -> bytes | memoryview | None:
        if batch.count == 0:
            return None
        horizon_ms = batch.delete_horizon_ms
        retained = self._map.filter_records(
            decompressed_records(batch),
            batch.count,
            batch.base_offset,
            retain_tombstones=horizon_ms is None or self._rules.now_ms < horizon_ms,
        )
        if retained.count == 0:
            return None
        if retained.has_tombstones and horizon_ms is None:
            return retained_batch(batch, retained, delete_horizon_ms=self._next_horizon_ms)
        return batch.buffer if retained.count == batch.count else retained_batch(batch, retained)

    @property
    def _next_horizon_ms(self) -> int:
        # The sum may overflow: the longest retention means for ever.
        return min(self._rules.now_ms + self._rules.delete_retention_ms, MAX_LONG)

    def _must_stay(self, batch: Batch) -> bool:
        if batch.next_offset == self._rules.end_offset:
            return True
        end = self._rules.producers.get(batch.producer_id) if batch.has_producer_id else None
        if end is None:
            return False
        if end.last_offset != NO_OFFSET:
            return batch.last_offset == end.last_offset
        return batch.is_control and batch.producer_epoch == end.producer_epoch
