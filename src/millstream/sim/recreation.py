"""A topic that is made, written to, deleted and made again, all by one client.

Each topic that is made has an id of its own, and with it a partition of its own in the history:
what was sent to one of them and is found in another is an error, though they have one name.
"""

from __future__ import annotations

from typing import Final

from millstream.history.checker import Outcome, PartitionKey, Send
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId, topic_id_to_text
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.pauses import pause
from millstream.sim.clients import REQUEST_MS, Client, run_client

RECREATED: Final = "recreated"
PRODUCE_VERSION: Final = 13
"""The first version that names topics by their ids."""


def partition_key_of(topic_id: TopicId) -> PartitionKey:
    """Return where the history has one life of the topic."""
    return (f"{RECREATED} {topic_id_to_text(topic_id)}", 0)


class TopicRecreation:
    """Writes to the topic, and deletes and makes it every now and then."""

    def __init__(self, client: Client, *, min_isr: int, pause_ms: float) -> None:
        self._client = client
        self._min_isr = min_isr
        self._pause_ms = pause_ms
        self._count = 0
        self.deletions = 0

    def start(self) -> None:
        """Go on until the client is stopped."""
        run_client(self._client, self._run())

    async def _run(self) -> None:
        client = self._client
        while not client.stopped:
            await pause(client.clock, client.chance.expovariate(1 / self._pause_ms))
            try:
                found = await self._find()
                if found is None:
                    await self._create()
                elif client.chance.random() < 0.1:
                    await self._delete(found[0])
                elif found[1] >= 0:
                    await self._send(*found)
            except KafkaError:
                continue

    async def _find(self) -> tuple[TopicId, BrokerId] | None:
        """Return the topic's id and the leader, None when some broker knows no such topic."""
        client = self._client
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=RECREATED)], allow_auto_topic_creation=False
        )
        response = await client.ask(client.any_broker(), request, lane=RECREATED)
        assert isinstance(response, MetadataResponse)
        topic = response.topics[0]
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code:
            return None
        leader = topic.partitions[0].leader_id if topic.partitions else -1
        return topic.topic_id, BrokerId(leader)

    async def _create(self) -> None:
        topic = CreatableTopic(
            name=RECREATED,
            num_partitions=1,
            replication_factor=3,
            assignments=[],
            configs=[CreatableTopicConfig(name="min.insync.replicas", value=str(self._min_isr))],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=1_000)
        await self._client.ask(self._client.any_broker(), request, lane=RECREATED)

    async def _delete(self, topic_id: TopicId) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=1_000
        )
        self.deletions += 1
        await self._client.ask(self._client.any_broker(), request, lane=RECREATED)

    async def _send(self, topic_id: TopicId, leader: BrokerId) -> None:
        client = self._client
        self._count += 1
        send = client.history.send(
            Send(
                partition_key_of(topic_id),
                f"recreated:{self._count}",
                RECREATED,
                durable=True,
                once=False,
            )
        )
        builder = BatchBuilder(BatchOptions())
        builder.append(client.clock.now_ms(), None, str(send.value).encode())
        partition = PartitionProduceData(index=0, records=builder.build())
        request = ProduceRequest(
            acks=-1,
            timeout_ms=REQUEST_MS // 2,
            topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[partition])],
        )
        response = await client.ask(leader, request, PRODUCE_VERSION, lane=RECREATED)
        assert isinstance(response, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        if not answer.error_code:
            send.outcome, send.offset = Outcome.ACKNOWLEDGED, answer.base_offset
