"""What recovery keeps aside when valid records follow a damaged batch."""

from __future__ import annotations

import errno
import logging
import os
import random
from pathlib import Path

import pytest
from tests.memory_files import MemoryFileSystem
from tests.unit.storage.support import (
    SMALL,
    append,
    close,
    create_log,
    files_of,
    place,
    read_values,
    reopen,
)

from millstream.config.topic import TopicConfig
from millstream.records.batch import iter_batches
from millstream.storage import damaged_files
from millstream.storage.damaged_files import DamagedName, damaged_name, parse_damaged_name
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import LocalFileSystem, Space
from millstream.storage.log import LoadOptions, Log

COUNT = 60


def filled(root: Path, environment: LogEnvironment | None = None) -> Log:
    log = create_log(root, environment=environment)
    for number in range(COUNT):
        append(log, b"%d" % number * 20)
    assert len(log.segment_base_offsets) > 4
    return log


def log_path(root: Path, base_offset: int) -> Path:
    return root / "orders-0" / f"{base_offset:020d}.log"


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def kept(root: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in (root / "orders-0").iterdir()
        if parse_damaged_name(path.name)
    }


def test_names() -> None:
    assert damaged_name(7, 4096) == "00000000000000000007.log.damaged-4096"
    assert parse_damaged_name(damaged_name(7, 4096)) == DamagedName(7, 4096)
    for name in ("00000000000000000007.log", "7.log.damaged-", "7.index.damaged-0", "x.damaged-1"):
        assert parse_damaged_name(name) is None


def test_what_follows_damage_is_kept_byte_by_byte(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(tmp_path)
    bases = log.segment_base_offsets
    values = read_values(log)
    path = log_path(tmp_path, bases[1])
    position = path.stat().st_size // 2
    flip(path, position)
    whole = {base: log_path(tmp_path, base).read_bytes() for base in bases}
    with caplog.at_level(logging.WARNING):
        log = reopen(tmp_path, clean=False)
    end = log.log_end_offset
    assert bases[1] <= end < bases[2]
    cut_at = path.stat().st_size
    expected = {damaged_name(base, 0): whole[base] for base in bases[2:]}
    expected[damaged_name(bases[1], cut_at)] = whole[bases[1]][cut_at:]
    assert kept(tmp_path) == expected
    for name in expected:
        assert f"is kept aside as {place(tmp_path).file(name)}" in caplog.text.replace(
            "are kept", "is kept"
        )
    # Every record that was acknowledged is either in the log or in a file that was kept.
    assert read_values(log) == values[:end]
    found = 0
    for base in bases[2:]:
        found += sum(batch.count for batch in iter_batches(memoryview(whole[base])))
    assert end + found + (bases[2] - end) == COUNT
    assert not any(name.startswith(f"{bases[2]:020d}.i") for name in files_of(tmp_path))


def test_a_torn_tail_is_worth_nothing(tmp_path: Path) -> None:
    log = filled(tmp_path)
    path = log_path(tmp_path, log.segment_base_offsets[-1])
    path.write_bytes(path.read_bytes()[:-7])
    log = reopen(tmp_path, clean=False)
    assert log.recovery_report.is_torn_tail
    assert kept(tmp_path) == {}


def test_segments_behind_a_hole_are_kept(tmp_path: Path) -> None:
    log = filled(tmp_path)
    bases = log.segment_base_offsets
    for extension in (".log", ".index", ".timeindex"):
        (tmp_path / "orders-0" / f"{bases[2]:020d}{extension}").unlink()
    log = reopen(tmp_path, clean=False)
    assert log.log_end_offset == bases[2]
    assert sorted(kept(tmp_path)) == [damaged_name(base, 0) for base in bases[3:]]


def test_what_is_kept_is_never_a_segment_again(tmp_path: Path) -> None:
    log = filled(tmp_path)
    flip(log_path(tmp_path, log.segment_base_offsets[1]), 100)
    log = reopen(tmp_path, clean=False)
    before = kept(tmp_path)
    values = read_values(log)
    for clean in (False, True):
        close(log)
        log = reopen(tmp_path, clean=clean)
        assert read_values(log) == values
        assert kept(tmp_path) == before
    append(log, b"next")
    assert read_values(log)[-1] == (len(values), b"next")


def test_a_log_that_was_closed_cleanly_and_is_damaged(tmp_path: Path) -> None:
    """The start meets the damage behind the last index entry."""
    log = create_log(tmp_path, TopicConfig())
    positions = []
    for number in range(COUNT):
        positions.append(log.size)
        append(log, b"%d" % number * 20)
    close(log)
    path = log_path(tmp_path, 0)
    flip(path, positions[-5] + 16)  # the magic
    before = path.read_bytes()
    log = reopen(tmp_path, TopicConfig())
    assert log.log_end_offset == COUNT - 5
    assert kept(tmp_path) == {damaged_name(0, positions[-5]): before[positions[-5] :]}


def test_the_oldest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damaged_files, "MAX_KEPT_BYTES", 10_000)
    log = filled(tmp_path)
    directory = tmp_path / "orders-0"
    for number, size in enumerate((3_000, 3_000, 3_000)):
        path = directory / damaged_name(900 + number, 5)
        path.write_bytes(bytes(size))
        os.utime(path, (number, number))
    bases = log.segment_base_offsets
    flip(log_path(tmp_path, bases[-2]), 100)
    cut_bytes = sum(log_path(tmp_path, base).stat().st_size for base in bases[-2:])
    assert 1_000 < cut_bytes < 4_000
    reopen(tmp_path, clean=False)
    assert damaged_name(900, 5) not in kept(tmp_path)
    assert damaged_name(902, 5) in kept(tmp_path)
    assert sum(map(len, kept(tmp_path).values())) <= 10_000


