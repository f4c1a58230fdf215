"""Three brokers of one kind on this machine as a cluster: Millstream and a ZooKeeper, or Kafka."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.peers.kafka import KafkaInstall, KafkaNode, free_port, new_cluster_id
from bench.peers.millstream import millstream_node
from bench.peers.server_process import ServerProcess
from bench.peers.subject import Node, SubjectFailedError
from millstream.spark.java import find_java
from millstream.zookeeper.embedded import JavaProgram, ZooKeeperEnsemble, find_jars

IDS = (1, 2, 3)
SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
}
SMALL_HEAP = ("-Xms512M", "-Xmx512M", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")

Trio = dict[int, Node]


def bring_back(*nodes: Node) -> None:
    """Start nodes that were stopped or killed where they were; return once all answer."""
    for node in nodes:
        assert isinstance(node, KafkaNode | ServerProcess)
        node.spawn()
    for node in nodes:
        if isinstance(node, KafkaNode):
            node.wait_until_ready()
        elif isinstance(node, ServerProcess):
            node.wait_until_listening()


def addresses(nodes: Trio) -> str:
    """Return what a client is given to find the cluster."""
    return ",".join(f"{node.host}:{node.port}" for node in nodes.values())


@contextmanager
def millstream_trio(
    directory: Path, *, settings: Mapping[str, str] | None = None
) -> Iterator[Trio]:
    """Run a ZooKeeper out of PySpark's jars and three brokers."""
    try:
        import pyspark
    except ImportError as error:
        raise SubjectFailedError("PySpark carries the ZooKeeper, and is not there") from error
    jars = Path(pyspark.__file__).parent / "jars"
    java = JavaProgram(find_java(os.environ).home / "bin" / "java", find_jars(jars))
    with ExitStack() as stack, ZooKeeperEnsemble(java, directory / "zookeeper") as ensemble:
        nodes: Trio = {}
        for each in IDS:
            of_node = {
                **SETTINGS,
                **(settings or {}),
                "broker.id": str(each),
                "zookeeper.connect": ensemble.servers[0].address,
            }
            # A port of its own, so that a broker comes back where it was.
            place = directory / f"broker-{each}"
            node = millstream_node(place, settings=of_node, port=free_port())
            stack.callback(node.kill)
            nodes[each] = node.start()
        yield nodes


@contextmanager
def kafka_trio(
    install: KafkaInstall,
    directory: Path,
    *,
    settings: Mapping[str, str] | None = None,
    jvm_flags: tuple[str, ...] = SMALL_HEAP,
) -> Iterator[Trio]:
    """Run three combined KRaft nodes."""
    ports = {each: (free_port(), free_port()) for each in IDS}
    voters = ",".join(f"{each}@127.0.0.1:{controller}" for each, (_, controller) in ports.items())
    cluster_id = new_cluster_id()
    with ExitStack() as stack:
        nodes: dict[int, KafkaNode] = {}
        for each, (port, controller) in ports.items():
            listener = f"PLAINTEXT://127.0.0.1:{port}"
            of_node = {
                **SETTINGS,
                **(settings or {}),
                "node.id": str(each),
                "listeners": f"{listener},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": listener,
                "controller.quorum.voters": voters,
            }
            node = KafkaNode(
                install,
                directory / f"broker-{each}",
                settings=of_node,
                jvm_flags=jvm_flags,
                cluster_id=cluster_id,
            )
            node.prepare()
            node.port = port
            stack.callback(node.kill)
            nodes[each] = node
        for node in nodes.values():
            node.spawn()
        for node in nodes.values():
            node.wait_until_ready()
        yield dict(nodes)
