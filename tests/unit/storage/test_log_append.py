"""Appending as leader and as follower: offsets, rolls, epochs, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    ONE_SEGMENT,
    SMALL,
    append,
    close,
    create_log,
    read_batches,
    read_values,
    values_batch,
)

from millstream.config.topic import TopicConfig
from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError
from millstream.records.batch import Batch


def test_offsets_are_assigned_in_order(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    assert append(log, b"a", b"b").base_offset == 0
    result = append(log, b"c")
    assert (result.base_offset, result.last_offset, result.duplicate) == (2, 2, False)
    assert log.log_end_offset == 3
    assert read_values(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_only_base_offset_and_leader_epoch_change(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"first", epoch=4)
    batch = values_batch([b"second"])
    before = bytes(batch.buffer)
    log.appender.append_as_leader(batch, leader_epoch=4, now_ms=NOW_MS)
    stored = bytes(read_batches(log, 1)[0].buffer)
    assert stored[:8] == (1).to_bytes(8, "big")
    assert stored[12:16] == (4).to_bytes(4, "big")
    assert stored[8:12] + stored[16:] == before[8:12] + before[16:]


def test_a_read_only_batch_is_appended_too(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"first")
    batch = Batch(memoryview(bytes(values_batch([b"second"]).buffer)))
    log.appender.append_as_leader(batch, leader_epoch=3, now_ms=NOW_MS)
    stored = read_batches(log, 1)[0]
    assert (stored.base_offset, stored.partition_leader_epoch) == (1, 3)
    assert stored.is_valid


def test_log_append_time_is_answered_when_the_batch_has_it(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    assert append(log, b"a").log_append_time_ms == -1
    assert append(log, b"b", log_append_time_ms=NOW_MS + 5).log_append_time_ms == NOW_MS + 5


def test_a_segment_is_named_by_the_log_end_offset_when_it_was_made(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    for n in range(40):
        append(log, b"%03d" % n * 30)
    names = sorted(path.name for path in (tmp_path / "orders-0").glob("*.log"))
    bases = [int(name.removesuffix(".log")) for name in names]
    assert bases == log.segment_base_offsets
    assert len(bases) > 5
    for base, name in zip(bases, names, strict=True):
        data = (tmp_path / "orders-0" / name).read_bytes()
        assert int.from_bytes(data[:8], "big") == base
        assert len(data) <= 1000
    assert [offset for offset, _ in read_values(log)] == list(range(40))


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"a")
    with pytest.raises(KafkaError) as refused:
        append(log, b"x" * 1000)
    assert refused.value.error is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 1


def test_rolls_when_the_newest_timestamp_is_too_far_from_the_first(tmp_path: Path) -> None:
    log = create_log(tmp_path, TopicConfig({"segment.ms": "1000"}))
    append(log, b"a", timestamps=[NOW_MS])
    append(log, b"b", timestamps=[NOW_MS + 1000])
    assert log.segment_base_offsets == [0]
    append(log, b"c", timestamps=[NOW_MS + 1001])
    assert log.segment_base_offsets == [0, 2]
    append(log, b"d", timestamps=[NOW_MS + 1500])
    assert log.segment_base_offsets == [0, 2]


def test_without_timestamps_the_age_of_the_segment_counts(tmp_path: Path) -> None:
    log = create_log(tmp_path, TopicConfig({"segment.ms": "1000"}))
    append(log, b"a", timestamps=[-1], now_ms=NOW_MS)
    append(log, b"b", timestamps=[-1], now_ms=NOW_MS + 1000)
    assert log.segment_base_offsets == [0]
    append(log, b"c", timestamps=[-1], now_ms=NOW_MS + 1001)
    assert log.segment_base_offsets == [0, 2]


def test_jitter_brings_the_roll_forward(tmp_path: Path) -> None:
    from millstream.storage.environment import LogEnvironment

    asked: list[int] = []

    def jitter(limit_ms: int) -> int:
        asked.append(limit_ms)
        return 300

    config = TopicConfig({"segment.ms": "1000", "segment.jitter.ms": "500"})
    log = create_log(tmp_path, config, LogEnvironment(roll_jitter_ms=jitter))
    append(log, b"a", timestamps=[NOW_MS])
    append(log, b"b", timestamps=[NOW_MS + 700])
    assert log.segment_base_offsets == [0]
    append(log, b"c", timestamps=[NOW_MS + 701])
    assert log.segment_base_offsets == [0, 2]
    assert set(asked) == {500}


def test_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    # 48 bytes: six offset entries, and four time entries of which one is kept for the roll.
    config = TopicConfig({"segment.index.bytes": "48", "index.interval.bytes": "0"})
    log = create_log(tmp_path, config)
    for n in range(9):
        append(log, b"x", timestamps=[NOW_MS + n])
    assert log.segment_base_offsets[:3] == [0, 4, 8]


def test_rolls_before_a_relative_offset_overflows(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    near = values_batch([b"a"], base_offset=2**31 - 1)
    far = values_batch([b"b"], base_offset=2**31)
    log.follower_appender.append_as_follower(bytes(near.buffer) + bytes(far.buffer), now_ms=NOW_MS)
    assert log.segment_base_offsets == [0, 2**31]
    assert read_values(log, 2**31 - 1) == [(2**31 - 1, b"a"), (2**31, b"b")]


def test_a_change_of_settings_takes_hold_at_once(tmp_path: Path) -> None:
    log = create_log(tmp_path, ONE_SEGMENT)
    append(log, b"x" * 200)
    append(log, b"x" * 200)
    log.update_config(TopicConfig({"internal.segment.bytes": "300"}))
    append(log, b"x" * 200)
    assert log.segment_base_offsets == [0, 2]


def test_the_leader_epoch_is_noted_where_it_begins(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"a", epoch=0)
    append(log, b"b", epoch=0)
    append(log, b"c", epoch=3)
    assert (log.latest_epoch, log.epoch_for_offset(1), log.epoch_for_offset(2)) == (3, 0, 3)
    assert log.end_offset_for_epoch(1) == (0, 2)
    assert log.end_offset_for_epoch(3) == (3, 3)
    assert log.end_offset_for_epoch(4) == (-1, -1)
    path = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    assert not path.exists()  # the first flush makes it
    plan = log.flush_plan()
    assert plan is not None
    plan.run()
    log.flushed(plan)
    assert path.read_text() == "0\n2\n0 0\n3 2\n"
    log.assign_epoch_start(5)
    assert path.read_text() == "0\n2\n0 0\n3 2\n"  # nothing was written in it
    append(log, b"d", epoch=5)
    assert path.read_text() == "0\n3\n0 0\n3 2\n5 3\n"


def test_a_new_log_has_index_files_from_the_first_entry_on(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"a")
    names = {path.name for path in (tmp_path / "orders-0").iterdir()}
    assert not any(name.endswith("index") for name in names)
    close(log)
    names = {path.name for path in (tmp_path / "orders-0").iterdir()}
    assert {"00000000000000000000.index", "00000000000000000000.timeindex"} <= names


def test_a_new_leader_notes_its_epoch_before_it_writes(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"a", epoch=1)
    log.assign_epoch_start(5)
    log.assign_epoch_start(6)
    assert log.end_offset_for_epoch(1) == (1, 1)
    assert log.end_offset_for_epoch(5) == (1, 1)
    assert log.latest_epoch == 6


def test_follower_appends_what_the_leader_sends(tmp_path: Path) -> None:
    (tmp_path / "leader").mkdir()
    (tmp_path / "follower").mkdir()
    leader = create_log(tmp_path / "leader")
    follower = create_log(tmp_path / "follower")
    for n in range(30):
        append(leader, b"%d" % n, b"x" * 40, epoch=n // 10)
    for batch in read_batches(leader, 0, max_bytes=600):
        follower.follower_appender.append_as_follower(bytes(batch.buffer), now_ms=NOW_MS)
    assert read_values(follower) == read_values(leader)
    assert follower.end_offset_for_epoch(1) == leader.end_offset_for_epoch(1) == (1, 40)
    assert len(follower.segment_base_offsets) > 3


def test_follower_takes_several_batches_over_a_roll_and_leaves_a_cut_one(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    batches = [
        bytes(values_batch([b"%d" % n * 100], base_offset=n, leader_epoch=2).buffer)
        for n in range(15)
    ]
    result = log.follower_appender.append_as_follower(b"".join(batches)[:-10], now_ms=NOW_MS)
    assert (result.base_offset, result.last_offset) == (0, 13)
    assert log.log_end_offset == 14
    assert len(log.segment_base_offsets) > 1
    assert [value for _, value in read_values(log)] == [b"%d" % n * 100 for n in range(14)]


def test_follower_keeps_gaps_that_compaction_left(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    log.follower_appender.append_as_follower(
        bytes(values_batch([b"a"], base_offset=7).buffer), now_ms=NOW_MS
    )
    log.follower_appender.append_as_follower(
        bytes(values_batch([b"b"], base_offset=90).buffer), now_ms=NOW_MS
    )
    assert read_values(log) == [(7, b"a"), (90, b"b")]
    assert read_values(log, 50) == [(90, b"b")]


def test_an_empty_log_of_a_follower_may_begin_inside_a_batch(tmp_path: Path) -> None:
    """The leader's log does, where records up to there were deleted: it sends the batch whole."""
    log = create_log(tmp_path)
    log.truncation.truncate_fully_and_start_at(82, now_ms=NOW_MS)
    first = values_batch([b"a", b"b", b"c"], base_offset=81, leader_epoch=3)
    second = values_batch([b"d"], base_offset=84, leader_epoch=4)
    data = bytes(first.buffer) + bytes(second.buffer)
    result = log.follower_appender.append_as_follower(data, now_ms=NOW_MS)
    assert (result.base_offset, result.last_offset) == (81, 84)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (82, 82, 85)
    assert log.segment_base_offsets == [81]
    assert [log.epoch_for_offset(each) for each in (81, 82, 84)] == [-1, 3, 4]
    assert read_values(log, 82)[-2:] == [(83, b"c"), (84, b"d")]


