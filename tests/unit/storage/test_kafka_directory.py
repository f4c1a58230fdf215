"""A data directory that Apache Kafka 4.3 wrote (tests/data/kafka-4.3.0) is served as it is.

``tests/interop/storage/make_kafka_directory.py`` says how it was made; ``expected.json`` is what
Kafka's consumers got from it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, append, append_marker, read_batches, read_values

from millstream.config.topic import TopicConfig
from millstream.model.topic import TopicId, TopicPartition
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log
from millstream.storage.log_manager import LogManager

SOURCE = Path(__file__).parents[2] / "data" / "kafka-4.3.0"
EXPECTED: dict[str, list[tuple[int, str | None]]] = {
    name: [(offset, value) for offset, value in records]
    for name, records in json.loads((SOURCE / "expected.json").read_text()).items()
}
CONFIGS = {
    "codecs": TopicConfig({"index.interval.bytes": "300"}),
    "moves": TopicConfig(),
    "trimmed": TopicConfig(),
    "compacted": TopicConfig({"cleanup.policy": "compact"}),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    shutil.copytree(SOURCE, tmp_path / "data")
    return tmp_path / "data"


def start(directory: Path) -> LogManager:
    manager = LogManager([str(directory)], LogEnvironment(), broker_id=1)
    manager.lock()

    def config_of(partition: TopicPartition, topic_id: TopicId | None) -> TopicConfig:
        assert topic_id is not None
        return CONFIGS[partition.topic]

    # Producers expire by the time of their records, which is the time the directory was made.
    manager.start(config_of=config_of, now_ms=NOW_MS)
    return manager


def log_of(manager: LogManager, topic: str) -> Log:
    log = manager.get(TopicPartition(topic, 0))
    assert log is not None
    return log


def values(log: Log) -> list[tuple[int, str | None]]:
    return [
        (offset, None if value is None else value.decode())
        for offset, value in read_values(log, log.log_start_offset)
    ]


def index_files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.glob("*/*"))
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex")
    }


@pytest.mark.parametrize("clean", [True, False])
def test_every_record_is_there(directory: Path, clean: bool) -> None:
    if not clean:
        (directory / ".kafka_cleanshutdown").unlink()
        (directory / "recovery-point-offset-checkpoint").unlink()
    manager = start(directory)
    assert manager.had_clean_shutdown is clean
    assert manager.cluster_id is not None
    for topic in CONFIGS:
        log = log_of(manager, topic)
        assert values(log) == EXPECTED[f"{topic} read_uncommitted"]
        assert log.high_watermark == log.log_end_offset
        for batch in read_batches(log, log.log_start_offset):
            batch.ensure_valid()
    assert log_of(manager, "trimmed").log_start_offset == 4
    assert len(log_of(manager, "codecs").producers.active()) == 4


def test_recovery_makes_the_files_that_kafka_made(directory: Path) -> None:
    before = index_files(directory)
    (directory / ".kafka_cleanshutdown").unlink()
    (directory / "recovery-point-offset-checkpoint").unlink()
    start(directory).close()
    assert index_files(directory) == before


def test_a_clean_start_and_stop_changes_nothing(directory: Path) -> None:
    before = index_files(directory)
    meta = (directory / "meta.properties").read_text()
    start(directory).close()
    assert index_files(directory) == before
    assert (directory / "meta.properties").read_text() == meta
    assert (directory / ".kafka_cleanshutdown").exists()


def test_aborted_transactions_are_known(directory: Path) -> None:
    log = log_of(start(directory), "moves")
    read = log.reader.read(
        0, max_bytes=1 << 20, upper_bound_offset=log.last_stable_offset, min_one_batch=True
    )
    (producer,) = log.producers.active()
    aborted = log.reader.aborted_transactions(read)
    assert [a.producer_id for a in aborted] == [producer.producer_id] * 2
    committed = EXPECTED["moves read_committed"]
    dropped = [r for r in EXPECTED["moves read_uncommitted"] if r not in committed]
    assert [a.first_offset for a in aborted] == [dropped[0][0], dropped[3][0]]


def test_its_producers_go_on(directory: Path) -> None:
    log = log_of(start(directory), "moves")
    (producer,) = log.producers.active()
    epoch = producer.producer_epoch + 1
    append(
        log, b"ours", epoch=log.latest_epoch, producer_id=producer.producer_id,
        producer_epoch=epoch, base_sequence=0, is_transactional=True,
    )  # fmt: skip
    assert log.last_stable_offset == log.log_end_offset - 1
    append_marker(
        log, producer.producer_id, commit=True, producer_epoch=epoch,
        coordinator_epoch=producer.coordinator_epoch,
    )  # fmt: skip
    log.offsets.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset


def test_compaction_left_gaps(directory: Path) -> None:
    log = log_of(start(directory), "compacted")
    offsets = [offset for offset, _ in values(log)]
    assert len(offsets) < log.log_end_offset == 12
    for offset in range(12):
        first = read_batches(log, offset)[0]
        assert first.last_offset >= offset
