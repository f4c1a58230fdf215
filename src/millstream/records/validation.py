"""The checks of a producer's batch before the leader appends it.

In Kafka's order (``ProduceRequest.validateRecords``, ``UnifiedLog.analyzeAndValidateRecords``,
``LogValidator``); the first broken rule gives the error::

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
    the records, where they are looked at               see ``record_checks``

The kernel checks every record of every uncompressed batch, in the same call as the CRC: a batch
that it finds plain is appended unchanged. Other batches, and every batch without a kernel, go
through the rules here. Compressed batches are decompressed if the topic sets
``record.validation=strict``, a rule needs their records (keys of a compacted topic, a lower bound
for timestamps, another codec) or if their header is suspicious (a max timestamp out of range, a
timestamp type that producers do not set, more records than the bytes can hold):
docs/decisions/0069-records-are-looked-at.md.
"""

from __future__ import annotations

import struct
from contextlib import suppress
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
from millstream.records.compression import Codec, OverCapError
from millstream.records.crc32c import Buffer, checksum
from millstream.records.kernel import library
from millstream.records.limits import NotOneBatchError, ProduceLimits, UncheckedBatch
from millstream.records.produce_kernel import NOT_PLAIN, produce_library, receiver
from millstream.records.record import MIN_RECORD_BYTES
from millstream.records.record_checks import (
    check_records,
    plain_timestamp_delta,
    settle_timestamps,
    too_large,
)

WALKED_RECORDS: Final = 8
"""Without a kernel uncompressed batches of up to this many records are walked, whatever the topic.
"""

OPENED_BYTES: Final = 16 * 1024
"""The largest batch that is decompressed, or without a kernel read, on the event loop."""

MAX_OPENED_BYTES: Final = 64 * 1024
"""The most that is decompressed there, a tenth of a millisecond's work. A batch that turns out to
be larger is left to ``record_checks.prepare``.
"""

_ZSTD: Final = int(Codec.ZSTD)
_ZSTD_SINCE_VERSION: Final = 7
_SMALLEST_LENGTH: Final = 14
_HEADER_LENGTH: Final = HEADER_SIZE - LENGTH_OVERHEAD
_EXPANSION: Final = 4096
"""More than any codec can compress records, whose offsets all differ: a batch that claims more
records is invalid and would make offsets leap, so it is decompressed and checked.
"""
_LENGTH = struct.Struct(">i")


def claims_transaction(records: Buffer) -> bool:
    """Tell whether the first batch of a produce request's ``records``, if it is whole and of magic
    2, claims a transaction.

    Nothing else is checked: authorization calls it before :func:`validate_produced`.
    """
    return (
        len(records) >= HEADER_SIZE
        and bool(records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_BIT)
        and records[MAGIC_POSITION] == MAGIC
        and _HEADER_LENGTH
        <= _LENGTH.unpack_from(records, LENGTH_POSITION)[0]
        <= len(records) - LENGTH_OVERHEAD
    )


def validate_produced(
    records: Buffer, limits: ProduceLimits, *, version: int, now_ms: int
) -> Batch:
    """Check one partition's ``records`` of a Produce request of ``version``; return the batch.

    Its ``buffer`` is what to write: the producer's own bytes, or a copy where timestamps had to be
    changed (log append time, a wrong max timestamp). The caller still has to assign base offset and
    leader epoch, and to check :meth:`ProduceLimits.needs_preparation`.

    Raises KafkaError with the code of the first broken rule, a :class:`RecordsRefusedError` where
    single records are at fault.
    """
    receive = receiver(library())
    if receive is not None:
        plain = receive(records, limits.rules_address, now_ms, version)
        if plain is not None:
            return plain
    return _validated(records, limits, version, now_ms)


