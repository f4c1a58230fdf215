"""`millstream doctor group`, `transactions`, `disk`, `settings` and `all` on a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests import hanging_transaction as hanging
from tests.broker_process import BrokerProcess

from millstream.cli.main import main
from millstream.testing import start_kafka

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = hanging.SETTINGS | {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("doctor"), settings) as started:
        yield started


def found(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess, *words: str
) -> list[dict[str, Any]]:
    """Return the findings of a command, whose exit code says whether something is broken."""
    capsys.readouterr()
    code = main(["doctor", *words, "-b", broker.bootstrap, "--json"])
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert code == int(any(row["severity"] == "broken" for row in rows))
    assert all(row["remedy"] for row in rows)
    return rows


def said(rows: list[dict[str, Any]], words: str) -> dict[str, Any]:
    """Return the one finding that says something."""
    (row,) = [row for row in rows if words in row["finding"]]
    return row


def make(broker: BrokerProcess, topic: str, partitions: int = 1, **settings: str) -> None:
    config = {name.replace("_", "."): value for name, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)


def write(broker: BrokerProcess, topic: str, count: int, timestamp: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=0, timestamp=timestamp)
    assert producer.flush(30) == 0


def test_a_group_without_members_and_one_ahead_of_its_topic(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess
) -> None:
    make(broker, "left")
    write(broker, "left", 10)
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "left"})

    reader.commit(offsets=[TopicPartition("left", 0, 4)], asynchronous=False)
    rows = found(capsys, broker, "group", "left", "--watch", "0s")
    row = said(rows, "no members")
    assert "6 records wait" in row["finding"]
    assert row["remedy"] == f"millstream consume left --group left -b {broker.bootstrap}"
    reader.commit(offsets=[TopicPartition("left", 0, 40)], asynchronous=False)
    reader.close()
    rows = found(capsys, broker, "group", "left", "--watch", "0s")
    remedy = said(rows, "beyond the end 10")["remedy"]
    assert main(remedy.split()[1:]) == 0
    rows = found(capsys, broker, "group", "left", "--watch", "0s")
    assert not [row for row in rows if "beyond" in row["finding"]]


def test_a_member_that_hangs_and_one_too_many(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess
) -> None:
    make(broker, "busy")
    write(broker, "busy", 10)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "busy",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    members = [Consumer(settings | {"client.id": f"worker{number}"}) for number in range(2)]
    try:
        for each in members:
            each.subscribe(["busy"])
        read: list[Any] = []
        deadline = time.monotonic() + 60
        while not read:
            assert time.monotonic() < deadline
            for each in members:
                read += each.consume(1, 0.2)
        for each in members:
            if each.assignment():
                each.commit(message=read[0], asynchronous=False)
        rows = found(capsys, broker, "group", "busy", "--watch", "2s")
    finally:
        for each in members:
            each.close()
    assert "busy-0: nothing was committed" in said(rows, "nothing was committed")["finding"]
    assert said(rows, "2 members share 1 partition")["remedy"].startswith(
        "millstream topic alter busy --partitions 2"
    )


def test_no_such_group(capsys: pytest.CaptureFixture[str], broker: BrokerProcess) -> None:
    assert main(["doctor", "group", "nobody", "-b", broker.bootstrap, "--watch", "0s"]) == 1
    assert "nobody" in capsys.readouterr().err


def test_transactions_that_hold_readers_back(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess
) -> None:
    make(broker, "paid")
    make(broker, "hangs")
    assert found(capsys, broker, "transactions", "paid") == []
    hanging.leave_hanging(broker, "hangs")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payments"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("paid", b"x", partition=0)
    assert producer.flush(30) == 0
    row = said(found(capsys, broker, "transactions", "paid"), "'payments'")
    assert "holds the last stable offset at 0, with 1 offset behind it" in row["finding"]
    assert broker.bootstrap in row["finding"]
    assert main(row["remedy"].split()[1:]) == 0
    assert found(capsys, broker, "transactions", "paid") == []
    row = said(found(capsys, broker, "transactions", "hangs"), "No coordinator knows")
    assert main(row["remedy"].split()[1:]) == 0
    assert hanging.committed(broker.bootstrap, "hangs") == [hanging.BEFORE, hanging.AFTER]
    assert found(capsys, broker, "transactions") == []


def test_disks(capsys: pytest.CaptureFixture[str], broker: BrokerProcess) -> None:
    make(broker, "kept", retention_ms="-1")
    make(broker, "future", message_timestamp_after_max_ms=str(1 << 60))
    write(broker, "future", 1, timestamp=int(time.time() * 1000) + 30 * 86_400_000)
    rows = found(capsys, broker, "disk")
    (kept,) = [row for row in rows if row["subject"] == "kept"]
    assert "Retention deletes nothing" in kept["finding"]
    assert main(kept["remedy"].split()[1:]) == 0
    assert "future-0: a record is time-stamped" in said(rows, "in the future")["finding"]
    rows = found(capsys, broker, "disk")
    assert not [row for row in rows if row["subject"] == "kept"]


def test_settings_and_everything_at_once(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess
) -> None:
    make(broker, "huge", max_message_bytes="50000000", unclean_leader_election_enable="true")
    rows = found(capsys, broker, "settings")
    assert said(rows, "one that lacks acknowledged records")["finding"].startswith("huge:")
    assert said(rows, "batches up to 50.0 MB")
    assert said(rows, "a misspelt name makes a topic")
    everything = found(capsys, broker, "all")
    assert {row["finding"] for row in rows} <= {row["finding"] for row in everything}
    assert not [row for row in everything if "could not be found out" in row["finding"]]


def test_into_a_pipe_go_rows(capsys: pytest.CaptureFixture[str], broker: BrokerProcess) -> None:
    capsys.readouterr()
    assert main(["doctor", "settings", "-b", broker.bootstrap]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert {line.count("\t") for line in lines} == {3}


def test_offsets_that_wait_for_a_transaction(
    capsys: pytest.CaptureFixture[str], broker: BrokerProcess
) -> None:
    make(broker, "pending")
    write(broker, "pending", 10)
    settings = {"bootstrap.servers": broker.bootstrap}
    reader = Consumer(settings | {"group.id": "pending"})
    reader.commit(offsets=[TopicPartition("pending", 0, 2)], asynchronous=False)
    producer = Producer(settings | {"transactional.id": "moves-offsets"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition("pending", 0, 4)], reader.consumer_group_metadata(), 30
    )
    words = ("group", "pending", "--watch", "0s", "--timeout", "3s")
    row = said(found(capsys, broker, *words), "holds committed offsets of this group")
    assert row["severity"] == "broken"
    assert row["remedy"].startswith("millstream doctor transactions __consumer_offsets")
    rows = found(capsys, broker, "transactions", "__consumer_offsets")
    assert main(said(rows, "'moves-offsets'")["remedy"].split()[1:]) == 0
    assert not [row for row in found(capsys, broker, *words) if "holds committed" in row["finding"]]
    reader.close()


def test_what_a_cluster_does_not_tell_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    def findings(*words: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["doctor", *words, "-b", kafka.bootstrap, "--json", "--timeout", "3s"]) == 0
        rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return rows

    with start_kafka() as kafka:
        topic = kafka.topic("held")
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "held"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"x", partition=0)
        assert producer.flush(30) == 0
        with kafka.every("DescribeTransactions").fail("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            rows = findings("transactions", topic)
        assert "txn list --producer-id" in said(rows, "do not abort it")["remedy"]
        assert said(rows, "transactional id 'held' could not be found out")
        with kafka.every("DescribeProducers").fail("UNSUPPORTED_VERSION"):
            rows = findings("transactions", topic)
        assert said(rows, f"producers of {topic}-0 could not be found out")
        with kafka.every("ListPartitionReassignments").fail("CLUSTER_AUTHORIZATION_FAILED"):
            assert said(findings("disk"), "reassignments could not be found out")
        producer.abort_transaction(30)
