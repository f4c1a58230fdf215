"""Magic 0 and 1 as Apache Kafka 2.8 and kafka-python wrote them."""

from __future__ import annotations

import json
import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import lz4.frame
import pytest

from millstream.model.errors import CorruptLogError
from millstream.records.batch import Batch
from millstream.records.legacy import LegacyMessage, legacy_message_at, legacy_size_at
from millstream.records.legacy_records import (
    converted_batches,
    iter_legacy_records,
    repair_lz4_header,
)
from millstream.records.log_entries import iter_log_entries
from millstream.records.record import Record, read_records

with warnings.catch_warnings():
    # kafka-python reads its message definitions in a way that newer Pythons warn of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

SOURCE = Path(__file__).parents[2] / "data" / "kafka-2.8.2"
TOPICS = ("magic0", "magic1", "appended", "upgraded", "trimmed", "compacted")


def messages_of(data: bytes) -> list[LegacyMessage]:
    found = []
    for _, entry in iter_log_entries(data):
        assert isinstance(entry, LegacyMessage)
        found.append(entry)
    return found


def records_of(topic: str) -> Iterator[Record]:
    for path in sorted((SOURCE / f"{topic}-0").glob("*.log")):
        data = path.read_bytes()
        end = 0
        for position, entry in iter_log_entries(data):
            assert entry.is_valid
            yield from (
                read_records(entry) if isinstance(entry, Batch) else iter_legacy_records(entry)
            )
            end = position + entry.size
        assert end == len(data)


