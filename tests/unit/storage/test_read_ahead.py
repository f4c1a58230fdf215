"""Reads that would wait for a disk are known beforehand, and do not wait once it has been read."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.slow_files import SlowFiles
from tests.unit.storage.support import NOW_MS, append, close, create_log, place, reopen

from millstream.config.topic import TopicConfig
from millstream.model.errors import StorageError
from millstream.records.batch import iter_batches
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import Buffer, LocalFileSystem
from millstream.storage.log import Log, ReadAhead
from millstream.storage.segment_indexes import IndexCheck

CONFIG = TopicConfig({"internal.segment.bytes": "200000", "index.interval.bytes": "1000"})
BATCHES = 300
MAX_BYTES = 50_000


@pytest.fixture
def files() -> SlowFiles:
    return SlowFiles()


@pytest.fixture
def log(tmp_path: Path, files: SlowFiles) -> Log:
    """About four segments of 2,000-byte batches, none of it in memory."""
    filled = create_log(tmp_path, CONFIG, LogEnvironment(file_system=files))
    for _ in range(BATCHES):
        append(filled, b"x" * 2_000)
    assert len(filled.segment_base_offsets) >= 3
    files.drop_cache()
    return filled


def look(log: Log, offset: int, max_bytes: int = MAX_BYTES) -> ReadAhead | None:
    """Read without waiting for a disk; return what would have had to be waited for."""
    found = log.reader.read(
        offset,
        max_bytes=max_bytes,
        upper_bound_offset=log.log_end_offset,
        min_one_batch=True,
        wait_for_disk=False,
    )
    assert (found.records is None) == (found.cold is not None)
    return found.cold


def bring_in(log: Log, offset: int, max_bytes: int = MAX_BYTES) -> int:
    """Read ahead until nothing is cold; return how often it took."""
    times = 0
    while (ahead := look(log, offset, max_bytes)) is not None:
        assert ahead.size > 0
        ahead.run()
        times += 1
        assert times < 5
    return times


def read(log: Log, offset: int, max_bytes: int = MAX_BYTES) -> tuple[int, bool]:
    """Return the first base offset of a read, and whether all of it is in memory."""
    found = log.reader.read(
        offset,
        max_bytes=max_bytes,
        upper_bound_offset=log.log_end_offset,
        min_one_batch=True,
    ).records
    assert found is not None
    cached = found.file.is_cached(found.position, found.size)
    return next(iter_batches(found.read())).base_offset, cached


@pytest.mark.parametrize("offset", [0, 1, 57, 150, 299])
@pytest.mark.parametrize("max_bytes", [1, MAX_BYTES, 1 << 30])
def test_after_reading_ahead_a_read_waits_for_nothing(
    log: Log, files: SlowFiles, offset: int, max_bytes: int
) -> None:
    assert 1 <= bring_in(log, offset, max_bytes) <= 2
    files.stalls.clear()
    assert read(log, offset, max_bytes) == (offset, True)
    assert files.stalls == []


def test_without_reading_ahead_it_waits(log: Log, files: SlowFiles) -> None:
    """The twin notices, so the tests here can fail."""
    base_offset, cached = read(log, 57)
    assert (base_offset, cached) == (57, False)
    assert len(files.stalls) >= 2


def test_reopened_logs_check_their_indexes_without_waiting(
    tmp_path: Path, log: Log, files: SlowFiles
) -> None:
    log.close()
    opened = reopen(tmp_path, CONFIG, environment=LogEnvironment(file_system=files))
    files.drop_cache()
    for offset in (3, 120, 260):
        bring_in(opened, offset)
        files.stalls.clear()
        assert read(opened, offset) == (offset, True)
        assert files.stalls == []


def test_a_reader_at_the_end_costs_no_look(log: Log, files: SlowFiles) -> None:
    append(log, b"new")
    bring_in(log, BATCHES)
    read(log, BATCHES)
    end = log.log_end_offset
    append(log, b"newer")
    files.drop_cache()
    assert look(log, end) is None


def test_what_is_in_memory_is_left_alone(tmp_path: Path) -> None:
    log = create_log(tmp_path, CONFIG)
    for _ in range(BATCHES):
        append(log, b"x" * 2_000)
    for offset in range(0, BATCHES, 7):
        assert look(log, offset) is None


def test_a_disk_that_cannot_be_read_is_a_storage_error(log: Log, files: SlowFiles) -> None:
    def fail(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    files.on_read_ahead = fail
    ahead = look(log, 0)
    assert ahead is not None
    with pytest.raises(StorageError, match="Input/output error") as failed:
        ahead.run()
    assert failed.value.directory == log.log_directory


def test_indexes_that_are_gone_are_not_read_ahead(tmp_path: Path, log: Log) -> None:
    log.close()
    for path in Path(place(tmp_path).path).glob("*index"):
        path.unlink()
    opened = reopen(tmp_path, CONFIG)
    assert read(opened, 57)[0] == 57


def test_the_page_cache_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(8 << 20))
    file = LocalFileSystem().open(str(path))
    assert file.is_cached(0, 8 << 20)
    file.sync()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if file.is_cached(3 << 20, 1):
        pytest.skip("this file system keeps its files in memory, or cannot tell")
    file.read_ahead(0, 1 << 20)
    file.read_ahead(7 << 20, 1 << 20)
    assert file.is_cached(0, 1 << 20)
    assert file.is_cached(12_345, 1)
    assert not file.is_cached(0, 8 << 20)
    file.read_ahead(0, 8 << 20)
    assert file.is_cached(0, 8 << 20)


# Large indexes

MANY = TopicConfig({"index.interval.bytes": "1", "internal.segment.bytes": "1200000"})


class MappedFiles(SlowFiles):
    """Notes which indexes are mapped."""

    def __init__(self) -> None:
        super().__init__()
        self.mapped: list[str] = []

    def map(self, path: str) -> Buffer:
        self.mapped.append(os.path.basename(path))
        return super().map(path)


def large(root: Path, files: SlowFiles) -> Log:
    """A closed segment with an entry for each of 10,000 batches, and a second one."""
    filled = create_log(root, MANY)
    while len(filled.segment_base_offsets) < 2:
        append(filled, b"x" * 20)
    close(filled)
    return reopen(root, MANY, environment=LogEnvironment(file_system=files))


@pytest.mark.slow
def test_a_large_index_is_checked_elsewhere_though_it_is_in_memory(tmp_path: Path) -> None:
    files = MappedFiles()
    log = large(tmp_path, files)
    assert 5_000 < log.segment_base_offsets[1] < 20_000
    ahead = look(log, 4_711)
    assert files.mapped == []
    assert ahead is not None
    ahead.run()
    assert len(files.mapped) == 2
    assert look(log, 4_711) is None
    assert read(log, 4_711)[0] == 4_711
    assert len(files.mapped) == 2


@pytest.mark.slow
@pytest.mark.parametrize("extension", [".index", ".timeindex"])
def test_a_large_damaged_index_is_rebuilt_on_another_thread(tmp_path: Path, extension: str) -> None:
    files = MappedFiles()
    log = large(tmp_path, files)
    path = Path(place(tmp_path).path) / f"{0:020d}{extension}"
    before = path.read_bytes()
    path.write_bytes(before[:-1])
    ahead = look(log, 4_711)
    assert ahead is not None
    ahead.run()
    assert len(path.read_bytes()) == len(before) - 1, "another thread has written"
    bring_in(log, 4_711)
    assert read(log, 4_711)[0] == 4_711
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_segment_that_is_cut_while_its_index_is_checked(tmp_path: Path) -> None:
    log = large(tmp_path, SlowFiles())
    ahead = look(log, 4_711)
    assert ahead is not None
    ahead.run()
    log.truncation.truncate_to(4_800, now_ms=0)
    append(log, b"new")
    bring_in(log, 4_711)
    assert read(log, 4_711)[0] == 4_711
    assert read(log, 4_800)[0] == 4_800


@pytest.mark.slow
def test_an_index_that_shrinks_while_another_thread_reads_it(tmp_path: Path) -> None:
    """The system ends a process that reads a mapping beyond the end of its file, so this one runs
    in a process of its own.
    """
    work = f"from {__name__} import search_what_shrinks; search_what_shrinks({str(tmp_path)!r})"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", work],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def search_what_shrinks(root: str) -> None:
    log = large(Path(root), SlowFiles())
    ahead = look(log, 4_711)
    assert ahead is not None
    (check,) = ahead.preparations
    assert isinstance(check, IndexCheck)
    check.run()
    log.truncation.truncate_to(100, now_ms=0)
    close(log)
    assert check.detached.floor_position(4_711) > 0
    assert check.detached.time_floor_position(NOW_MS, 4_711) > 0
