"""What Apache Kafka's own metadata log says of topics, from files that Kafka 4.3 wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from millstream.model.topic import TopicId
from millstream.protocol.messages.kraft_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from millstream.storage.files import LocalFileSystem
from millstream.storage.kafka_metadata import (
    ABORT_TRANSACTION,
    BEGIN_TRANSACTION,
    DIRECTORY,
    END_TRANSACTION,
    KafkaTopics,
    _Replay,
    read_kafka_metadata,
)
from millstream.storage.partition_metadata import parse_partition_metadata

NODE = Path(__file__).parents[2] / "data" / "kafka-4.3.0-node"
EXPECTED = json.loads((NODE.parent / "kafka-4.3.0-node.json").read_text())
FILES = LocalFileSystem()
ONE, TWO = TopicId(b"1" * 16), TopicId(b"2" * 16)


def check(directory: Path) -> None:
    topics = read_kafka_metadata(FILES, str(directory))
    assert {name: topic.partition_count for name, topic in topics.items()} == EXPECTED["topics"]
    assert {name: topic.configs for name, topic in topics.items()} == EXPECTED["configs"]
    for name, topic in topics.items():
        text = (NODE / f"{name}-0" / "partition.metadata").read_text()
        assert topic.topic_id == parse_partition_metadata(text)
        # Kafka gave up every leadership when it stopped, which begins an epoch.
        assert set(topic.leader_epochs.values()) == {1}


def test_a_snapshot_and_the_log_behind_it() -> None:
    check(NODE)


def test_the_log_without_a_snapshot(tmp_path: Path) -> None:
    shutil.copytree(NODE / DIRECTORY, tmp_path / DIRECTORY)
    for snapshot in (tmp_path / DIRECTORY).glob("*.checkpoint"):
        snapshot.unlink()
    check(tmp_path)


def test_a_snapshot_alone_is_what_was_then(tmp_path: Path) -> None:
    shutil.copytree(NODE / DIRECTORY, tmp_path / DIRECTORY)
    (tmp_path / DIRECTORY / "00000000000000000000.log").unlink()
    assert 0 < len(read_kafka_metadata(FILES, str(tmp_path))) <= 5


def test_a_torn_log_is_read_to_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.copytree(NODE / DIRECTORY, tmp_path / DIRECTORY)
    path = tmp_path / DIRECTORY / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    assert "orders" in read_kafka_metadata(FILES, str(tmp_path))
    assert "not read to its end" in caplog.text


def test_a_directory_of_our_own_has_none(tmp_path: Path) -> None:
    assert read_kafka_metadata(FILES, str(tmp_path)) == {}
    assert KafkaTopics(FILES, lambda: [str(tmp_path)]).find("orders", None) is None


def test_a_topic_is_found_by_name_and_id() -> None:
    topics = KafkaTopics(FILES, lambda: [str(NODE)])
    found = topics.find("orders", None)
    assert found is not None
    assert topics.find("orders", found.topic_id) is found
    assert topics.find("orders", ONE) is None
    assert topics.find("gone", None) is None


def test_changes_deletions_and_transactions() -> None:
    replay = _Replay()
    replay.take(2, 0, TopicRecord(name="t", topic_id=ONE).encode_body(0))
    for version in (1, 2):
        record = PartitionRecord(
            partition_id=version - 1,
            topic_id=ONE,
            replicas=[1],
            isr=[1],
            removing_replicas=[],
            adding_replicas=[],
            leader=1,
            leader_epoch=4,
            partition_epoch=9,
            directories=[TWO],
        )
        replay.take(3, version, record.encode_body(version))
    moved = PartitionChangeRecord(partition_id=0, topic_id=ONE, leader=2)
    replay.take(5, 2, moved.encode_body(2))
    shrunk = PartitionChangeRecord(partition_id=1, topic_id=ONE, isr=[1])
    replay.take(5, 0, shrunk.encode_body(0))
    for resource, value in ((2, "5"), (4, "6"), (2, None), (2, "7")):
        record_ = ConfigRecord(
            resource_type=resource, resource_name="t", name="retention.ms", value=value
        )
        replay.take(4, 0, record_.encode_body(0))
    for end in (ABORT_TRANSACTION, END_TRANSACTION):
        replay.take(BEGIN_TRANSACTION, 0, b"")
        name = "kept" if end == END_TRANSACTION else "dropped"
        replay.take(2, 0, TopicRecord(name=name, topic_id=TWO).encode_body(0))
        replay.take(end, 0, b"")
    replay.take(BEGIN_TRANSACTION, 0, b"")
    replay.take(9, 0, RemoveTopicRecord(topic_id=ONE).encode_body(0))
    topics = replay.topics()
    assert set(topics) == {"t", "kept"}
    assert topics["t"].leader_epochs == {0: 5, 1: 4}
    assert topics["t"].configs == {"retention.ms": "7"}
    replay.take(END_TRANSACTION, 0, b"")
    assert set(replay.topics()) == {"kept"}
