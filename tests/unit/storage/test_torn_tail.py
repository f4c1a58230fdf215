"""Where the next whole batch begins behind a bad one."""

from __future__ import annotations

import pytest
from tests.memory_files import Contents, MemoryFile, MemoryFileSystem

from millstream.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    Batch,
)
from millstream.records.builder import encode_batch
from millstream.records.record import Record
from millstream.storage import torn_tail
from millstream.storage.torn_tail import BatchFinder

CHUNK = 100


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torn_tail, "_CHUNK_BYTES", CHUNK)


def batch_at(base_offset: int) -> bytes:
    batch = Batch(memoryview(bytearray(encode_batch([Record(0, 1_000, b"k", b"value")]))))
    batch.assign(base_offset=base_offset, leader_epoch=0)
    return bytes(batch.buffer)


class CountingFile(MemoryFile):
    """Counts the bytes that are read."""

    read_bytes = 0

    def read_at(self, position: int, size: int) -> bytes:
        """See ``File``."""
        data = super().read_at(position, size)
        self.read_bytes += len(data)
        return data


def file_of(data: bytes) -> CountingFile:
    file = CountingFile(MemoryFileSystem(), "/log", Contents())
    file.write_at(0, data)
    return file


def fake_headers(count: int) -> bytes:
    """Return headers one after the other, each of a batch that goes on up to the end."""
    headers = bytearray()
    for number in range(count):
        header = bytearray(batch_at(7)[:HEADER_SIZE])
        left = HEADER_SIZE * (count - number)
        header[LENGTH_POSITION : LENGTH_POSITION + 4] = (left - LENGTH_OVERHEAD).to_bytes(4, "big")
        headers += header
    return bytes(headers)


def found(data: bytes, next_offset: int) -> int | None:
    files = MemoryFileSystem()
    file = files.open("/log", create=True)
    file.write_at(0, data)
    return BatchFinder(file, len(data)).next(0, next_offset)


def test_a_batch_is_found_wherever_it_lies() -> None:
    batch = batch_at(7)
    for position in range(3 * CHUNK):
        assert found(b"\xff" * position + batch + b"rest", 7) == position


def test_a_batch_of_what_was_there_before_does_not_count() -> None:
    assert found(b"damage" + batch_at(6), 7) is None
    assert found(b"damage" + batch_at(6) + batch_at(8), 7) == 6 + len(batch_at(6))


def test_a_batch_that_is_not_whole_or_damaged_does_not_count() -> None:
    batch = batch_at(7)
    assert found(b"damage" + batch[:-1], 7) is None
    assert found(b"damage" + batch[:-1] + b"x", 7) is None


def test_a_batch_is_found_behind_many_headers_of_none() -> None:
    fake, batch = fake_headers(100), batch_at(8)
    assert found(fake + batch, 7) == len(fake)
    assert found(fake + batch[:-1] + b"x", 7) is None


def test_a_batch_of_many_blocks_is_found_wherever_it_lies() -> None:
    records = [Record(number, 1_000, None, bytes([number]) * 99) for number in range(40)]
    batch = Batch(memoryview(bytearray(encode_batch(records))))
    batch.assign(base_offset=7, leader_epoch=0)
    whole = bytes(batch.buffer)
    for position in (0, 1, 63, 1_000, 1_023, 1_024, 1_025, 4_096 - len(whole), 5_000):
        data = fake_headers(3) + b"\xff" * max(position, 0) + whole
        assert found(data, 7) == len(data) - len(whole)
        for place in (ATTRIBUTES_POSITION, len(whole) // 2, len(whole) - 1):
            broken = bytearray(data)
            broken[len(data) - len(whole) + place] ^= 1
            assert found(bytes(broken), 7) is None


def test_what_is_read_grows_with_the_tail_and_not_with_its_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torn_tail, "_CHUNK_BYTES", 1 << 20)
    read = []
    for count in (500, 4_000):
        file = file_of(fake_headers(count))
        assert BatchFinder(file, file.size()).next(1, 7) is None
        read.append(file.read_bytes)
    assert read[1] <= 9 * read[0]


def test_what_is_read_from_one_found_batch_to_the_next_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torn_tail, "_CHUNK_BYTES", 1_000)
    read = []
    for count in (20, 160):
        fake, batch = fake_headers(count), batch_at(7)
        parts = [fake[place : place + HEADER_SIZE] for place in range(0, len(fake), HEADER_SIZE)]
        file = file_of(b"".join(part + batch for part in parts))
        finder, position, batches = BatchFinder(file, file.size()), 0, 0
        while (at := finder.next(position, 7)) is not None:
            position, batches = at + len(batch), batches + 1
        assert batches == count
        read.append(file.read_bytes)
    assert read[1] <= 9 * read[0]


def test_a_file_that_is_shorter_than_it_was_ends_the_search() -> None:
    data = b"damage" + batch_at(7)
    for end in range(len(data)):
        assert BatchFinder(file_of(data[:end]), len(data)).next(0, 7) is None
    header = fake_headers(200)
    assert BatchFinder(file_of(header[: 3 * HEADER_SIZE]), len(header)).next(0, 7) is None
