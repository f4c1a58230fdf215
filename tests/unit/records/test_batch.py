from __future__ import annotations

import pytest

from millstream.model.errors import CorruptLogError
from millstream.records.batch import Batch, header_at, iter_batches
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec
from millstream.records.legacy import UnsupportedFormatError
from millstream.records.record import Record, read_records

RECORDS = [
    Record(0, 1000, b"k", b"v"),
    Record(1, 990, None, b"x" * 300, (("h", b"1"), ("é", None))),
    Record(2, 2000, b"", None),
]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_gives_back_its_records(codec: Codec) -> None:
    batch = Batch(memoryview(encode_batch(RECORDS, BatchOptions(codec=codec))))
    batch.ensure_valid()
    assert read_records(batch) == RECORDS
    assert (batch.count, batch.last_offset, batch.next_offset) == (3, 2, 3)
    assert (batch.base_timestamp, batch.max_timestamp) == (1000, 2000)
    assert batch.codec == codec


def test_a_walk_yields_whole_batches_and_ends_at_a_cut_one() -> None:
    first = encode_batch(RECORDS, BatchOptions(base_offset=10))
    second = encode_batch(RECORDS, BatchOptions(base_offset=13, codec=Codec.ZSTD))
    both = first + second
    assert [b.base_offset for b in iter_batches(both)] == [10, 13]
    assert [b.base_offset for b in iter_batches(both[:-1])] == [10]
    assert [b.base_offset for b in iter_batches(both, len(first))] == [13]
    assert header_at(both[:-1], len(first)).size == len(second)


@pytest.mark.parametrize("position", [16, 8, 0, 57])
def test_bytes_that_are_no_batch_are_corrupt(position: int) -> None:
    buffer = bytearray(encode_batch(RECORDS))
    buffer[position] = 0xFF
    with pytest.raises(CorruptLogError):
        list(iter_batches(buffer))


def test_assigning_offsets_leaves_the_crc_alone() -> None:
    buffer = bytearray(encode_batch(RECORDS))
    batch = Batch(memoryview(buffer))
    batch.assign(base_offset=77, leader_epoch=5)
    again = Batch(memoryview(bytes(buffer)))
    again.ensure_valid()
    assert (again.base_offset, again.partition_leader_epoch) == (77, 5)
    again.assign(base_offset=78, leader_epoch=6)
    whole = again.prefix + again.buffer[16:]
    assert header_at(whole).base_offset == 78
    assert header_at(whole).is_valid


def test_an_old_message_is_told_from_damage() -> None:
    # Magic 0: offset 5, size 22, CRC-32, magic, attributes, key -1, value "hello..."
    import struct
    import zlib

    body = struct.pack(">bbii", 0, 0, -1, 60) + b"v" * 60
    message = struct.pack(">qiI", 5, 4 + len(body), zlib.crc32(body)) + body
    with pytest.raises(UnsupportedFormatError):
        list(iter_batches(message))
    with pytest.raises(CorruptLogError):
        list(iter_batches(message[:-1] + b"w"))
