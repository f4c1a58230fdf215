"""Log start, high watermark, truncation, retention, deletion in two steps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    SMALL,
    append,
    append_marker,
    close,
    create_log,
    files_of,
    read_values,
    reopen,
)

from millstream.config.topic import TopicConfig
from millstream.model.errors import ErrorCode, KafkaError
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log
from millstream.storage.log_retention import delete_old_segments

SHORT = TopicConfig({"internal.segment.bytes": "1000", "retention.ms": "100"})


def filled(
    root: Path,
    count: int = 40,
    *,
    config: TopicConfig = SMALL,
    environment: LogEnvironment | None = None,
) -> Log:
    log = create_log(root, config, environment)
    for n in range(count):
        append(
            log, b"%03d" % n * 20, timestamps=[NOW_MS + n], epoch=n // 10,
            producer_id=1, producer_epoch=0, base_sequence=n,
        )  # fmt: skip
    return log


def test_the_high_watermark_stays_between_start_and_end(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.truncation.increment_log_start_offset(10)
    assert log.offsets.update_high_watermark(1000) == log.high_watermark == 40
    assert log.offsets.update_high_watermark(3) == 10
    assert log.offsets.update_high_watermark(25) == 25
    append(log, b"x", commit=False)
    assert (log.high_watermark, log.log_end_offset) == (25, 41)


def test_the_log_start_moves_up_to_the_high_watermark(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.offsets.update_high_watermark(20)
    with pytest.raises(KafkaError) as refused:
        log.truncation.increment_log_start_offset(21)
    assert refused.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.truncation.increment_log_start_offset(15)
    assert not log.truncation.increment_log_start_offset(15)
    assert not log.truncation.increment_log_start_offset(3)
    assert log.log_start_offset == 15
    assert log.epoch_for_offset(15) == 1
    text = (tmp_path / "orders-0" / "leader-epoch-checkpoint").read_text()
    assert text == "0\n3\n1 15\n2 20\n3 30\n"


@pytest.mark.parametrize("offset", [0, 1, 9, 10, 23, 39])
def test_truncation_keeps_what_lies_before(tmp_path: Path, offset: int) -> None:
    log = filled(tmp_path)
    values = read_values(log)
    assert log.truncation.truncate_to(offset, now_ms=NOW_MS)
    assert (log.log_end_offset, log.high_watermark) == (offset, offset)
    assert read_values(log) == values[:offset]
    assert log.latest_epoch == (offset - 1) // 10
    (producer,) = log.producers.active() or [None]
    assert (producer is None) == (offset == 0)
    if producer is not None:
        assert producer.last_sequence == offset - 1
    append(log, b"new", producer_id=1, producer_epoch=0, base_sequence=offset)
    assert read_values(log) == [*values[:offset], (offset, b"new")]
    close(log)
    assert read_values(reopen(tmp_path)) == [*values[:offset], (offset, b"new")]


def test_truncation_inside_a_batch_drops_the_whole_batch(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"a")
    append(log, b"b", b"c", b"d")
    log.truncation.truncate_to(3, now_ms=NOW_MS)
    assert read_values(log) == [(0, b"a")]


def test_truncation_beyond_the_end_forgets_epochs_that_begin_there(tmp_path: Path) -> None:
    log = filled(tmp_path, 5)
    log.assign_epoch_start(8)
    assert not log.truncation.truncate_to(5, now_ms=NOW_MS)
    assert log.latest_epoch == 0
    assert not log.truncation.truncate_to(100, now_ms=NOW_MS)
    assert log.log_end_offset == 5


def test_truncation_below_the_first_segment_empties_the_log(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.truncation.increment_log_start_offset(20)
    delete_old_segments(log, now_ms=NOW_MS)
    log.truncation.truncate_to(3, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    append(log, b"a")
    assert read_values(log, 3) == [(3, b"a")]


def test_a_log_can_restart_at_a_higher_offset(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.truncation.truncate_fully_and_start_at(500, now_ms=NOW_MS)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (500, 500, 500)
    assert (log.producers.active(), log.latest_epoch) == ([], -1)
    append(log, b"a", epoch=4)
    close(log)
    log = reopen(tmp_path)
    assert (log.log_start_offset, read_values(log, 500)) == (500, [(500, b"a")])


def test_an_empty_log_restarts_with_the_same_files(tmp_path: Path) -> None:
    """A leader that has deleted everything tells each follower to, with every election."""
    log = filled(tmp_path)
    log.truncation.truncate_fully_and_start_at(500, now_ms=NOW_MS)
    log.assign_epoch_start(7)
    before = sorted(each.name for each in (tmp_path / "orders-0").iterdir())
    log.truncation.truncate_fully_and_start_at(500, now_ms=NOW_MS)
    assert sorted(each.name for each in (tmp_path / "orders-0").iterdir()) == before
    assert (log.latest_epoch, log.log_start_offset, log.log_end_offset) == (-1, 500, 500)
    append(log, b"x", epoch=8)
    assert log.epoch_for_offset(500) == 8


def test_a_log_can_restart_at_the_same_offset(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    log.truncation.truncate_fully_and_start_at(0, now_ms=NOW_MS)
    append(log, b"a")
    assert read_values(log) == [(0, b"a")]


def test_deletion_renames_now_and_removes_later(tmp_path: Path) -> None:
    environment = LogEnvironment()
    log = filled(tmp_path, environment=environment)
    third = log.segment_base_offsets[2]
    log.truncation.increment_log_start_offset(third)
    assert delete_old_segments(log, now_ms=NOW_MS) == 2
    assert log.segment_base_offsets[0] == log.log_start_offset == third
    deleted = [name for name in files_of(tmp_path) if name.endswith(".deleted")]
    assert [name[:20] for name in deleted] == [f"{0:020d}"] * 3 + [f"{third // 2:020d}"] * 3
    assert environment.removals.next_ms == NOW_MS + 60_000
    environment.removals.run_due(NOW_MS + 59_999)
    assert [name for name in files_of(tmp_path) if name.endswith(".deleted")] == deleted
    environment.removals.run_due(NOW_MS + 60_000)
    assert not [name for name in files_of(tmp_path) if name.endswith(".deleted")]
    assert environment.removals.next_ms is None


def test_snapshots_go_with_their_segments(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.truncation.increment_log_start_offset(log.segment_base_offsets[2])
    delete_old_segments(log, now_ms=NOW_MS)
    snapshots = [int(name[:20]) for name in files_of(tmp_path) if name.endswith(".snapshot")]
    assert snapshots == log.segment_base_offsets


def test_retention_by_time(tmp_path: Path) -> None:
    log = filled(tmp_path, config=SHORT)
    second = log.segment_base_offsets[1]
    assert delete_old_segments(log, now_ms=NOW_MS + second - 1 + 100) == 0
    assert delete_old_segments(log, now_ms=NOW_MS + second + 100) == 1
    assert log.log_start_offset == second


def test_retention_by_time_may_take_the_active_segment(tmp_path: Path) -> None:
    log = filled(tmp_path, config=SHORT)
    count = len(log.segment_base_offsets)
    assert delete_old_segments(log, now_ms=NOW_MS + 1000) == count
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    assert log.segment_base_offsets == [40]
    assert delete_old_segments(log, now_ms=NOW_MS + 1000) == 0
    append(log, b"a")
    assert read_values(log, 40) == [(40, b"a")]


def test_without_timestamps_the_time_of_the_file_counts(tmp_path: Path) -> None:
    config = TopicConfig({"internal.segment.bytes": "1000", "retention.ms": "100"})
    log = create_log(tmp_path, config)
    for _ in range(20):
        append(log, b"x" * 50, timestamps=[-1], now_ms=NOW_MS)
    for path in (tmp_path / "orders-0").glob("*.log"):
        os.utime(path, (NOW_MS / 1000, NOW_MS / 1000))
    assert delete_old_segments(log, now_ms=NOW_MS + 100) == 0
    assert delete_old_segments(log, now_ms=NOW_MS + 101) > 0


def test_retention_by_size(tmp_path: Path) -> None:
    log = filled(tmp_path)
    sizes = [p.stat().st_size for p in sorted((tmp_path / "orders-0").glob("*.log"))]
    without_first = sum(sizes[1:])
    for limit, expected in ((sum(sizes), 0), (without_first + 1, 0), (without_first, 1)):
        log.update_config(
            TopicConfig({"internal.segment.bytes": "1000", "retention.bytes": str(limit)})
        )
        assert delete_old_segments(log, now_ms=NOW_MS) == expected


def test_compacted_topics_lose_only_what_lies_before_the_log_start(tmp_path: Path) -> None:
    config = TopicConfig(
        {"internal.segment.bytes": "1000", "cleanup.policy": "compact", "retention.bytes": "1"}
    )
    log = filled(tmp_path, config=config)
    assert delete_old_segments(log, now_ms=NOW_MS + 10**12) == 0
    log.truncation.increment_log_start_offset(log.segment_base_offsets[1])
    assert delete_old_segments(log, now_ms=NOW_MS) == 1


def test_retention_never_passes_the_high_watermark(tmp_path: Path) -> None:
    """KAFKA-5634."""
    log = filled(tmp_path)
    third = log.segment_base_offsets[2]
    log.offsets.update_high_watermark(third + 1)
    assert delete_old_segments(log, now_ms=NOW_MS + 10**12) == 2
    assert log.log_start_offset == third


def test_retention_never_passes_the_last_stable_offset(tmp_path: Path) -> None:
    log = filled(tmp_path)
    first = append(
        log, b"open", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True
    ).base_offset
    for _ in range(30):
        append(log, b"x" * 60)
    delete_old_segments(log, now_ms=NOW_MS + 10**12)
    assert log.log_start_offset <= first
    append_marker(log, 9, commit=True)
    log.offsets.update_high_watermark(log.log_end_offset)
    delete_old_segments(log, now_ms=NOW_MS + 10**12)
    assert log.log_start_offset == log.log_end_offset


def test_an_empty_segment_is_not_rolled(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    log.appender.roll(now_ms=NOW_MS)
    assert log.segment_base_offsets == [0]
    append(log, b"a")
    log.appender.roll(now_ms=NOW_MS)
    log.appender.roll(now_ms=NOW_MS)
    assert log.segment_base_offsets == [0, 1]
