"""Reading: where a read begins, where it ends, and what it keeps open."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    SMALL,
    WHOLE,
    append,
    create_log,
    look_up_time,
    read_batches,
    read_values,
    values_batch,
)

from millstream.config.topic import TopicConfig
from millstream.model.errors import ErrorCode, KafkaError
from millstream.records.batch import header_at, iter_batches
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log, LogRead
from millstream.storage.log_retention import delete_old_segments
from millstream.storage.open_files import OpenFiles


def read(
    log: Log,
    offset: int,
    *,
    max_bytes: int = WHOLE,
    bound: int | None = None,
    min_one_batch: bool = True,
) -> LogRead:
    return log.reader.read(
        offset,
        max_bytes=max_bytes,
        upper_bound_offset=log.log_end_offset if bound is None else bound,
        min_one_batch=min_one_batch,
    )


def offsets(found: LogRead) -> list[int]:
    assert found.records is not None
    return [batch.base_offset for batch in iter_batches(found.records.read())]


def filled(root: Path, count: int = 60, environment: LogEnvironment | None = None) -> Log:
    log = create_log(root, SMALL, environment)
    for n in range(count):
        append(log, b"%03d" % n, b"x" * 20)
    return log


def test_begins_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = filled(tmp_path)
    for offset in range(log.log_end_offset):
        found = read(log, offset)
        assert found.records is not None
        first = header_at(found.records.read())
        assert first.base_offset == offset - offset % 2


@pytest.mark.parametrize("wait_for_disk", [True, False])
def test_large_and_small_batches_mixed_are_found_alike(tmp_path: Path, wait_for_disk: bool) -> None:
    log = create_log(tmp_path, TopicConfig({"index.interval.bytes": "4096"}))
    chance = random.Random(7)
    for _ in range(150):
        size = chance.choice((50, 500, 3_000, 9_000, 20_000))
        append(log, *[b"x" * size] * chance.randrange(1, 4))
    held = {o: b for b in read_batches(log, 0) for o in range(b.base_offset, b.next_offset)}
    for offset in range(log.log_end_offset):
        found = log.reader.read(
            offset,
            max_bytes=100,
            upper_bound_offset=log.log_end_offset,
            min_one_batch=True,
            wait_for_disk=wait_for_disk,
        )
        assert offsets(found) == [held[offset].base_offset]


def test_a_read_ends_with_its_segment(tmp_path: Path) -> None:
    log = filled(tmp_path)
    second = log.segment_base_offsets[1]
    assert offsets(read(log, 0)) == list(range(0, second, 2))


@pytest.mark.parametrize("hop", [1, 3, 7])
def test_a_read_ends_at_the_upper_bound(tmp_path: Path, hop: int) -> None:
    log = filled(tmp_path)
    for bound in range(0, log.log_end_offset, 2):
        for offset in range(0, bound, hop):
            found = offsets(read(log, offset, bound=bound))
            assert found[0] <= offset
            assert found[-1] < bound


def test_nothing_at_or_beyond_the_upper_bound(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert read(log, 10, bound=10).records is None
    assert read(log, 12, bound=10).records is None
    assert read(log, log.log_end_offset).records is None
    assert read(log, log.log_end_offset).size == 0


def test_outside_the_log_is_out_of_range(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.truncation.increment_log_start_offset(5)
    for offset in (-1, 0, 4, log.log_end_offset + 1):
        with pytest.raises(KafkaError) as refused:
            read(log, offset)
        assert refused.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets(read(log, 5))[0] == 4


def test_max_bytes_cuts_the_last_batch(tmp_path: Path) -> None:
    log = filled(tmp_path)
    size = read_batches(log, 0)[0].size
    found = read(log, 0, max_bytes=2 * size + 10)
    assert found.size == 2 * size + 10
    assert offsets(found) == [0, 2]


def test_one_batch_is_whole_when_asked_for(tmp_path: Path) -> None:
    log = filled(tmp_path)
    size = read_batches(log, 0)[0].size
    for offset in (0, 4, log.log_end_offset - 2):
        assert read(log, offset, max_bytes=1).size == size
        assert read(log, offset, max_bytes=1).size == size, "the second read has a hint"
        cut = read(log, offset, max_bytes=1, min_one_batch=False)
        assert cut.records is None, "a first batch that is cut is of no use"
        assert read(log, offset, max_bytes=0, min_one_batch=False).records is None


def test_reading_along_the_tail_finds_every_batch(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    position = 0
    for n in range(50):
        assert read(log, position).records is None
        append(log, b"%d" % n)
        assert offsets(read(log, position)) == [n]
        position = n + 1


def test_an_upper_bound_in_the_middle_of_a_batch_leaves_the_batch_out(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    append(log, b"a")
    append(log, b"b", b"c", b"d")
    assert offsets(read(log, 0, bound=3)) == [0]


def test_a_gap_leads_to_the_next_batch_and_the_next_segment(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    for n in (3, 10, 40):
        log.follower_appender.append_as_follower(
            bytes(values_batch([b"x"], base_offset=n).buffer), now_ms=NOW_MS
        )
    log.appender.roll(now_ms=NOW_MS)
    log.follower_appender.append_as_follower(
        bytes(values_batch([b"x"], base_offset=70).buffer), now_ms=NOW_MS
    )
    assert offsets(read(log, 4)) == [10, 40]
    assert offsets(read(log, 41)) == [70]
    assert offsets(read(log, 60)) == [70]


def test_a_slice_outlives_deletion_truncation_elsewhere_and_close(tmp_path: Path) -> None:
    log = filled(tmp_path)
    found = read(log, 0)
    assert found.records is not None
    expected = found.records.read()
    log.truncation.increment_log_start_offset(log.log_end_offset)
    delete_old_segments(log, now_ms=NOW_MS)
    assert found.records.read() == expected
    log.close()
    for path in (tmp_path / "orders-0").iterdir():
        path.unlink()
    assert found.records.read() == expected
    assert found.records.fileno() > 2


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_few_open_files_are_enough_for_many_segments(tmp_path: Path, limit: int) -> None:
    environment = LogEnvironment(open_files=OpenFiles(limit))
    log = filled(tmp_path, 200, environment)
    assert len(log.segment_base_offsets) > 10
    slices = [read(log, offset) for offset in range(0, log.log_end_offset, 11)]
    assert len(environment.open_files) <= limit
    for timestamp in (NOW_MS - 1, NOW_MS, NOW_MS + 1):
        found = look_up_time(log, timestamp)
        assert (found is None) == (timestamp > NOW_MS)
    assert [value for _, value in read_values(log)][::2] == [b"%03d" % n for n in range(200)]
    for part in slices:
        assert part.records is not None
        assert header_at(part.records.read()).base_offset <= part.fetch_offset


def test_where_a_reader_goes_on_is_forgotten_with_what_is_cut_off(tmp_path: Path) -> None:
    """The next record at its offset is of another size than what lay before it."""
    log = create_log(tmp_path)
    append(log, b"a" * 100)
    append(log, b"b" * 100)
    assert [value for _, value in read_values(log)] == [b"a" * 100, b"b" * 100]
    log.truncation.truncate_to(1, now_ms=NOW_MS)
    append(log, b"c" * 10)
    append(log, b"d" * 300)
    assert read_values(log, 2) == [(2, b"d" * 300)]
