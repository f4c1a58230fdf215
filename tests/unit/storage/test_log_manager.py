"""Log directories: start, creation, deletion, checkpoints, markers, failing disks."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, SMALL, append, files_of, read_values

from millstream.model.errors import ConfigError, ErrorCode, KafkaError, StorageError
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
from millstream.storage.environment import LogEnvironment, broker_environment
from millstream.storage.log import Log
from millstream.storage.log_manager import LogManager

TOPIC_ID = TopicId(bytes(range(16)))
LATER_ID = TopicId(bytes(range(1, 17)))
ORDERS = TopicPartition("orders", 0)


def start(*directories: Path, broker_id: int = 1, topic_id: TopicId | None = None) -> LogManager:
    environment = LogEnvironment(new_id=_ids())
    manager = LogManager([str(d) for d in directories], environment, broker_id=broker_id)
    manager.topic_id_of = lambda _: topic_id
    manager.lock()
    manager.start(config_of=lambda partition, topic_id: SMALL, now_ms=NOW_MS)
    return manager


def _ids() -> object:
    counter = iter(range(1, 1000))
    return lambda: next(counter).to_bytes(16, "big")


def create(manager: LogManager, partition: TopicPartition = ORDERS) -> Log:
    return manager.get_or_create(partition, TOPIC_ID, SMALL, now_ms=NOW_MS)


def test_logs_are_there_after_a_restart(tmp_path: Path) -> None:
    manager = start(tmp_path)
    for n in range(3):
        append(create(manager, TopicPartition("orders", n)), b"%d" % n)
    manager.close()
    manager = start(tmp_path)
    assert manager.had_clean_shutdown
    for n in range(3):
        log = manager.get(TopicPartition("orders", n))
        assert log is not None
        assert log.topic_id == TOPIC_ID
        assert read_values(log) == [(0, b"%d" % n)]
        assert log.high_watermark == 1
    assert len(list(manager.logs())) == 3
    assert manager.get(TopicPartition("orders", 3)) is None


def test_a_clean_close_leaves_the_marker_and_a_start_takes_it_away(tmp_path: Path) -> None:
    manager = start(tmp_path)
    assert not manager.had_clean_shutdown
    create(manager)
    marker = tmp_path / ".kafka_cleanshutdown"
    assert not marker.exists()
    manager.close()
    assert json.loads(marker.read_text()) == {"version": 0, "brokerEpoch": -1}
    manager = start(tmp_path)
    assert not marker.exists()


def test_without_the_marker_logs_are_recovered(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = create(manager)
    append(log, b"a")
    with (tmp_path / "orders-0" / f"{0:020d}.log").open("ab") as file:
        file.write(b"torn")
    manager._release()
    manager = start(tmp_path)
    recovered = manager.get(ORDERS)
    assert recovered is not None
    assert recovered.recovery_report.truncated_bytes == 4
    assert read_values(recovered) == [(0, b"a")]


def test_checkpoints(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = create(manager)
    other = create(manager, TopicPartition("other", 1))
    for _ in range(20):
        append(log, b"x" * 100)
    log.offsets.update_high_watermark(15)
    log.truncation.increment_log_start_offset(3)
    plan = other.flush_plan()
    assert plan is not None
    plan.run()
    manager.checkpoint_plan()()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == (
        "0\n2\norders 0 0\nother 1 0\n"
    )
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == (
        "0\n2\norders 0 15\nother 1 0\n"
    )
    plan = log.flush_plan()
    assert plan is not None
    plan.run()
    log.flushed(plan)
    manager.checkpoint_plan()()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == (
        "0\n2\norders 0 20\nother 1 0\n"
    )
    manager._release()
    log = start(tmp_path).get(ORDERS)  # type: ignore[assignment]
    assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (3, 15, 20)


def test_damaged_checkpoints_are_not_used(tmp_path: Path) -> None:
    manager = start(tmp_path)
    append(create(manager), b"a")
    manager.close()
    for name in ("recovery-point", "log-start", "replication"):
        (tmp_path / f"{name}-offset-checkpoint").write_text("0\n9\nnonsense\n")
    log = start(tmp_path).get(ORDERS)
    assert log is not None
    assert read_values(log) == [(0, b"a")]


def test_the_same_topic_id_or_none_is_asked_for(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = create(manager)
    assert create(manager) is log
    with pytest.raises(KafkaError) as refused:
        manager.get_or_create(ORDERS, TopicId(bytes(15) + b"x"), SMALL, now_ms=NOW_MS)
    assert refused.value.error is ErrorCode.INCONSISTENT_TOPIC_ID
    manager.close()
    (tmp_path / "orders-0" / "partition.metadata").unlink()
    manager = start(tmp_path)
    assert create(manager).topic_id == TOPIC_ID
    assert (tmp_path / "orders-0" / "partition.metadata").exists()


def test_deletion_renames_now_and_removes_after_the_delay(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = create(manager)
    append(log, b"a")
    found = log.reader.read(0, max_bytes=1000, upper_bound_offset=1, min_one_batch=True)
    assert manager.delete(ORDERS, now_ms=NOW_MS)
    assert not manager.delete(ORDERS, now_ms=NOW_MS)
    (renamed,) = [p for p in tmp_path.iterdir() if p.is_dir()]
    assert renamed.name == f"orders-0.{1:032x}-delete"
    assert manager.get(ORDERS) is None
    assert manager.removals.next_ms == NOW_MS + 60_000
    again = create(manager)
    append(again, b"new")
    manager.removals.run_due(NOW_MS + 60_000)
    assert not renamed.exists()
    assert found.records is not None
    assert found.records.read().find(b"a") > 0
    assert read_values(again) == [(0, b"new")]


def test_directories_left_by_a_deletion_go_after_the_next_start(tmp_path: Path) -> None:
    manager = start(tmp_path)
    create(manager)
    manager.delete(ORDERS, now_ms=NOW_MS)
    manager.close()
    manager = start(tmp_path)
    assert list(manager.logs()) == []
    manager.removals.run_due(NOW_MS)
    assert [p for p in tmp_path.iterdir() if p.is_dir()] == []


def test_a_partition_of_an_unknown_topic_is_renamed_to_stray(tmp_path: Path) -> None:
    manager = start(tmp_path)
    append(create(manager), b"a")
    assert manager.mark_stray(ORDERS)
    assert not manager.mark_stray(ORDERS)
    (aside,) = [p for p in tmp_path.iterdir() if p.is_dir()]
    assert aside.name.endswith("-stray")
    manager.close()
    manager = start(tmp_path)
    assert list(manager.logs()) == []
    assert (aside / f"{0:020d}.log").stat().st_size > 0


def test_foreign_directories_are_left_alone(tmp_path: Path) -> None:
    for name in ("__cluster_metadata-0", "lost+found", "notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(b"not ours")
    manager = start(tmp_path)
    assert list(manager.logs()) == []
    manager.close()
    for name in ("__cluster_metadata-0", "lost+found", "notes"):
        assert files_of_directory(tmp_path / name) == ["00000000000000000000.log"]


def files_of_directory(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.iterdir())


def test_identity(tmp_path: Path) -> None:
    manager = start(tmp_path)
    assert manager.cluster_id is None
    manager.assign_cluster_id("TWlsbHN0cmVhbS10ZXN0cw")
    assert (tmp_path / "meta.properties").read_text() == (
        "version=1\ncluster.id=TWlsbHN0cmVhbS10ZXN0cw\nnode.id=1\n"
        "directory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    manager.close()
    manager = start(tmp_path)
    assert manager.cluster_id == "TWlsbHN0cmVhbS10ZXN0cw"
    assert manager.directory_id(str(tmp_path)) == "AAAAAAAAAAAAAAAAAAAAAQ"
    manager.close()
    with pytest.raises(ConfigError, match="belongs to node 1"):
        start(tmp_path, broker_id=2)


def test_directories_of_different_clusters_are_refused(tmp_path: Path) -> None:
    for n in (1, 2):
        (tmp_path / str(n)).mkdir()
        (tmp_path / str(n) / "meta.properties").write_text(
            f"version=1\ncluster.id={n}\nnode.id=1\n"
        )
    with pytest.raises(ConfigError, match="belongs to cluster"):
        start(tmp_path / "1", tmp_path / "2")


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    manager = start(tmp_path)
    with pytest.raises(StorageError, match="another process"):
        start(tmp_path)
    code = (
        "import fcntl,sys; f=open(sys.argv[1],'r+b')\n"
        "try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: print('locked')\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / ".lock")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "locked\n"
    manager.close()
    start(tmp_path).close()


def test_new_partitions_go_to_the_emptiest_directory(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    for n in range(6):
        create(manager, TopicPartition("orders", n))
    assert len(list((tmp_path / "a").glob("orders-*"))) == 3
    assert len(list((tmp_path / "b").glob("orders-*"))) == 3
    manager.close()
    assert len(list(start(tmp_path / "a", tmp_path / "b").logs())) == 6


def test_the_same_partition_twice_is_refused(tmp_path: Path) -> None:
    manager = start(tmp_path / "a")
    append(create(manager), b"a")
    manager.close()
    manager = start(tmp_path / "b")
    append(manager.get_or_create(ORDERS, LATER_ID, SMALL, now_ms=NOW_MS), b"b")
    manager.close()
    with pytest.raises(ConfigError, match="same partition"):
        start(tmp_path / "a", tmp_path / "b")


def test_an_empty_directory_of_the_same_partition_is_put_aside(tmp_path: Path) -> None:
    manager = start(tmp_path / "a")
    append(create(manager), b"a")
    manager.close()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "orders-0").mkdir()
    manager = start(tmp_path / "a", tmp_path / "b")
    (log,) = manager.logs()
    assert (log.log_directory, log.log_end_offset) == (str(tmp_path / "a"), 1)


def test_one_failing_directory_goes_offline_and_the_others_serve_on(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    manager = start(first, second)
    for n in range(4):
        append(create(manager, TopicPartition("orders", n)), b"a")
    gone = manager.directory_failed(str(second))
    assert len(gone) == 2
    assert manager.directory_failed(str(second)) == []
    assert list(manager.directories) == [str(first)]
    assert list(manager.offline_directories) == [str(second)]
    assert len(list(manager.logs())) == 2
    with pytest.raises(StorageError):
        manager.get_or_create(gone[0], TOPIC_ID, SMALL, now_ms=NOW_MS, is_new=False)
    manager.close()
    assert (first / ".kafka_cleanshutdown").exists()
    assert not (second / ".kafka_cleanshutdown").exists()


def test_a_directory_that_cannot_be_opened_is_offline_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    manager = start(tmp_path / "file", tmp_path / "good")
    assert list(manager.directories) == [str(tmp_path / "good")]
    with pytest.raises(StorageError):
        start(tmp_path / "file")


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_that_failed_gives_the_directory_back_as_it_was(
    tmp_path: Path, clean: bool
) -> None:
    manager = start(tmp_path)
    append(create(manager), b"a", b"b")
    manager.checkpoint_plan()()
    if clean:
        manager.close()
    else:
        manager._release()

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    before = files()
    assert (".kafka_cleanshutdown" in before) == clean
    failed = LogManager([str(tmp_path)], LogEnvironment(), broker_id=1)
    failed.lock()
    failed.give_back()
    assert files() == before
    start(tmp_path).give_back()
    assert files() == before
    failed.give_back()
    manager = start(tmp_path)
    assert manager.had_clean_shutdown == clean
    manager.close()


def test_give_back_without_the_lock_does_nothing(tmp_path: Path) -> None:
    holder = start(tmp_path)
    other = LogManager([str(tmp_path)], LogEnvironment(), broker_id=1)
    with pytest.raises(StorageError, match="another process"):
        other.lock()
    other.give_back()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with pytest.raises(StorageError, match="another process"):
        other.lock()
    holder.close()


def test_retention_over_all_logs(tmp_path: Path) -> None:
    manager = start(tmp_path)
    for n in range(2):
        log = create(manager, TopicPartition("orders", n))
        for _ in range(20):
            append(log, b"x" * 100)
    week_ms = 7 * 24 * 3_600_000
    assert manager.delete_old_segments(now_ms=NOW_MS + week_ms) == 0
    assert manager.delete_old_segments(now_ms=NOW_MS + week_ms + 1) > 2
    assert manager.removals.next_ms == NOW_MS + week_ms + 1 + 60_000
    manager.removals.run_due(NOW_MS + 2 * week_ms)
    assert not [name for name in files_of(tmp_path) if name.endswith(".deleted")]


def write_old_format(directory: Path) -> None:
    """Write a log in message format 0."""
    directory.mkdir()
    content = struct.pack(">bb", 0, 0) + struct.pack(">ii", -1, 40) + b"v" * 40
    message = struct.pack(">qi", 0, len(content) + 4) + struct.pack(">I", zlib.crc32(content))
    (directory / f"{0:020d}.log").write_bytes(message + content)


def test_a_log_that_cannot_be_read_keeps_its_files_and_the_marker_away(tmp_path: Path) -> None:
    manager = start(tmp_path)
    create(manager, TopicPartition("good", 0))
    manager._release()
    write_old_format(tmp_path / "orders-0")
    manager = start(tmp_path)
    assert [log.topic_partition.topic for log in manager.logs()] == ["good"]
    with pytest.raises(KafkaError) as refused:
        create(manager)
    assert refused.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    manager.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_in_an_old_format_is_neither_changed_nor_called_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    partition = tmp_path / "orders-0"
    write_old_format(partition)
    for extension in ("index", "timeindex"):
        (partition / f"{0:020d}.{extension}").write_bytes(b"as Kafka left it")
    if clean:
        (tmp_path / ".kafka_cleanshutdown").write_text("")
    found = {path.name: path.read_bytes() for path in partition.iterdir()}
    manager = start(tmp_path)
    manager.close()
    assert {path.name: path.read_bytes() for path in partition.iterdir()} == found
    assert (
        "orders-0 cannot be loaded, and is not touched: a message in format version 0"
        in caplog.text
    )
    assert "millstream log migrate" in caplog.text
    assert "damaged" not in caplog.text
    assert "Traceback" not in caplog.text


def test_an_unreadable_log_is_not_created_in_another_directory(tmp_path: Path) -> None:
    first, second = tmp_path / "disk", tmp_path / "disk-2"
    second.mkdir()
    write_old_format(second / "orders-0")
    manager = start(first, second)
    with pytest.raises(KafkaError, match="disk-2/orders-0 cannot be read") as refused:
        create(manager)
    assert refused.value.error is ErrorCode.KAFKA_STORAGE_ERROR
    create(manager, TopicPartition("orders", 1))
    manager.close()
    assert (first / ".kafka_cleanshutdown").exists()
    assert not (second / ".kafka_cleanshutdown").exists()


def test_checkpoints_keep_what_they_say_of_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    """Converted, it has to begin where it did: what was deleted does not come back."""
    write_old_format(tmp_path / "orders-0")
    names = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
    for name in (*names, "replication-offset-checkpoint"):
        (tmp_path / name).write_text("0\n2\ngone 0 3\norders 0 7\n")
    manager = start(tmp_path)
    assert manager.has_outdated_checkpoints
    append(create(manager, TopicPartition("good", 0)), b"v")
    manager.checkpoint_plan()()
    manager.close()
    for name in (*names, "replication-offset-checkpoint"):
        assert "orders 0 7\n" in (tmp_path / name).read_text()
        assert "gone" not in (tmp_path / name).read_text()
    manager = start(tmp_path)
    assert not manager.has_outdated_checkpoints
    manager.close()


def test_a_real_broker_may_open_many_files() -> None:
    environment = broker_environment(producer_id_expiration_ms=5)
    assert environment.open_files.limit > 256
    assert environment.producer_id_expiration_ms == 5
    assert 0 <= environment.roll_jitter_ms(10) < 10
    assert environment.roll_jitter_ms(0) == 0
    assert len(environment.new_id()) == 16


@pytest.mark.parametrize("living", [TOPIC_ID, LATER_ID])
def test_a_directory_comes_back_with_a_log_of_a_deleted_topic(
    tmp_path: Path, living: TopicId
) -> None:
    """Simulator, seed 40524: deleted and made anew while a directory was away."""
    for name, topic_id in (("one", TOPIC_ID), ("two", LATER_ID)):
        manager = start(tmp_path / name)
        log = manager.get_or_create(ORDERS, topic_id, SMALL, now_ms=NOW_MS)
        append(log, topic_id)
        manager.close()
    manager = start(tmp_path / "one", tmp_path / "two", topic_id=living)
    kept = manager.get(ORDERS)
    assert kept is not None
    assert kept.topic_id == living
    assert read_values(kept) == [(0, living)]
    (put_aside,) = tmp_path.glob("*/*-stray")
    assert put_aside.parent.name == ("two" if living == TOPIC_ID else "one")
    manager.close()
    assert start(tmp_path / "one", tmp_path / "two", topic_id=living).get(ORDERS) is not None


def test_logs_of_two_unknown_topic_ids_fail_the_start(tmp_path: Path) -> None:
    for name, topic_id in (("one", TOPIC_ID), ("two", LATER_ID)):
        manager = start(tmp_path / name)
        manager.get_or_create(ORDERS, topic_id, SMALL, now_ms=NOW_MS)
        manager.close()
    with pytest.raises(ConfigError, match="hold the same partition"):
        start(tmp_path / "one", tmp_path / "two")


def test_a_move_of_a_log_that_was_truncated_fully_is_seen_through(tmp_path: Path) -> None:
    """Found by the crash twin: the log that was moved began beyond the one that came back."""
    for name in ("one", "two"):
        manager = start(tmp_path / name)
        log = manager.get_or_create(ORDERS, TOPIC_ID, SMALL, now_ms=NOW_MS)
        if name == "one":
            append(log, TOPIC_ID)
        else:
            log.truncation.truncate_fully_and_start_at(13, now_ms=NOW_MS)
        manager.close()
    manager = start(tmp_path / "one", tmp_path / "two", topic_id=TOPIC_ID)
    kept = manager.get(ORDERS)
    assert kept is not None
    assert (kept.log_start_offset, kept.log_end_offset) == (13, 13)
    (put_aside,) = tmp_path.glob("*/*-stray")
    assert put_aside.parent.name == "one"
    manager.close()


def test_logs_of_two_deleted_topics_do_not_keep_a_broker_from_starting(tmp_path: Path) -> None:
    """Simulator, seed 612901: the topic was deleted twice while a directory was away."""
    for name, topic_id in (("one", TOPIC_ID), ("two", LATER_ID)):
        manager = start(tmp_path / name)
        manager.get_or_create(ORDERS, topic_id, SMALL, now_ms=NOW_MS)
        manager.close()
    manager = start(tmp_path / "one", tmp_path / "two", topic_id=ZERO_TOPIC_ID)
    kept = manager.get(ORDERS)
    assert kept is not None
    (put_aside,) = tmp_path.glob("*/*-stray")
    assert put_aside.parent != Path(kept.log_directory)
    manager.close()
