"""Producer state from snapshots and from the log itself.

Batches and markers are replayed one after the other, so that the last stable offset that goes with
an aborted transaction is the one right after its marker, whatever the same producer did next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from millstream.model.errors import CorruptIndexError
from millstream.model.offsets import Offset
from millstream.records.batch import Batch
from millstream.records.control import parse_marker
from millstream.records.scan_kernel import new_batch_scanner
from millstream.storage.environment import LogEnvironment
from millstream.storage.file_records import FileRecords
from millstream.storage.producer_snapshot import ProducerSnapshots
from millstream.storage.producer_state import (
    BatchMetadata,
    ProducerStateManager,
    is_expired,
)
from millstream.storage.segments import Segments
from millstream.storage.transaction_index import AbortedEntry

_log = logging.getLogger(__name__)

_NO_INDEX: Final = 2**62
"""Bytes between index entries when none are wanted."""


def replay_batch(producers: ProducerStateManager, batch: Batch) -> AbortedEntry | None:
    """Record a batch that is in the log; return the aborted transaction that it ends."""
    if batch.producer_id < 0:
        return None
    if not batch.is_control:
        producers.add_batch(
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            batch=BatchMetadata(
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset_delta,
                batch.max_timestamp,
            ),
            is_transactional=batch.is_transactional,
        )
        return None
    marker = parse_marker(batch) if batch.count else None
    if marker is None:
        return None
    return producers.add_marker(
        marker,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        offset=batch.base_offset,
        timestamp=batch.max_timestamp,
    )


def restore_snapshot(
    producers: ProducerStateManager,
    snapshots: ProducerSnapshots,
    environment: LogEnvironment,
    *,
    log_start_offset: Offset,
    up_to: Offset,
    now_ms: int,
) -> Offset:
    """Take the producers from the latest sound snapshot in (log start, ``up_to``]; return the
    offset up to which they hold: its own, or the log start when there is none. Snapshots beyond
    ``up_to``, at or below the log start, and damaged ones are removed.
    """
    producers.clear()
    snapshots.keep(above=log_start_offset, up_to=up_to)
    while snapshots.offsets:
        offset = snapshots.latest
        try:
            entries = snapshots.read(offset)
        except (CorruptIndexError, FileNotFoundError) as error:
            _log.warning("producer snapshot is dropped: %s", error)
            snapshots.remove(offset)
            continue
        expiration_ms = environment.producer_id_expiration_ms
        producers.restore(
            entry for entry in entries if not is_expired(entry, now_ms, expiration_ms)
        )
        return offset
    return log_start_offset


def replay_log(
    producers: ProducerStateManager, segments: Segments, start: Offset, end: Offset
) -> None:
    """Record every batch in [``start``, ``end``) of the log. Raises CorruptLogError."""
    if start >= end:
        return
    for segment in segments.starting_with(start):
        if segment.base_offset >= end:
            return
        found = segment.find(start)
        if found is None:
            continue
        replay_records(producers, segment.records, found.position, end)


def replay_records(
    producers: ProducerStateManager,
    records: FileRecords,
    position: int,
    end: Offset,
    on_aborted: Callable[[AbortedEntry], None] = lambda _: None,
) -> None:
    """Record the batches of one segment from ``position`` on that begin before ``end``, and
    pass on the aborted transactions that end there. Batches with a wrong CRC are replayed too, as
    long as they can be parsed. Raises CorruptLogError.
    """

    def replay(batch: Batch) -> None:
        aborted = replay_batch(producers, batch)
        if aborted is not None:
            on_aborted(aborted)

    scanner = new_batch_scanner(0, max_offset=end - 1, interval_bytes=_NO_INDEX)
    while position < records.size:
        taken = scanner.scan(records.chunk(position), position)
        for batch in scanner.producer_batches:
            replay(batch)
        scanner.producer_batches.clear()
        scanner.epochs.clear()
        if not taken:
            _, batch = next(records.batches(position))
            if batch.base_offset >= end:
                return
            replay(batch)
            scanner.next_offset = batch.next_offset
            taken = batch.size
        position += taken
