"""A disk that fails, runs full or loses power, played by a file system in memory."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import pytest
from tests.memory_files import MemoryFileSystem
from tests.unit.storage.support import (
    NOW_MS,
    append,
    append_marker,
    create_log,
    read_values,
    reopen,
    values_batch,
)

from millstream.config.topic import TopicConfig
from millstream.model.errors import StorageError
from millstream.model.topic import TopicId, TopicPartition
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import LocalFileSystem, read_file, replace_file
from millstream.storage.flush import run_together
from millstream.storage.log import AbortedTransaction, Log
from millstream.storage.log_manager import LogManager

ROOT = Path("/data")
CONFIG = TopicConfig(
    {
        "internal.segment.bytes": "1000",
        "index.interval.bytes": "100",
        "segment.index.bytes": "1200",
    }
)


def memory_log() -> tuple[MemoryFileSystem, LogEnvironment, Log]:
    files = MemoryFileSystem()
    environment = LogEnvironment(file_system=files)
    return files, environment, create_log(ROOT, CONFIG, environment)


def fail(files: MemoryFileSystem, step: str, part_of_path: str = "") -> None:
    def hook(current: str, path: str) -> None:
        if current == step and part_of_path in path:
            raise OSError(errno.EIO, "Input/output error", path)

    files.hook = hook


@pytest.mark.parametrize("room", [0, 1, 40, 100])
def test_a_full_disk_undoes_the_partial_batch(room: int) -> None:
    files, environment, log = memory_log()
    append(log, b"a" * 50)
    size = log.size
    files.room = room
    with pytest.raises(StorageError, match="No space left") as full:
        append(log, b"b" * 50)
    assert full.value.directory == "/data"
    assert (log.log_end_offset, log.size) == (1, size)
    assert len(read_file(files, f"{log.directory}/{0:020d}.log")) == size
    files.room = None
    assert read_values(reopen(ROOT, CONFIG, clean=False, environment=environment)) == [
        (0, b"a" * 50)
    ]


def test_a_full_disk_when_the_index_grows_undoes_the_batch_too() -> None:
    files, _, log = memory_log()
    for _ in range(2):
        append(log, b"a" * 50)
    size = log.size
    fail(files, "write", "index")
    with pytest.raises(StorageError):
        append(log, b"b" * 50)
    assert log.log_end_offset == 2
    assert len(read_file(files, f"{log.directory}/{0:020d}.log")) == size


def test_producers_do_not_notice_a_batch_that_failed() -> None:
    files, _, log = memory_log()
    append(log, b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    before = log.producers.active()
    files.room = 10
    with pytest.raises(StorageError):
        append(log, b"b", producer_id=1, producer_epoch=0, base_sequence=1)
    assert log.producers.active() == before


def test_a_follower_keeps_the_runs_that_were_written() -> None:
    files, _, log = memory_log()
    data = b"".join(bytes(values_batch([b"%d" % n * 100], base_offset=n).buffer) for n in range(10))
    files.room = 1200
    with pytest.raises(StorageError):
        log.follower_appender.append_as_follower(data, now_ms=NOW_MS)
    files.room = None
    assert log.log_end_offset > 0
    assert [offset for offset, _ in read_values(log)] == list(range(log.log_end_offset))


@pytest.mark.parametrize("step", ["create", "rename", "truncate"])
def test_a_failing_roll_is_a_storage_error(step: str) -> None:
    files, _, log = memory_log()
    append(log, b"a" * 500)
    fail(files, step)
    with pytest.raises(StorageError) as failed:
        append(log, b"b" * 500)
    assert failed.value.directory == "/data"


def test_a_failed_flush_names_the_directory_and_moves_nothing() -> None:
    files, _, log = memory_log()
    append(log, b"a")
    plan = log.flush_plan()
    assert plan is not None
    fail(files, "sync")
    with pytest.raises(StorageError) as failed:
        plan.run()
    assert failed.value.directory == "/data"
    assert log.recovery_point == 0


def test_a_flush_that_cannot_open_its_files_fails_when_it_runs() -> None:
    files, environment, log = memory_log()
    append(log, b"a")
    log.abandon()
    files.rename(log.directory, f"{ROOT}/elsewhere")
    plan = log.flush_plan()
    assert plan is not None
    with pytest.raises(StorageError):
        plan.run()
    again = log.flush_plan()
    assert again is not None
    with pytest.raises(StorageError):
        run_together([again] * 9)
    assert len(environment.open_files) == 0


def test_a_plan_covers_what_was_there_when_it_was_made() -> None:
    _, _, log = memory_log()
    for n in range(30):
        append(log, b"%d" % n * 30)
    plan = log.flush_plan()
    assert plan is not None
    append(log, b"later")
    plan.run()
    log.flushed(plan)
    assert (log.recovery_point, log.log_end_offset) == (30, 31)


def test_a_flush_from_before_a_cut_says_nothing_of_what_was_written_after_it() -> None:
    _, _, log = memory_log()
    for n in range(10):
        append(log, b"%d" % n)
    log.offsets.update_high_watermark(4)
    plan = log.flush_plan()
    assert plan is not None
    log.truncation.truncate_to(4, now_ms=NOW_MS)
    for n in range(4, 8):
        append(log, b"other %d" % n, epoch=1)
    plan.run()
    assert not log.flushed(plan)
    assert log.recovery_point <= 4
    again = log.flush_plan()
    assert again is not None
    again.run()
    assert log.flushed(again)
    assert log.recovery_point == 8


def test_a_flush_brings_names_files_and_contents_to_disk() -> None:
    files, _, log = memory_log()
    files.make_directory("/data")
    files.sync_directory("/")
    for n in range(30):
        append(log, b"%d" % n * 30, epoch=n // 10)
    plan = log.flush_plan()
    assert plan is not None
    append(log, b"not flushed", epoch=2)
    plan.run()
    for seed in range(20):
        left = files.crashed(random.Random(seed))
        after = reopen(ROOT, CONFIG, clean=False, environment=LogEnvironment(file_system=left))
        assert after.log_end_offset in (30, 31)
        assert [v for _, v in read_values(after)][:30] == [b"%d" % n * 30 for n in range(30)]
        assert [after.epoch_for_offset(n) for n in (0, 10, 20)] == [0, 1, 2]


def test_aborted_transactions_below_the_recovery_point_survive_a_power_loss() -> None:
    files, _, log = memory_log()
    files.sync_directory("/")
    for n in range(10):
        append(
            log, b"dropped" * 10, producer_id=1, producer_epoch=0, base_sequence=n,
            is_transactional=True,
        )  # fmt: skip
        append_marker(log, 1, commit=False)
        log.offsets.update_high_watermark(log.log_end_offset)
    log.appender.roll(now_ms=NOW_MS)
    append(log, b"last")
    plan = log.flush_plan()
    assert plan is not None
    plan.run()
    log.flushed(plan)

    def aborted(log: Log) -> list[AbortedTransaction]:
        read = log.reader.read(0, max_bytes=1 << 20, upper_bound_offset=20, min_one_batch=True)
        return log.reader.aborted_transactions(read)

    expected = aborted(log)
    assert len(expected) > 2
    for seed in range(10):
        left = LogEnvironment(file_system=files.crashed(random.Random(seed)))
        after = reopen(
            ROOT, CONFIG, clean=False, recovery_point=log.recovery_point, environment=left
        )
        assert aborted(after) == expected


def test_flushing_is_done_once() -> None:
    _, _, log = memory_log()
    append(log, b"a")
    plan = log.flush_plan()
    assert plan is not None
    assert plan.count > 1
    plan.run()
    log.flushed(plan)
    assert log.flush_plan() is None
    append(log, b"b")
    again = log.flush_plan()
    assert again is not None
    assert again.count == 1


def test_many_flushes_are_one() -> None:
    files, _, log = memory_log()
    for n in range(30):
        append(log, b"%d" % n * 30)
    plan = log.flush_plan()
    assert plan is not None
    assert plan.count >= 8
    steps: list[str] = []
    files.hook = lambda step, path: steps.append(step)
    run_together([plan])
    assert steps == ["sync_all"]
    run_together([])


def manager(files: MemoryFileSystem) -> LogManager:
    made = LogManager(["/data"], LogEnvironment(file_system=files), broker_id=1)
    made.lock()
    made.start(config_of=lambda partition, topic_id: CONFIG, now_ms=NOW_MS)
    return made


def test_a_close_that_fails_leaves_no_marker() -> None:
    files = MemoryFileSystem()
    logs = manager(files)
    partition = TopicPartition("orders", 0)
    append(logs.get_or_create(partition, TopicId(bytes(16)), CONFIG, now_ms=NOW_MS), b"a")
    fail(files, "sync")
    with pytest.raises(StorageError):
        logs.close()
    files.hook = lambda step, path: None
    assert not files.exists("/data/.kafka_cleanshutdown")
    assert not manager(files).had_clean_shutdown


def test_a_directory_whose_marker_stays_is_not_used() -> None:
    files = MemoryFileSystem()
    manager(files).close()
    fail(files, "remove")
    with pytest.raises(StorageError):
        manager(files)


def test_a_marker_that_was_taken_away_does_not_come_back_with_a_power_loss() -> None:
    """What was written since would count as closed cleanly, and be looked at by nobody."""
    for seed in range(20):
        files = MemoryFileSystem()
        manager(files).close()
        manager(files)
        assert not manager(files.crashed(random.Random(seed))).had_clean_shutdown


def test_a_replaced_file_is_the_old_or_the_new_one() -> None:
    files = MemoryFileSystem()
    files.make_directory("/data")
    files.sync_directory("/")
    replace_file(files, "/data/x", b"old")
    files.hook = lambda step, path: None
    replace_file(files, "/data/x", b"new and longer")
    for seed in range(10):
        left = files.crashed(random.Random(seed))
        assert read_file(left, "/data/x") == b"new and longer"
    for stop in ("write", "sync", "rename", "sync_directory"):
        files = MemoryFileSystem()
        files.make_directory("/data")
        files.sync_directory("/")
        replace_file(files, "/data/x", b"old")
        fail(files, stop)
        with pytest.raises(OSError, match="Input/output"):
            replace_file(files, "/data/x", b"new and longer")
        for seed in range(10):
            left = files.crashed(random.Random(seed))
            assert read_file(left, "/data/x") in (b"old", b"new and longer")


@pytest.mark.parametrize("times", [1, 3, 4])
def test_a_directory_is_removed_with_what_is_made_in_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A copy that is given up may be written to until its thread notices: that is no broken disk,
    unless it never ends.
    """
    directory = tmp_path / "t-0.-delete"
    (directory / "below").mkdir(parents=True)
    for name in ("a", "below/b"):
        (directory / name).write_bytes(b"x")
    (directory / "elsewhere").symlink_to(tmp_path)
    rmdir, made = os.rmdir, []

    def remove_late(path: str) -> None:
        if path == str(directory) and len(made) < times:
            made.append(path)
            (directory / "late").write_bytes(b"x")
        rmdir(path)

    monkeypatch.setattr(os, "rmdir", remove_late)
    if times == 4:
        with pytest.raises(OSError, match="not empty"):
            LocalFileSystem().remove_tree(str(directory))
        return
    LocalFileSystem().remove_tree(str(directory))
    assert not directory.exists()
    LocalFileSystem().remove_tree(str(directory))


