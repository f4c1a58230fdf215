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
from functools import lru_cache
from typing import Final

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import NO_TIMESTAMP, LeaderEpoch, Offset
from millstream.model.producer import NO_SEQUENCE
from millstream.records.batch import CHECKED_HEADER, LENGTH_OVERHEAD, MAGIC, Batch
from millstream.records.crc32c import checksum
from millstream.records.record import iter_records

MARKER_BATCH_SIZE: Final = 78

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ATTRIBUTES: Final = 0x30
_PLACE: Final = struct.Struct(">qii")
"""Base offset, length, leader epoch: what a log decides about a batch."""
_MAGIC_AND_CRC: Final = struct.Struct(">bI")
_LENGTH: Final = MARKER_BATCH_SIZE - LENGTH_OVERHEAD
_RECORD: Final = struct.Struct(">5shhchic")
"""The record of a marker as :func:`build_marker_batch` and Kafka write it."""
_RECORD_START: Final = b"\x20\x00\x00\x00\x08"
"""A record of 16 bytes, no attributes, no deltas, a key of 4 bytes."""
_VALUE_LENGTH: Final = b"\x0c"
_NO_HEADERS: Final = b"\x00"


class ControlType(IntEnum):
    """The type of a control record; the types of Kafka's own quorum are UNKNOWN here."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1


@dataclass(slots=True, unsafe_hash=True)
class EndTransactionMarker:
    """The end of one producer's transaction in this partition."""

    control_type: ControlType
    coordinator_epoch: int


@dataclass(slots=True, unsafe_hash=True)
class MarkerBatch:
    """The control batch that ends one producer's transaction, before a log gives it its place. The
    same one is written into all partitions of the transaction.
    """

    marker: EndTransactionMarker
    producer_id: int
    producer_epoch: int
    timestamp_ms: int
    rest: bytes
    """What follows the base offset, the length and the leader epoch; the CRC covers only that."""

    @classmethod
    def of(
        cls,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        timestamp_ms: int,
    ) -> MarkerBatch:
        """Return the batch of a marker."""
        assert marker.control_type is not ControlType.UNKNOWN, "a marker commits or aborts"
        checked = CHECKED_HEADER.pack(
            _ATTRIBUTES,
            0,
            timestamp_ms,
            max(timestamp_ms, NO_TIMESTAMP),
            producer_id,
            producer_epoch,
            NO_SEQUENCE,
            1,
        ) + _usual_record(marker.control_type, marker.coordinator_epoch)
        rest = _MAGIC_AND_CRC.pack(MAGIC, checksum(checked)) + checked
        return cls(marker, producer_id, producer_epoch, timestamp_ms, rest)

    def placed(self, base_offset: Offset, leader_epoch: LeaderEpoch) -> bytes:
        """Return the 78 bytes as they stand at an offset of a log."""
        return _PLACE.pack(base_offset, _LENGTH, leader_epoch) + self.rest


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
    return MarkerBatch.of(
        marker,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp_ms=timestamp_ms,
    ).placed(base_offset, leader_epoch)


def parse_marker(batch: Batch) -> EndTransactionMarker | None:
    """Return the marker in a control batch; None if it is not an end-of-transaction marker.

    Raises CorruptLogError when key or value is too short or of a negative version. A newer
    version is read as version 0, which newer ones only add to.
    """
    if batch.size == MARKER_BATCH_SIZE and batch.count == 1 and batch.attributes == _ATTRIBUTES:
        marker = _usual_marker(bytes(batch.records_view))
        if marker is not None:
            return marker
    return _read_marker(batch)


def _read_marker(batch: Batch) -> EndTransactionMarker | None:
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


@lru_cache(maxsize=64)
def _usual_record(control_type: ControlType, coordinator_epoch: int) -> bytes:
    """Return the record of a marker, which is the same for all that a coordinator commits."""
    return _RECORD.pack(
        _RECORD_START, 0, control_type, _VALUE_LENGTH, 0, coordinator_epoch, _NO_HEADERS
    )


@lru_cache(maxsize=64)
def _usual_marker(records: bytes) -> EndTransactionMarker | None:
    """Return the marker in a record as it is usually written, which differs by type and coordinator
    epoch alone; None for any other, which :func:`parse_marker` reads field by field.
    """
    if len(records) != _RECORD.size:
        return None
    start, key_version, number, value_length, value_version, epoch, headers = _RECORD.unpack(
        records
    )
    fixed = (start, key_version, value_length, value_version, headers)
    if fixed != (_RECORD_START, 0, _VALUE_LENGTH, 0, _NO_HEADERS) or number not in (0, 1):
        return None
    return EndTransactionMarker(ControlType(number), epoch)


def parse_control_type(key: bytes | None) -> ControlType:
    """Return the type in a control record's key; CorruptLogError if it is malformed."""
    if key is None or len(key) < _KEY.size:
        raise CorruptLogError("a control record without a whole key")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptLogError(f"a control record key of version {version}")
    return ControlType(number) if number in (0, 1) else ControlType.UNKNOWN
