"""Offset and time index: entries, look-up against a scan, damage that is noticed and repaired."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.support import (
    NOW_MS,
    ONE_SEGMENT,
    append,
    close,
    create_log,
    look_up_time,
    place,
    read_batches,
    read_values,
    reopen,
)

from millstream.model.errors import CorruptIndexError
from millstream.storage.directory import SegmentLocation
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log
from millstream.storage.log_retention import delete_old_segments
from millstream.storage.offset_index import OffsetIndex
from millstream.storage.time_index import TimeIndex

OFFSET_INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"


def location(root: Path, base_offset: int = 0) -> SegmentLocation:
    (root / "orders-0").mkdir(exist_ok=True)
    return SegmentLocation(place(root), base_offset)


def offset_index(root: Path, base_offset: int = 0, max_bytes: int = 800) -> OffsetIndex:
    return OffsetIndex(LogEnvironment(), location(root, base_offset), max_bytes)


def filled(root: Path, count: int = 50) -> Log:
    log = create_log(root, ONE_SEGMENT)
    for n in range(count):
        append(log, b"%d" % n, b"x" * 30, timestamps=[NOW_MS + n, NOW_MS + 3 * (n % 20)])
    return log


def offset_entries(data: bytes) -> list[tuple[int, int]]:
    return [(relative, position) for relative, position in struct.iter_unpack(">ii", data)]


def time_entries(data: bytes) -> list[tuple[int, int]]:
    return [(timestamp, relative) for timestamp, relative in struct.iter_unpack(">qi", data)]


def test_an_entry_pairs_a_batchs_last_offset_with_its_position(tmp_path: Path) -> None:
    log = filled(tmp_path)
    close(log)
    expected = []
    position = unindexed = 0
    for batch in read_batches(reopen(tmp_path, ONE_SEGMENT), 0):
        if unindexed > 100:
            expected.append((batch.last_offset, position))
            unindexed = 0
        unindexed += batch.size
        position += batch.size
    entries = offset_entries((tmp_path / "orders-0" / OFFSET_INDEX).read_bytes())
    assert entries == expected
    assert len(entries) > 10


def test_time_entries_grow_and_end_with_the_largest(tmp_path: Path) -> None:
    log = filled(tmp_path)
    largest, holder = -1, -1
    for batch in read_batches(log, 0):
        if batch.max_timestamp > largest:
            largest, holder = batch.max_timestamp, batch.last_offset
    close(log)
    entries = time_entries((tmp_path / "orders-0" / TIME_INDEX).read_bytes())
    assert entries == sorted(set(entries))
    assert [e[0] for e in entries] == sorted({e[0] for e in entries})
    assert entries[-1] == (largest, holder)


def test_a_segment_without_timestamps_gets_no_time_entry(tmp_path: Path) -> None:
    index = TimeIndex(LogEnvironment(), location(tmp_path), 800)
    index.create()
    index.maybe_append(-1, 0)
    assert index.count == 0
    index.maybe_append(5, 1)
    index.maybe_append(5, 2)
    assert index.count == 1


def test_indexes_have_their_full_size_while_the_segment_is_active(tmp_path: Path) -> None:
    log = filled(tmp_path)
    directory = tmp_path / "orders-0"
    assert (directory / OFFSET_INDEX).stat().st_size == 10_485_760
    assert (directory / TIME_INDEX).stat().st_size == 10_485_756
    entries = offset_entries((directory / OFFSET_INDEX).read_bytes()[:800])
    log.appender.roll(now_ms=NOW_MS)
    trimmed = offset_entries((directory / OFFSET_INDEX).read_bytes())
    assert entries[: len(trimmed)] == trimmed
    assert entries[len(trimmed)] == (0, 0)


def test_a_reopened_segment_goes_on_with_its_indexes(tmp_path: Path) -> None:
    log = filled(tmp_path, 30)
    close(log)
    before = (tmp_path / "orders-0" / OFFSET_INDEX).read_bytes()
    log = reopen(tmp_path, ONE_SEGMENT)
    assert (tmp_path / "orders-0" / OFFSET_INDEX).read_bytes() == before, "untouched until used"
    for n in range(20):
        append(log, b"%d" % n, timestamps=[NOW_MS + 100 + n])
    close(log)
    after = (tmp_path / "orders-0" / OFFSET_INDEX).read_bytes()
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert [offset for offset, _ in read_values(reopen(tmp_path, ONE_SEGMENT))] == list(range(80))


def test_look_up_takes_the_greatest_entry_at_or_below(tmp_path: Path) -> None:
    index = offset_index(tmp_path, 1000)
    index.create()
    entries = [(1000 + 7 * n, 100 * n) for n in range(1, 60)]
    for offset, position in entries:
        index.append(offset, position)
    for offset in range(1000, 1500):
        expected = max((p for o, p in entries if o <= offset), default=0)
        assert index.position(offset) == expected
    for position in range(0, 6500, 13):
        beyond = min((o for o, p in entries if p >= position), default=None)
        assert index.upper_bound(position) == beyond


@pytest.mark.parametrize("count", [1, 63, 64, 65, 127, 128, 129, 300])
def test_a_look_up_crosses_the_fences_it_is_made_with(tmp_path: Path, count: int) -> None:
    index = offset_index(tmp_path, 1000, 8 * 400)
    index.create()
    entries = [(1000 + 3 * n, 100 * n) for n in range(1, count + 1)]

    def check(looked_at: OffsetIndex, kept: list[tuple[int, int]]) -> None:
        expected = dict(kept)
        position = 0
        behind = iter([each for _, each in kept])
        next_position = next(behind, None)
        for offset in range(1000, 1000 + 3 * count + 5):
            if offset in expected:
                position = expected[offset]
                next_position = next(behind, None)
            bracket = position, position if next_position is None else next_position
            assert looked_at.bracket(offset) == bracket

    for offset, position in entries:
        index.append(offset, position)
    check(index, entries)
    index.trim()
    mapped = offset_index(tmp_path, 1000)
    mapped.load(to_append=False)
    check(mapped, entries)
    in_memory = offset_index(tmp_path, 1000, 8 * 400)
    in_memory.load(to_append=True)
    for cut in sorted({1, count // 2, count - 1, 64, 65, 128}, reverse=True):
        in_memory.truncate_to(1000 + 3 * cut)
        check(in_memory, entries[: cut - 1])
    for offset, position in entries[:0:-1][::-1]:
        in_memory.append(offset, position)
    check(in_memory, entries[1:])


def test_a_look_up_sees_what_came_in_place_of_what_was_cut(tmp_path: Path) -> None:
    index = offset_index(tmp_path, max_bytes=8 * 200)
    index.create()
    for n in range(1, 101):
        index.append(10 * n, 100 * n)
        assert index.bracket(10 * n) == (100 * n, 100 * n)
    assert index.bracket(985) == (9800, 9900)
    index.truncate_to(985)
    assert index.bracket(985) == (9800, 9800)
    for n in (99, 100):
        index.append(10 * n + 1, 100 * n + 7)
    assert index.bracket(985) == (9800, 9907)
    assert index.bracket(990) == (9800, 9907)
    index.truncate_to(985)  # no look-up sees the index while it is shorter
    for n in (99, 100):
        index.append(10 * n + 2, 100 * n + 8)
    assert index.bracket(991) == (9800, 9908)
    index.create()
    index.append(5, 50)
    assert [index.bracket(offset) for offset in (1, 5, 990)] == [(0, 50), (50, 50), (50, 50)]


def test_truncation_drops_entries_from_the_offset_on(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.create()
    for n in range(1, 10):
        index.append(10 * n, 100 * n)
    index.truncate_to(50)
    assert index.last_entry == (40, 400)
    index.append(45, 450)
    assert index.last_entry == (45, 450)
    on_disk = (tmp_path / "orders-0" / OFFSET_INDEX).read_bytes()
    assert offset_entries(on_disk[16:48]) == [(30, 300), (40, 400), (45, 450), (0, 0)]


@pytest.mark.parametrize(
    "data",
    [
        bytes(8),
        bytes(800),
        struct.pack(">iiii", 1, 100, 1, 200),
        struct.pack(">iiii", 1, 100, 2, 100),
        struct.pack(">iiii", 2, 100, 1, 200),
        struct.pack(">ii", -1, 100),
        struct.pack(">iiii", 5, 100, 0, 0),
        b"\0" * 7,
    ],
)
def test_an_offset_index_that_cannot_be_one_is_refused(tmp_path: Path, data: bytes) -> None:
    index = offset_index(tmp_path)
    (tmp_path / "orders-0" / OFFSET_INDEX).write_bytes(data)
    with pytest.raises(CorruptIndexError):
        index.load(to_append=False)
    with pytest.raises(CorruptIndexError):
        index.load(to_append=True)


@pytest.mark.parametrize(
    "data",
    [
        bytes(24),
        struct.pack(">qiqi", 5, 1, 5, 2),
        struct.pack(">qiqi", 5, 2, 6, 1),
        struct.pack(">qi", -1, 1),
        b"\0" * 13,
    ],
)
def test_a_time_index_that_cannot_be_one_is_refused(tmp_path: Path, data: bytes) -> None:
    index = TimeIndex(LogEnvironment(), location(tmp_path), 800)
    (tmp_path / "orders-0" / TIME_INDEX).write_bytes(data)
    with pytest.raises(CorruptIndexError):
        index.load(to_append=False)


def _delete(path: Path) -> None:
    path.unlink()


def _zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _zero_full_size(path: Path) -> None:
    path.write_bytes(bytes(10_485_760))


def _untrim(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(8 * 12 * 50))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _garbage(path: Path) -> None:
    path.write_bytes(bytes(range(1, 241)))


def _one_entry_of_zeros(path: Path) -> None:
    path.write_bytes(bytes(12 if path.suffix == ".timeindex" else 8))


def _shifted(path: Path) -> None:
    width = ">qi" if path.suffix == ".timeindex" else ">ii"
    entries = struct.iter_unpack(width, path.read_bytes())
    path.write_bytes(b"".join(struct.pack(width, a + 1, b + 1) for a, b in entries))


DAMAGES = [
    _delete, _zero, _zero_full_size, _untrim, _empty, _garbage, _one_entry_of_zeros, _shifted,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("extension", [".index", ".timeindex", "index"])
@pytest.mark.parametrize("active", [True, False])
def test_damaged_indexes_are_rebuilt_and_answer_the_same(
    tmp_path: Path, damage: Callable[[Path], None], extension: str, active: bool
) -> None:
    log = filled(tmp_path)
    if not active:
        log.appender.roll(now_ms=NOW_MS)
        append(log, b"last")
    values = read_values(log)
    times = [look_up_time(log, NOW_MS + n) for n in range(70)]
    largest = look_up_time(log, None)
    close(log)
    directory = tmp_path / "orders-0"
    before = {path.name: path.read_bytes() for path in directory.glob("0*0.*index")}
    for path in directory.glob(f"{0:020d}*{extension}"):
        damage(path)
    log = reopen(tmp_path, ONE_SEGMENT)
    assert look_up_time(log, None) == largest
    assert [look_up_time(log, NOW_MS + n) for n in range(70)] == times
    for offset in range(0, 100, 7):
        assert read_values(log, offset) == values[offset:]
    append(log, b"more")
    assert read_values(log)[:-1] == values
    if not active:
        assert {path.name: path.read_bytes() for path in directory.glob("0*0.*index")} == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_indexes_do_not_mislead_retention(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    log = filled(tmp_path)
    log.appender.roll(now_ms=NOW_MS)
    append(log, b"last", timestamps=[NOW_MS + 100])
    close(log)
    damage(tmp_path / "orders-0" / TIME_INDEX)
    log = reopen(tmp_path, ONE_SEGMENT)
    week_ms = 7 * 24 * 3_600_000
    assert delete_old_segments(log, now_ms=NOW_MS + week_ms) == 0
    # An entry that is one millisecond off may delay retention by as much, and never hasten it.
    assert delete_old_segments(log, now_ms=NOW_MS + week_ms + 57 + 2) == 1


FOUR_BYTES = 1 << 32
"""Timestamps on both sides of a multiple of this differ in their upper half."""


@pytest.mark.parametrize(
    ("entries", "sound"),
    [
        ([], True),
        ([(1, 1)], True),
        ([(1, 1), (2, 2), (2**31 - 1, 2**31 - 1)], True),
        ([(0, 0)], False),
        ([(-1, 1)], False),
        ([(1, -1)], False),
        ([(1, 1), (1, 2)], False),
        ([(1, 1), (2, 1)], False),
        ([(2, 1), (1, 2)], False),
        ([(1, 1), (2, 2), (0, 0)], False),
    ],
)
def test_an_offset_index_grows_in_both_fields(
    tmp_path: Path, entries: list[tuple[int, int]], sound: bool
) -> None:
    index = offset_index(tmp_path)
    data = b"".join(struct.pack(">ii", *entry) for entry in entries)
    if sound:
        index.check(data)
    else:
        with pytest.raises(CorruptIndexError):
            index.check(data)


@pytest.mark.parametrize(
    ("entries", "sound"),
    [
        ([], True),
        ([(0, 0)], True),
        ([(NOW_MS, 5), (NOW_MS + 1, 5), (NOW_MS + 2, 6)], True),
        ([(FOUR_BYTES - 1, 1), (FOUR_BYTES, 2), (3 * FOUR_BYTES + 7, 3)], True),
        ([(2**31 - 1, 1), (2**31, 2), (FOUR_BYTES - 1, 3)], True),
        ([(NOW_MS, 5), (NOW_MS, 6)], False),
        ([(NOW_MS, 5), (NOW_MS - 1, 6)], False),
        ([(NOW_MS, 5), (NOW_MS + 1, 4)], False),
        ([(3 * FOUR_BYTES, 1), (2 * FOUR_BYTES + 7, 2)], False),
        ([(2 * FOUR_BYTES + 7, 1), (3 * FOUR_BYTES, 2), (FOUR_BYTES, 3)], False),
        ([(-1, 0)], False),
        ([(-FOUR_BYTES, 0), (NOW_MS, 1)], False),
        ([(NOW_MS, -1)], False),
        ([(NOW_MS, 5), (0, 0)], False),
    ],
)
def test_a_time_index_grows_in_time_and_does_not_fall_in_offset(
    tmp_path: Path, entries: list[tuple[int, int]], sound: bool
) -> None:
    index = TimeIndex(LogEnvironment(), location(tmp_path), 800)
    data = b"".join(struct.pack(">qi", *entry) for entry in entries)
    if sound:
        index.check(data)
    else:
        with pytest.raises(CorruptIndexError):
            index.check(data)
