"""Blocks reserved ahead of a log: how much, when they are given back, and what nobody notices."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

import pytest
from tests.unit.storage.support import (
    TOPIC_PARTITION,
    append,
    close,
    create_log,
    read_values,
    reopen,
)

from millstream.config.topic import TopicConfig
from millstream.sim.disk import Contents, MemoryFileSystem
from millstream.storage import reserved_blocks
from millstream.storage.directory import PartitionDirectory, SegmentLocation
from millstream.storage.environment import LogEnvironment
from millstream.storage.file_records import MAX_RESERVED_BYTES, RESERVED_FROM_BYTES, FileRecords
from millstream.storage.files import LocalFileSystem

KIB: Final = 1 << 10
MIB: Final = 1 << 20
ROOT: Final = Path("/data")
LOG: Final = f"/data/{TOPIC_PARTITION.topic}-0/{0:020d}.log"
CONFIG: Final = TopicConfig({"segment.bytes": str(8 * MIB), "flush.policy": "os"})


def memory() -> tuple[MemoryFileSystem, LogEnvironment]:
    files = MemoryFileSystem()
    files.make_directory(str(ROOT))
    return files, LogEnvironment(file_system=files)


def records(files: MemoryFileSystem, environment: LogEnvironment) -> tuple[FileRecords, Contents]:
    directory = PartitionDirectory(str(ROOT), "orders-0", TOPIC_PARTITION)
    files.make_directory(directory.path)
    made = FileRecords(environment, SegmentLocation(directory, 0), 0)
    made.reserve_ahead(True)
    made.create(0)
    return made, files.contents(LOG)


def test_a_quarter_of_what_is_there_is_reserved_and_16_mib_at_most() -> None:
    made, contents = records(*memory())
    made.append(bytes(RESERVED_FROM_BYTES), RESERVED_FROM_BYTES)
    assert contents.reserved_end <= RESERVED_FROM_BYTES
    calls, before = 0, contents.reserved_end
    while made.size < 96 * MIB:
        made.append(bytes(128 * KIB), 128 * KIB)
        ahead = contents.reserved_end - made.size
        assert 0 <= ahead <= min(made.size // 4, MAX_RESERVED_BYTES)
        calls += contents.reserved_end != before
        before = contents.reserved_end
    assert contents.reserved_end - made.size > 0
    assert calls < 40


def test_a_cut_gives_back_and_appends_reserve_again() -> None:
    made, contents = records(*memory())
    made.append(bytes(2 * MIB), 2 * MIB)
    assert contents.reserved_end == 2 * MIB + 512 * KIB
    made.truncate(MIB)
    assert contents.reserved_end == MIB
    made.append(bytes(10), 10)
    assert contents.reserved_end > MIB + 10
    made.create(0)
    made.append(bytes(MIB), MIB)
    assert contents.reserved_end > MIB


def test_a_preallocated_file_is_left_as_kafka_makes_it() -> None:
    files, environment = memory()
    size = str(8 * MIB)
    config = TopicConfig({"segment.bytes": size, "flush.policy": "os", "preallocate": "true"})
    log = create_log(ROOT, config, environment)
    append(log, bytes(MIB))
    contents = files.contents(LOG)
    assert (contents.size, contents.reserved_end) == (8 * MIB, 8 * MIB)
    log.close()
    assert contents.size == contents.reserved_end == log.size


def test_nothing_is_reserved_where_each_append_is_flushed() -> None:
    files, environment = memory()
    log = create_log(ROOT, TopicConfig({"flush.policy": "ack"}), environment)
    append(log, bytes(MIB))
    assert files.contents(LOG).reserved_end <= log.size
    log.update_config(CONFIG)
    append(log, bytes(MIB))
    assert files.contents(LOG).reserved_end > log.size


@pytest.mark.parametrize("how", ["roll", "close"])
def test_a_segment_that_ends_gives_back_what_it_did_not_use(how: str) -> None:
    files, environment = memory()
    log = create_log(ROOT, CONFIG, environment)
    append(log, bytes(MIB))
    contents = files.contents(LOG)
    assert contents.reserved_end > contents.size
    if how == "roll":
        log.appender.roll(now_ms=0)
    else:
        log.close()
    assert contents.reserved_end == contents.size


def test_recovery_finds_the_log_as_it_was_and_gives_back() -> None:
    files, environment = memory()
    log = create_log(ROOT, CONFIG, environment)
    append(log, bytes(MIB))
    contents = files.contents(LOG)
    assert contents.reserved_end > contents.size == log.size
    again = reopen(ROOT, CONFIG, clean=False, environment=environment)
    assert [offset for offset, _ in read_values(again)] == [0]
    assert again.size == contents.size == contents.reserved_end


# The machine's own file system


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.fixture
def on_ext4(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    with path.open("wb") as file:
        if not reserved_blocks._is_ext4(file.fileno()):
            pytest.skip(f"{tmp_path} is not on ext4")
    return path


def test_blocks_are_there_the_size_stays_and_they_are_freed(on_ext4: Path) -> None:
    file = LocalFileSystem().open(str(on_ext4))
    file.write_at(0, b"x" * 5000)
    file.reserve(5000, 4 * MIB)
    assert on_ext4.stat().st_size == 5000
    assert blocks(on_ext4) >= 4 * MIB
    file.write_at(5000, b"y" * MIB)
    file.give_back_reserved()
    assert on_ext4.stat().st_size == 5000 + MIB
    file.sync()
    assert blocks(on_ext4) < 2 * MIB
    assert file.read_at(4999, 3) == b"xyy"


def test_a_log_on_ext4_takes_no_more_room_after_it_is_closed(on_ext4: Path) -> None:
    root = on_ext4.parent
    log = create_log(root, CONFIG)
    for _ in range(3):
        append(log, os.urandom(MIB))
    file = root / "orders-0" / f"{0:020d}.log"
    assert file.stat().st_size == log.size
    reserved = blocks(file) - log.size
    assert reserved >= 512 * KIB
    close(log)
    assert blocks(file) - log.size < 64 * KIB


def test_nothing_is_reserved_where_it_does_not_help(tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir():
        pytest.skip("there is no /dev/shm")
    path = shared / f"millstream-{os.getpid()}"
    try:
        file = LocalFileSystem().open(str(path), create=True)
        file.reserve(0, MIB)
        assert blocks(path) == 0
    finally:
        path.unlink()


def test_a_file_that_cannot_be_extended_and_a_volume_with_little_room_are_ignored(
    on_ext4: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only = LocalFileSystem().open(str(on_ext4), writable=False)
    read_only.reserve(0, MIB)  # EBADF
    file = LocalFileSystem().open(str(on_ext4))
    volume = os.statvfs(on_ext4)
    file.reserve(0, volume.f_bavail * volume.f_frsize // 32)
    assert blocks(on_ext4) == 0


def test_what_the_system_call_answers_is_ignored(
    on_ext4: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def full(*arguments: int) -> int:
        asked.append(arguments)
        return -errno.ENOSPC

    monkeypatch.setattr(reserved_blocks, "_fallocate", lambda: full)
    LocalFileSystem().open(str(on_ext4)).reserve(0, MIB)
    assert asked


@pytest.mark.parametrize("error", [OSError(errno.EIO, "dying"), ImportError("no _ctypes")])
def test_a_reservation_that_fails_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> bool:
        raise error

    monkeypatch.setattr(reserved_blocks, "_benefits", {})
    monkeypatch.setattr(reserved_blocks, "_is_ext4", fail)
    with (tmp_path / "f").open("wb") as file:
        reserved_blocks.reserve_blocks(file.fileno(), 0, MIB)