def test_one_recovery_keeps_all_that_it_cuts_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damaged_files, "MAX_KEPT_BYTES", 100)
    log = filled(tmp_path)
    earlier = tmp_path / "orders-0" / damaged_name(900, 5)
    earlier.write_bytes(bytes(50))
    flip(log_path(tmp_path, log.segment_base_offsets[1]), 100)
    reopen(tmp_path, clean=False)
    assert len(kept(tmp_path)) == len(log.segment_base_offsets) - 1
    assert not earlier.exists()


# Disks


class FullVolume(LocalFileSystem):
    """Has little room left."""

    def space(self, directory: str) -> Space:
        return Space(1 << 40, 1000)


def test_without_room_recovery_goes_on_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(tmp_path)
    bases = log.segment_base_offsets
    flip(log_path(tmp_path, bases[1]), 100)
    with caplog.at_level(logging.WARNING):
        log = reopen(tmp_path, clean=False, environment=LogEnvironment(file_system=FullVolume()))
    assert log.segment_base_offsets == bases[:2]
    assert "could not be kept aside" in caplog.text
    # A rename takes no room.
    assert sorted(kept(tmp_path)) == [damaged_name(base, 0) for base in bases[2:]]


def test_a_copy_that_was_made_before_a_kill_outlives_a_recovery_without_room(
    tmp_path: Path,
) -> None:
    """The room may be what the copy has taken."""
    log = filled(tmp_path)
    path = log_path(tmp_path, log.segment_base_offsets[1])
    flip(path, path.stat().st_size // 2)
    damaged = path.read_bytes()
    reopen(tmp_path, clean=False)
    copies = kept(tmp_path)
    assert copies
    path.write_bytes(damaged)  # it was not cut yet
    reopen(tmp_path, clean=False, environment=LogEnvironment(file_system=FullVolume()))
    assert path.stat().st_size < len(damaged)
    assert kept(tmp_path) == copies


@pytest.mark.parametrize("step", ["write", "sync", "rename", "remove"])
def test_a_copy_that_fails_keeps_no_log_from_opening(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damaged_files, "MAX_KEPT_BYTES", 100)
    files = MemoryFileSystem()
    files.make_directory("/logs")
    environment = LogEnvironment(file_system=files)
    log = Log.create(environment, place(Path("/logs")), SMALL, topic_id=None, now_ms=0)
    for number in range(COUNT):
        append(log, b"%d" % number * 20)
    bases = log.segment_base_offsets
    path = f"/logs/orders-0/{bases[1]:020d}.log"
    byte = files.open(path).read_at(100, 1)
    files.open(path).write_at(100, bytes([byte[0] ^ 1]))

    files.open(f"/logs/orders-0/{damaged_name(900, 5)}", create=True).write_at(0, bytes(200))

    def fail(name: str, path: str) -> None:
        failing = {step, "write"} if step == "remove" else {step}
        if name in failing and (
            ".damaged-" in path or (step == "rename" and path.endswith(".log"))
        ):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    files.hook = fail
    options = LoadOptions(now_ms=0, had_clean_shutdown=False)
    log = Log.open(environment, place(Path("/logs")), SMALL, options)
    assert log.segment_base_offsets == bases[:2]
    left = [e.name for e in files.scan("/logs/orders-0") if parse_damaged_name(e.name)]
    renamed = [damaged_name(base, 0) for base in bases[2:]]
    if step == "rename":
        assert not set(left) & set(renamed)
    else:
        assert set(left) >= set(renamed)


def size_of_logs(files: MemoryFileSystem) -> int:
    """Return the bytes of all segments and of all that is kept aside."""
    return sum(
        entry.size
        for entry in files.scan("/logs/orders-0")
        if entry.name.endswith(".log") or parse_damaged_name(entry.name)
    )


@pytest.mark.slow
def test_a_power_loss_at_any_point_loses_nothing_that_was_there() -> None:
    """In each step of the recovery; the next one finds all of it."""
    files = MemoryFileSystem()
    files.make_directory("/logs")
    environment = LogEnvironment(file_system=files)
    log = Log.create(environment, place(Path("/logs")), SMALL, topic_id=None, now_ms=0)
    for number in range(COUNT):
        append(log, b"%d" % number * 20)
    bases = log.segment_base_offsets
    path = f"/logs/orders-0/{bases[1]:020d}.log"
    byte = files.open(path).read_at(100, 1)
    files.open(path).write_at(100, bytes([byte[0] ^ 1]))
    contents = {
        entry.name: files.open(f"/logs/orders-0/{entry.name}").read_at(0, entry.size)
        for entry in files.scan("/logs/orders-0")
    }
    options = LoadOptions(now_ms=0, had_clean_shutdown=False)
    stops = 0
    while True:
        again = MemoryFileSystem()
        again.make_directory("/logs/orders-0")
        for name, data in contents.items():
            file = again.open(f"/logs/orders-0/{name}", create=True)
            file.write_at(0, data)
            file.sync()
        for directory in ("/", "/logs", "/logs/orders-0"):
            again.sync_directory(directory)
        whole = size_of_logs(again)
        left = stops

        def stop(name: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt

        again.hook = stop
        here = LogEnvironment(file_system=again)
        ended = False
        try:
            Log.open(here, place(Path("/logs")), SMALL, options)
            ended = True
        except KeyboardInterrupt:
            pass
        again.hook = lambda name, path: None
        for seed in range(4):
            left_over = again.crashed(random.Random(4 * stops + seed))
            here = LogEnvironment(file_system=left_over)
            Log.open(here, place(Path("/logs")), SMALL, options)
            assert size_of_logs(left_over) >= whole
        if ended:
            return
        stops += 1
