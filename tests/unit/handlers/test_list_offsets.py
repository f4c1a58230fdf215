"""ListOffsets: who may answer, and what waits for a disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.slow_files import SlowFiles
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.handlers.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.message import Response
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.runtime.replicas.partition import Partition
from millstream.storage.environment import LogEnvironment

VERSION = 11
FIRST_MS = 1_700_000_000_000
SPECIAL = (
    LATEST,
    EARLIEST,
    MAX_TIMESTAMP,
    EARLIEST_LOCAL,
    LATEST_TIERED,
    EARLIEST_PENDING_UPLOAD,
)
Answer = tuple[int, int, int]
"""Error code, offset, timestamp."""


class Files(SlowFiles):
    """Notes the names of files that are opened or mapped."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[str] = []

    def touch(self, path: str, position: int, size: int) -> None:
        self.touched.append(path)
        super().touch(path, position, size)


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def broker(tmp_path: Path, files: Files) -> Iterator[AdminBroker]:
    made = AdminBroker(tmp_path, environment=LogEnvironment(file_system=files))
    yield made
    made.close()


def ask(
    broker: AdminBroker, *wanted: tuple[str, int, int], isolation: int = 0
) -> Deferred[Response]:
    """Ask for offsets by topic, partition and time."""
    topics: dict[str, ListOffsetsTopic] = {}
    for topic, index, timestamp in wanted:
        topics.setdefault(topic, ListOffsetsTopic(name=topic, partitions=[])).partitions.append(
            ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        )
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=list(topics.values())
    )
    return broker.start(request, VERSION)


def told(response: Response) -> dict[tuple[str, int], Answer]:
    assert isinstance(response, ListOffsetsResponse)
    return {
        (topic.name, each.partition_index): (each.error_code, each.offset, each.timestamp)
        for topic in response.topics
        for each in topic.partitions
    }


def one(broker: AdminBroker, topic: str, timestamp: int) -> Answer:
    return told(ask(broker, (topic, 0, timestamp)).result())[topic, 0]


def fill(broker: AdminBroker, topic: str, count: int, index: int = 0) -> Partition:
    """Write a record each millisecond, and close a segment after every eighth."""
    partition = broker.partitions.get(topic, index)
    broker.clock.time_ms = FIRST_MS
    for number in range(count):
        if number % 8 == 0:
            partition.log.appender.roll(now_ms=broker.clock.now_ms())
        broker.fill(topic, b"x" * 500, index=index)
        broker.clock.time_ms += 1
    return partition


@pytest.fixture
def cold(tmp_path: Path, files: Files) -> Iterator[AdminBroker]:
    """A broker that was started again after the two partitions of "t" were filled: nothing of its
    logs is in memory.
    """
    environment = LogEnvironment(file_system=files)
    before = AdminBroker(tmp_path, environment=environment)
    before.create("t", 2)
    for index in range(2):
        fill(before, "t", 80, index)
    before.close()
    made = AdminBroker(tmp_path, environment=LogEnvironment(file_system=files))
    files.drop_cache()
    files.touched.clear()
    yield made
    made.offload.held = False
    made.close()


def test_the_offsets_of_a_partition(broker: AdminBroker) -> None:
    broker.create("t")
    fill(broker, "t", 20)
    assert one(broker, "t", LATEST) == (0, 20, -1)
    assert one(broker, "t", EARLIEST) == (0, 0, -1)
    assert one(broker, "t", EARLIEST_LOCAL) == (0, 0, -1)
    assert one(broker, "t", LATEST_TIERED) == (0, -1, -1)
    assert one(broker, "t", EARLIEST_PENDING_UPLOAD) == (0, -1, -1)
    assert one(broker, "t", MAX_TIMESTAMP) == (0, 19, FIRST_MS + 19)
    assert one(broker, "t", FIRST_MS + 7) == (0, 7, FIRST_MS + 7)
    assert one(broker, "t", FIRST_MS + 20) == (0, -1, -1)
    assert one(broker, "t", 0) == (0, 0, FIRST_MS)


