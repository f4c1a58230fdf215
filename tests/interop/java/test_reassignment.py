"""Kafka's tools that move replicas and leaders, against three brokers of ours: rate limits set by
kafka-configs and by kafka-reassign-partitions, moves listed, verified and cancelled, elections.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster_processes import ClusterProcesses
from tests.interop.java.conftest import KafkaTools

from millstream.client import Admin, Producer
from millstream.client.core.admin.configs import Resource, ResourceType
from millstream.client.core.admin.topics import NewTopic
from millstream.client.throttle import FOLLOWER_RATE, LEADER_RATE

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]

RECORD = b"x" * 100_000
RECORDS = 100


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {"replica.fetch.max.bytes": "200000", "auto.leader.rebalance.enable": "false"}
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), settings=settings) as started:
        yield started


def fill(cluster: ClusterProcesses, topic: str, replicas: list[int]) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: replicas})]).get_all()
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=5) as producer:
        for future in [producer.send(topic, RECORD) for _ in range(RECORDS)]:
            future.result(60)


def plan(directory: Path, topic: str, replicas: list[int]) -> str:
    file = directory / f"{topic}-{'-'.join(map(str, replicas))}.json"
    moved = [{"topic": topic, "partition": 0, "replicas": replicas}]
    file.write_text(json.dumps({"version": 1, "partitions": moved}))
    return str(file)


def rates(cluster: ClusterProcesses, broker: int) -> dict[str, str | None]:
    resource = Resource(ResourceType.BROKER, str(broker))
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        found = admin.describe_configs({resource: [LEADER_RATE, FOLLOWER_RATE]})[resource].get()
    return {each.name: each.value for each in found}


def test_kafka_configs_sets_the_rates_of_a_broker(
    tools: KafkaTools, cluster: ClusterProcesses
) -> None:
    command = ("kafka-configs", "--bootstrap-server", cluster.bootstrap)
    one = ("--entity-type", "brokers", "--entity-name", "1")
    everybody = ("--entity-type", "brokers", "--entity-default")
    names = f"{LEADER_RATE},{FOLLOWER_RATE},replica.alter.log.dirs.io.max.bytes.per.second"
    added = ",".join(f"{name}=7000000" for name in names.split(","))
    tools.run(*command, *one, "--alter", "--add-config", added)
    described = tools.run(*command, *one, "--describe")
    for name in names.split(","):
        assert f"{name}=7000000 sensitive=false" in described
        assert f"DYNAMIC_BROKER_CONFIG:{name}=7000000" in described
    tools.run(*command, *one, "--alter", "--delete-config", names)
    assert LEADER_RATE not in tools.run(*command, *one, "--describe")
    tools.run(*command, *everybody, "--alter", "--add-config", f"{LEADER_RATE}=8000000")
    described = tools.run(*command, *everybody, "--describe")
    assert f"DYNAMIC_DEFAULT_BROKER_CONFIG:{LEADER_RATE}=8000000" in described
    tools.run(*command, *everybody, "--alter", "--delete-config", LEADER_RATE)
    wrong = tools.refused(*command, *one, "--alter", "--add-config", f"{LEADER_RATE}=-1")
    assert "Value must be at least 0" in wrong


def test_kafka_reassign_partitions_with_a_throttle(
    tools: KafkaTools, cluster: ClusterProcesses, tmp_path: Path
) -> None:
    fill(cluster, "limited", [1])
    there = plan(tmp_path, "limited", [2])
    command = ("kafka-reassign-partitions", "--bootstrap-server", cluster.bootstrap)
    throttle = ("--throttle", "100000")
    begun = tools.run(*command, "--reassignment-json-file", there, "--execute", *throttle)
    assert "throttle limit was set to 100000" in begun
    assert "Successfully started partition reassignment for limited-0" in begun
    for broker in (1, 2):
        assert rates(cluster, broker) == {LEADER_RATE: "100000", FOLLOWER_RATE: "100000"}
    listed = tools.run(*command, "--list")
    assert "limited-0: replicas: 2,1. adding: 2. removing: 1." in listed
    verified = tools.run(*command, "--reassignment-json-file", there, "--verify")
    assert "Reassignment of partition limited-0 is still in progress" in verified
    assert rates(cluster, 2) != {}
    more = ("--additional", "--throttle", "900000000")
    tools.run(*command, "--reassignment-json-file", there, "--execute", *more)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        cluster.until(lambda: not admin.list_partition_reassignments(), "the end of the move")
    verified = tools.run(*command, "--reassignment-json-file", there, "--verify")
    assert "Reassignment of partition limited-0 is completed" in verified
    assert "Clearing topic-level throttles on topic limited" in verified
    assert rates(cluster, 1) == rates(cluster, 2) == {}


def test_kafka_reassign_partitions_cancels(
    tools: KafkaTools, cluster: ClusterProcesses, tmp_path: Path
) -> None:
    fill(cluster, "cancelled", [1])
    there = plan(tmp_path, "cancelled", [3])
    command = ("kafka-reassign-partitions", "--bootstrap-server", cluster.bootstrap)
    throttle = ("--throttle", "100000")
    tools.run(*command, "--reassignment-json-file", there, "--execute", *throttle)
    cancelled = tools.run(*command, "--reassignment-json-file", there, "--cancel")
    assert "Successfully cancelled partition reassignment for: cancelled-0" in cancelled
    assert rates(cluster, 1) == rates(cluster, 3) == {}
    assert "No partition reassignments found" in tools.run(*command, "--list")
    cluster.wait_for("cancelled", {1})


def test_kafka_leader_election(
    tools: KafkaTools, cluster: ClusterProcesses, tmp_path: Path
) -> None:
    fill(cluster, "elected", [1, 2])
    cluster.brokers[1].stop()
    cluster.wait_for("elected", {2}, leader=2)
    cluster.brokers[1].start()
    cluster.wait_for("elected", {1, 2}, leader=2)
    command = ("kafka-leader-election", "--bootstrap-server", cluster.bootstrap)
    place = ("--topic", "elected", "--partition", "0")
    done = tools.run(*command, "--election-type", "preferred", *place)
    assert "Successfully completed leader election (PREFERRED) for partitions elected-0" in done
    cluster.wait_for("elected", {1, 2}, leader=1)
    again = tools.run(*command, "--election-type", "preferred", *place)
    assert "Valid replica already elected for partitions elected-0" in again
    unclean = tools.run(*command, "--election-type", "unclean", *place)
    assert "Valid replica already elected for partitions elected-0" in unclean
    unknown = ("--topic", "nowhere", "--partition", "0")
    refused = tools.refused(*command, "--election-type", "preferred", *unknown)
    assert "nowhere-0" in refused
