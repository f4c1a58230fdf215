"""Faults of TLS and SASL between brokers, under load: a wrong password, an expired certificate.

Who cannot be let in replicates nothing, and the others go on without him; nothing acknowledged is
lost, nothing is there twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.system.cluster.secured_site import (
    IDS,
    JAAS_OF_BROKERS,
    PLAIN_BETWEEN_BROKERS,
    SecuredCluster,
    broker_credentials,
    until_in_sync,
)
from tests.system.cluster.watched import QUICK, Member, Sender, anomalies
from tests.waiting import wait_until

from millstream.history.checker import History

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "numbers"
LEADERS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
LIFE_S = 6
SETTINGS = {
    **PLAIN_BETWEEN_BROKERS,
    "listener.name.brokers.plain.connections.max.reauth.ms": "2000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path, SETTINGS) as started:
        started.passwords["admin"] = "admin-sesame"
        yield started


def in_sync(admin: AdminClient) -> list[set[int]]:
    """Return the ISR of each partition; nobody's where no broker answers."""
    try:
        partitions = admin.list_topics(TOPIC, timeout=5).topics[TOPIC].partitions
    except KafkaException:
        return []
    return [set(partitions[index].isrs) for index in sorted(partitions)]


@pytest.mark.long
def test_a_wrong_password_and_an_expired_certificate(cluster: SecuredCluster) -> None:
    settings: dict[str, Any] = {**cluster.of_user("admin"), "sasl.mechanism": "PLAIN"}
    admin = AdminClient({**QUICK, **settings})
    topic = NewTopic(TOPIC, 3, replica_assignment=LEADERS, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(60)
    until_in_sync(admin, TOPIC)
    history = History()
    with (
        Sender(cluster.bootstrap, TOPIC, history, "p", 3, settings) as sender,
        Member(cluster.bootstrap, TOPIC, history, "g", settings) as member,
    ):
        sender.wait_for_more()
        member.wait_for_commits()
        with_a_wrong_password(cluster, admin, sender)
        with_an_expired_certificate(cluster, admin, sender)
        sender.wait_for_more()
        member.wait_for_commits()
    assert sender.failures == []
    assert anomalies(cluster.bootstrap, TOPIC, history, 3, settings=settings) == []
    for broker in cluster.brokers.values():
        assert "sesame" not in broker.log
        assert "Traceback" not in broker.log


def with_a_wrong_password(cluster: SecuredCluster, admin: AdminClient, sender: Sender) -> None:
    """A broker comes back with another password than the others know."""
    third = cluster[3]
    third.kill()
    wait_until(lambda: in_sync(admin) == [{1, 2}] * 3, "the others go on without it")
    right = third.settings[JAAS_OF_BROKERS]
    third.settings[JAAS_OF_BROKERS] = broker_credentials("another-sesame")
    size = [len(cluster[number].log) for number in IDS]
    third.start()
    wait_until(
        lambda: any("Failed authentication" in cluster[n].log[size[n - 1] :] for n in (1, 2)),
        "it is refused, and the log says so",
    )
    sender.wait_for_more(500)
    assert in_sync(admin) == [{1, 2}] * 3
    third.kill()
    third.settings[JAAS_OF_BROKERS] = right
    third.start()
    until_in_sync(admin, TOPIC)


def with_an_expired_certificate(
    cluster: SecuredCluster, admin: AdminClient, sender: Sender
) -> None:
    """The second broker's certificate expires: connections live on, and authenticate again. With a
    new one it is reached by a broker that was killed and comes back.
    """
    ends = cluster.issue(2, "brokers", seconds=LIFE_S)
    cluster.hang_up([2])
    wait_until(lambda: datetime.now(UTC) > ends, "the certificate has expired")
    sender.wait_for_more(500)
    assert in_sync(admin) == [set(IDS)] * 3
    cluster.issue(2, "brokers")
    cluster.hang_up([2])
    cluster[1].kill()
    wait_until(lambda: in_sync(admin) == [{2, 3}] * 3, "the others go on")
    sender.wait_for_more()
    cluster[1].start()
    until_in_sync(admin, TOPIC)
