"""Look-up by time and by aborted transaction, against a scan."""

from __future__ import annotations

import random
from pathlib import Path

from tests.unit.storage.support import (
    NOW_MS,
    append,
    append_marker,
    create_log,
    look_up_time,
    read_batches,
    reopen,
    values_batch,
)

from millstream.records.record import read_records
from millstream.storage.log import Log, TimestampOffset


def scan_for(log: Log, timestamp: int) -> int | None:
    for batch in read_batches(log, log.log_start_offset):
        for record in read_records(batch):
            if record.timestamp >= timestamp and record.offset >= log.log_start_offset:
                return record.offset
    return None


def offset_of(found: TimestampOffset | None) -> int | None:
    return None if found is None else found.offset


def disorderly(root: Path, seed: int, count: int = 120) -> tuple[Log, list[int]]:
    chance = random.Random(seed)
    log = create_log(root)
    times: list[int] = []
    for _ in range(count):
        batch_times = [NOW_MS + chance.randrange(1000) for _ in range(chance.randrange(1, 5))]
        append(log, *[b"v"] * len(batch_times), timestamps=batch_times)
        times += batch_times
    return log, times


def test_finds_the_first_record_at_or_after_a_time(tmp_path: Path) -> None:
    log, times = disorderly(tmp_path, 1)
    for timestamp in [*times, NOW_MS - 1, NOW_MS + 500, max(times) + 1, 0]:
        assert offset_of(look_up_time(log, timestamp)) == scan_for(log, timestamp)


def test_finds_the_same_after_a_restart_and_after_deleted_records(tmp_path: Path) -> None:
    log, times = disorderly(tmp_path, 2)
    log.truncation.increment_log_start_offset(101)
    expected = {timestamp: scan_for(log, timestamp) for timestamp in times}
    log.close()
    log = reopen(tmp_path, log_start_offset=101)
    assert {t: offset_of(look_up_time(log, t)) for t in times} == expected


def test_names_the_epoch_of_what_it_finds(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"a", timestamps=[10], epoch=2)
    append(log, b"b", timestamps=[20], epoch=5)
    assert look_up_time(log, 11) == TimestampOffset(20, 1, 5)
    assert look_up_time(log, 21) is None


def test_the_largest_timestamp_is_the_first_that_is_as_large(tmp_path: Path) -> None:
    log, times = disorderly(tmp_path, 3)
    found = look_up_time(log, None)
    assert found is not None
    assert (found.timestamp, found.offset) == (max(times), times.index(max(times)))
    log.close()
    assert look_up_time(reopen(tmp_path), None) == found


def test_no_record_no_time(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    assert look_up_time(log, None) is None
    assert look_up_time(log, 0) is None


def test_records_without_timestamps_have_the_first_as_their_newest(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"a", timestamps=[-1])
    append(log, b"b", timestamps=[-1])
    found = look_up_time(log, None)
    assert found is not None
    assert (found.timestamp, found.offset) == (-1, 0)
    assert look_up_time(log, 0) is None


def test_log_append_time_is_every_records_time(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"a", b"b", log_append_time_ms=NOW_MS)
    append(log, b"c", b"d", log_append_time_ms=NOW_MS + 10)
    assert look_up_time(log, NOW_MS + 1) == TimestampOffset(NOW_MS + 10, 2, 0)
    assert look_up_time(log, None) == TimestampOffset(NOW_MS + 10, 2, 0)


def test_a_marker_can_be_the_answer(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(
        log, b"a", timestamps=[10], producer_id=1, producer_epoch=0, base_sequence=0,
        is_transactional=True,
    )  # fmt: skip
    append_marker(log, 1, commit=True)
    assert look_up_time(log, 11) == TimestampOffset(NOW_MS, 1, 0)


def test_empty_segments_are_passed_over_whatever_their_file_time(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"a", timestamps=[100])
    log.close()
    directory = tmp_path / "orders-0"
    later = values_batch([b"b"], timestamps=[50], base_offset=20)
    for extension in (".log", ".index", ".timeindex"):
        (directory / f"{10:020d}{extension}").write_bytes(b"")
        (directory / f"{20:020d}{extension}").write_bytes(b"")
    (directory / f"{20:020d}.log").write_bytes(bytes(later.buffer))
    log = reopen(tmp_path)
    assert offset_of(look_up_time(log, 40)) == 0
    assert look_up_time(log, 101) is None
    assert log.log_end_offset == 21
