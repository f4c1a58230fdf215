"""Follows transactions through a log that is being cleaned: what was aborted, which marker may go.

Asked for every batch in order. Data of an aborted transaction goes at once. A marker may go when no
batch of its transaction was met any more, which the caller then delays by the delete horizon.
Kafka: ``CleanedTransactionMetadata``.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.records.batch import Batch
from millstream.records.control import ControlType, parse_marker
from millstream.storage.transaction_index import AbortedEntry, TransactionIndex


class CleanedTransactions:
    """The transactions that are open at the cleaning's present position.

    ``aborted`` are those that touch the range. Those of which data was met are written to
    ``index``, where one is set, with their marker.
    """

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        self._ahead = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborting: dict[int, AbortedEntry] = {}
        self._aborting_with_data: set[int] = set()
        self._committing: set[int] = set()
        self.index: TransactionIndex | None = None

    def is_aborted(self, batch: Batch) -> bool:
        """Tell whether a data batch belongs to a transaction that was aborted."""
        self._begin_up_to(batch)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborting:
            self._aborting_with_data.add(batch.producer_id)
            return True
        self._committing.add(batch.producer_id)
        return False

    def may_discard_marker(self, batch: Batch) -> bool:
        """Tell whether a control batch may be removed: no data of its transaction was met, or
        its marker has been taken out already. Raises CorruptLogError.
        """
        self._begin_up_to(batch)
        if batch.count == 0:
            return True
        marker = parse_marker(batch)
        if marker is None:
            return False
        producer_id = batch.producer_id
        if marker.control_type is ControlType.COMMIT:
            met = producer_id in self._committing
            self._committing.discard(producer_id)
            return not met
        aborted = self._aborting.pop(producer_id, None)
        met = producer_id in self._aborting_with_data
        self._aborting_with_data.discard(producer_id)
        if met and aborted is not None and self.index is not None:
            self.index.append(aborted)
        return not met

    def _begin_up_to(self, batch: Batch) -> None:
        ahead = self._ahead
        while ahead and ahead[-1].first_offset <= batch.last_offset:
            entry = ahead.pop()
            self._aborting.setdefault(entry.producer_id, entry)
