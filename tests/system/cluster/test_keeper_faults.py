"""A keeper that stands still or dies, alone and among brokers that do, under load.

A keeper that stands still is every broker's cut from the store: leaders go on serving, nothing is
elected, and afterwards every session is still there. The last test draws faults by a seed for as
long as ``MILLSTREAM_CHAOS_S`` says (15 seconds); ``MILLSTREAM_CHAOS_SEED`` repeats a run.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster_processes import ClusterProcesses
from tests.cluster_store import KeeperProcess
from tests.system.cluster.watched import Member, Sender, anomalies
from tests.waiting import wait_until

from millstream.history.checker import History

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(600)]

IDS = {1, 2, 3}
SESSION_S = 2.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {
        "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
        "replica.lag.time.max.ms": "2000",
    }
    directory = tmp_path_factory.mktemp("keeper")
    with ClusterProcesses(directory, settings=settings, store="keeper") as started:
        yield started


@pytest.fixture
def keeper(cluster: ClusterProcesses) -> KeeperProcess:
    assert isinstance(cluster.store, KeeperProcess)
    return cluster.store


def create(cluster: ClusterProcesses, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wanted = NewTopic(topic, 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[topic].result(60)
    cluster.wait_for(topic, IDS)


def registrations(cluster: ClusterProcesses) -> int:
    return sum(each.log.count("registered with broker epoch") for each in cluster.brokers.values())


def silences(cluster: ClusterProcesses) -> int:
    return sum(each.log.count("the keeper has not answered") for each in cluster.brokers.values())


def test_a_keeper_that_stands_still_is_missed_by_nobody_who_reads_and_writes(
    cluster: ClusterProcesses, keeper: KeeperProcess
) -> None:
    create(cluster, "paused")
    before = cluster.wait_for("paused", IDS)
    registered, silent = registrations(cluster), silences(cluster)
    history = History()
    with Sender(cluster.bootstrap, "paused", history, "p") as sender:
        sender.wait_for_more()
        keeper.pause()
        try:
            wait_until(lambda: silences(cluster) == silent + len(IDS), "all brokers notice")
            sender.wait_for_more()
        finally:
            keeper.resume()
        sender.wait_for_more()
        after = cluster.wait_for("paused", IDS)
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert registrations(cluster) == registered, "every session is still there"
    assert sender.failures == []
    assert anomalies(cluster.bootstrap, "paused", history) == []


def test_a_keeper_that_is_killed_again_and_again_loses_no_session(
    cluster: ClusterProcesses, keeper: KeeperProcess
) -> None:
    create(cluster, "killed")
    registered = registrations(cluster)
    history = History()
    with (
        Member(cluster.bootstrap, "killed", history, "killed") as member,
        Sender(cluster.bootstrap, "killed", history, "p") as sender,
    ):
        member.wait_for_commits()
        for _ in range(3):
            keeper.kill()
            sender.wait_for_more()
            keeper.start()
            sender.wait_for_more()
        member.wait_for_commits()
    assert registrations(cluster) == registered
    assert sender.failures == []
    assert anomalies(cluster.bootstrap, "killed", history) == []


def test_nothing_acknowledged_is_lost_among_many_faults(
    cluster: ClusterProcesses, keeper: KeeperProcess, record_property: pytest.RecordProperty
) -> None:
    seed = int(os.environ.get("MILLSTREAM_CHAOS_SEED", "1"))
    seconds = float(os.environ.get("MILLSTREAM_CHAOS_S", "15"))
    chance = random.Random(seed)
    record_property("seed", seed)
    create(cluster, "chaos")
    history = History()

    def broker_dies(number: int) -> None:
        cluster[number].kill()
        time.sleep(chance.uniform(0, 1))
        cluster[number].start()

    def broker_pauses(number: int) -> None:
        cluster[number].process.send_signal(signal.SIGSTOP)
        time.sleep(chance.choice([0.3, 1.5 * SESSION_S]))
        cluster[number].process.send_signal(signal.SIGCONT)

    def keeper_dies(_: int) -> None:
        keeper.kill()
        time.sleep(chance.choice([0.1, 1.5 * SESSION_S]))
        keeper.start()

    def keeper_pauses(_: int) -> None:
        keeper.pause()
        time.sleep(chance.choice([0.3, 1.5 * SESSION_S]))
        keeper.resume()

    def broker_dies_without_keeper(number: int) -> None:
        keeper.pause()
        cluster[number].kill()
        time.sleep(chance.uniform(0, SESSION_S))
        keeper.resume()
        cluster[number].start()

    faults: list[Callable[[int], None]] = [
        broker_dies,
        broker_pauses,
        keeper_dies,
        keeper_pauses,
        broker_dies_without_keeper,
    ]
    story: list[str] = []
    with (
        Member(cluster.bootstrap, "chaos", history, "chaos") as member,
        Sender(cluster.bootstrap, "chaos", history, "p") as sender,
    ):
        member.wait_for_commits()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            fault, number = chance.choice(faults), chance.randint(1, 3)
            story.append(f"{fault.__name__} {number}")
            fault(number)
            cluster.wait_for("chaos", IDS)
        sender.wait_for_more()
        member.wait_for_commits()
    assert sender.failures == [], story
    assert anomalies(cluster.bootstrap, "chaos", history) == [], story