def test_short_writes_are_completed(tmp_path: Path) -> None:
    """The kernel may write less than it is given, here for want of room in a pipe-sized limit."""
    import resource
    import signal

    file = LocalFileSystem().open(str(tmp_path / "x"), create=True)
    data = bytes(range(256)) * 100
    file.write_at(0, data)
    assert file.read_at(0, len(data) + 10) == data
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))
        with pytest.raises(OSError, match="File too large"):
            file.write_at(20_000, bytes(20_000))
        assert file.size() == 30_000, "the part that fits is written, then the failure is told"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)


def test_a_log_at_its_file_size_limit_undoes_the_partial_batch(tmp_path: Path) -> None:
    import resource
    import signal

    log = create_log(tmp_path)
    append(log, b"a" * 200)
    size = log.size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, limits[1]))
        with pytest.raises(StorageError):
            append(log, b"b" * 200)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    assert (tmp_path / "orders-0" / f"{0:020d}.log").stat().st_size == size
    assert read_values(reopen(tmp_path, clean=False)) == [(0, b"a" * 200)]


@pytest.mark.parametrize("seed", range(10))
def test_what_recovery_kept_is_there_after_a_power_loss(seed: int) -> None:
    """A crash of the process leaves bytes that are in memory alone. The next one serves them, and
    acknowledges a producer that repeats them: so they have to be on disk by then.
    """
    files = MemoryFileSystem()
    partition = TopicPartition("orders", 0)
    log = manager(files).get_or_create(partition, TopicId(bytes(16)), CONFIG, now_ms=NOW_MS)
    for n in range(20):
        append(log, b"%d" % n * 40)
    recovered = manager(files).get(partition)
    assert recovered is not None
    kept = read_values(recovered)
    assert len(kept) == 20
    assert recovered.recovery_point == 20
    after = manager(files.crashed(random.Random(seed))).get(partition)
    assert after is not None
    after.offsets.update_high_watermark(after.log_end_offset)
    assert read_values(after) == kept


def test_a_recovery_that_cannot_be_flushed_is_a_storage_error() -> None:
    files = MemoryFileSystem()
    partition = TopicPartition("orders", 0)
    append(manager(files).get_or_create(partition, TopicId(bytes(16)), CONFIG, now_ms=NOW_MS), b"a")
    fail(files, "sync_all")
    with pytest.raises(StorageError, match="Input/output error"):
        manager(files)


def test_several_files_are_flushed_side_by_side(tmp_path: Path) -> None:
    files = LocalFileSystem()
    opened = [files.open(str(tmp_path / str(number)), create=True) for number in range(5)]
    flushed: list[int] = []
    together = threading.Barrier(5, timeout=10)

    class Watched:
        def __init__(self, number: int) -> None:
            self.number = number

        def __getattr__(self, name: str) -> object:
            return getattr(opened[self.number], name)

        def sync(self) -> None:
            together.wait()
            opened[self.number].sync()
            flushed.append(self.number)
            if self.number == 2:
                raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        files.sync_files([Watched(number) for number in range(5)])  # type: ignore[misc]
    assert sorted(flushed) == list(range(5)), "the others were not given up"
    files.sync_files([])
    files.sync_files(opened[:1])
