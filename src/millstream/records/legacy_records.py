"""The records inside messages of magic 0 and 1, and their conversion to batches of magic 2.

A message with a codec is the wrapper of a message set: its value, decompressed, is messages of the
same magic, none of which has a codec (Kafka: ``AbstractLegacyRecordBatch.DeepRecordsIterator``)::

    magic 0   the inner messages carry their offsets; the wrapper has the last one's
    magic 1   the inner messages are numbered from 0 (gaps where compaction took some); the wrapper
              has the offset of the last one, so the others follow from it. A wrapper at offset 0,
              which some versions of librdkafka sent, counts as a base of 0
    magic 1   of type log append time: every record has the wrapper's timestamp

lz4 under magic 0 is a frame whose header checksum was taken over the wrong bytes (KAFKA-3160), so
it is corrected before the frame is read.

Conversion keeps offsets, timestamps, their type, keys, values and codecs. A wrapper becomes one
batch. Uncompressed messages are grouped, up to ``max_batch_bytes``, because a batch header
of 61 bytes on each would make the log larger than it was.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import MAX_RELATIVE_OFFSET, NO_TIMESTAMP
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.compression import DEFAULT_MAX_BYTES, Codec, decompress
from millstream.records.crc32c import Buffer
from millstream.records.legacy import LegacyMessage, legacy_message_at
from millstream.records.record import Record

MAX_BATCH_BYTES: Final = 16_384
"""Size at which a batch of uncompressed messages is closed: Kafka's ``batch.size``."""

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_BIT: Final = 0x08
_LZ4_DICTIONARY_BIT: Final = 0x01


def iter_legacy_records(
    message: LegacyMessage, max_bytes: int = DEFAULT_MAX_BYTES
) -> Iterator[Record]:
    """Yield the record of a message, or those inside a wrapper, in order of their offsets.

    Raises CorruptLogError when the message set inside cannot be read or is not as described above.
    """
    if message.codec == Codec.NONE:
        yield Record(message.offset, message.timestamp, message.key, message.value)
        return
    inner = _inner_messages(message, max_bytes)
    base = 0
    if message.magic and message.offset:
        base = message.offset - inner[-1].offset
        if base < 0:
            raise CorruptLogError(
                f"the wrapper at offset {message.offset} ends with relative offset "
                f"{inner[-1].offset}"
            )
    append_time = message.timestamp if message.is_log_append_time else None
    for each in inner:
        timestamp = each.timestamp if append_time is None else append_time
        yield Record(base + each.offset, timestamp, each.key, each.value)


def _inner_messages(wrapper: LegacyMessage, max_bytes: int) -> list[LegacyMessage]:
    place = f"the wrapper at offset {wrapper.offset}"
    if wrapper.value is None or wrapper.codec > Codec.LZ4:
        raise CorruptLogError(f"{place} of codec {wrapper.codec} wraps nothing that can be read")
    stream: Buffer = wrapper.value
    if wrapper.codec == Codec.LZ4 and wrapper.magic == 0:
        stream = repair_lz4_header(wrapper.value)
    data = memoryview(decompress(wrapper.codec, stream, max_bytes))
    inner: list[LegacyMessage] = []
    position = 0
    while position < len(data):
        message = legacy_message_at(data, position)
        if message.magic != wrapper.magic or message.codec != Codec.NONE:
            raise CorruptLogError(f"{place} holds a message of another kind at {position}")
        if inner and message.offset <= inner[-1].offset:
            raise CorruptLogError(f"{place} holds messages whose offsets do not rise")
        inner.append(message)
        position += message.size
    if not inner:
        raise CorruptLogError(f"{place} holds no message")
    return inner


def converted_batches(
    messages: Iterable[LegacyMessage], max_batch_bytes: int = MAX_BATCH_BYTES
) -> Iterator[bytes]:
    """Yield batches of magic 2, without a leader epoch, that hold the records of ``messages``.

    Raises CorruptLogError as :func:`iter_legacy_records` does.
    """
    alone: list[Record] = []
    alone_bytes = 0
    alone_append_time: int | None = None
    for message in messages:
        append_time = message.timestamp if message.is_log_append_time else None
        if message.codec != Codec.NONE:
            if alone:
                yield _batch(alone, Codec.NONE, alone_append_time)
                alone, alone_bytes = [], 0
            records = list(iter_legacy_records(message))
            yield _batch(records, Codec(message.codec), append_time)
            continue
        record = Record(message.offset, message.timestamp, message.key, message.value)
        if alone and (
            alone_bytes + message.size > max_batch_bytes
            or append_time != alone_append_time
            or record.offset - alone[0].offset > MAX_RELATIVE_OFFSET
            or (record.timestamp < 0) != (alone[0].timestamp < 0)
        ):
            yield _batch(alone, Codec.NONE, alone_append_time)
            alone, alone_bytes = [], 0
        alone.append(record)
        alone_bytes += message.size
        alone_append_time = append_time
    if alone:
        yield _batch(alone, Codec.NONE, alone_append_time)


def _batch(records: Sequence[Record], codec: Codec, append_time: int | None) -> bytes:
    first = records[0].offset
    for before, after in pairwise(records):
        if not before.offset < after.offset <= first + MAX_RELATIVE_OFFSET:
            raise CorruptLogError(
                f"offset {after.offset} comes after {before.offset} and {first}: offsets of a "
                "batch do not rise so"
            )
    builder = BatchBuilder(
        BatchOptions(
            base_offset=first,
            codec=codec,
            log_append_time_ms=append_time,
        )
    )
    for record in records:
        timestamp = record.timestamp if record.timestamp >= 0 else NO_TIMESTAMP
        builder.append(timestamp, record.key, record.value, offset_delta=record.offset - first)
    return builder.build()


def repair_lz4_header(frame: bytes) -> bytes:
    """Return an lz4 frame with the header checksum of the specification.

    Frame header: magic u32, flags u8 (bit 3 content size follows, bit 0 dictionary id follows),
    block descriptor u8, [content size u64], [dictionary id u32], checksum u8: the second byte of
    XXH32 over what lies between magic and checksum. Kafka's clients under magic 0 took it over the
    magic as well. Raises CorruptLogError when the header is cut off.
    """
    if frame[:4] != _LZ4_MAGIC or len(frame) < 7:
        raise CorruptLogError("an lz4 stream does not start with a frame")
    flags = frame[4]
    end = (
        6 + (8 if flags & _LZ4_CONTENT_SIZE_BIT else 0) + (4 if flags & _LZ4_DICTIONARY_BIT else 0)
    )
    if len(frame) <= end:
        raise CorruptLogError("an lz4 frame ends inside its header")
    checksum = _xxh32_of_few(frame[4:end]) >> 8 & 0xFF
    return frame[:end] + bytes((checksum,)) + frame[end + 1 :]


_XXH_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK: Final = 0xFFFFFFFF


def _rotate(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _MASK


def _xxh32_of_few(data: bytes) -> int:
    """Return XXH32 with seed 0 of fewer than 16 bytes, the maximum of an lz4 header."""
    assert len(data) < 16
    prime1, prime2, prime3, prime4, prime5 = _XXH_PRIMES
    total = (prime5 + len(data)) & _MASK
    whole = len(data) - len(data) % 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        total = _rotate((total + word * prime3) & _MASK, 17) * prime4 & _MASK
    for byte in data[whole:]:
        total = _rotate((total + byte * prime5) & _MASK, 11) * prime1 & _MASK
    total = (total ^ total >> 15) * prime2 & _MASK
    total = (total ^ total >> 13) * prime3 & _MASK
    return total ^ total >> 16
