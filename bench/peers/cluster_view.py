"""What a cluster of three says of itself: who leads, who is the controller, who coordinates.

Asked by one connection for each question, so that no client's memory of brokers that were killed
comes in between.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import TypeVar

from bench.peers.kafka import KafkaNode
from bench.peers.subject import Node, SubjectFailedError
from bench.peers.trio import IDS, Trio
from millstream.client.conversation import Conversation
from millstream.model.topic import ZERO_TOPIC_ID
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from millstream.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from millstream.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

Answer = TypeVar("Answer", bound=Response)

PATIENCE_S = 120.0
LOOK_EVERY_S = 0.02
ANSWER_TIMEOUT_S = 30.0
METADATA_VERSION = 9
TOPIC_ALREADY_EXISTS = 36


class ClusterView:
    """Asks whichever broker answers, in turn; who is down or paused is left out after a while."""

    def __init__(self, nodes: Trio) -> None:
        self.nodes = nodes

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Return once something holds; SubjectFailedError when it does not for long."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise SubjectFailedError(f"for {PATIENCE_S:g} s not: {what}")
            time.sleep(LOOK_EVERY_S)

    # --- what is done --------------------------------------------------------------------------

    def create(self, topic: str, partitions: int, *, led_by: int | None = None) -> None:
        """Create a topic, all of it ``led_by`` one broker if that is said; a cluster that has only
        now started may refuse for a while.
        """
        assignments = []
        if led_by is not None:
            others = [each for each in IDS if each != led_by]
            assignments = [
                CreatableReplicaAssignment(
                    partition_index=index,
                    broker_ids=[led_by, *(others if index % 2 else reversed(others))],
                )
                for index in range(partitions)
            ]
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=-1 if assignments else partitions,
                    replication_factor=-1 if assignments else len(IDS),
                    assignments=assignments,
                    configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
                )
            ]
        )

        def created() -> bool:
            (result,) = self._ask_controller(request, CreateTopicsResponse).topics
            return result.error_code in (0, TOPIC_ALREADY_EXISTS)

        self.wait_until(created, f"{topic} is created")

    def delete(self, topic: str) -> None:
        """Delete a topic; return once no broker lists it any more."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic, topic_id=ZERO_TOPIC_ID)],
            topic_names=[topic],
            timeout_ms=30_000,
        )
        (result,) = self._ask_controller(request, DeleteTopicsResponse).responses
        if result.error_code:
            raise SubjectFailedError(f"DeleteTopics of {topic}: error {result.error_code}")
        self.wait_until(
            lambda: all(not _partitions(_metadata(n, topic)) for n in self.nodes.values()),
            f"{topic} is gone",
        )

    def heal(self, topic: str) -> None:
        """Wait until all replicas are in sync, and give leaderships back where they belong."""
        self.wait_until(lambda: self.is_whole(topic), f"{topic} is whole")
        self._ask_controller(ElectLeadersRequest(topic_partitions=None), ElectLeadersResponse)

    # --- what is asked -------------------------------------------------------------------------

    def leaders(self, topic: str) -> dict[int, int]:
        """Return who leads each partition."""
        return {each.partition_index: each.leader_id for each in self._partitions(topic)}

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return in which epoch a partition is led."""
        found = self._partitions(topic)
        return next(each.leader_epoch for each in found if each.partition_index == partition)

    def is_whole(self, topic: str) -> bool:
        """True when all brokers are there, every partition is led and all replicas are in sync."""
        metadata = self._ask_any(_about(topic), MetadataResponse, METADATA_VERSION)
        partitions = _partitions(metadata)
        return (
            len(metadata.brokers) == len(IDS)
            and len(partitions) > 0
            and all(each.leader_id >= 0 and len(each.isr_nodes) == len(IDS) for each in partitions)
        )

    def coordinator(self, key: str, *, key_type: int = 0) -> int:
        """Return who coordinates a group, or with key type 1 a transactional id."""
        found: list[int] = []

        def is_found() -> bool:
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            answer = self._ask_any(request, FindCoordinatorResponse, 3)
            found.append(answer.node_id)
            return answer.error_code == 0

        self.wait_until(is_found, f"{key} has a coordinator")
        return found[-1]

    def controller(self) -> int:
        """Return who decides. Kafka tells clients any broker, so its quorum is asked."""
        if not any(isinstance(node, KafkaNode) for node in self.nodes.values()):
            request = _about("none")
            found: list[int] = []

            def is_found() -> bool:
                found.append(
                    self._ask_any(request, MetadataResponse, METADATA_VERSION).controller_id
                )
                return found[-1] in self.nodes

            self.wait_until(is_found, "there is a controller")
            return found[-1]
        partition = PartitionData(partition_index=0)
        topic = TopicData(topic_name="__cluster_metadata", partitions=[partition])
        answer = self._ask_any(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse, 0)
        return answer.topics[0].partitions[0].leader_id

    def _partitions(self, topic: str) -> list[MetadataResponsePartition]:
        return _partitions(self._ask_any(_about(topic), MetadataResponse, METADATA_VERSION))

    def _ask_controller(self, request: Request, kind: type[Answer]) -> Answer:
        return _ask(self.nodes[self.controller()], request, kind)

    def _ask_any(self, request: Request, kind: type[Answer], version: int) -> Answer:
        failure: Exception | None = None
        for node in self.nodes.values():
            try:
                return _ask(node, request, kind, version)
            except OSError as error:
                failure = error
        raise SubjectFailedError(f"no broker answers: {failure}")


def _about(topic: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )


def _partitions(metadata: MetadataResponse) -> list[MetadataResponsePartition]:
    return metadata.topics[0].partitions


def _metadata(node: Node, topic: str) -> MetadataResponse:
    return _ask(node, _about(topic), MetadataResponse, METADATA_VERSION)


def _ask(node: Node, request: Request, kind: type[Answer], version: int | None = None) -> Answer:
    """Return a broker's answer, in a version or in the newest that both sides speak."""
    conversation = Conversation("bench")
    with socket.create_connection((node.host, node.port), timeout=ANSWER_TIMEOUT_S) as connection:
        connection.sendall(conversation.request_versions().join())
        again = conversation.take_versions(memoryview(_frame(connection)))
        if again is not None:
            connection.sendall(conversation.request_versions(again).join())
            conversation.take_versions(memoryview(_frame(connection)))
        if version is None:
            version = conversation.version_for(type(request))
        connection.sendall(conversation.ask(request, version).join())
        answer = conversation.take(memoryview(_frame(connection)))
    assert isinstance(answer, kind)
    return answer


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
