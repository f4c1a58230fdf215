"""A fourth broker comes, everything moves onto it, the first one goes: under load, and all is kept.

A producer, a group of two that commits, and one who asks what it has committed are written down.
The partitions of the groups move too, so the coordinator does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster_processes import ClusterProcesses
from tests.system.cluster.watched import Asker, Member, Sender, anomalies

from millstream.client.cluster import Cluster
from millstream.history.checker import History

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC: Final = "moving"
PARTITIONS: Final = 3


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("growing")) as made:
        yield made


def reassign(cluster: ClusterProcesses, brokers: str) -> None:
    """Move everything, by the command that a user types."""
    command = [sys.executable, "-m", "millstream.cli.main", "cluster", "reassign"]
    done = subprocess.run(
        [*command, "-b", cluster.bootstrap, "--brokers", brokers, "--execute"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def placed(cluster: ClusterProcesses) -> dict[tuple[str, int], tuple[set[int], set[int]]]:
    """Return replicas and ISR of every partition."""
    with Cluster.at(cluster.living()[-1].bootstrap) as client:
        topics = client.metadata(None).topics.values()
    return {
        (topic.name, index): (set(each.replicas), set(each.isr))
        for topic in topics
        for index, each in enumerate(topic.partitions)
    }


@pytest.mark.long
def test_a_fourth_broker_takes_over_from_the_first_under_load(cluster: ClusterProcesses) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wanted = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[TOPIC].result(60)
    history, bootstrap = History(), cluster.bootstrap
    with (
        Member(bootstrap, TOPIC, history, "g") as one,
        Member(bootstrap, TOPIC, history, "g") as other,
        Asker(bootstrap, TOPIC, history, "g", PARTITIONS),
        Sender(bootstrap, TOPIC, history, "p", PARTITIONS) as sender,
    ):

        def go_on() -> None:
            sender.wait_for_more(300)
            for each in (one, other):
                each.wait_for_more()
                each.wait_for_commits()

        go_on()
        cluster.add(4)
        cluster.until(lambda: 4 in cluster.known_to(cluster[1]), "a fourth broker")
        reassign(cluster, "1,2,3,4")
        assert any(4 in replicas for replicas, _ in placed(cluster).values())
        go_on()
        reassign(cluster, "2,3,4")
        moved = placed(cluster)
        assert {name for name, _ in moved} == {TOPIC, "__consumer_offsets"}
        assert all(replicas == isr == {2, 3, 4} for replicas, isr in moved.values()), moved
        go_on()
        cluster[1].stop()
        go_on()
        cluster[2].kill()
        go_on()
        cluster[2].start()
        cluster.wait_for(TOPIC, {2, 3, 4})
        go_on()
    assert sender.failures == []
    del cluster.brokers[1]
    assert anomalies(cluster.bootstrap, TOPIC, history, PARTITIONS) == []
