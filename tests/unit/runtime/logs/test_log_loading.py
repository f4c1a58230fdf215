"""The logs of several directories are opened side by side, and a recovery says how far it is."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.unit.runtime.coordinator_site import HandClock, HeldOffload
from tests.unit.storage.support import NOW_MS, SMALL, append, read_values

from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import StorageError
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.logs.log_loading import PROGRESS_MS, LogLoading
from millstream.runtime.offload import ThreadOffload
from millstream.storage.environment import LogEnvironment
from millstream.storage.log_manager import LogManager

TOPIC_ID = TopicId(bytes(range(16)))


def partition(index: int) -> TopicPartition:
    return TopicPartition("orders", index)


def held_offload() -> HeldOffload:
    offload = HeldOffload()
    offload.held = True
    return offload


def manager_of(tmp_path: Path) -> LogManager:
    manager = LogManager([str(tmp_path / "a"), str(tmp_path / "b")], LogEnvironment(), broker_id=1)
    manager.lock()
    return manager


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """Two directories with three logs each that were not closed."""
    manager = manager_of(tmp_path)
    manager.start(config_of=lambda _, __: SMALL, now_ms=NOW_MS)
    for index in range(6):
        log = manager.get_or_create(partition(index), TOPIC_ID, SMALL, now_ms=NOW_MS)
        for number in range(30):
            append(log, b"%d-%d" % (index, number) * 5, producer_id=1, producer_epoch=0,
                   base_sequence=number)  # fmt: skip
    manager._release()
    return tmp_path


def check(manager: LogManager) -> None:
    assert {log.topic_partition for log in manager.logs()} == {partition(n) for n in range(6)}
    for log in manager.logs():
        index = log.topic_partition.partition
        assert read_values(log) == [(n, b"%d-%d" % (index, n) * 5) for n in range(30)]
        assert [p.last_sequence for p in log.producers.active()] == [29]


def test_each_directory_has_its_threads(crashed: Path) -> None:
    manager, offload = manager_of(crashed), held_offload()
    outcome = spawn(
        LogLoading(HandClock(), offload, manager, threads_per_directory=2).run(lambda _, __: SMALL)
    )
    assert not outcome.done
    offload.release()
    outcome.result()
    check(manager)


def test_with_real_threads(crashed: Path) -> None:
    manager = manager_of(crashed)
    calls: list[object] = []
    offload = ThreadOffload(calls.append)
    loading = LogLoading(HandClock(), offload, manager, threads_per_directory=3)
    outcome = spawn(loading.run(lambda _, __: SMALL))
    offload.close()
    for call in calls:
        call()  # type: ignore[operator]
    outcome.result()
    check(manager)


def test_progress_is_told(crashed: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    manager, clock, offload = manager_of(crashed), HandClock(), held_offload()
    loading = LogLoading(clock, offload, manager, threads_per_directory=1)
    outcome: Deferred[None] = spawn(loading.run(lambda _, __: SMALL))
    clock.advance(PROGRESS_MS)
    assert "recovering" in caplog.text
    assert "3 logs, " in caplog.text
    offload.release()
    outcome.result()
    assert "recovered" in caplog.text
    assert "3 of 3 logs" in caplog.text
    caplog.clear()
    clock.advance(PROGRESS_MS)
    assert not caplog.records


def test_a_directory_that_fails_is_offline_and_the_other_is_served(crashed: Path) -> None:
    manager, offload = manager_of(crashed), held_offload()
    loading = LogLoading(HandClock(), offload, manager, threads_per_directory=2)
    outcome = spawn(loading.run(lambda _, __: SMALL))
    (failing,) = [each for each in loading._directories if each.path.endswith("/b")]
    failing.load.failure = StorageError(failing.path, "broken")
    offload.release()
    outcome.result()
    assert list(manager.offline_directories) == [str(crashed / "b")]
    assert len(list(manager.logs())) == 3
