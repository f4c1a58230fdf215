"""The four offsets of a log, and the last stable offset that follows from open transactions."""

from __future__ import annotations

import pytest

from millstream.records.control import ControlType, EndTransactionMarker
from millstream.storage.log_offsets import LogOffsets
from millstream.storage.producer_state import BatchMetadata, ProducerStateManager


def write(producers: ProducerStateManager, producer_id: int, offset: int) -> None:
    producers.add_batch(producer_id, 0, BatchMetadata(0, offset, 0, 1), is_transactional=True)


def end(producers: ProducerStateManager, producer_id: int, offset: int) -> None:
    producers.add_marker(
        EndTransactionMarker(ControlType.COMMIT, 0),
        producer_id=producer_id,
        producer_epoch=0,
        offset=offset,
        timestamp=1,
    )


def all_of(offsets: LogOffsets) -> tuple[int, int, int, int]:
    return (
        offsets.log_start_offset,
        offsets.last_stable_offset,
        offsets.high_watermark,
        offsets.log_end_offset,
    )


def test_the_high_watermark_stays_within_the_log() -> None:
    offsets = LogOffsets(ProducerStateManager(), log_start_offset=3, log_end_offset=9)
    assert all_of(offsets) == (3, 3, 3, 9)
    assert offsets.update_high_watermark(12) == 9
    assert all_of(offsets) == (3, 9, 9, 9)
    assert offsets.update_high_watermark(1) == 3
    assert all_of(offsets) == (3, 3, 3, 9)


def test_an_undecided_transaction_holds_the_last_stable_offset_back() -> None:
    producers = ProducerStateManager()
    offsets = LogOffsets(producers, log_start_offset=0, log_end_offset=6)
    write(producers, 1, 2)
    offsets.update_high_watermark(6)
    assert all_of(offsets) == (0, 2, 6, 6)
    end(producers, 1, 6)
    offsets.advance_log_end(7)
    # The marker is written and not committed.
    offsets.update_high_watermark(6)
    assert all_of(offsets) == (0, 2, 6, 7)
    offsets.update_high_watermark(7)
    assert all_of(offsets) == (0, 7, 7, 7)


def test_a_log_start_within_an_open_transaction_is_its_last_stable_offset() -> None:
    producers = ProducerStateManager()
    offsets = LogOffsets(producers, log_start_offset=0, log_end_offset=6)
    write(producers, 1, 2)
    offsets.update_high_watermark(6)
    offsets.move_log_start(4)
    assert all_of(offsets) == (4, 4, 6, 6)


def test_a_cut_takes_back_what_lies_beyond() -> None:
    offsets = LogOffsets(ProducerStateManager(), log_start_offset=2, log_end_offset=9)
    offsets.update_high_watermark(8)
    offsets.cut(2, 5)
    assert all_of(offsets) == (2, 5, 5, 5)
    offsets.cut(1, 1)
    assert all_of(offsets) == (1, 1, 1, 1)


def test_a_log_that_replaces_another_keeps_its_own_beginning() -> None:
    current = LogOffsets(ProducerStateManager(), log_start_offset=1, log_end_offset=9)
    current.update_high_watermark(7)
    copy = LogOffsets(ProducerStateManager(), log_start_offset=4, log_end_offset=9)
    copy.take_over(current, first_offset=4)
    assert all_of(copy) == (4, 7, 7, 9)


def test_offsets_out_of_order_are_a_fault_of_the_caller() -> None:
    offsets = LogOffsets(ProducerStateManager(), log_start_offset=0, log_end_offset=4)
    with pytest.raises(AssertionError):
        offsets.move_log_start(1)
    with pytest.raises(AssertionError):
        offsets.advance_log_end(3)
