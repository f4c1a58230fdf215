"""Kafka Streams' own word count on a broker of ours, exactly once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from bench.peers.kafka import KafkaInstall, KafkaNotFoundError, find_kafka_programs
from tests.broker_process import BrokerProcess
from tests.interop.java.program import Program
from tests.waiting import wait_until

from millstream.client import Admin, Consumer, Producer, TopicPartition
from millstream.client.core.admin.configs import Resource, ResourceType
from millstream.client.core.admin.topics import NewTopic

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

WORD_COUNT: Final = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
INPUT: Final = "streams-plaintext-input"
OUTPUT: Final = "streams-wordcount-output"
PARTITIONS: Final = 3
LINES: Final = 6_000
WORDS: Final = [f"word{number}" for number in range(200)]


@pytest.fixture(scope="module")
def programs() -> KafkaInstall:
    try:
        return find_kafka_programs()
    except KafkaNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """The program's topics have fixed names."""
    with BrokerProcess(tmp_path / "broker") as process:
        with Admin(bootstrap_servers=process.bootstrap) as admin:
            admin.create_topics(
                [NewTopic(name, partitions=PARTITIONS) for name in (INPUT, OUTPUT)]
            ).get_all()
        yield process


def settings(broker: BrokerProcess, directory: Path, **more: str) -> Mapping[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(directory / "state"),
        "processing.guarantee": "exactly_once_v2",
        "commit.interval.ms": "200",
        "statestore.cache.max.bytes": "0",
        **more,
    }


def write_lines(broker: BrokerProcess, seed: int) -> Counter[str]:
    """Write lines of ten words; return how often each word is in them."""
    chosen = random.Random(seed)
    written: Counter[str] = Counter()
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(LINES):
            words = chosen.choices(WORDS, k=10)
            written.update(words)
            producer.send(INPUT, " ".join(words), partition=number % PARTITIONS)
    return written


class Counts:
    """The counts of the output topic, as a reader of committed records finds them.

    Each count of a word must be one more than the one before: a replayed transaction that became
    visible, or a lost one, is a step of another size.
    """

    def __init__(self, broker: BrokerProcess) -> None:
        self._consumer = Consumer[bytes, bytes](
            bootstrap_servers=broker.bootstrap, isolation_level="read_committed"
        )
        self._consumer.assign([TopicPartition(OUTPUT, number) for number in range(PARTITIONS)])
        self._consumer.seek_to_beginning()
        self.found: Counter[str] = Counter()
        self.steps_of_another_size: list[tuple[str, int, int]] = []

    def __enter__(self) -> Counts:
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.close()

    def read(self) -> int:
        """Read what is there; return the sum of all counts."""
        for record in self._consumer.poll(0.5):
            word = (record.key or b"").decode()
            count = int.from_bytes(record.value or b"", "big")
            if count != self.found[word] + 1:
                self.steps_of_another_size.append((word, self.found[word], count))
            self.found[word] = count
        return self.found.total()


def test_words_are_counted_once_though_an_instance_is_killed(
    programs: KafkaInstall, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    written = write_lines(own_broker, 1)
    with Counts(own_broker) as counts:
        first = Program(
            programs, WORD_COUNT, tmp_path / "first", settings(own_broker, tmp_path / "first")
        )
        with first:
            wait_until(lambda: counts.read() > written.total() // 10, "the first counts")
            first.kill()
        assert counts.found.total() < written.total(), "all was counted before the kill"
        second = Program(
            programs, WORD_COUNT, tmp_path / "second", settings(own_broker, tmp_path / "second")
        )
        with second:
            wait_until(lambda: counts.read() >= written.total(), "all counts", at_most_s=180)
            written += write_lines(own_broker, 2)
            wait_until(lambda: counts.read() >= written.total(), "the later counts", at_most_s=60)
    assert counts.found == written
    assert not counts.steps_of_another_size


def test_its_internal_topics_have_the_settings_that_it_asks_for(
    programs: KafkaInstall, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    write_lines(own_broker, 3)
    with (
        Counts(own_broker) as counts,
        Program(programs, WORD_COUNT, tmp_path / "app", settings(own_broker, tmp_path)),
    ):
        wait_until(lambda: counts.read() > 0, "the first counts")
        with Admin(bootstrap_servers=own_broker.bootstrap) as admin:
            names = [name for name in admin.list_topics() if name.startswith("streams-wordcount-")]
            resources = [Resource(ResourceType.TOPIC, name) for name in names]
            described = admin.describe_configs(resources).get_all()
    found = {
        resource.name.rpartition("-")[2]: {each.name: each.value for each in values}
        for resource, values in described.items()
    }
    assert found["changelog"]["cleanup.policy"] == "compact"
    assert found["repartition"]["cleanup.policy"] == "delete"
    assert found["repartition"]["retention.ms"] == "-1"


def test_a_group_of_the_streams_protocol_is_refused_with_a_reason(
    programs: KafkaInstall, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    """KIP-1071 is not supported: the program says so, and does not wait for ever."""
    asked = settings(own_broker, tmp_path, **{"group.protocol": "streams"})
    with Program(programs, WORD_COUNT, tmp_path / "app", asked) as program:
        wait_until(lambda: "UnsupportedVersionException" in program.output, "the refusal")
