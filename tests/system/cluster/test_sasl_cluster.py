"""Brokers that authenticate to each other, and users that every broker knows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.broker_process import BrokerProcess
from tests.system.cluster_site import ClusterSite

pytestmark = pytest.mark.system

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="between-hunter2" '
    'user_broker="between-hunter2" user_admin="admin-hunter2";'
)
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
    "listener.name.plaintext.plain.connections.max.reauth.ms": "2000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterSite]:
    with ClusterSite(tmp_path, brokers=3, settings=SETTINGS) as cluster:
        yield cluster


def options(
    brokers: list[BrokerProcess], name: str = "admin", secret: str = "admin-hunter2"
) -> dict[str, Any]:
    return {
        "bootstrap.servers": ",".join(each.bootstrap for each in brokers),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN" if name == "admin" else "SCRAM-SHA-256",
        "sasl.username": name,
        "sasl.password": secret,
        "log_level": 0,
    }


def lets_in(broker: BrokerProcess, name: str, secret: str) -> bool:
    try:
        AdminClient(options([broker], name, secret)).list_topics(timeout=2)
    except KafkaException:
        return False
    return True


def read(consumer: Consumer, count: int) -> None:
    seen = set()
    deadline = time.monotonic() + 60
    while len(seen) < count:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.add(message.value())


def test_brokers_replicate_and_share_users(cluster: ClusterSite) -> None:
    brokers = list(cluster.brokers.values())
    admin = AdminClient(options(brokers))
    admin.create_topics([NewTopic("t", 3, 3)])["t"].result(60)
    producer = Producer({**options(brokers), "acks": "all"})
    for number in range(100):
        producer.produce("t", str(number).encode())
    assert producer.flush(60) == 0

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("ann", info, b"ann-hunter2")
    last = AdminClient(options(brokers[2:]))
    last.alter_user_scram_credentials([change])["ann"].result(60)
    deadline = time.monotonic() + 60
    for broker in brokers:
        while not lets_in(broker, "ann", "ann-hunter2"):
            assert time.monotonic() < deadline, broker.log[-2000:]
        assert not lets_in(broker, "ann", "another")

    reading = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**options(brokers, "ann", "ann-hunter2"), **reading})
    consumer.subscribe(["t"])
    read(consumer, 100)
    killed = brokers[0]
    killed.kill()
    for number in range(100, 200):
        producer.produce("t", str(number).encode())
    assert producer.flush(60) == 0
    read(consumer, 100)
    consumer.close()
    killed.start()
    while not lets_in(killed, "ann", "ann-hunter2"):
        assert time.monotonic() < deadline + 120
    producer = Producer({**options(brokers), "acks": "all"})
    producer.produce("t", b"after")
    assert producer.flush(60) == 0
    for broker in brokers:
        assert "hunter2" not in broker.log
        assert "not let in" not in broker.log
