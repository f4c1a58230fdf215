"""The checks of a produced batch that need its records (Kafka: ``LogValidator``).

The kernel skips plain records and stops at the first one that is not; this module decides whether
it breaks a rule, and with which error. Without a kernel every record is read here.

A batch that is refused answers, in this order::

    a compressed stream that cannot be read             UNKNOWN_SERVER_ERROR, as Kafka answers
    a stream that holds more than the cap               INVALID_RECORD
    records that are not those the header announces     INVALID_RECORD
    a record's length of more than five bytes           UNKNOWN_SERVER_ERROR, as Kafka answers
    a null key on a compacted topic                     INVALID_RECORD, with record errors
    a timestamp out of range, or a type that producers
    do not set                                          INVALID_TIMESTAMP, with record errors
    compressed: offset deltas other than 0, 1, 2 ...    UNKNOWN_SERVER_ERROR, as Kafka answers

Kafka assigns new offset deltas if it has to recompress, and accepts them unchanged in an
uncompressed batch.
"""

from __future__ import annotations

from typing import Final

from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError
from millstream.model.offsets import NO_TIMESTAMP
from millstream.records.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    Batch,
    rewrite_payload,
    rewrite_timestamps,
)
from millstream.records.compaction import record_spans
from millstream.records.compression import Codec, OverCapError, compress, decompress
from millstream.records.crc32c import Buffer
from millstream.records.kernel import Pinned
from millstream.records.limits import (
    ProduceLimits,
    RecordError,
    RecordsRefusedError,
    UncheckedBatch,
)
from millstream.records.produce_kernel import (
    Produced,
    ProduceLibrary,
    ProduceRules,
    produce_library,
)
from millstream.records.record import Record, walk_records
from millstream.records.varint import decode_varint, encode_varint

MAX_RECORD_ERRORS: Final = 1000
"""The most records that an error names; checking a batch ends after so many."""

_NO_RULES: Final = ProduceRules(any_time=1)
"""No rule except that the records are those that the header announces."""


def check_records(batch: Batch, limits: ProduceLimits, now_ms: int, max_bytes: int) -> Batch:
    """Check every record; return the batch, or a copy with corrected timestamps.

    Raises KafkaError as the table above says, a :class:`RecordsRefusedError` where single records
    are at fault; OverCapError on a compressed batch that holds more than ``max_bytes``.
    """
    look = _Look(batch, _decompressed(batch, max_bytes), limits, now_ms)
    look.ensure_in_order()
    return settle_timestamps(batch, limits, now_ms=now_ms, max_timestamp=look.largest_timestamp)


def prepare(batch: Batch, limits: ProduceLimits) -> Batch:
    """Check the records of an :class:`UncheckedBatch` and recompress it with the topic's codec if
    necessary. Slow, so it must not run on the event loop.

    Raises KafkaError as the table above says, MESSAGE_TOO_LARGE when the new batch is too large.
    """
    now_ms = batch.received_ms if isinstance(batch, UncheckedBatch) else None
    try:
        records = _decompressed(batch, limits.max_decompressed_bytes)
    except OverCapError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
    look = _Look(batch, records, limits, now_ms)
    if now_ms is not None:
        largest = look.largest_timestamp
        batch = settle_timestamps(batch, limits, now_ms=now_ms, max_timestamp=largest)
    if limits.codec is None or not limits.recompresses(batch):
        look.ensure_in_order()
        return batch
    if not look.in_order:
        records = _numbered_anew(bytes(records), batch.count)
    payload = compress(limits.codec, records, limits.level)
    anew = rewrite_payload(batch, payload, codec=limits.codec, max_timestamp=batch.max_timestamp)
    if anew.size > limits.max_message_bytes:
        raise too_large(anew, limits)
    return anew


def too_large(batch: Batch, limits: ProduceLimits) -> KafkaError:
    """Return MESSAGE_TOO_LARGE for a batch that is over ``max.message.bytes``."""
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch has {batch.size} bytes, max.message.bytes is {limits.max_message_bytes}",
    )