def test_what_would_begin_a_log_inside_a_batch_has_to_be_sound(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    log.truncation.truncate_fully_and_start_at(82, now_ms=NOW_MS)
    bad = bytearray(values_batch([b"a", b"b"], base_offset=81).buffer)
    bad[-2] ^= 1
    with pytest.raises(CorruptLogError):
        log.follower_appender.append_as_follower(bytes(bad), now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (82, 82)


@pytest.mark.parametrize("offsets", [[5, 4], [5, 5], [1]])
def test_follower_refuses_batches_that_do_not_follow(tmp_path: Path, offsets: list[int]) -> None:
    log = create_log(tmp_path)
    append(log, b"a", b"b")
    data = b"".join(bytes(values_batch([b"x"], base_offset=n).buffer) for n in offsets)
    with pytest.raises(KafkaError) as refused:
        log.follower_appender.append_as_follower(data, now_ms=NOW_MS)
    assert refused.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.log_end_offset == 2


def test_follower_refuses_a_bad_crc_before_anything_is_written(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    good = bytes(values_batch([b"a"], base_offset=0).buffer)
    bad = bytearray(values_batch([b"b"], base_offset=1).buffer)
    bad[-2] ^= 1
    with pytest.raises(CorruptLogError):
        log.follower_appender.append_as_follower(good + bad, now_ms=NOW_MS)
    assert (log.log_end_offset, log.size) == (0, 0)


def test_preallocated_segments_are_cut_when_they_close(tmp_path: Path) -> None:
    config = TopicConfig({"internal.segment.bytes": "1000", "preallocate": "true"})
    log = create_log(tmp_path, config)
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    append(log, b"x" * 500)
    assert path.stat().st_size == 1000
    append(log, b"y" * 500)
    assert path.stat().st_size < 600
    log.close()
    assert [value for _, value in read_values(log)] == [b"x" * 500, b"y" * 500]


def test_settings_of_the_small_log_are_what_these_tests_assume() -> None:
    assert (SMALL.roll_bytes, SMALL.index_interval_bytes) == (1000, 100)
