"""Rebuilds a transaction index from the log, as recovery does, on any thread.

A transaction that an abort marker ends may have begun in an earlier segment: the producers are
taken from the newest sound snapshot at or below the segment, which there is for each segment of a
log that was rolled, and the batches from there on are read. Kafka rebuilds the index in
``LogSegment.recover`` alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from millstream.model.errors import CorruptIndexError
from millstream.model.offsets import Offset
from millstream.storage.environment import LogEnvironment
from millstream.storage.file_records import FileRecords
from millstream.storage.files import read_file
from millstream.storage.producer_recovery import replay_records
from millstream.storage.producer_snapshot import ProducerSnapshots, decode_snapshot
from millstream.storage.producer_state import ProducerEntry, ProducerStateManager
from millstream.storage.segment import Segment
from millstream.storage.segments import Segments
from millstream.storage.transaction_index import IndexRebuild

_log = logging.getLogger(__name__)

_NO_END: Final[Offset] = 2**63 - 1


class TransactionIndexRebuild(IndexRebuild):
    """The rebuilt index of ``segment``. Created on the thread that owns the log."""

    __slots__ = ("_cuts", "_environment", "_records", "_segment", "_snapshots")

    def __init__(
        self,
        environment: LogEnvironment,
        segments: Segments,
        segment: Segment,
        snapshots: ProducerSnapshots,
    ) -> None:
        super().__init__()
        _log.warning("%s is damaged: it is rebuilt from the log", segment.transaction_index.path)
        self._environment = environment
        self._segment = segment
        self._cuts = segment.records.cuts
        self._snapshots = [
            (offset, snapshots.path(offset))
            for offset in reversed(snapshots.offsets)
            if offset <= segment.base_offset
        ]
        self._records: Sequence[tuple[Offset, FileRecords]] = [
            (each.base_offset, each.indexes.detached().records)
            for each in segments
            if each.base_offset <= segment.base_offset
        ]

    @property
    def is_current(self) -> bool:
        """False once something was cut off the segment, or where its files were renamed."""
        return self._cuts == self._segment.records.cuts and self.missing is None

    def prepare(self) -> None:
        """Read the snapshot and the log. Raises CorruptLogError and OSError."""
        self.entries = []
        producers = ProducerStateManager()
        start, known = self._restore()
        producers.restore(known)
        base_offset = self._segment.base_offset
        ends = [offset for offset, _ in self._records[1:]]
        for (_, records), end in zip(self._records, [*ends, None], strict=True):
            if end is not None and end <= start:
                continue
            try:
                if end is None:
                    replay_records(producers, records, 0, _NO_END, self.entries.append)
                else:
                    replay_records(producers, records, _position(records, start), base_offset)
            finally:
                records.close()

    def _restore(self) -> tuple[Offset, list[ProducerEntry]]:
        """Return the newest sound snapshot and its offset; none, and 0, where there is none."""
        for offset, path in self._snapshots:
            try:
                return offset, decode_snapshot(read_file(self._environment.file_system, path), path)
            except (CorruptIndexError, FileNotFoundError) as error:
                _log.warning("a producer snapshot is passed over: %s", error)
        return 0, []


def _position(records: FileRecords, start: Offset) -> int:
    """Return where the first batch that ends at or after ``start`` lies."""
    found = records.find(start, 0)
    return records.size if found is None else found.position
