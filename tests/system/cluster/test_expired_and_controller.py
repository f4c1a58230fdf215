"""A broker's certificate between brokers has expired, and then the controller is killed.

The successor can open no connection to that broker, and no follower can open another one. What it
leads takes writes again long before ``replica.lag.time.max.ms`` is over, and nothing that was
acknowledged is lost.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.system.cluster.secured_site import (
    IDS,
    PLAIN_BETWEEN_BROKERS,
    SecuredCluster,
    until_in_sync,
)
from tests.system.cluster.watched import QUICK, Member, Sender, anomalies
from tests.waiting import wait_until

from millstream.history.checker import History

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "numbers"
LEADERS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
LIFE_S = 6
ELECTED = "is the controller, epoch"
SETTINGS = {
    **PLAIN_BETWEEN_BROKERS,
    # Longer than any client here waits: nothing may depend on the end of it.
    "replica.lag.time.max.ms": "120000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path, SETTINGS) as started:
        started.passwords["admin"] = "admin-sesame"
        yield started


def controllers(cluster: SecuredCluster) -> list[int]:
    """Return the brokers that have been elected."""
    return [number for number in IDS if ELECTED in cluster[number].log]


def kill_controller(cluster: SecuredCluster, controller: int, expired: int) -> None:
    """Have the third broker follow the controller: the one with the expired certificate would open
    all the connections itself.
    """
    third = next(number for number in IDS if number not in (controller, expired))
    cluster[expired].process.send_signal(signal.SIGSTOP)
    try:
        cluster[controller].kill()
        wait_until(lambda: third in controllers(cluster), "the third broker is the controller")
    finally:
        cluster[expired].process.send_signal(signal.SIGCONT)


@pytest.mark.long
def test_the_controller_dies_while_a_certificate_is_expired(cluster: SecuredCluster) -> None:
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
        (controller,) = controllers(cluster)
        expired = controller % 3 + 1
        ends = cluster.issue(expired, "brokers", seconds=LIFE_S)
        cluster.hang_up([expired])
        wait_until(lambda: datetime.now(UTC) > ends, "the certificate has expired")
        sender.wait_for_more(500)
        kill_controller(cluster, controller, expired)
        sender.first_after(monotonic())  # in every partition
        member.wait_for_commits()
        cluster.issue(expired, "brokers")
        cluster.hang_up([expired])
        cluster[controller].start()
        until_in_sync(admin, TOPIC)
        sender.wait_for_more()
    assert sender.failures == []
    assert anomalies(cluster.bootstrap, TOPIC, history, 3, settings=settings) == []
    for broker in cluster.brokers.values():
        assert "sesame" not in broker.log
        assert "Traceback" not in broker.log
