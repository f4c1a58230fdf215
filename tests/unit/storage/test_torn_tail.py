"""Where the next whole batch begins behind a bad one."""

from __future__ import annotations

import pytest
from tests.memory_files import MemoryFileSystem

from millstream.records.batch import Batch
from millstream.records.builder import encode_batch
from millstream.records.record import Record
from millstream.storage import torn_tail
from millstream.storage.torn_tail import next_valid_batch

CHUNK = 100


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torn_tail, "_CHUNK_BYTES", CHUNK)


def batch_at(base_offset: int) -> bytes:
    batch = Batch(memoryview(bytearray(encode_batch([Record(0, 1_000, b"k", b"value")]))))
    batch.assign(base_offset=base_offset, leader_epoch=0)
    return bytes(batch.buffer)


def found(data: bytes, next_offset: int) -> int | None:
    files = MemoryFileSystem()
    file = files.open("/log", create=True)
    file.write_at(0, data)
    return next_valid_batch(file, len(data), 0, next_offset)


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
