"""Reads a coordinator's partition from its start and replays it, slice by slice.

A worker reads a slice and decodes its records; the loop replays them, so other connections wait
for one slice at most. What was written in a transaction counts when its marker says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.coordinator.result import CoordinatorRecord
from millstream.model.errors import CorruptLogError
from millstream.model.offsets import Offset
from millstream.model.producer import NO_PRODUCER_ID
from millstream.records.batch import Batch, iter_batches
from millstream.records.control import ControlType, parse_marker
from millstream.records.record import iter_records
from millstream.runtime.offload import Offload
from millstream.storage.file_slice import FileSlice
from millstream.storage.log import Log

if TYPE_CHECKING:
    from millstream.runtime.coordinators.shard import Shard

SLICE_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Marker:
    """The end of a producer's transaction."""

    producer_id: int
    committed: bool


@dataclass(slots=True)
class _Decoded:
    """One slice: what to replay in order, and the offset to go on from."""

    next_offset: Offset
    entries: list[tuple[Offset, int, CoordinatorRecord] | _Marker] = field(default_factory=list)


async def load(log: Log, shard: Shard, offload: Offload) -> int:
    """Replay what the log holds now; return how many records that were.

    Raises CorruptLogError or ProtocolError for a log that cannot be read, KafkaError when the log
    is gone meanwhile.
    """
    offset, end = log.log_start_offset, log.log_end_offset
    count = 0
    while offset < end:
        read = log.reader.read(
            offset, max_bytes=SLICE_BYTES, upper_bound_offset=end, min_one_batch=True
        )
        records = read.records
        if records is None:
            break  # compaction left nothing up to the end
        decoded = await offload.run("coordinator-load", partial(_decode, shard, records, offset))
        for entry in decoded.entries:
            if isinstance(entry, _Marker):
                shard.end_transaction(entry.producer_id, committed=entry.committed)
            else:
                record_offset, producer_id, record = entry
                shard.replay(record, record_offset=record_offset, producer_id=producer_id)
                count += 1
        offset = decoded.next_offset
    return count


def _decode(shard: Shard, records: FileSlice, first_offset: Offset) -> _Decoded:
    decoded = _Decoded(first_offset)
    for batch in iter_batches(records.read()):
        batch.ensure_valid()
        if batch.is_control:
            _decode_marker(batch, decoded)
        else:
            _decode_batch(shard, batch, first_offset, decoded)
        decoded.next_offset = batch.next_offset
    if decoded.next_offset == first_offset:
        raise CorruptLogError(f"no whole batch at offset {first_offset}")
    return decoded


def _decode_marker(batch: Batch, decoded: _Decoded) -> None:
    marker = parse_marker(batch)
    if marker is not None:
        committed = marker.control_type is ControlType.COMMIT
        decoded.entries.append(_Marker(batch.producer_id, committed))


def _decode_batch(shard: Shard, batch: Batch, first_offset: Offset, decoded: _Decoded) -> None:
    producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
    for stored in iter_records(batch):
        if stored.offset < first_offset:
            continue
        if stored.key is None:
            raise CorruptLogError(f"the record at offset {stored.offset} has no key")
        record = shard.decode(stored.key, stored.value)
        if record is not None:
            decoded.entries.append((stored.offset, producer_id, record))