@pytest.mark.parametrize("timestamp", [FIRST_MS + 10, MAX_TIMESTAMP])
def test_the_loop_reads_nothing_of_cold_segments(
    cold: AdminBroker, files: Files, timestamp: int
) -> None:
    cold.offload.held = True
    answer = ask(cold, ("t", 0, timestamp))
    while not answer.done:
        assert (files.touched, files.stalls) == ([], [])
        cold.offload.release()
        assert files.touched
        files.touched.clear()
        files.stalls.clear()
        cold.clock.settle()
    found = timestamp - FIRST_MS if timestamp > 0 else 79
    assert told(answer.result())["t", 0] == (0, found, FIRST_MS + found)


def test_partitions_are_looked_up_side_by_side(cold: AdminBroker) -> None:
    cold.offload.held = True
    answer = ask(cold, ("t", 0, FIRST_MS + 3), ("t", 1, FIRST_MS + 4), ("absent", 0, 5))
    rounds = 0
    while not answer.done:
        cold.offload.release()
        cold.clock.settle()
        rounds += 1
    assert rounds <= 3
    assert told(answer.result()) == {
        ("t", 0): (0, 3, FIRST_MS + 3),
        ("t", 1): (0, 4, FIRST_MS + 4),
        ("absent", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code, -1, -1),
    }


def test_damage_stays_with_its_partition(cold: AdminBroker) -> None:
    (cold.directory / "t-0" / f"{16:020d}.log").write_bytes(bytes(500))
    (cold.directory / "t-0" / f"{16:020d}.timeindex").write_bytes(b"cut")
    answer = told(ask(cold, ("t", 0, FIRST_MS + 40), ("t", 1, FIRST_MS + 40)).result())
    assert answer["t", 0] == (ErrorCode.CORRUPT_MESSAGE.code, -1, -1)
    assert answer["t", 1] == (0, 40, FIRST_MS + 40)


# Who may answer


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[KafkaError | None]:
    """What the partitions' lease says, from the next question on."""
    lease: list[KafkaError | None] = [None]
    monkeypatch.setattr(Partition, "refusal_to_answer", lambda _: lease[0])
    return lease


@pytest.mark.parametrize("timestamp", [*SPECIAL, FIRST_MS + 3])
def test_without_a_lease_nothing_is_told(
    broker: AdminBroker, refusals: list[KafkaError | None], timestamp: int
) -> None:
    broker.create("t")
    fill(broker, "t", 20)
    refusals[0] = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    code, offset, _ = one(broker, "t", timestamp)
    assert (code, offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER.code, -1)
    refusals[0] = None
    assert one(broker, "t", timestamp)[0] == 0


def test_a_lease_that_ends_during_a_look_up(
    cold: AdminBroker, refusals: list[KafkaError | None]
) -> None:
    cold.offload.held = True
    answer = ask(cold, ("t", 0, FIRST_MS + 3))
    assert not answer.done
    refusals[0] = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cold.offload.release()
    cold.clock.settle()
    assert told(answer.result())["t", 0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER.code


def test_a_lease_that_ends_while_another_partition_is_looked_up(
    cold: AdminBroker, refusals: list[KafkaError | None]
) -> None:
    """The end of the log is at hand, and is told with the other answer."""
    cold.offload.held = True
    answer = ask(cold, ("t", 0, LATEST), ("t", 1, FIRST_MS + 3))
    assert not answer.done
    refusals[0] = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cold.offload.release()
    cold.clock.settle()
    refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER.code, -1, -1)
    assert told(answer.result()) == {("t", 0): refused, ("t", 1): refused}


def test_a_partition_that_is_named_twice_is_refused(broker: AdminBroker) -> None:
    broker.create("t", 2)
    found = told(ask(broker, ("t", 0, LATEST), ("t", 1, LATEST), ("t", 0, EARLIEST)).result())
    assert found == {("t", 0): (ErrorCode.INVALID_REQUEST.code, -1, -1), ("t", 1): (0, 0, -1)}
