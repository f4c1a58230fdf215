"""Directories in message formats 0 and 1, written by Apache Kafka 2.8, become format 2."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from tests.memory_files import MemoryFileSystem, PowerLossError
from tests.unit.records.test_legacy import SOURCE, TOPICS, expected
from tests.unit.storage.support import append, look_up_time, read_batches

from millstream.config.topic import TopicConfig
from millstream.model.topic import TopicPartition
from millstream.records.batch import Batch
from millstream.records.legacy import LegacyMessage
from millstream.records.legacy_records import iter_legacy_records
from millstream.records.log_entries import iter_log_entries
from millstream.records.record import Record, read_records
from millstream.storage.directory import PartitionDirectory
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import FileSystem, LocalFileSystem
from millstream.storage.log_manager import LogManager
from millstream.storage.migration import MigratedSegment, MigrationError, PartitionMigration
from millstream.storage.verify.partition import VerifyOptions, verify_partition

NOW_MS = 1_795_236_570_000
CONFIG = TopicConfig()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    shutil.copytree(SOURCE, tmp_path / "data")
    return tmp_path / "data"


def place(root: str, topic: str) -> PartitionDirectory:
    return PartitionDirectory(root, f"{topic}-0", TopicPartition(topic, 0))


def migrate(
    root: Path | str, topic: str, file_system: FileSystem | None = None, *, dry_run: bool = False
) -> list[MigratedSegment]:
    environment = LogEnvironment(file_system=file_system or LocalFileSystem())
    conversion = PartitionMigration(environment, place(str(root), topic))
    return list(conversion.run(dry_run=dry_run))


def problems(root: Path | str, topic: str, file_system: FileSystem | None = None) -> list[str]:
    report = verify_partition(
        file_system or LocalFileSystem(), place(str(root), topic), VerifyOptions(with_records=True)
    )
    return [f"{problem.path}: {problem.what}" for problem in report.problems]


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def test_a_broker_serves_what_was_converted(directory: Path) -> None:
    checkpoints = {path.name: path.read_bytes() for path in directory.glob("*checkpoint")}
    for topic in TOPICS:
        assert migrate(directory, topic)
        assert problems(directory, topic) == []
        assert migrate(directory, topic) == []
    assert {path.name: path.read_bytes() for path in directory.glob("*checkpoint")} == checkpoints
    manager = LogManager([str(directory)], LogEnvironment(), broker_id=1)
    manager.lock()
    manager.start(config_of=lambda partition, topic_id: CONFIG, now_ms=NOW_MS)
    for topic in TOPICS:
        log = manager.get(TopicPartition(topic, 0))
        assert log is not None
        log.offsets.update_high_watermark(log.log_end_offset)
        served = expected(topic)
        got: list[Record] = []
        for batch in read_batches(log, log.log_start_offset):
            batch.ensure_valid()
            got += (r for r in read_records(batch) if r.offset >= log.log_start_offset)
        assert got == served
        assert log.log_start_offset == (18 if topic == "trimmed" else 0)
        end = log.log_end_offset
        assert end == served[-1].offset + 1
        assert append(log, b"ours").base_offset == end
    manager.close()


@pytest.mark.parametrize("topic", ["magic0", "magic1"])
def test_look_ups_by_time_find_what_they_should(directory: Path, topic: str) -> None:
    migrate(directory, topic)
    manager = LogManager([str(directory)], LogEnvironment(), broker_id=1)
    manager.lock()
    manager.start(config_of=lambda partition, topic_id: CONFIG, now_ms=NOW_MS)
    log = manager.get(TopicPartition(topic, 0))
    assert log is not None
    for record in expected(topic):
        found = look_up_time(log, record.timestamp)
        if record.timestamp >= 0:
            assert found is not None
            first = next(r for r in expected(topic) if r.timestamp >= record.timestamp)
            assert (found.offset, found.timestamp) == (first.offset, first.timestamp)
    manager.close()


def test_files_keep_the_time_at_which_they_were_written(directory: Path) -> None:
    path = directory / "magic0-0" / "00000000000000000000.log"
    os.utime(path, (1_000_000_000, 1_000_000_000))
    migrate(directory, "magic0")
    assert path.stat().st_mtime == 1_000_000_000


def test_a_dry_run_changes_nothing(directory: Path) -> None:
    before = files(directory / "upgraded-0")
    told = migrate(directory, "upgraded", dry_run=True)
    assert [Path(segment.path).name[:20] for segment in told] == [
        "00000000000000000000",
        "00000000000000000020",
        "00000000000000000048",
    ]
    assert files(directory / "upgraded-0") == before


def test_batches_of_format_2_are_copied_as_they_are(directory: Path) -> None:
    before = files(directory / "upgraded-0")
    migrate(directory, "upgraded")
    after = files(directory / "upgraded-0")
    assert after["00000000000000000072.log"] == before["00000000000000000072.log"]
    mixed = before["00000000000000000048.log"]
    legacy_bytes = sum(
        entry.size for _, entry in iter_log_entries(mixed) if isinstance(entry, LegacyMessage)
    )
    assert 0 < legacy_bytes < len(mixed)
    assert after["00000000000000000048.log"].endswith(mixed[legacy_bytes:])


def test_a_torn_tail_of_the_last_segment_is_left_out(directory: Path) -> None:
    path = directory / "magic1-0" / "00000000000000000020.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    told = migrate(directory, "magic1")
    assert told[1].torn_bytes == 197 - 5
    assert problems(directory, "magic1")[:1] == [
        f"{directory}/magic1-0/00000000000000000048.snapshot: it holds up to offset 48, and the "
        "log ends at 44"
    ]


def test_a_preallocated_tail_is_left_out(directory: Path) -> None:
    path = directory / "magic1-0" / "00000000000000000020.log"
    path.write_bytes(path.read_bytes() + bytes(1000))
    assert migrate(directory, "magic1")[1].torn_bytes == 1000
    assert problems(directory, "magic1") == []


@pytest.mark.parametrize(
    ("name", "position", "complaint"),
    [
        ("00000000000000000000.log", 40, "position 0"),
        ("00000000000000000020.log", 300, "position 158"),
        ("00000000000000000000.log", 8, "damaged"),
    ],
)
def test_a_damaged_log_is_left_as_it_is(
    directory: Path, name: str, position: int, complaint: str
) -> None:
    path = directory / "magic1-0" / name
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)
    with pytest.raises(MigrationError, match=complaint):
        migrate(directory, "magic1")
    assert path.read_bytes() == data
    assert not list(path.parent.glob("*.cleaned"))


def test_an_unfinished_compaction_is_not_touched(directory: Path) -> None:
    (directory / "compacted-0" / "00000000000000000000.log.swap").write_bytes(b"")
    with pytest.raises(MigrationError, match="interrupted compaction"):
        migrate(directory, "compacted")


def in_memory(topic: str) -> MemoryFileSystem:
    file_system = MemoryFileSystem()
    file_system.make_directory(f"/data/{topic}-0")
    for path in (SOURCE / f"{topic}-0").iterdir():
        file = file_system.open(f"/data/{topic}-0/{path.name}", create=True)
        file.write_at(0, path.read_bytes())
    file_system.sync_all("/data")
    file_system.steps = 0
    return file_system


def records_in(file_system: MemoryFileSystem, topic: str) -> list[Record]:
    found: list[Record] = []
    names = [e.name for e in file_system.scan(f"/data/{topic}-0") if e.name.endswith(".log")]
    for name in sorted(names):
        for _, entry in iter_log_entries(memoryview(file_system.map(f"/data/{topic}-0/{name}"))):
            assert entry.is_valid
            found += read_records(entry) if isinstance(entry, Batch) else iter_legacy_records(entry)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("topic", ["magic0", "upgraded"])
def test_a_stop_at_any_step_loses_nothing(topic: str) -> None:
    whole = in_memory(topic)
    migrate("/data", topic, whole)
    before = records_in(in_memory(topic), topic)
    assert records_in(whole, topic) == before
    assert problems("/data", topic, whole) == []
    for stop in range(1, whole.steps + 1):
        file_system = in_memory(topic)

        def lose_power(step: str, path: str, fs: MemoryFileSystem = file_system) -> None:
            if fs.steps == stop:  # noqa: B023
                raise PowerLossError

        file_system.hook = lose_power
        with pytest.raises(PowerLossError):
            migrate("/data", topic, file_system)
        file_system.hook = lambda step, path: None
        for left in (file_system.crashed(random.Random(stop)), file_system):
            assert records_in(left, topic) == before
            migrate("/data", topic, left)
            assert records_in(left, topic) == before
            assert problems("/data", topic, left) == []


def test_a_full_disk_leaves_the_old_log() -> None:
    file_system = in_memory("magic1")
    file_system.room = 800
    with pytest.raises(OSError, match="No space left"):
        migrate("/data", "magic1", file_system)
    file_system.room = None
    names = {entry.name for entry in file_system.scan("/data/magic1-0")}
    assert not any(name.endswith(".cleaned") for name in names)
    migrate("/data", "magic1", file_system)
    assert problems("/data", "magic1", file_system) == []


def test_a_log_that_was_upgraded_is_left_alone_too(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends in batches that a broker can read; what it begins with would fail when fetched."""
    before = files(directory / "upgraded-0")
    for clean in (True, False):
        manager = LogManager([str(directory)], LogEnvironment(), broker_id=1)
        manager.lock()
        manager.start(config_of=lambda _, __: TopicConfig({}), now_ms=1_700_000_000_000)
        assert list(manager.logs()) == []
        manager.give_back()
        assert files(directory / "upgraded-0") == before
        assert (
            "upgraded-0 cannot be loaded, and is not touched: a message in format version 1"
            in caplog.text
        )
        caplog.clear()
        if clean:
            (directory / ".kafka_cleanshutdown").unlink()
            (directory / "upgraded-0" / "leader-epoch-checkpoint").unlink()
            before = files(directory / "upgraded-0")
