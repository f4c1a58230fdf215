"""How many bytes a move of the high watermark makes readable, and in how much memory."""

from __future__ import annotations

from millstream.runtime.replicas.readable_bytes import UNKNOWN_SIZE, ReadableBytes


def test_the_batches_below_the_high_watermark_are_counted_once() -> None:
    readable = ReadableBytes()
    for end_offset, size in ((1, 10), (3, 20), (4, 30)):
        readable.wrote(end_offset, size)
    assert [readable.committed(offset) for offset in (3, 4)] == [30, 30]


def test_what_was_written_before_is_more_than_anybody_asks_for() -> None:
    readable = ReadableBytes()
    assert readable.committed(5) == UNKNOWN_SIZE
    readable.wrote(10, 7)
    assert readable.committed(6) == UNKNOWN_SIZE
    assert readable.committed(10) == 7


def test_batches_that_are_not_remembered_count_as_unknown_until_all_are_committed() -> None:
    readable = ReadableBytes(max_batches=2)
    for end_offset in range(1, 101):
        readable.wrote(end_offset, 10)
    assert len(readable) == 2
    assert readable.committed(2) == 20
    readable.wrote(101, 10)
    assert len(readable) == 0
    assert [readable.committed(offset) for offset in (50, 101)] == [UNKNOWN_SIZE] * 2
    readable.wrote(102, 9)
    assert readable.committed(102) == 9


def test_a_move_into_what_is_not_remembered_is_unknown() -> None:
    readable = ReadableBytes(max_batches=2)
    for end_offset in range(1, 5):
        readable.wrote(end_offset, 10)
    assert readable.committed(3) == UNKNOWN_SIZE