def settle_timestamps(
    batch: Batch, limits: ProduceLimits, *, now_ms: int, max_timestamp: int
) -> Batch:
    """Apply the topic's timestamp type: return the batch itself, or a copy with another max
    timestamp or type and a new CRC.
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

    None means that the batch is not plain, valid or not: it has headers, a varint of more bytes
    than usual, or a length that does not fit. :func:`check_records` then decides.
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
            # Null (-1) is 1 in zig-zag; halved it is 0, the size of the data that follows.
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


class _Look:
    """One check of all records of a batch, which are decompressed in ``records``.

    ``now_ms`` is None for a batch that was checked before: then only the records' properties are
    computed. Raises KafkaError as the table of this module says.
    """

    def __init__(
        self, batch: Batch, records: Buffer, limits: ProduceLimits, now_ms: int | None
    ) -> None:
        self.largest_timestamp = NO_TIMESTAMP
        """At least -1."""
        self.in_order = True
        """Whether the offset deltas are 0, 1, 2 ..."""
        self._batch = batch
        self._limits = limits
        self._now_ms = now_ms
        self._errors: list[RecordError] = []
        self._code = ErrorCode.INVALID_RECORD
        self._index = 0
        """The record being checked, and its position in bytes."""
        self._position = 0
        library, rules = produce_library(), self._rules()
        try:
            if library is None or rules is None:
                self._judge_all(bytes(records))
            else:
                self._judge_what_stops(library, rules, records)
        except CorruptLogError as error:
            raise KafkaError(self._code_of_misfit(records), str(error)) from error
        if self._errors:
            count = len(self._errors)
            at_least = "at least " if count == MAX_RECORD_ERRORS else ""
            message = f"{at_least}{count} of {batch.count} records are refused"
            raise RecordsRefusedError(self._code, message, tuple(self._errors))

    def ensure_in_order(self) -> None:
        """Raise UNKNOWN_SERVER_ERROR unless the offset deltas of a compressed batch are right.

        (Kafka tries to rebuild such a batch from records whose fields it has skipped.)
        """
        if self._batch.codec and not self.in_order:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "the offset deltas in the compressed batch are not 0, 1, 2 ...",
            )

    def _rules(self) -> ProduceRules | None:
        """Return the rules for the kernel; None if it cannot be used."""
        if self._now_ms is None:
            return _NO_RULES
        if not self._batch.attributes & LOG_APPEND_TIME_BIT:
            return self._limits.rules
        # All records have the batch's max timestamp.
        if self._timestamp_problem(self._batch.max_timestamp, self._now_ms) is not None:
            return None
        return ProduceRules(needs_keys=self._limits.is_compacted, any_time=1)

    def _judge_what_stops(
        self, library: ProduceLibrary, rules: ProduceRules, records: Buffer
    ) -> None:
        """Run the kernel over the records, and check each record at which it stops and those that
        are refused after it.
        """
        batch, data = self._batch, b""
        pinned, found = Pinned(records), Produced()
        while len(self._errors) < MAX_RECORD_ERRORS:
            library.check_records(
                found,
                rules,
                pinned,
                position=self._position,
                first=self._index,
                count=batch.count,
                base_timestamp=batch.base_timestamp,
                now_ms=self._now_ms or 0,
            )
            largest = found.largest_timestamp
            if batch.attributes & LOG_APPEND_TIME_BIT:
                largest = batch.max_timestamp
            self.largest_timestamp = max(self.largest_timestamp, largest)
            self.in_order &= bool(found.in_order)
            if not found.fault.code:
                return
            data = data or bytes(records)
            self._index = found.fault.index
            self._position += found.fault.position
            for record in walk_records(batch, data, index=self._index, position=self._position):
                if not self._judge(data, record) or len(self._errors) == MAX_RECORD_ERRORS:
                    break
            else:
                return

    def _judge_all(self, data: bytes) -> None:
        for record in walk_records(self._batch, data):
            self._judge(data, record)
            if len(self._errors) == MAX_RECORD_ERRORS:
                return

    def _code_of_misfit(self, records: Buffer) -> ErrorCode:
        """Return the code for records that are not what the header announces."""
        if self._index < self._batch.count:
            try:
                decode_varint(memoryview(records), self._position)
            except CorruptLogError:  # which Java detects outside of its validation
                return ErrorCode.UNKNOWN_SERVER_ERROR
            except IndexError:
                pass
        return ErrorCode.INVALID_RECORD

    def _judge(self, data: bytes, record: Record) -> bool:
        """Check one record against the rules, and advance to the next; return True if it is
        refused.
        """
        index = self._index
        length, start = decode_varint(data, self._position)
        self._index, self._position = index + 1, start + length
        self.in_order &= record.offset - self._batch.base_offset == index
        self.largest_timestamp = max(self.largest_timestamp, record.timestamp)
        if self._now_ms is None:
            return False
        if self._limits.is_compacted and record.key is None:
            self._errors.append(RecordError(index, "a record of a compacted topic needs a key"))
            return True
        problem = self._timestamp_problem(record.timestamp, self._now_ms)
        if problem is not None:
            self._errors.append(RecordError(index, problem))
            self._code = ErrorCode.INVALID_TIMESTAMP
        return problem is not None

    def _timestamp_problem(self, timestamp: int, now_ms: int) -> str | None:
        limits = self._limits
        if not limits.log_append_time and timestamp != NO_TIMESTAMP:
            earliest = now_ms - limits.timestamp_before_max_ms
            latest = now_ms + limits.timestamp_after_max_ms
            if earliest <= timestamp <= latest:
                return None
            return f"timestamp {timestamp} is out of range: [{earliest}, {latest}]"
        if self._batch.attributes & LOG_APPEND_TIME_BIT:
            return "a producer may not set the timestamp type to LogAppendTime"
        return None


def _decompressed(batch: Batch, max_bytes: int) -> Buffer:
    """Return the batch's records. Raises UNKNOWN_SERVER_ERROR on a damaged stream, OverCapError."""
    stream = batch.records_view
    if batch.codec == Codec.ZSTD and not stream:
        return b""  # only this codec decompresses empty input to empty output
    try:
        return decompress(batch.codec, stream, max_bytes)
    except OverCapError:
        raise
    except CorruptLogError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error


def _numbered_anew(data: bytes, count: int) -> bytes:
    """Return the records with the offset deltas 0, 1, 2 ..., and nothing else changed."""
    out = bytearray()
    for index, span in enumerate(record_spans(data, count)):
        _, start = decode_varint(data, span.start)
        _, after_delta = decode_varint(data, span.body)
        record = data[start : span.body] + encode_varint(index) + data[after_delta : span.end]
        out += encode_varint(len(record)) + record
    return bytes(out)
