"""A cluster whose brokers speak TLS to each other, with certificates that both sides check."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests import certificates
from tests.system.test_tls import eventually, librdkafka, works
from tests.tls_broker import TlsBroker
from tests.zookeeper_server import ensemble

pytestmark = pytest.mark.system


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[TlsBroker]]:
    with ExitStack() as stack:
        servers = stack.enter_context(ensemble(tmp_path / "zookeeper"))
        started = []
        for number in (1, 2, 3):
            broker = TlsBroker(
                tmp_path / str(number),
                {
                    "node.id": str(number),
                    "zookeeper.connect": servers.connect,
                    "security.inter.broker.protocol": "SSL",
                    "ssl.client.auth": "required",
                    "offsets.topic.replication.factor": "3",
                },
            )
            broker.start()
            stack.callback(broker.kill)
            started.append(broker)
        yield started


def secured(broker: TlsBroker) -> dict[str, str]:
    key = broker.directory / "client.key"
    chain = broker.directory / "client.pem"
    if not key.exists():
        signed = certificates.client("ann")
        key.write_bytes(signed.key_pem())
        chain.write_bytes(signed.chain_pem)
    return {
        **librdkafka(broker),
        "ssl.key.location": str(key),
        "ssl.certificate.location": str(chain),
    }


def in_sync(admin: AdminClient) -> int:
    return len(admin.list_topics("t", timeout=10).topics["t"].partitions[0].isrs)


def test_replicas_follow_over_tls_through_a_kill_and_new_certificates(
    brokers: list[TlsBroker],
) -> None:
    options = secured(brokers[0])
    options["bootstrap.servers"] = ",".join(broker.bootstrap for broker in brokers)
    admin = AdminClient(options)
    (made,) = admin.create_topics(
        [NewTopic("t", 1, 3, config={"min.insync.replicas": "2"})]
    ).values()
    made.result(30)
    producer = Producer({**options, "acks": "all"})
    for n in range(1000):
        producer.produce("t", b"%d" % n)
    assert producer.flush(30) == 0
    eventually(lambda: in_sync(admin) == 3)

    for broker in brokers:
        broker.replace_certificate(certificates.server())
        broker.process.send_signal(signal.SIGHUP)
    brokers[2].kill()
    for n in range(1000):
        producer.produce("t", b"%d" % n)
    assert producer.flush(60) == 0
    brokers[2].start()
    eventually(lambda: in_sync(admin) == 3, 60)

    # Nobody without a certificate of the cluster's authority gets in.
    stranger = certificates.client("x", by=certificates.authority("stranger"))
    with pytest.raises((OSError, AssertionError)):  # noqa: PT012
        with brokers[0].connect(certificates.client_side(stranger)) as sock:
            assert works(sock)
        raise OSError
    for broker in brokers:
        assert "Traceback" not in broker.log
