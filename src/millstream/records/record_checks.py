"""The checks of a produced batch that need its records (Kafka: ``LogValidator``).

They are made where a topic's settings ask for them (keys of a compacted topic, a lower bound for
timestamps), where the header is suspicious (a max timestamp out of range, a timestamp type that
producers do not set), where the batch is to be compressed anew, and on small batches.
"""

from __future__ import annotations

from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError
from millstream.model.offsets import NO_TIMESTAMP
from millstream.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    Batch,
    rewrite_payload,
    rewrite_timestamps,
)
from millstream.records.compression import compress, decompress
from millstream.records.crc32c import Buffer
from millstream.records.limits import ProduceLimits, RecordError, RecordsRefusedError
from millstream.records.record import Record, read_records


def check_records(batch: Batch, limits: ProduceLimits, now_ms: int) -> int:
    """Look at every record; return the largest timestamp, -1 when there is none.

    Raises INVALID_RECORD when the records are not those that the header announces or a record of
    a compacted topic has no key, INVALID_TIMESTAMP when one is out of range; the latter two name
    the records.
    """
    errors: list[RecordError] = []
    code = ErrorCode.INVALID_RECORD
    records = _records(batch, limits)
    for index, record in enumerate(records):
        if limits.is_compacted and record.key is None:
            errors.append(RecordError(index, "a record of a compacted topic needs a key"))
            continue
        problem = _timestamp_problem(batch, record.timestamp, limits, now_ms)
        if problem is not None:
            errors.append(RecordError(index, problem))
            code = ErrorCode.INVALID_TIMESTAMP
    if errors:
        message = f"{len(errors)} of {batch.count} records are refused"
        raise RecordsRefusedError(code, message, tuple(errors))
    return _latest(records)


def prepare(batch: Batch, limits: ProduceLimits) -> Batch:
    """Return the batch in the topic's own codec; slow, so not for an event loop.

    Raises INVALID_RECORD when the records are not those that the header announces,
    MESSAGE_TOO_LARGE when the new batch is too large.
    """
    assert limits.codec is not None, "compression.type is producer"
    records = _records(batch, limits)
    payload = decompress(
        batch.attributes & CODEC_MASK, batch.records_view, limits.max_decompressed_bytes
    )
    anew = rewrite_payload(
        batch,
        compress(limits.codec, payload, limits.level),
        codec=limits.codec,
        max_timestamp=_latest(records),
    )
    check_size(anew, limits)
    return anew


def check_size(batch: Batch, limits: ProduceLimits) -> None:
    """Raise MESSAGE_TOO_LARGE when the batch is over ``max.message.bytes``."""
    if batch.size > limits.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {batch.size} bytes, max.message.bytes is {limits.max_message_bytes}",
        )


def settle_timestamps(
    batch: Batch, limits: ProduceLimits, *, now_ms: int, max_timestamp: int
) -> Batch:
    """Return the batch as the topic's timestamp type wants it: itself, or a copy with another
    max timestamp or type and a new CRC.
    """
    wanted = now_ms if limits.log_append_time else max_timestamp
    type_set = bool(batch.attributes & LOG_APPEND_TIME_BIT)
    if type_set == limits.log_append_time and batch.max_timestamp == wanted:
        return batch
    return rewrite_timestamps(batch, max_timestamp=wanted, log_append_time=limits.log_append_time)


def plain_timestamp_delta(  # noqa: C901  (inlined: it runs for every small batch)
    data: Buffer, count: int
) -> int | None:
    """Walk the records of an uncompressed batch; return the largest timestamp delta.

    None says that something about the batch is not plain, right or wrong: headers, a number of
    more bytes than usual, a length that does not fit. :func:`check_records` then finds out what.
    """
    position = HEADER_SIZE
    largest = None
    try:
        for _ in range(count):
            length = data[position]
            if length > 0x7F:
                position += 1
                byte = data[position]
                length = length & 0x7F | byte << 7
                if byte > 0x7F:
                    position += 1
                    length = length & 0x3FFF | data[position] << 14
            end = position + 1 + (length >> 1)
            delta = data[position + 2]
            position += 3
            if delta > 0x7F:
                delta = delta & 0x7F | data[position] << 7
                position += 1
            # A null, -1, is 1 in zig-zag, and its half is the nothing that follows it.
            key = data[position + 1]
            if data[position] > 0x7F or key > 0x7F:
                return None
            position += 2 + (key >> 1)
            value = data[position]
            if value > 0x7F:
                position += 1
                byte = data[position]
                value = value & 0x7F | byte << 7
                if byte > 0x7F:
                    position += 1
                    value = value & 0x3FFF | data[position] << 14
            position += 1 + (value >> 1)
            if (
                data[position]  # headers
                or position + 1 != end
                or delta > 0x3FFF  # a third byte
                or (length | value) > 0x1FFFFF  # a fourth
                or length & 1  # negative; a field may be 1, null
                or (key & 1 and key != 1)
                or (value & 1 and value != 1)
            ):
                return None
            delta = (delta >> 1) ^ -(delta & 1)
            if largest is None or delta > largest:
                largest = delta
            position = end
    except IndexError:
        return None
    return largest if position == len(data) else None


def _records(batch: Batch, limits: ProduceLimits) -> list[Record]:
    try:
        return read_records(batch, limits.max_decompressed_bytes)
    except CorruptLogError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


def _latest(records: list[Record]) -> int:
    return max(NO_TIMESTAMP, *(record.timestamp for record in records))


def _timestamp_problem(
    batch: Batch, timestamp: int, limits: ProduceLimits, now_ms: int
) -> str | None:
    if not limits.log_append_time and timestamp != NO_TIMESTAMP:
        earliest = now_ms - limits.timestamp_before_max_ms
        latest = now_ms + limits.timestamp_after_max_ms
        if earliest <= timestamp <= latest:
            return None
        return f"timestamp {timestamp} is out of range: [{earliest}, {latest}]"
    if batch.attributes & LOG_APPEND_TIME_BIT:
        return "a producer may not set the timestamp type to LogAppendTime"
    return None
