"""Filters the batches of aborted transactions for a read-committed consumer (KIP-98)."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.model.offsets import Offset
from millstream.records.batch import Batch
from millstream.records.control import ControlType, parse_marker


class CommittedOnly:
    """Called with every batch of a partition in order; returns True for committed data.

    ``aborted`` is the list of a fetch response: producer id and first offset of each transaction
    that was aborted in the range fetched. From that offset to its abort marker, the producer's
    transactional batches are left out (Kafka: ``CompletedFetch``).
    """

    def __init__(self, aborted: Iterable[tuple[int, Offset]]) -> None:
        self._ahead = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
        self._aborting: set[int] = set()

    def __call__(self, batch: Batch) -> bool:
        """Return True if the batch has records for the consumer."""
        while self._ahead and self._ahead[-1][1] <= batch.last_offset:
            self._aborting.add(self._ahead.pop()[0])
        if batch.is_control:
            marker = parse_marker(batch)
            if marker is not None and marker.control_type is ControlType.ABORT:
                self._aborting.discard(batch.producer_id)
            return False
        return not (batch.is_transactional and batch.producer_id in self._aborting)
