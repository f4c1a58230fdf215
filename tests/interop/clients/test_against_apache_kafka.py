"""Our client and command line against Apache Kafka itself: they are for any broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from tests.interop.clients.access_log import access_log_bytes
from tests.interop.kafka_cluster import KafkaNode, small_kafka_node

from millstream.cli.main import main
from millstream.client import Admin, Consumer
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition

pytestmark = [pytest.mark.interop, pytest.mark.java]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    single = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
    }
    node = small_kafka_node(tmp_path_factory.mktemp("kafka"), single)
    node.start()
    yield node
    node.stop()


@pytest.fixture
def admin(kafka: KafkaNode) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kafka.bootstrap) as connected:
        yield connected


def test_an_access_log_there_and_back(
    kafka: KafkaNode, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = access_log_bytes()
    path = tmp_path / "access.log"
    path.write_bytes(data)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        words = ["ingest", str(path), "-t", codec, "-p", "1", "-z", codec, "-b", kafka.bootstrap]
        assert main(words) == 0
        capfdbinary.readouterr()
        assert main(["consume", codec, "-e", "-b", kafka.bootstrap]) == 0
        assert capfdbinary.readouterr().out == data


def test_aborted_transactions_are_not_seen(kafka: KafkaNode, admin: Admin) -> None:
    place = TopicPartition("transactions", 0)
    admin.create_topics([NewTopic(place.topic, 1, 1)]).get_all()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": "t"}
    )
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for record in range(3):
            producer.produce(place.topic, f"{number}.{record}".encode(), partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    everything = [f"{number}.{record}".encode() for number in range(6) for record in range(3)]
    committed = [value for value in everything if value[:1] in b"024"]
    for read_committed, expected in ((True, committed), (False, everything)):
        isolation = "read_committed" if read_committed else "read_uncommitted"
        settings = {"isolation_level": isolation, "max_partition_fetch_bytes": 1}
        with Consumer[bytes, bytes](bootstrap_servers=kafka.bootstrap, **settings) as consumer:
            consumer.assign([place])
            consumer.seek_to_beginning()
            (end,) = consumer.end_offsets([place]).values()
            values: list[bytes | None] = []
            while consumer.position(place) < end:
                values += [record.value for record in consumer.poll(0.2)]
        assert values == expected


def test_groups_offsets_and_settings(
    kafka: KafkaNode, admin: Admin, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = "admin"
    place = TopicPartition(topic, 0)
    admin.create_topics([NewTopic(topic, 2, 1, {"retention.ms": "-1"})]).get_all()
    admin.alter_group_offsets("g", {place: 0}).get_all()
    assert admin.list_group_offsets(["g"])["g"].get()[place].offset == 0
    assert "g" in [each.group for each in admin.list_groups()]
    admin.delete_groups(["g"]).get_all()
    assert admin.list_offsets({place: 0}).get_all() == {place: None}
    assert admin.delete_records({place: -1}).get_all() == {place: 0}
    capfd.readouterr()
    assert main(["topic", "describe", topic, "-b", kafka.bootstrap, "--json"]) == 0
    (described,) = json.loads(capfd.readouterr().out)
    assert described["configs"] == {"retention.ms": "-1"}
    assert main(["config", "describe", "-t", topic, "-b", kafka.bootstrap]) == 0
    assert "retention.ms\t-1\ttopic" in capfd.readouterr().out