def expected(topic: str) -> list[Record]:
    """What a consumer of Kafka 2.8 got; timestamp type 0 is none at all."""

    def encoded(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    return [
        Record(offset, timestamp if kind else -1, encoded(key), encoded(value))
        for offset, kind, timestamp, key, value in json.loads(
            (SOURCE / "expected.json").read_text()
        )[topic]
    ]


@pytest.mark.parametrize("topic", TOPICS)
def test_every_record_that_kafka_served_is_read(topic: str) -> None:
    served = expected(topic)
    assert [record for record in records_of(topic) if record.offset >= served[0].offset] == served


def test_the_formats_and_codecs_are_all_there() -> None:
    seen = set()
    for path in SOURCE.glob("*/*.log"):
        for _, entry in iter_log_entries(path.read_bytes()):
            seen.add((entry.buffer[16], entry.codec))
    assert seen == {(magic, codec) for magic in (0, 1, 2) for codec in range(4)}


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2])
def test_what_kafka_python_wrote(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for n in range(5):
        builder.append(n, 1000 + n if magic else None, b"k%d" % n if n else None, b"v" * n or None)
    messages = messages_of(bytes(builder.build()))
    records = [record for message in messages for record in iter_legacy_records(message)]
    assert records == [
        Record(n, 1000 + n if magic else -1, b"k%d" % n if n else None, b"v" * n or None)
        for n in range(5)
    ]
    (converted,) = converted_batches(messages)
    batch = Batch(memoryview(converted))
    assert batch.is_valid
    assert batch.codec == codec
    assert read_records(batch) == records


@pytest.mark.parametrize("topic", ["magic0", "magic1", "appended", "trimmed", "compacted"])
def test_conversion_keeps_everything(topic: str) -> None:
    for path in sorted((SOURCE / f"{topic}-0").glob("*.log")):
        messages = messages_of(path.read_bytes())
        batches = [Batch(memoryview(data)) for data in converted_batches(messages, 300)]
        before = [record for message in messages for record in iter_legacy_records(message)]
        assert [record for batch in batches for record in read_records(batch)] == before
        assert {batch.timestamp_type for batch in batches} == {topic == "appended"}
        assert {batch.partition_leader_epoch for batch in batches} == {-1}
        codecs = [message.codec for message in messages]
        assert [batch.codec for batch in batches if batch.codec] == [c for c in codecs if c]


def message(offset: int, magic: int, value: bytes | None, attributes: int = 0) -> bytes:
    content = struct.pack(">bb", magic, attributes) + (struct.pack(">q", 7) if magic else b"")
    content += struct.pack(">ii", -1, -1 if value is None else len(value)) + (value or b"")
    return struct.pack(">qiI", offset, len(content) + 4, zlib.crc32(content)) + content


def gzip(data: bytes) -> bytes:
    import gzip as standard

    return standard.compress(data)


def test_messages_that_stand_alone_are_put_together_up_to_a_size() -> None:
    data = b"".join(message(offset, 1, b"v" * 10) for offset in range(10))
    size = len(message(0, 1, b"v" * 10))
    batches = [Batch(memoryview(b)) for b in converted_batches(messages_of(data), 4 * size)]
    assert [(b.base_offset, b.last_offset) for b in batches] == [(0, 3), (4, 7), (8, 9)]


def test_a_gap_of_more_than_a_batch_can_hold_begins_another() -> None:
    data = message(0, 1, b"a") + message(2**31 - 1, 1, b"b") + message(2**31, 1, b"c")
    batches = [Batch(memoryview(b)) for b in converted_batches(messages_of(data))]
    assert [(b.base_offset, b.last_offset) for b in batches] == [(0, 2**31 - 1), (2**31, 2**31)]


@pytest.mark.parametrize("offsets", [(5, 5), (5, 4), (5, 6, 6)])
def test_offsets_that_do_not_rise_are_damage(offsets: tuple[int, ...]) -> None:
    messages = messages_of(b"".join(message(offset, 1, b"v") for offset in offsets))
    with pytest.raises(CorruptLogError, match=f"offset {offsets[-1]} .* do not rise"):
        list(converted_batches(messages))


def test_a_wrapper_of_more_offsets_than_a_batch_can_hold_is_damage() -> None:
    inner = message(1, 0, b"v") + message(2**31 + 1, 0, b"v")
    (wrapper,) = messages_of(message(2**31 + 1, 0, gzip(inner), 1))
    with pytest.raises(CorruptLogError, match="offsets"):
        list(converted_batches([wrapper]))


def test_a_wrapper_at_offset_0_counts_from_0() -> None:
    inner = b"".join(message(n, 1, b"%d" % n) for n in range(3))
    (wrapper,) = messages_of(message(0, 1, gzip(inner), 1))
    assert [record.offset for record in iter_legacy_records(wrapper)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (message(1, 1, gzip(message(0, 1, b"a") + message(5, 1, b"b")), 1), "relative offset 5"),
        (message(5, 1, gzip(message(1, 1, b"a") + message(1, 1, b"b")), 1), "do not rise"),
        (message(5, 1, gzip(message(0, 0, b"a")), 1), "another kind"),
        (message(5, 1, gzip(message(0, 1, b"a", 1)), 1), "another kind"),
        (message(5, 1, gzip(b""), 1), "no message"),
        (message(5, 1, gzip(message(0, 1, b"a")[:-1]), 1), "no message of magic"),
        (message(5, 1, None, 1), "wraps nothing"),
        (message(5, 1, b"zstd", 4), "wraps nothing"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_wrappers_that_lie_are_refused(data: bytes, complaint: str) -> None:
    (wrapper,) = messages_of(data)
    with pytest.raises(CorruptLogError, match=complaint):
        list(iter_legacy_records(wrapper))


def test_damage_is_told_by_the_crc() -> None:
    data = bytearray(message(3, 1, b"value"))
    data[-1] ^= 1
    (damaged,) = messages_of(bytes(data))
    with pytest.raises(CorruptLogError, match="offset 3"):
        damaged.ensure_valid()


@pytest.mark.parametrize("length", [4_000_000, -2, 6])
def test_a_value_that_does_not_fit_its_message(length: int) -> None:
    data = message(3, 0, b"value").replace(struct.pack(">i", 5), struct.pack(">i", length))
    with pytest.raises(CorruptLogError):
        legacy_message_at(data)


def test_what_is_cut_off_ends_the_walk() -> None:
    data = message(0, 0, b"a") + message(1, 0, b"b")
    for cut in range(1, len(message(1, 0, b"b"))):
        assert len(messages_of(data[:-cut])) == 1
    assert legacy_size_at(data[:16], 0) is None


@pytest.mark.parametrize("content_size", [False, True])
def test_the_checksum_of_an_lz4_header_is_put_right(content_size: bool) -> None:
    frame = lz4.frame.compress(b"a" * 100, store_size=content_size)
    at = 14 if content_size else 6
    broken = frame[:at] + bytes([frame[at] ^ 0x55]) + frame[at + 1 :]
    assert repair_lz4_header(broken) == frame
    with pytest.raises(CorruptLogError):
        repair_lz4_header(frame[:6])
