"""Since when a broker has lost nothing: after a clean stop, a kill, a power loss, damage."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest
from tests.unit.storage.support import append

from millstream import platform
from millstream.config.topic import TopicConfig
from millstream.model.errors import StorageError
from millstream.model.topic import TopicId, TopicPartition
from millstream.records.batch import Batch
from millstream.records.builder import BatchBuilder
from millstream.storage import trust
from millstream.storage.continuity import damaged_logs, read_continuity, write_trust
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import File, LocalFileSystem
from millstream.storage.log_manager import LogManager
from millstream.storage.trust import read_trust

FILES = LocalFileSystem()
T0 = TopicPartition("t", 0)


@pytest.fixture
def boot_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "boot_id"
    path.write_text("first\n")
    monkeypatch.setattr(trust, "BOOT_ID", str(path))
    return path


def opened(tmp_path: Path) -> LogManager:
    manager = LogManager([str(tmp_path / "logs")], LogEnvironment(), broker_id=1)
    manager.lock()
    manager.start(config_of=lambda _, __: TopicConfig(), now_ms=0)
    manager.assign_cluster_id("cluster")
    return manager


def killed(manager: LogManager) -> None:
    for log in manager.logs():
        log.abandon()
    manager._release()


def test_a_new_broker_has_no_continuity(tmp_path: Path, boot_id: Path) -> None:
    manager = opened(tmp_path)
    assert read_continuity(FILES, manager) is None
    manager.close()


def test_a_clean_stop_keeps_it_also_over_a_boot(tmp_path: Path, boot_id: Path) -> None:
    manager = opened(tmp_path)
    write_trust(FILES, manager, 17)
    manager.close()
    boot_id.write_text("second")
    manager = opened(tmp_path)
    assert read_continuity(FILES, manager) == 17
    manager.close()


def test_a_kill_keeps_it_while_the_machine_is_up(tmp_path: Path, boot_id: Path) -> None:
    manager = opened(tmp_path)
    write_trust(FILES, manager, 17)
    killed(manager)
    manager = opened(tmp_path)
    assert read_continuity(FILES, manager) == 17
    killed(manager)


def test_a_power_loss_ends_it(tmp_path: Path, boot_id: Path) -> None:
    manager = opened(tmp_path)
    write_trust(FILES, manager, 17)
    killed(manager)
    boot_id.write_text("second")
    manager = opened(tmp_path)
    assert read_continuity(FILES, manager) is None
    killed(manager)


def test_without_a_boot_id_every_start_counts_as_one(tmp_path: Path, boot_id: Path) -> None:
    boot_id.unlink()
    manager = opened(tmp_path)
    write_trust(FILES, manager, 17)
    killed(manager)
    manager = opened(tmp_path)
    assert read_continuity(FILES, manager) is None
    killed(manager)


def damaged(tmp_path: Path) -> None:
    """Leave a log of three batches by a broker that was killed; the first batch is bad."""
    manager = opened(tmp_path)
    log = manager.get_or_create(T0, TopicId(bytes(range(16))), TopicConfig(), now_ms=0)
    for value in (b"one", b"two", b"three"):
        builder = BatchBuilder()
        builder.append(0, None, value)
        batch = Batch(memoryview(bytearray(builder.build())))
        log.appender.append_as_leader(batch, leader_epoch=0, now_ms=0)
    write_trust(FILES, manager, 17)
    killed(manager)
    path = tmp_path / "logs" / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def test_damage_in_the_middle_ends_it(tmp_path: Path, boot_id: Path) -> None:
    damaged(tmp_path)
    manager = opened(tmp_path)
    assert read_continuity(FILES, manager) is None
    killed(manager)


def test_damage_is_remembered_by_a_broker_that_ends_before_it_takes_part(
    tmp_path: Path, boot_id: Path
) -> None:
    """The first start has cut the log: the second finds nothing wrong with it."""
    damaged(tmp_path)
    killed(opened(tmp_path))
    manager = opened(tmp_path)
    assert damaged_logs(manager) == []
    assert read_continuity(FILES, manager) is None
    killed(manager)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"boot_id":1}', "nonsense"])
def test_a_file_that_says_nothing_is_no_trust(tmp_path: Path, text: str) -> None:
    (tmp_path / "trust").write_text(text)
    assert read_trust(FILES, str(tmp_path)) is None


def test_a_file_from_another_directory_is_no_trust(tmp_path: Path, boot_id: Path) -> None:
    manager = opened(tmp_path)
    write_trust(FILES, manager, 17)
    path = tmp_path / "logs" / "trust"
    directory_id = manager.directory_id(str(tmp_path / "logs"))
    assert directory_id is not None
    path.write_text(path.read_text().replace(directory_id, "x" * 22))
    killed(manager)
    manager = opened(tmp_path)
    assert read_continuity(FILES, manager) is None
    killed(manager)


def test_a_disk_that_failed_is_trusted_no_more_though_the_machine_stays_up(
    tmp_path: Path, boot_id: Path
) -> None:
    """A flush that failed leaves pages that may be dropped at any time (found by the simulator)."""
    manager = opened(tmp_path)
    write_trust(FILES, manager, 17)
    (directory,) = manager.directories
    manager.directory_failed(directory)
    manager = opened(tmp_path)
    assert read_continuity(FILES, manager) is None
    manager.close()


def test_a_disk_that_was_full_keeps_what_it_took(tmp_path: Path, boot_id: Path) -> None:
    manager = opened(tmp_path)
    write_trust(FILES, manager, 17)
    (directory,) = manager.directories
    manager.directory_failed(directory, lost_writes=False)
    manager = opened(tmp_path)
    assert read_continuity(FILES, manager) == 17
    manager.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_volume_that_has_no_room_for_what_it_took_has_lost_it(
    tmp_path: Path, boot_id: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A thinly provisioned volume, or a server's, finds that out with the flush."""

    def flush_data(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    manager = opened(tmp_path)
    write_trust(FILES, manager, 17)
    log = manager.get_or_create(T0, TopicId(bytes(16)), TopicConfig(), now_ms=0)
    append(log, b"v")
    plan = log.flush_plan()
    assert plan is not None
    with monkeypatch.context() as patched:
        patched.setattr(platform, "flush_data", flush_data)
        with pytest.raises(StorageError) as failed:
            plan.run()
    assert not failed.value.is_full
    manager.directory_failed(log.log_directory, lost_writes=not failed.value.is_full)
    manager = opened(tmp_path)
    assert read_continuity(FILES, manager) is None
    manager.close()


def test_a_disk_that_is_full_at_the_start_keeps_what_it_took(tmp_path: Path, boot_id: Path) -> None:
    """Found by the simulator: the last of an ISR lost its place, and nobody could lead safely."""

    class FullFiles(LocalFileSystem):
        def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
            if create and path.startswith(full):
                raise OSError(errno.ENOSPC, "No space left on device", path)
            return super().open(path, create=create, writable=writable)

    def start(environment: LogEnvironment) -> LogManager:
        manager = LogManager([full, str(tmp_path / "other")], environment, broker_id=1)
        manager.lock()
        manager.start(config_of=lambda _, __: TopicConfig(), now_ms=0)
        return manager

    full = str(tmp_path / "full")
    manager = start(LogEnvironment())
    manager.assign_cluster_id("cluster")
    manager.placement.prefer(T0, full)
    log = manager.get_or_create(T0, TopicId(bytes(16)), TopicConfig(), now_ms=0)
    assert log.log_directory == full
    (Path(log.directory) / f"{0:020}.timeindex").unlink(missing_ok=True)
    write_trust(FILES, manager, 17)
    killed(manager)
    manager = start(LogEnvironment(file_system=FullFiles()))
    assert manager.offline_directories == [full]
    assert read_continuity(FILES, manager) == 17
    manager.close()
    manager = start(LogEnvironment())
    assert manager.offline_directories == []
    assert read_continuity(FILES, manager) == 17
    manager.close()


@pytest.mark.parametrize("directories", [1, 2])
def test_a_flush_that_fails_at_the_start_is_remembered(
    tmp_path: Path, boot_id: Path, directories: int
) -> None:
    """Found by the simulator: the page cache may drop what could not be written, and the next start
    of a broker with one directory trusted what was left.
    """

    class BadDisk(LocalFileSystem):
        def sync_all(self, path: str) -> None:
            if path.startswith(bad):
                raise OSError(errno.EIO, "Input/output error", path)
            super().sync_all(path)

    def start(environment: LogEnvironment) -> LogManager:
        paths = [bad, str(tmp_path / "other")][:directories]
        manager = LogManager(paths, environment, broker_id=1)
        manager.lock()
        manager.start(config_of=lambda _, __: TopicConfig(), now_ms=0)
        return manager

    bad = str(tmp_path / "bad")
    manager = start(LogEnvironment())
    manager.assign_cluster_id("cluster")
    manager.placement.prefer(T0, bad)
    manager.get_or_create(T0, TopicId(bytes(16)), TopicConfig(), now_ms=0)
    write_trust(FILES, manager, 17)
    killed(manager)
    with contextlib.suppress(StorageError):
        killed(start(LogEnvironment(file_system=BadDisk())))
    manager = start(LogEnvironment())
    assert manager.offline_directories == []
    assert read_continuity(FILES, manager) is None
    manager.close()
