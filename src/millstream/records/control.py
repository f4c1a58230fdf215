"""Control batches: the markers that end transactions.

One uncompressed record, attributes 0x30 (transactional, control), base sequence -1, 78 bytes::

    key    version i16 = 0 | type i16 (0 abort, 1 commit)
    value  version i16 = 0 | coordinator epoch i32

Kafka: ``ControlRecordType``, ``EndTransactionMarker``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.records.batch import Batch
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.record import iter_records

MARKER_BATCH_SIZE: Final = 78

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """The type of a control record; the types of Kafka's own quorum are UNKNOWN here."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of one producer's transaction in this partition."""

    control_type: ControlType
    coordinator_epoch: int


def build_marker_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: Offset = 0,
    leader_epoch: LeaderEpoch = -1,
) -> bytes:
    """Return the 78 bytes of a commit or abort marker."""
    assert marker.control_type is not ControlType.UNKNOWN, "a marker commits or aborts"
    builder = BatchBuilder(
        BatchOptions(
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=True,
            is_control=True,
        )
    )
    builder.append(
        timestamp_ms,
        _KEY.pack(0, marker.control_type),
        _VALUE.pack(0, marker.coordinator_epoch),
    )
    return builder.build()


def parse_marker(batch: Batch) -> EndTransactionMarker | None:
    """Return the marker in a control batch; None if it is not an end-of-transaction marker.

    Raises CorruptLogError when key or value is too short or of a negative version. A newer
    version is read as version 0, which newer ones only add to.
    """
    for record in iter_records(batch):
        control_type = parse_control_type(record.key)
        if control_type is ControlType.UNKNOWN:
            return None
        value = record.value
        if value is None or len(value) < _VALUE.size:
            raise CorruptLogError(f"the marker at offset {record.offset} has no whole value")
        version, coordinator_epoch = _VALUE.unpack_from(value)
        if version < 0:
            raise CorruptLogError(f"the marker at offset {record.offset} has version {version}")
        return EndTransactionMarker(control_type, coordinator_epoch)
    return None


def parse_control_type(key: bytes | None) -> ControlType:
    """Return the type in a control record's key; CorruptLogError if it is malformed."""
    if key is None or len(key) < _KEY.size:
        raise CorruptLogError("a control record without a whole key")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptLogError(f"a control record key of version {version}")
    return ControlType(number) if number in (0, 1) else ControlType.UNKNOWN
