"""Stock clients go on through a leader change, a controller change, a rolling restart and a move.

Each program runs from the beginning to the end without a line changed. It loses nothing, nothing is
there twice, nobody reads backwards or leaves anything out, and groups go on where they were, also
when their coordinator dies, restarts or moves.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster_processes import ClusterProcesses
from tests.interop.cluster.programs import JavaReader, JavaWriter, PythonReader, PythonWriter
from tests.interop.java.conftest import MAIN_CLASSES
from tests.interop.kafka_cluster import JavaTool, kafka_jars
from tests.system.cluster.watched import Asker, Member, Reader, Sender, Writer, anomalies

from millstream.client.cluster import Cluster
from millstream.history.checker import History

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

IDS: Final = (1, 2, 3, 4)
PARTITIONS: Final = 3
OFFSETS: Final = "__consumer_offsets"


@dataclass(frozen=True)
class Family:
    """Clients of one kind, with a topic and a group of their own."""

    topic: str
    history: History
    writer: Writer
    readers: list[Reader]
    asker: Asker

    def go_on(self) -> None:
        """Everybody gets on with what they do."""
        self.writer.wait_for_more()
        for each in self.readers:
            each.wait_for_more()
            each.wait_for_commits(2)
        asked = self.asker.answers
        self.asker.until(lambda: self.asker.answers > asked, "an answer about the group")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Four brokers, so that three replicas can move."""
    settings = {"auto.leader.rebalance.enable": "false"}
    with ClusterProcesses(tmp_path_factory.mktemp("four"), brokers=4, settings=settings) as made:
        yield made


Start = tuple[type[Writer], type[Reader], int]
KINDS: Final[Mapping[str, Start]] = {
    "librdkafka": (Sender, Member, 2),
    "kafka-python": (PythonWriter, PythonReader, 2),
    "java": (JavaWriter, JavaReader, 1),
}


def begin(cluster: ClusterProcesses, kind: str, stack: ExitStack) -> Family:
    topic = f"{kind}-goes-on"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wanted = NewTopic(
        topic,
        PARTITIONS,
        replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]],
        config={"min.insync.replicas": "2"},
    )
    admin.create_topics([wanted])[topic].result(60)
    writer, reader, members = KINDS[kind]
    history = History()
    where, place = cluster.bootstrap, (topic, history)
    return Family(
        topic,
        history,
        stack.enter_context(writer(where, *place, kind, PARTITIONS)),  # type: ignore[call-arg,arg-type]
        [stack.enter_context(reader(where, *place, f"group-{kind}")) for _ in range(members)],  # type: ignore[call-arg,arg-type]
        stack.enter_context(Asker(where, *place, f"group-{kind}", PARTITIONS)),
    )


def whole(cluster: ClusterProcesses) -> None:
    """Wait until every replica of every partition is in sync."""

    def in_sync() -> bool:
        with Cluster.at(cluster.living()[0].bootstrap) as client:
            topics = client.metadata(None).topics.values()
        return all(
            each.leader >= 0 and set(each.isr) == set(each.replicas)
            for topic in topics
            for each in topic.partitions
        )

    cluster.until(in_sync, "every replica in sync")


def controller(cluster: ClusterProcesses) -> int:
    with Cluster.at(cluster.living()[0].bootstrap) as client:
        return client.metadata([]).controller_id


def the_leader_dies(cluster: ClusterProcesses, families: list[Family]) -> None:
    partition = cluster.partition(families[0].topic)
    assert partition is not None
    bounce(cluster, partition.leader, families)


def the_controller_dies(cluster: ClusterProcesses, families: list[Family]) -> None:
    bounce(cluster, controller(cluster), families)


def the_coordinator_dies(cluster: ClusterProcesses, families: list[Family]) -> None:
    partition = cluster.partition(OFFSETS)
    assert partition is not None
    bounce(cluster, partition.leader, families)


