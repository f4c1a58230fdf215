"""Transactions of our client and command line against Apache Kafka itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from tests import transaction_story as story
from tests.interop.kafka_cluster import KafkaNode, small_kafka_node

from millstream.cli.main import main
from millstream.client import Admin, Producer
from millstream.client.core.admin.cluster import UpgradeType

pytestmark = [pytest.mark.interop, pytest.mark.java]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    single = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
    }
    node = small_kafka_node(tmp_path_factory.mktemp("kafka"), single)
    node.start()
    yield node
    node.stop()


def test_copies_count_each_record_once(kafka: KafkaNode) -> None:
    story.create(kafka.bootstrap, "source", "copied", "copied-async")
    values = story.seed(kafka.bootstrap, "source", 1000)
    story.copy(kafka.bootstrap, "source", "copied", len(values))
    story.exactly_once(kafka.bootstrap, "copied", values)
    asyncio.run(story.copy_async(kafka.bootstrap, "source", "copied-async", len(values)))
    story.exactly_once(kafka.bootstrap, "copied-async", values)


def test_fencing(kafka: KafkaNode) -> None:
    story.create(kafka.bootstrap, "fencing")
    story.fencing(kafka.bootstrap, "fencing")


def test_tables(kafka: KafkaNode) -> None:
    story.create(kafka.bootstrap, "tables")
    story.table(kafka.bootstrap, "tables")


def test_operators(kafka: KafkaNode) -> None:
    story.create(kafka.bootstrap, "operated")
    story.operators(kafka.bootstrap, "operated")


def test_prepared_transactions(kafka: KafkaNode) -> None:
    story.create(kafka.bootstrap, "prepared", partitions=1)
    prepared = []
    for number in range(3):
        with Producer(
            bootstrap_servers=kafka.bootstrap, transactional_id=f"prepared-{number}"
        ) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("prepared", b"%d" % number)
            found = producer.prepare_transaction()
            assert found is not None
            prepared.append(found)
    assert story.values_of(kafka.bootstrap, "prepared") == []
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        for _ in range(2):
            admin.end_transactions(prepared[:2], committed=True).get_all()
            admin.end_transactions(prepared[2:], committed=False).get_all()
    assert sorted(story.values_of(kafka.bootstrap, "prepared")) == [b"0", b"1"]


def test_the_command_line(kafka: KafkaNode, capfd: pytest.CaptureFixture[str]) -> None:
    story.create(kafka.bootstrap, "typed", partitions=1)
    where = ["-b", kafka.bootstrap]
    with Producer(bootstrap_servers=kafka.bootstrap, transactional_id="typed") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("typed", b"x").result(30)
        capfd.readouterr()
        assert main(["txn", "list", "--state", "Ongoing", "--matching", "ty.*", *where]) == 0
        name, producer_id, state = capfd.readouterr().out.strip().split("\t")
        assert (name, state) == ("typed", "Ongoing")
        assert main(["txn", "describe", "typed", "nobody", *where]) == 1
        told = capfd.readouterr()
        assert told.out.split("\t")[:2] == ["typed", producer_id]
        assert told.out.strip().endswith("typed-0")
        assert "nobody: " in told.err
        assert main(["txn", "abort", "typed:0", "--start-offset", "0", *where]) == 1
        assert "abort it with --id typed" in capfd.readouterr().err
        assert main(["txn", "find-hanging", *where]) == 0
        assert capfd.readouterr().out == ""
        assert main(["txn", "abort", "--id", "typed", *where]) == 0
        assert "fenced\ttyped\t" in capfd.readouterr().out
        assert main(["txn", "list", "--state", "Sleeping", *where]) == 2
    assert main(["cluster", "features", "--json", *where]) == 0
    capfd.readouterr()
    assert main(["cluster", "features", "describe", "--json", *where]) == 0
    rows = {each["feature"]: each for each in json.loads(capfd.readouterr().out)}
    assert rows["transaction.version"]["level"] == 2


def test_the_first_generation(kafka: KafkaNode) -> None:
    """A cluster whose transaction.version is lowered; the client goes by it."""
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        admin.update_features(
            {"transaction.version": 1}, upgrade_type=UpgradeType.SAFE_DOWNGRADE
        ).get_all()
    story.create(kafka.bootstrap, "source-1", "copied-1", "fencing-1")
    values = story.seed(kafka.bootstrap, "source-1", 500)
    story.copy(kafka.bootstrap, "source-1", "copied-1", len(values))
    story.exactly_once(kafka.bootstrap, "copied-1", values)
    story.fencing(kafka.bootstrap, "fencing-1")
