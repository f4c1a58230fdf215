"""Replicas that catch up under a rate limit, on three real brokers: what is limited stays behind
what is not, and goes on when the limit goes. Nothing here looks at a clock.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.cluster_processes import ClusterProcesses

from millstream.client import Admin, Producer
from millstream.client.core.admin.configs import Change, Operation, Resource, ResourceType
from millstream.client.core.admin.topics import NewTopic
from millstream.client.throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    lift_throttle,
    plan_throttle,
    set_throttle,
)
from millstream.model.topic import TopicPartition

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

RECORD = b"x" * 100_000
RECORDS = 160
SIZE = RECORDS * len(RECORD)
RATE = 500_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {"default.replication.factor": "1", "replica.fetch.max.bytes": "200000"}
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), settings=settings) as started:
        yield started


def fill(cluster: ClusterProcesses, topic: str) -> TopicPartition:
    """Make a topic whose one replica is on broker 1 and holds SIZE bytes."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: [1]})]).get_all()
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=5) as producer:
        for future in [producer.send(topic, RECORD) for _ in range(RECORDS)]:
            future.result(60)
    return TopicPartition(topic, 0)


def copied(admin: Admin, place: TopicPartition, broker: int) -> int:
    """Return how many bytes of a partition a broker has."""
    return sum(
        directory.replicas[place].size_bytes
        for directory in admin.describe_log_dirs([broker])[broker].get()
        if place in directory.replicas
    )


def rates(admin: Admin) -> dict[int, list[str | None]]:
    wanted = {
        Resource(ResourceType.BROKER, str(broker)): [LEADER_RATE, FOLLOWER_RATE]
        for broker in (1, 2, 3)
    }
    found = admin.describe_configs(wanted).get_all()
    return {int(each.name): [one.value for one in settings] for each, settings in found.items()}


def unlimited(cluster: ClusterProcesses, admin: Admin) -> None:
    """Wait until no broker has a rate; they hear of settings one by one."""
    cluster.until(lambda: set(map(tuple, rates(admin).values())) == {()}, "no rates")


def unset(admin: Admin, resource: Resource, name: str) -> None:
    change = Change(name, operation=Operation.DELETE)
    admin.incremental_alter_configs({resource: [change]}).get_all()


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_one_under_a_limit_stays_behind_one_that_is_not(
    cluster: ClusterProcesses, side: str
) -> None:
    held, free = fill(cluster, f"held-{side}"), fill(cluster, f"free-{side}")
    broker, rate, names = (
        (1, LEADER_RATE, LEADER_REPLICAS)
        if side == "leader"
        else (2, FOLLOWER_RATE, FOLLOWER_REPLICAS)
    )
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        resource = Resource(ResourceType.BROKER, str(broker))
        topic = Resource(ResourceType.TOPIC, held.topic)
        admin.incremental_alter_configs({topic: [Change(names, f"0:{broker}")]}).get_all()
        admin.incremental_alter_configs({resource: [Change(rate, str(RATE))]}).get_all()
        admin.alter_partition_reassignments({held: [1, 2], free: [1, 2]}).get_all()
        cluster.wait_for(free.topic, {1, 2})
        assert copied(admin, free, 2) >= SIZE
        assert copied(admin, held, 2) < SIZE // 2
        cluster.until(
            lambda: list(admin.list_partition_reassignments()) == [held], "the end of one move"
        )
        unset(admin, resource, rate)
        cluster.wait_for(held.topic, {1, 2})
        assert copied(admin, held, 2) == copied(admin, held, 1)
        unset(admin, topic, names)


