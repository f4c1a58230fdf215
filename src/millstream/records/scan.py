"""Checks many batches in a row and collects what recovery and followers need from them. Pure.

Recovery reads every batch after the recovery point, and a follower every batch that its leader
sends: header, CRC, offsets. Of most batches nothing else is needed, so :class:`BatchScanner` walks
a whole buffer in one loop and keeps

* the entries that both indexes get (``storage.segment_indexes`` has the rule),
* the batches with which a leader epoch begins,
* what producers wrote: the last data batches of each, as many as are remembered, with every marker
  and the first batch of each transaction. The batches left out do not change the result of a
  replay: a batch with five later ones is not remembered, and a transaction begins with its first.

It stops at the first batch that it does not accept without giving a reason: the caller checks that
batch on its own. ``records.scan_kernel`` does the same in C and chooses between the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import Final, NamedTuple

from millstream.model.offsets import NO_TIMESTAMP, Offset
from millstream.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LEADER_EPOCH_POSITION,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    MAGIC,
    TRANSACTIONAL_BIT,
    Batch,
)
from millstream.records.crc32c import checksum

BATCHES_KEPT: Final = 5
"""How many batches of a producer are remembered (Kafka: ``NUM_BATCHES_TO_RETAIN``)."""

_SMALLEST_LENGTH: Final = HEADER_SIZE - LENGTH_OVERHEAD
_MAX_OFFSET: Final = 2**63 - 1


class IndexedBatch(NamedTuple):
    """An entry for both indexes: a batch's last offset and position, and the largest timestamp so
    far with the last offset of the batch that holds it.
    """

    last_offset: Offset
    position: int
    largest_timestamp: int
    offset_of_largest: Offset


class _ProducerPlaces:
    """The positions of the batches to replay for each producer."""

    __slots__ = ("_in_transaction", "_last", "_marks")

    def __init__(self) -> None:
        self._last: dict[int, deque[int]] = {}
        self._marks: list[int] = []
        self._in_transaction: set[int] = set()

    def note(self, producer_id: int, attributes: int, at: int) -> None:
        """Add a producer's batch."""
        if attributes & CONTROL_BIT:
            self._marks.append(at)
            self._in_transaction.discard(producer_id)
            return
        if attributes & TRANSACTIONAL_BIT and producer_id not in self._in_transaction:
            self._marks.append(at)
            self._in_transaction.add(producer_id)
        if producer_id in self._last:
            self._last[producer_id].append(at)
        else:
            self._last[producer_id] = deque((at,), BATCHES_KEPT)

    def places(self) -> set[int]:
        """Return the positions, unordered."""
        return {*self._marks, *chain.from_iterable(self._last.values())}


class BatchScanner:
    """Scans the batches of one segment, buffer by buffer."""

    __slots__ = (
        "_epochs_grow",
        "_interval_bytes",
        "_max_offset",
        "_producers_from",
        "epochs",
        "index_entries",
        "largest_timestamp",
        "latest_epoch",
        "next_offset",
        "offset_of_largest",
        "producer_batches",
        "unindexed_bytes",
    )

    def __init__(
        self,
        base_offset: Offset,
        *,
        max_offset: Offset,
        interval_bytes: int,
        producers_from: Offset = 0,
        epochs_grow: bool = False,
    ) -> None:
        """``base_offset`` is the segment's, ``max_offset`` the last that it can hold. Batches of
        producers that begin before ``producers_from`` are not noted. With ``epochs_grow`` a batch
        of an older leader epoch than the latest is not accepted.
        """
        self._epochs_grow = epochs_grow
        self._producers_from = producers_from
        self._max_offset = min(max_offset, _MAX_OFFSET)
        self._interval_bytes = interval_bytes
        self.next_offset = base_offset
        """The offset after the last batch accepted."""
        self.unindexed_bytes = 0
        self.largest_timestamp = NO_TIMESTAMP
        self.offset_of_largest = base_offset
        self.latest_epoch = -1
        """The largest leader epoch so far; set it to start from a known one."""
        self.index_entries: list[IndexedBatch] = []
        """The results of :meth:`scan` since the caller last cleared them."""
        self.epochs: list[tuple[int, Offset]] = []
        """(leader epoch, first offset), as above."""
        self.producer_batches: list[Batch] = []
        """Batches of producers in the order of the log, as above; views of the buffer."""

    def begin(self, next_offset: Offset, *, max_offset: Offset, interval_bytes: int) -> None:
        """Reset for another log, with other bounds; earlier results are dropped."""
        self.next_offset = next_offset
        self._max_offset = min(max_offset, _MAX_OFFSET)
        self._interval_bytes = interval_bytes
        self.index_entries.clear()
        self.epochs.clear()
        self.producer_batches.clear()

    def scan(self, view: memoryview, position: int) -> int:
        """Accept whole, valid batches from the start of ``view``, which is at ``position`` of the
        segment; return their size in bytes.
        """
        at, end, next_offset = 0, len(view) - HEADER_SIZE, self.next_offset
        unpack, max_offset, total = HEADER.unpack_from, self._max_offset, len(view)
        producers = _ProducerPlaces()
        epochs_grow = self._epochs_grow
        while at <= end:
            (base_offset, length, epoch, magic, crc, attributes, delta, _, timestamp, producer_id,
             _, _, count) = unpack(view, at)  # fmt: skip
            stop = at + length + LENGTH_OVERHEAD
            if (
                magic != MAGIC
                or length < _SMALLEST_LENGTH
                or stop > total
                or base_offset < next_offset
                or (delta | count) < 0
                or base_offset + delta > max_offset
                or (epochs_grow and 0 <= epoch < self.latest_epoch)
                or checksum(view[at + ATTRIBUTES_POSITION : stop]) != crc
            ):
                break
            next_offset = base_offset + delta + 1
            if epoch > self.latest_epoch:
                self.latest_epoch = epoch
                self.epochs.append((epoch, base_offset))
            if timestamp > self.largest_timestamp:
                self.largest_timestamp, self.offset_of_largest = timestamp, next_offset - 1
            if self.unindexed_bytes > self._interval_bytes:
                self._add_entry(next_offset - 1, position + at)
            self.unindexed_bytes += stop - at
            if producer_id >= 0 and base_offset >= self._producers_from:
                producers.note(producer_id, attributes, at)
            at = stop
        self.next_offset = next_offset
        self._keep_producers(view, producers.places())
        return at

    def _add_entry(self, last_offset: Offset, position: int) -> None:
        self.index_entries.append(
            IndexedBatch(last_offset, position, self.largest_timestamp, self.offset_of_largest)
        )
        self.unindexed_bytes = 0

    def _keep_producers(self, view: memoryview, places: Iterable[int]) -> None:
        for at in sorted(places):
            length = int.from_bytes(view[at + LENGTH_POSITION : at + LEADER_EPOCH_POSITION], "big")
            self.producer_batches.append(Batch(view[at : at + length + LENGTH_OVERHEAD]))
