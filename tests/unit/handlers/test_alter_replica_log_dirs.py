"""AlterReplicaLogDirs and what DescribeLogDirs shows of it; cordoned directories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.controller.topic_changes import NewTopic
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from millstream.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[AdminBroker]:
    (tmp_path / "a").mkdir()
    made = AdminBroker(tmp_path / "a", more_directories=[tmp_path / "b"])
    yield made
    made.close()


def ask(
    broker: AdminBroker, directory: object, topic: str = "t", index: int = 0, version: int = 2
) -> ErrorCode:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=str(directory),
                topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])],
            )
        ]
    )
    response = broker.call(request, version, AlterReplicaLogDirsResponse)
    ((answered,),) = [each.partitions for each in response.results]
    assert response.results[0].topic_name == topic
    assert answered.partition_index == index
    return ErrorCode.of(answered.error_code)


def place(broker: AdminBroker, topic: str = "t", index: int = 0) -> str:
    log = broker.log_manager.get(TopicPartition(topic, index))
    assert log is not None
    return Path(log.log_directory).name


def shown(broker: AdminBroker) -> dict[tuple[str, bool], DescribeLogDirsPartition]:
    response = broker.call(DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse)
    return {
        (Path(result.log_dir).name, row.is_future_key): row
        for result in response.results
        for topic in result.topics
        for row in topic.partitions
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_there_and_back(two: AdminBroker, tmp_path: Path, version: int) -> None:
    two.create("t")
    two.fill("t", b"value")
    assert place(two) == "a"
    assert ask(two, tmp_path / "b", version=version) is ErrorCode.NONE
    two.clock.settle()
    assert place(two) == "b"
    assert list(shown(two)) == [("b", False)]
    assert ask(two, tmp_path / "b", version=version) is ErrorCode.NONE
    assert ask(two, tmp_path / "a", version=version) is ErrorCode.NONE
    two.clock.settle()
    assert place(two) == "a"


def test_a_future_replica_is_shown_with_what_it_lacks(two: AdminBroker, tmp_path: Path) -> None:
    two.create("t")
    two.fill("t", b"one", b"two")
    two.offload.held = True
    assert ask(two, tmp_path / "b") is ErrorCode.NONE
    two.clock.settle()
    rows = shown(two)
    assert rows["b", True].offset_lag == 2
    assert rows["b", True].partition_size == 0
    assert rows["a", False].offset_lag == 0
    assert rows["a", False].partition_size > 0
    two.offload.held = False
    two.offload.release()
    two.clock.settle()
    assert list(shown(two)) == [("b", False)]


def test_what_is_refused(two: AdminBroker, tmp_path: Path) -> None:
    two.create("t")
    long_name = "x" * 215
    two.create(long_name)
    assert ask(two, tmp_path / "c") is ErrorCode.LOG_DIR_NOT_FOUND
    assert ask(two, "b") is ErrorCode.LOG_DIR_NOT_FOUND
    assert ask(two, tmp_path / "b", "nothing") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(two, tmp_path / "b", long_name) is ErrorCode.INVALID_TOPIC_EXCEPTION
    two.log_manager.placement.cordoned = frozenset({str(tmp_path / "b")})
    assert ask(two, tmp_path / "b") is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    two.log_manager.directory_failed(str(tmp_path / "b"))
    assert ask(two, tmp_path / "b") is ErrorCode.KAFKA_STORAGE_ERROR
    assert place(two) == "a"


def test_the_directory_of_a_partition_to_come_is_remembered(
    two: AdminBroker, tmp_path: Path
) -> None:
    for index in range(3):
        assert ask(two, tmp_path / "b", index=index) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    two.create("t", 5)
    assert [place(two, index=index) for index in range(5)] == ["b", "b", "b", "a", "a"]


def test_cordoned_directories_take_nothing_new(two: AdminBroker, tmp_path: Path) -> None:
    two.log_manager.placement.cordoned = frozenset({str(tmp_path / "a")})
    two.create("t", 3)
    assert {place(two, index=index) for index in range(3)} == {"b"}
    response = two.call(DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse)
    assert [(Path(r.log_dir).name, r.is_cordoned) for r in response.results] == [
        ("a", True),
        ("b", False),
    ]
    two.fill("t", b"what is there goes on")


def test_with_all_directories_cordoned_no_topic_is_made(tmp_path: Path) -> None:
    broker = AdminBroker(
        tmp_path, {"log.dirs": str(tmp_path), "cordoned.log.dirs": "*", "num.partitions": "1"}
    )
    try:
        (result,) = broker.controller.topics.create_topics([NewTopic("t", 1)]).result()
        assert isinstance(result, KafkaError)
        assert result.error is ErrorCode.INVALID_REPLICATION_FACTOR
        assert "cordoned" in str(result)
    finally:
        broker.close()