def test_the_client_limits_both_sides_and_lifts_all(cluster: ClusterProcesses) -> None:
    place = fill(cluster, "planned")
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        limits = plan_throttle({place: (1,)}, {place: (2, 3)})
        assert limits.brokers == (1, 2, 3)
        set_throttle(admin, limits, RATE)
        # Brokers hear of settings one by one.
        cluster.until(
            lambda: set(map(tuple, rates(admin).values())) == {(str(RATE), str(RATE))}, "the rates"
        )
        topic = Resource(ResourceType.TOPIC, place.topic)

        def listed() -> dict[str, str | None]:
            found = admin.describe_configs({topic: [LEADER_REPLICAS, FOLLOWER_REPLICAS]})
            return {each.name: each.value for each in found[topic].get()}

        wanted = {LEADER_REPLICAS: "0:1", FOLLOWER_REPLICAS: "0:2,0:3"}
        cluster.until(lambda: listed() == wanted, "the replicas")
        assert lift_throttle(admin, limits.brokers, [place.topic])
        cluster.until(
            lambda: not lift_throttle(admin, limits.brokers, [place.topic]), "nothing to lift"
        )
        assert set(map(tuple, rates(admin).values())) == {()}


def reassign(cluster: ClusterProcesses, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "millstream.cli.main", "cluster", "reassign"]
    return subprocess.Popen(
        [*command, "-b", cluster.bootstrap, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def done(cluster: ClusterProcesses, *arguments: str) -> tuple[int, str, str]:
    output, errors = (process := reassign(cluster, *arguments)).communicate(timeout=120)
    return process.returncode, output, errors


@pytest.mark.long
def test_a_reassignment_by_command_is_limited_and_can_be_left_alone(
    cluster: ClusterProcesses,
) -> None:
    place = fill(cluster, "by-command")
    code, planned, _ = done(cluster, place.topic, "--brokers", "3", "--json")
    assert code == 0
    plan = json.loads(planned)
    assert plan["bytes_to_copy"] >= SIZE
    assert plan["partitions"][0]["to"] == [3]
    process = reassign(cluster, place.topic, "--brokers", "3", "--execute", "--throttle", "500K/s")
    with process:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            cluster.until(lambda: bool(admin.list_partition_reassignments()), "a move")
            assert rates(admin)[1] == [str(500 << 10)] * 2
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--verify" in errors
    told = subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", "cluster", "doctor", "-b", cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Replication is limited on brokers 1 and 3" in told.stdout
    code, moving, _ = done(cluster, "--verify")
    assert code == 1
    assert "by-command\t0\t" in moving
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        assert copied(admin, place, 3) < SIZE
        for broker in (1, 3):
            resource = Resource(ResourceType.BROKER, str(broker))
            rate = "100000000"
            changes = [Change(LEADER_RATE, rate), Change(FOLLOWER_RATE, rate)]
            admin.incremental_alter_configs({resource: changes}).get_all()
        cluster.until(lambda: not admin.list_partition_reassignments(), "the end of the move")
    code, _, told = done(cluster, "--verify")
    assert code == 0
    assert "lifted" in told
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        unlimited(cluster, admin)
        assert copied(admin, place, 3) >= SIZE


def test_a_limit_ends_with_the_reassignment(cluster: ClusterProcesses) -> None:
    place = fill(cluster, "to-the-end")
    code, _, told = done(cluster, place.topic, "--brokers", "2", "--execute", "--throttle", "1G/s")
    assert code == 0, told
    assert "moved 1 partition" in told
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        unlimited(cluster, admin)
        assert copied(admin, place, 2) >= SIZE


def test_a_cancelled_move_leaves_no_limit(cluster: ClusterProcesses) -> None:
    place = fill(cluster, "cancelled")
    process = reassign(cluster, place.topic, "--brokers", "2", "--execute", "--throttle", "100K/s")
    with process:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            cluster.until(lambda: bool(admin.list_partition_reassignments()), "a move")
        code, said, _ = done(cluster, "--cancel")
        assert code == 0
        assert "canceled\tcancelled\t0" in said
        process.communicate(timeout=60)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        unlimited(cluster, admin)
        assert admin.list_partition_reassignments() == {}
    cluster.wait_for(place.topic, {1})
