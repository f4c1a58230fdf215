"""Topics are made, grown, written to and deleted while the broker is killed again and again.

What was answered counts: a topic that was created is there, with its id, its partitions and its
records; one that was deleted is gone, and a new one of its name is empty. What was on its way may
have happened or not, but not by halves.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.wire import HungUpError, Wire, produce, read_all

from millstream.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millstream.records.builder import BatchBuilder

pytestmark = pytest.mark.system

NAMES = [f"topic-{number}" for number in range(6)]
KILLS = 10
GONE = (HungUpError, OSError)


@dataclass
class Topic:
    """What is known for certain of one topic, and what may have happened to it since."""

    topic_id: bytes
    partitions: int
    values: dict[int, list[bytes]] = field(default_factory=dict)
    most_partitions: int = 0
    maybe_deleted: bool = False


class Admin(threading.Thread):
    """Changes topics at random until the broker goes away; remembers what was answered."""

    def __init__(self, broker: BrokerProcess, seed: int, known: dict[str, Topic | None]) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._chance = random.Random(seed)
        self._known = known
        """None for a topic that is known not to be; absent where nothing is known."""
        self.changes = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with Wire(self._broker.host, self._broker.port) as wire:
                while True:
                    self._change(wire, self._chance.choice(NAMES))
                    self.changes += 1
        except GONE:
            pass
        except BaseException as error:
            self.failure = error
            raise

    def _change(self, wire: Wire, name: str) -> None:
        topic = self._known.get(name)
        if topic is None:
            self._create(wire, name)
        elif self._chance.random() < 0.15:
            self._remove(wire, name, topic)
        elif self._chance.random() < 0.1 and topic.partitions < 8:
            self._grow(wire, name, topic)
        else:
            self._write(wire, name, topic)

    def _create(self, wire: Wire, name: str) -> None:
        self._known.pop(name, None)
        wanted = CreatableTopic(
            name=name,
            num_partitions=self._chance.randint(1, 5),
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        response = wire.call(CreateTopicsRequest(topics=[wanted]), 7, CreateTopicsResponse)
        (made,) = response.topics
        assert made.error_code == 0, (name, made.error_code)
        self._known[name] = Topic(bytes(made.topic_id), made.num_partitions)

    def _remove(self, wire: Wire, name: str, topic: Topic) -> None:
        topic.maybe_deleted = True
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
        response = wire.call(request, 5, DeleteTopicsResponse)
        assert response.responses[0].error_code == 0
        self._known[name] = None

    def _grow(self, wire: Wire, name: str, topic: Topic) -> None:
        topic.most_partitions = topic.partitions + 2
        wanted = CreatePartitionsTopic(name=name, count=topic.most_partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000, validate_only=False)
        response = wire.call(request, 3, CreatePartitionsResponse)
        assert response.results[0].error_code == 0
        topic.partitions = topic.most_partitions

    def _write(self, wire: Wire, name: str, topic: Topic) -> None:
        partition = self._chance.randrange(topic.partitions)
        builder = BatchBuilder()
        value = self._chance.randbytes(20)
        builder.append(time.time_ns() // 1_000_000, None, value)
        answer = produce(wire, name, partition, builder.build())
        assert answer.error_code == 0, (name, partition, answer.error_code)
        topic.values.setdefault(partition, []).append(value)


def check(broker: BrokerProcess, known: dict[str, Topic | None]) -> None:
    """Hold what the broker has against what is known, and learn what was on its way."""
    with Wire(broker.host, broker.port) as wire:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response = wire.call(request, 12, MetadataResponse)
        found = {topic.name: topic for topic in response.topics}
        for name in NAMES:
            there = found.get(name)
            if name not in known:
                if there is not None:
                    known[name] = Topic(bytes(there.topic_id), len(there.partitions))
            elif (expected := known[name]) is None:
                assert there is None, f"{name} was deleted"
            elif there is None:
                assert expected.maybe_deleted, f"{name} is gone"
                known[name] = None
            else:
                assert bytes(there.topic_id) == expected.topic_id
                count = len(there.partitions)
                assert count in (expected.partitions, expected.most_partitions)
                expected.partitions = count
                expected.maybe_deleted = False
        for name, topic in known.items():
            if topic is None:
                continue
            for partition in range(topic.partitions):
                values = [record.value for record in read_all(wire, name, partition)]
                kept = topic.values.get(partition, [])
                # One more may have been written whose answer did not arrive.
                assert values[: len(kept)] == kept, f"{name}-{partition}"
                assert len(values) <= len(kept) + 1
                topic.values[partition] = [value or b"" for value in values]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_changes_of_topics_are_whole(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    known: dict[str, Topic | None] = {}
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        for number in range(KILLS):
            admin = Admin(broker, seed * 1_000 + number, known)
            admin.start()
            time.sleep(chance.uniform(0.05, 0.4))
            broker.kill()
            admin.join(30)
            assert admin.failure is None
            broker.start()
            check(broker, known)
        live = {
            f"{name}-{partition}"
            for name, topic in known.items()
            if topic is not None
            for partition in range(topic.partitions)
        }
        directories = {path.name for path in broker.data_directory.iterdir() if path.is_dir()}
        left = {name for name in directories if not name.endswith("-delete")}
        assert left == live
        assert not [name for name in directories if name.endswith("-stray")]
    finally:
        broker.stop()
