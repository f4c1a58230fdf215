"""Decodes one fetch of a share consumer, and leaves what is not acquired out.

The acquired offsets that have no record, because it was compacted away or is a transaction's
marker, are acknowledged as gaps, so that the group goes past them. A record that cannot be
deserialized is released; the acquired offsets of a damaged batch are rejected (Kafka:
``ShareCompletedFetch``).
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Final, Generic, TypeVar

from millstream.client.core.consumer.errors import CorruptRecordError, RecordError
from millstream.client.core.consumer.fetched import Fetched
from millstream.client.core.consumer.record import ConsumerRecord
from millstream.client.core.consumer.record_reader import RecordReader
from millstream.client.core.consumer.subscription import PartitionState
from millstream.client.core.share.acknowledgements import GAP, AcknowledgeType, Types
from millstream.client.core.share.fetched import ShareFetched
from millstream.client.core.share.record import ShareRecord
from millstream.model.errors import CorruptLogError, KafkaError
from millstream.model.offsets import NO_LEADER_EPOCH, Offset
from millstream.records.batch import iter_batches

K = TypeVar("K")
V = TypeVar("V")

_OFFSET: Final = attrgetter("offset")
_new_record = partial(tuple.__new__, ShareRecord)
"""Creates a ``ShareRecord`` from its fields, without calling a Python function."""


@dataclass(slots=True)
class Portion(Generic[K, V]):
    """Acquired records in order, then perhaps an error."""

    records: list[ShareRecord[K, V]] = field(default_factory=list)
    gaps: Types = field(default_factory=dict)
    """The acquired offsets without records, as they are acknowledged."""
    error: RecordError | None = None
    unread: Types = field(default_factory=dict)
    """What becomes of the acquired offsets that the error concerns."""


class OpenedFetch(Generic[K, V]):
    """One fetch that is being decoded, from error to error."""

    def __init__(self, fetched: ShareFetched, reader: RecordReader[K, V]) -> None:
        self.fetched = fetched
        self._data = fetched.data
        self._reader = reader
        self._reached = fetched.acquired[0].first
        self._end = fetched.acquired[-1].last + 1
        state = PartitionState(fetched.source.topic_partition)
        # Where a damaged batch may end: nothing beyond is acquired.
        state.high_watermark = self._end
        self._state = state

    @property
    def is_done(self) -> bool:
        """True if every acquired offset was read."""
        return self._reached >= self._end

    def read(self) -> Portion[K, V]:
        """Return the records up to the next error, or to the end."""
        start = self._reached
        read = self._reader.read(
            Fetched(self._state, self._state.fence, self._data, start, self._end, NO_LEADER_EPOCH)
        )
        error = read.error
        if error is not None and error.offset >= self._end:
            # A record behind the acquired ones: it is for whoever acquires it.
            error = None
        stop = self._end if error is None else max(error.offset, start)
        portion: Portion[K, V] = Portion(error=error)
        self._choose(read.records, start, stop, portion)
        self._reached = stop
        if error is not None:
            self._reached = max(error.next_offset, stop + 1)
            damaged = isinstance(error, CorruptRecordError)
            if damaged and not self._go_past_damage():
                self._reached = self._end
            kind = AcknowledgeType.REJECT if damaged else AcknowledgeType.RELEASE
            portion.unread = dict.fromkeys(self._acquired(stop, self._reached), int(kind))
        return portion

    def _go_past_damage(self) -> bool:
        """Drop the data before the next batch to be read; False if it is not to be found."""
        position = 0
        with contextlib.suppress(CorruptLogError, KafkaError):
            for batch in iter_batches(self._data):
                if batch.base_offset >= self._reached:
                    self._data = self._data[position:]
                    return True
                position += batch.size
        return False

    def _choose(
        self,
        records: list[ConsumerRecord[K, V]],
        start: Offset,
        stop: Offset,
        portion: Portion[K, V],
    ) -> None:
        """Add the acquired records of ``start`` to ``stop``, and the gaps among them."""
        for acquired in self.fetched.acquired:
            first, last = max(acquired.first, start), min(acquired.last, stop - 1)
            if first > last:
                continue
            here = records[
                bisect_left(records, first, key=_OFFSET) : bisect_left(
                    records, last + 1, key=_OFFSET
                )
            ]
            portion.records += [_new_record((*record, acquired.delivery_count)) for record in here]
            if len(here) != last - first + 1:
                there = {record.offset for record in here}
                gaps = (each for each in range(first, last + 1) if each not in there)
                portion.gaps |= dict.fromkeys(gaps, GAP)

    def _acquired(self, start: Offset, stop: Offset) -> list[Offset]:
        return [
            offset
            for first, last, _ in self.fetched.acquired
            for offset in range(max(first, start), min(last, stop - 1) + 1)
        ]
