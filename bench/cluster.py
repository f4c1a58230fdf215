"""Three brokers under measurement: topics with three replicas, and loads on their leaders."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from bench import wire
from bench.admin import READY_TIMEOUT_S, TOPIC_ALREADY_EXISTS, Admin, BrokerAnswerError
from bench.load import c_client, raw
from bench.load.report import LoadReport
from bench.peers.trio import Trio
from bench.stage import Stage, run_load
from bench.work import SETTLE_S

REPLICAS = 3
TOPIC_SETTINGS = {"min.insync.replicas": "2"}
RAW_PARTITIONS = 3
CLIENT_PARTITIONS = 6
RETRY_S = 0.05


class Cluster:
    """Brokers of one kind, spoken to by hand."""

    def __init__(self, nodes: Trio) -> None:
        self.nodes = nodes

    @property
    def pids(self) -> tuple[int, ...]:
        """The brokers' processes; a ZooKeeper's is none of them."""
        return tuple(node.pid for node in self.nodes.values())

    @property
    def bootstrap(self) -> str:
        """`host:port` of every broker."""
        return ",".join(f"{node.host}:{node.port}" for node in self.nodes.values())

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic with three replicas; return once every partition has a leader."""
        request = wire.create_topic_request(topic, partitions, TOPIC_SETTINGS, replicas=REPLICAS)
        self._until_taken(f"CreateTopics of {topic}", request, (0, TOPIC_ALREADY_EXISTS))
        deadline = time.monotonic() + READY_TIMEOUT_S
        while len(self._ends(topic, partitions)) < partitions:
            if time.monotonic() > deadline:
                raise BrokerAnswerError(f"{topic} has partitions without a leader")
            time.sleep(RETRY_S)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        self._until_taken(f"DeleteTopics of {topic}", wire.delete_topic_request(topic), (0,))
        time.sleep(SETTLE_S)

    def leader_ports(self, topic: str, partitions: int) -> tuple[int, ...]:
        """Return where the leader of each partition listens."""
        found = self._ends(topic, partitions)
        return tuple(found[each][0] for each in range(partitions))

    def check_ends(self, topic: str, partitions: int, records: int) -> None:
        """Raise unless so many records are in the log and committed."""
        ends = [end for _, end in self._ends(topic, partitions).values()]
        if sum(ends) != records:
            raise BrokerAnswerError(f"{records} records were acknowledged, the log ends at {ends}")

    def _ends(self, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
        """Return per partition its leader's port and its high watermark."""
        found: dict[int, tuple[int, int]] = {}
        for node in self.nodes.values():
            with Admin(node.host, node.port) as admin:
                for partition, end in admin.led_offsets(topic, partitions).items():
                    found[partition] = node.port, end
        return found

    def _until_taken(self, what: str, request: bytes, accepted: tuple[int, ...]) -> None:
        """Send a request of one topic to each broker in turn: some leave it to the controller."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            for node in self.nodes.values():
                with Admin(node.host, node.port) as admin:
                    reader = admin.send(request)
                reader.take("ii")
                reader.string()
                (error,) = reader.take("h")
                if error in accepted:
                    return
            if time.monotonic() > deadline:
                raise BrokerAnswerError(f"{what}: error {error}")
            time.sleep(RETRY_S)


@dataclass(frozen=True)
class RawProduce:
    """`requests` batches in all, one connection to each leader of three partitions."""

    batch_bytes: int
    record_bytes: int
    requests: int
    acks: int


def raw_produce(stage: Stage, cluster: Cluster, work: RawProduce) -> LoadReport:
    """Run a raw produce on a fresh topic, and wait until it is replicated."""

    def load(topic: str) -> LoadReport:
        return run_load(
            raw.ProduceSpec(
                ports=cluster.leader_ports(topic, RAW_PARTITIONS),
                broker_pids=cluster.pids,
                topic=topic,
                requests=max(1, work.requests // RAW_PARTITIONS),
                batch_bytes=work.batch_bytes,
                record_bytes=work.record_bytes,
                acks=work.acks,
                settles=True,
            )
        )

    return _on_fresh_topic(stage, cluster, RAW_PARTITIONS, load)


@dataclass(frozen=True)
class ClientProduce:
    """`records` through one producer of the C client."""

    records: int
    record_bytes: int
    acks: str


def client_produce(stage: Stage, cluster: Cluster, work: ClientProduce) -> LoadReport:
    """Produce with the C client to a fresh topic, and wait until it is replicated."""

    def load(topic: str) -> LoadReport:
        return run_load(
            c_client.ClientProduceSpec(
                bootstrap=cluster.bootstrap,
                broker_pids=cluster.pids,
                topic=topic,
                partitions=CLIENT_PARTITIONS,
                records=work.records,
                record_bytes=work.record_bytes,
                acks=work.acks,
                settles=True,
            )
        )

    return _on_fresh_topic(stage, cluster, CLIENT_PARTITIONS, load)


def _on_fresh_topic(
    stage: Stage, cluster: Cluster, partitions: int, load: Callable[[str], LoadReport]
) -> LoadReport:
    topic = stage.next_topic()
    cluster.create_topic(topic, partitions)
    with ExitStack() as stack:
        stack.callback(cluster.delete_topic, topic)
        report = load(topic)
        cluster.check_ends(topic, partitions, report.records)
    return report
