"""What a leader checks before it appends a producer's batch.

In Kafka's order (``ProduceRequest.validateRecords``, ``UnifiedLog.analyzeAndValidateRecords``,
``LogValidator``); the first rule that is broken answers::

    at least one whole batch                            INVALID_RECORD
    a length and a magic that can exist                 CORRUPT_MESSAGE
    magic 2                                             INVALID_RECORD
    zstd only from Produce v7                           UNSUPPORTED_COMPRESSION_TYPE
    one batch                                           INVALID_RECORD
    base offset 0                                       INVALID_RECORD
    at most max.message.bytes                           MESSAGE_TOO_LARGE
    CRC-32C                                             CORRUPT_MESSAGE
    a codec that exists                                 UNKNOWN_SERVER_ERROR, as Kafka answers
    last offset delta + 1 = count > 0                   INVALID_RECORD
    no control bit                                      INVALID_RECORD
    a base sequence where there is a producer id        INVALID_RECORD
    compacted topic: every record has a key             INVALID_RECORD, with record errors
    timestamps in range                                 INVALID_TIMESTAMP, with record errors

Records themselves are looked at in few cases only: docs/decisions/0002-batches-stay-opaque.md.
"""

from __future__ import annotations

import struct
from typing import Final

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import NO_TIMESTAMP
from millstream.model.producer import NO_PRODUCER_ID
from millstream.records.batch import (
    ATTRIBUTES_POSITION,
    BASE_TIMESTAMP_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    Batch,
)
from millstream.records.compression import Codec
from millstream.records.crc32c import Buffer, checksum
from millstream.records.limits import NotOneBatchError, ProduceLimits
from millstream.records.record import MIN_RECORD_BYTES
from millstream.records.record_checks import (
    check_records,
    check_size,
    plain_timestamp_delta,
    settle_timestamps,
)

WALKED_RECORDS: Final = 8
"""Uncompressed batches of up to this many records are walked, whatever the topic."""

_ZSTD: Final = int(Codec.ZSTD)
_ZSTD_SINCE_VERSION: Final = 7
_SMALLEST_LENGTH: Final = 14
_HEADER_LENGTH: Final = HEADER_SIZE - LENGTH_OVERHEAD
_EXPANSION: Final = 4096
"""More than records, whose offsets all differ, can shrink in any codec: what claims more is a lie
that would make offsets leap."""
_LENGTH = struct.Struct(">i")


def claims_transaction(records: Buffer) -> bool:
    """Tell whether the first batch of a produce request's ``records`` claims a transaction.

    Nothing is checked: it is asked before :func:`validate_produced`, for authorization.
    """
    return len(records) >= HEADER_SIZE and bool(
        records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT
    )


def validate_produced(
    records: Buffer, limits: ProduceLimits, *, version: int, now_ms: int
) -> Batch:
    """Check one partition's ``records`` of a Produce request of ``version``; return the batch.

    Its ``buffer`` is what to write: the producer's own bytes, or a copy where timestamps had to be
    changed (log append time, a wrong max timestamp). Base offset and leader epoch remain to be
    assigned, and :meth:`ProduceLimits.needs_preparation` to be asked.

    Raises KafkaError with the code of the first broken rule, a :class:`RecordsRefusedError` where
    single records are at fault.
    """
    view = memoryview(records)
    if len(view) < HEADER_SIZE:
        view = _only_batch(view, version)
    batch = Batch(view)
    if batch.magic != MAGIC or batch.length + LENGTH_OVERHEAD != len(view):
        view = _only_batch(view, version)
        batch = Batch(view)
    attributes = batch.attributes
    if attributes & CODEC_MASK == _ZSTD and version < _ZSTD_SINCE_VERSION:
        raise _zstd_too_early(version)
    if batch.base_offset:
        raise _invalid(f"the base offset of a produced batch is 0, not {batch.base_offset}")
    if batch.length + LENGTH_OVERHEAD > limits.max_message_bytes:
        check_size(batch, limits)
    if checksum(view[ATTRIBUTES_POSITION:]) != batch.crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch fails its CRC-32C")
    count = batch.count
    if (
        batch.last_offset_delta + 1 != count
        or count <= 0
        or attributes & CONTROL_BIT
        or attributes & CODEC_MASK > _ZSTD
        or (batch.base_sequence < 0 and batch.producer_id > NO_PRODUCER_ID)
        or (
            count * MIN_RECORD_BYTES > batch.length - _HEADER_LENGTH
            and count * MIN_RECORD_BYTES > _payload_limit(batch)
        )
    ):
        raise _header_error(batch)
    max_timestamp = batch.max_timestamp
    if (
        limits.looks_inside
        or not NO_TIMESTAMP <= max_timestamp <= now_ms + limits.timestamp_after_max_ms
        or attributes & LOG_APPEND_TIME_BIT
        or (
            count <= WALKED_RECORDS
            and not attributes & CODEC_MASK
            and plain_timestamp_delta(view, count) != max_timestamp - batch.base_timestamp
        )
    ):
        max_timestamp = check_records(batch, limits, now_ms)
    elif not limits.log_append_time:
        return batch
    return settle_timestamps(batch, limits, now_ms=now_ms, max_timestamp=max_timestamp)


