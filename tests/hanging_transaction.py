"""A transaction that hangs: its partition holds it open, and no coordinator knows it."""

from __future__ import annotations

import shutil

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.broker_process import BrokerProcess

SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
BEFORE, OPEN, AFTER = "before", "open", "after"
START_OFFSET = 1


def leave_hanging(broker: BrokerProcess, topic: str) -> None:
    """Write a record, an open transaction, and a record into the partition of ``topic``, and start
    the broker again without the log of its transaction coordinator.
    """
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, BEFORE, partition=0)
    assert plain.flush(30) == 0
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": f"forgotten-{topic}"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, OPEN, partition=0)
    assert producer.flush(30) == 0
    plain.produce(topic, AFTER, partition=0)
    assert plain.flush(30) == 0
    broker.stop()
    logs = list(broker.data_directory.glob("__transaction_state-*"))
    assert len(logs) == int(SETTINGS["transaction.state.log.num.partitions"])
    for log in logs:
        shutil.rmtree(log)
    broker.start()


def committed(bootstrap: str, topic: str) -> list[str]:
    """Return what a read_committed reader gets up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and not message.error():
        value = message.value()
        assert value is not None
        found.append(value.decode())
    consumer.close()
    return found
