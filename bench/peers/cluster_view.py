"""What a cluster of three says of itself: who leads, who is the controller, who coordinates."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from bench.peers.kafka import KafkaNode
from bench.peers.subject import SubjectFailedError
from bench.peers.trio import IDS, Trio, addresses
from millstream.client.conversation import Conversation
from millstream.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)

PATIENCE_S = 120.0
LOOK_EVERY_S = 0.02


class ClusterView:
    """Asks a cluster by the C client's admin; a broker that is down is asked by nobody."""

    def __init__(self, nodes: Trio) -> None:
        self.nodes = nodes
        self._admin = AdminClient({"bootstrap.servers": addresses(nodes), "log_level": 0})

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Return once something holds; SubjectFailedError when it does not for long."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise SubjectFailedError(f"for {PATIENCE_S:g} s not: {what}")
            time.sleep(LOOK_EVERY_S)

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic; a cluster that has only now started may refuse for a while."""
        wanted = NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2"})
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._admin.create_topics([wanted])[topic].result()
            except Exception as error:
                if "TOPIC_ALREADY_EXISTS" in str(error):
                    return
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def delete(self, topic: str) -> None:
        """Delete a topic; return once it is not listed any more."""
        self._admin.delete_topics([topic])[topic].result()
        self.wait_until(
            lambda: topic not in self._admin.list_topics(timeout=PATIENCE_S).topics,
            f"{topic} is gone",
        )

    def leaders(self, topic: str) -> dict[int, int]:
        """Return who leads each partition."""
        found = self._admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        return {index: int(each.leader) for index, each in found.items()}

    def is_whole(self, topic: str) -> bool:
        """True when every partition is led and all of its replicas are in sync."""
        metadata = self._admin.list_topics(topic, timeout=PATIENCE_S)
        partitions = metadata.topics[topic].partitions.values()
        return (
            len(metadata.brokers) == len(IDS)
            and len(partitions) > 0
            and all(each.leader >= 0 and len(each.isrs) == len(IDS) for each in partitions)
        )

    def heal(self, *topics: str) -> None:
        """Wait until all replicas are in sync, and give leaderships back where they belong."""
        for topic in topics:
            self.wait_until(lambda topic=topic: self.is_whole(topic), f"{topic} is whole")  # type: ignore[misc]
        self._admin.elect_leaders(ElectionType.PREFERRED, None).result()

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return in which epoch a partition is led."""
        place = TopicPartition(topic, partition)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                found = self._admin.list_offsets({place: OffsetSpec.latest()})[place].result()
            except Exception:  # a leader that begins does not tell how far it reaches
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_EVERY_S)
            else:
                return int(found.leader_epoch)

    def coordinator(self, group: str) -> int:
        """Return who coordinates a group."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                found = self._admin.describe_consumer_groups([group])[group].result()
            except Exception:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return int(found.coordinator.id)

    def controller(self) -> int:
        """Return who decides. Kafka tells clients any broker, so its quorum is asked."""
        for node in self.nodes.values():
            if isinstance(node, KafkaNode):
                try:
                    return _quorum_leader(node.host, node.port)
                except OSError:
                    continue
        return int(self._admin.list_topics(timeout=PATIENCE_S).controller_id)


def _quorum_leader(host: str, port: int) -> int:
    conversation = Conversation("bench")
    request = DescribeQuorumRequest(
        topics=[
            TopicData(
                topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)]
            )
        ]
    )
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(conversation.greet().join())
        again = conversation.take_greeting(memoryview(_frame(connection)))
        if again is not None:
            raise SubjectFailedError(f"{host}:{port} does not tell its versions")
        connection.sendall(conversation.ask(request, 0).join())
        answer = conversation.take(memoryview(_frame(connection)))
    assert isinstance(answer, DescribeQuorumResponse)
    return int(answer.topics[0].partitions[0].leader_id)


def _frame(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)