def _validated(records: Buffer, limits: ProduceLimits, version: int, now_ms: int) -> Batch:
    """Check a batch rule by rule."""
    view = memoryview(records)
    if len(view) < HEADER_SIZE:
        view = _only_batch(view, version)
    batch = Batch(view)
    if batch.magic != MAGIC or batch.length + LENGTH_OVERHEAD != len(view):
        view = _only_batch(view, version)
        batch = Batch(view)
    codec = batch.attributes & CODEC_MASK
    if (
        batch.base_offset
        or batch.length + LENGTH_OVERHEAD > limits.max_message_bytes
        or (codec == _ZSTD and version < _ZSTD_SINCE_VERSION)
    ):
        raise _early_error(batch, limits, version)
    checks = None if codec else produce_library()
    if checks is not None:
        largest = checks.check_batch(limits.rules_address, checks.buffers, view, now_ms)
        if largest != NOT_PLAIN:
            if largest == batch.max_timestamp and not limits.log_append_time:
                return batch
            return settle_timestamps(batch, limits, now_ms=now_ms, max_timestamp=largest)
    count = batch.count
    if (
        checksum(view[ATTRIBUTES_POSITION:]) != batch.crc
        or batch.last_offset_delta + 1 != count
        or count <= 0
        or batch.attributes & CONTROL_BIT
        or codec > _ZSTD
        or (batch.base_sequence < 0 and batch.producer_id > NO_PRODUCER_ID)
    ):
        raise _header_error(batch)
    if _must_look_inside(batch, codec, limits, now_ms):
        return _look_inside(batch, limits, now_ms)
    if limits.log_append_time:
        return settle_timestamps(batch, limits, now_ms=now_ms, max_timestamp=batch.max_timestamp)
    return batch


def _must_look_inside(batch: Batch, codec: int, limits: ProduceLimits, now_ms: int) -> bool:
    """Tell whether the records of a batch with a valid header have to be checked."""
    payload_bytes = batch.length - _HEADER_LENGTH
    if (
        limits.looks_inside
        or not NO_TIMESTAMP <= batch.max_timestamp <= now_ms + limits.timestamp_after_max_ms
        or batch.attributes & LOG_APPEND_TIME_BIT
        or (limits.codec is not None and limits.codec != codec)
        or batch.count * MIN_RECORD_BYTES > payload_bytes * (_EXPANSION if codec else 1)
    ):
        return True
    if codec:
        return False
    # The batch is not plain, or there is no kernel.
    return produce_library() is not None or (
        batch.count <= WALKED_RECORDS
        and plain_timestamp_delta(batch.buffer, batch.count)
        != batch.max_timestamp - batch.base_timestamp
    )


def _look_inside(batch: Batch, limits: ProduceLimits, now_ms: int) -> Batch:
    """Check the records if that is fast, else leave it to ``record_checks.prepare``."""
    is_quick = batch.size <= OPENED_BYTES or not (batch.codec or produce_library() is None)
    if is_quick and not limits.recompresses(batch):
        with suppress(OverCapError):
            most = min(MAX_OPENED_BYTES, limits.max_decompressed_bytes)
            return check_records(batch, limits, now_ms, most)
    return UncheckedBatch.received(batch.buffer, now_ms)


def _only_batch(view: memoryview, version: int) -> memoryview:
    """Return the part of ``view`` that is its one batch of magic 2, when it is not all of it."""
    size = _next_size(view)
    if size is None:
        raise NotOneBatchError("a produced partition holds at least one whole batch")
    if view[MAGIC_POSITION] != MAGIC:
        raise NotOneBatchError(f"a produced batch has magic 2, not {view[MAGIC_POSITION]}")
    if view[ATTRIBUTES_POSITION + 1] & CODEC_MASK == _ZSTD and version < _ZSTD_SINCE_VERSION:
        raise _zstd_too_early(version)
    # Trailing bytes too short for a second batch are ignored, as in Kafka.
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


def _early_error(batch: Batch, limits: ProduceLimits, version: int) -> KafkaError:
    """Return the error found before the checksum is computed, in Kafka's order."""
    if batch.codec == _ZSTD and version < _ZSTD_SINCE_VERSION:
        return _zstd_too_early(version)
    if batch.base_offset:
        return _invalid(f"the base offset of a produced batch is 0, not {batch.base_offset}")
    return too_large(batch, limits)


def _zstd_too_early(version: int) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"zstd needs Produce version {_ZSTD_SINCE_VERSION}, the request has {version}",
    )


def _header_error(batch: Batch) -> KafkaError:
    """Return the error in the header of a whole batch, in Kafka's order."""
    count = batch.count
    if not batch.is_valid:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, "the batch fails its CRC-32C")
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
    return _invalid(f"a producer id with the base sequence {batch.base_sequence}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
