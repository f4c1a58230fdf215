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
from millstream.client.cluster import Cluster
from millstream.client.fetch import Fetcher, FetchSettings
from millstream.client.groups import commit_offsets, committed_offsets, delete_group, list_groups
from millstream.client.offsets import LATEST, end_offsets, find_offsets
from millstream.client.topics import NewTopic, create_topics, delete_records
from millstream.model.topic import TopicPartition
from millstream.records.record import read_records

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
def cluster(kafka: KafkaNode) -> Iterator[Cluster]:
    with Cluster.at(kafka.bootstrap) as connected:
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


def test_aborted_transactions_are_not_seen(kafka: KafkaNode, cluster: Cluster) -> None:
    place = TopicPartition("transactions", 0)
    assert create_topics(cluster, [NewTopic(place.topic, 1, 1)]) == {place.topic: None}
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
        (end,) = end_offsets(cluster, [place], which=LATEST, read_committed=read_committed).values()
        settings = FetchSettings(
            max_wait_ms=200, max_partition_bytes=1, read_committed=read_committed
        )
        fetcher = Fetcher(cluster, {place: 0}, settings)
        values: list[bytes | None] = []
        while fetcher.positions[place] < end:
            for fetched in fetcher.poll():
                for batch in fetched.batches():
                    values += [record.value for record in read_records(batch)]
        fetcher.close()
        assert values == expected


def test_groups_offsets_and_settings(
    kafka: KafkaNode, cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = "admin"
    place = TopicPartition(topic, 0)
    assert create_topics(cluster, [NewTopic(topic, 2, 1, {"retention.ms": "-1"})]) == {topic: None}
    commit_offsets(cluster, "g", {place: 0})
    assert committed_offsets(cluster, "g")[place].offset == 0
    assert "g" in [each.group for each in list_groups(cluster)]
    delete_group(cluster, "g")
    assert find_offsets(cluster, {place: 0}) == {place: None}
    assert delete_records(cluster, {place: -1}) == {place: 0}
    capfd.readouterr()
    assert main(["topic", "describe", topic, "-b", kafka.bootstrap, "--json"]) == 0
    (described,) = json.loads(capfd.readouterr().out)
    assert described["configs"] == {"retention.ms": "-1"}
    assert main(["config", "describe", "-t", topic, "-b", kafka.bootstrap]) == 0
    assert "retention.ms\t-1\ttopic" in capfd.readouterr().out