def bounce(cluster: ClusterProcesses, broker: int, families: list[Family]) -> None:
    cluster[broker].kill()
    for each in families:
        each.go_on()
    cluster[broker].start()
    whole(cluster)


def a_rolling_restart(cluster: ClusterProcesses, _: list[Family]) -> None:
    for broker in IDS:
        cluster[broker].stop()
        cluster[broker].start()
        whole(cluster)


def a_move_off_the_first(cluster: ClusterProcesses, families: list[Family]) -> None:
    """Everything moves, the coordinators too."""
    command = [sys.executable, "-m", "millstream.cli.main", "cluster", "reassign"]
    done = subprocess.run(
        [*command, "-b", cluster.bootstrap, "--brokers", "2,3,4", "--execute"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for topic in (OFFSETS, *(each.topic for each in families)):
        for index in range(PARTITIONS):
            partition = cluster.partition(topic, index)
            assert partition is not None
            assert set(partition.replicas) == set(partition.isr) == {2, 3, 4}


EVENTS: Final[tuple[Callable[[ClusterProcesses, list[Family]], None], ...]] = (
    the_leader_dies,
    the_controller_dies,
    the_coordinator_dies,
    a_rolling_restart,
    a_move_off_the_first,
)


def story(cluster: ClusterProcesses, kinds: list[str], events: tuple[object, ...]) -> None:
    with ExitStack() as stack:
        families = [begin(cluster, kind, stack) for kind in kinds]
        for each in families:
            each.go_on()
        for event in events:
            event(cluster, families)  # type: ignore[operator]
            for each in families:
                each.go_on()
    for each in families:
        assert each.writer.failures == [], each.topic
        assert anomalies(cluster.bootstrap, each.topic, each.history, PARTITIONS) == []


def a_move_by_kafkas_own_tool(cluster: ClusterProcesses, families: list[Family]) -> None:
    """kafka-reassign-partitions puts everything onto three brokers, others first."""
    java = JavaTool(kafka_jars())
    server = ("--bootstrap-server", cluster.bootstrap)
    plan = {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": index, "replicas": [4, *([1, 2, 3, 1][index:][:2])]}
            for topic in (OFFSETS, *(each.topic for each in families))
            for index in range(PARTITIONS)
        ],
    }
    file = cluster.directory / "plan.json"
    file.write_text(json.dumps(plan))
    tool = (MAIN_CLASSES["kafka-reassign-partitions"], *server)
    begun = java.run(*tool, "--reassignment-json-file", str(file), "--execute")
    assert begun.returncode == 0, begun.stdout + begun.stderr
    for row in plan["partitions"]:
        arrived(cluster, row["topic"], row["partition"], row["replicas"])
    verified = java.run(*tool, "--reassignment-json-file", str(file), "--verify")
    assert verified.stdout.count("is completed") == len(plan["partitions"]), verified.stdout
    elected = java.run(
        "org.apache.kafka.tools.LeaderElectionCommand",
        *server,
        *("--election-type", "preferred", "--all-topic-partitions"),
    )
    assert elected.returncode == 0, elected.stdout + elected.stderr
    for row in plan["partitions"]:
        partition = cluster.partition(row["topic"], row["partition"])
        assert partition is not None
        assert partition.leader == 4


def arrived(cluster: ClusterProcesses, topic: str, index: int, replicas: list[int]) -> None:
    def there() -> bool:
        found = cluster.partition(topic, index)
        return found is not None and set(found.replicas) == set(found.isr) == set(replicas)

    cluster.until(there, f"{topic}-{index} on {replicas}")


@pytest.mark.java
@pytest.mark.timeout(600)
def test_java(cluster: ClusterProcesses) -> None:
    story(cluster, ["java"], (*EVENTS, a_move_by_kafkas_own_tool))


@pytest.mark.long
def test_librdkafka_and_kafka_python(cluster: ClusterProcesses) -> None:
    story(cluster, ["librdkafka", "kafka-python"], EVENTS)