def _only_batch(view: memoryview, version: int) -> memoryview:
    """Return the part of ``view`` that is its one batch of magic 2, when it is not all of it."""
    size = _next_size(view)
    if size is None:
        raise NotOneBatchError("a produced partition holds at least one whole batch")
    if view[MAGIC_POSITION] != MAGIC:
        raise NotOneBatchError(f"a produced batch has magic 2, not {view[MAGIC_POSITION]}")
    if view[ATTRIBUTES_POSITION + 1] & CODEC_MASK == _ZSTD and version < _ZSTD_SINCE_VERSION:
        raise _zstd_too_early(version)
    # What is too short to be a second batch is left behind, as Kafka does.
    if _next_size(view[size:]) is not None:
        raise NotOneBatchError("a produced partition holds one batch")
    if size < HEADER_SIZE:
        too_short = size < BASE_TIMESTAMP_POSITION
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR if too_short else ErrorCode.CORRUPT_MESSAGE,
            f"a batch of {size} bytes has no whole header",
        )
    return view[:size]


def _next_size(view: memoryview) -> int | None:
    """Return the size of the batch at the start of ``view``; None when no whole one is there.

    Raises CORRUPT_MESSAGE on a length or magic that no format has (Kafka:
    ``ByteBufferLogInputStream``).
    """
    if len(view) < LENGTH_OVERHEAD:
        return None
    (length,) = _LENGTH.unpack_from(view, LENGTH_POSITION)
    if length < _SMALLEST_LENGTH:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch has a length of {length}")
    if len(view) <= MAGIC_POSITION:
        return None
    if view[MAGIC_POSITION] > MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no batch has magic {view[MAGIC_POSITION]}")
    size: int = length + LENGTH_OVERHEAD
    if size >= 2**31:
        raise NotOneBatchError(f"a batch of {size} bytes", ErrorCode.UNKNOWN_SERVER_ERROR)
    return size if size <= len(view) else None


def _zstd_too_early(version: int) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"zstd needs Produce version {_ZSTD_SINCE_VERSION}, the request has {version}",
    )


def _payload_limit(batch: Batch) -> int:
    """Return the most bytes that the batch's records may come to."""
    payload = batch.length - _HEADER_LENGTH
    return payload * _EXPANSION if batch.codec else payload


def _header_error(batch: Batch) -> KafkaError:
    """Say which rule of the header is broken, in Kafka's order."""
    count = batch.count
    if batch.codec > _ZSTD:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no codec {batch.codec}")
    if batch.last_offset_delta < 0:
        return _invalid(f"a last offset delta of {batch.last_offset_delta}")
    if count <= 0:
        return _invalid(f"a record count of {count}")
    if batch.last_offset_delta + 1 != count:
        return _invalid(f"{count} records and a last offset delta of {batch.last_offset_delta}")
    if batch.is_control:
        return _invalid("producers do not write control batches")
    if batch.base_sequence < 0 and batch.has_producer_id:
        return _invalid(f"a producer id with the base sequence {batch.base_sequence}")
    return _invalid(f"{count} records in {batch.size} bytes")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
