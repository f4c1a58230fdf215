"""Asks brokers how far their replicas reach, for elections that compare logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from millstream.controller.election import LogEnd
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.describe_replicas import (
    AskedReplica,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
)
from millstream.runtime.controlling.controller_state import ControllerState

TIMEOUT_MS: Final = 2_000

Send = Callable[[BrokerId, Request, float], Deferred[Response]]
LocalLogEnd = Callable[[TopicPartition], LogEnd | None]


class LogEnds:
    """Implements ``last_resort_elections.AskLogs``. ``local`` knows the replicas on this broker."""

    def __init__(
        self, state: ControllerState, broker_id: BrokerId, send: Send, local: LocalLogEnd
    ) -> None:
        self._state = state
        self._broker_id = broker_id
        self._send = send
        self._local = local

    def ask(
        self, wanted: Mapping[TopicPartition, Sequence[BrokerId]]
    ) -> Deferred[Mapping[TopicPartition, Mapping[BrokerId, LogEnd]]]:
        """Return the ends of the replicas named; brokers that do not answer are left out."""
        return spawn(self._ask(wanted))

    async def _ask(
        self, wanted: Mapping[TopicPartition, Sequence[BrokerId]]
    ) -> Mapping[TopicPartition, Mapping[BrokerId, LogEnd]]:
        by_broker: dict[BrokerId, list[TopicPartition]] = {}
        for topic_partition, brokers in wanted.items():
            for broker_id in brokers:
                by_broker.setdefault(broker_id, []).append(topic_partition)
        found: dict[TopicPartition, dict[BrokerId, LogEnd]] = {
            topic_partition: {} for topic_partition in wanted
        }
        asked = [
            (
                broker_id,
                topic_partitions,
                self._send(broker_id, self._request(topic_partitions), TIMEOUT_MS),
            )
            for broker_id, topic_partitions in by_broker.items()
            if broker_id != self._broker_id
        ]
        for topic_partition in by_broker.get(self._broker_id, ()):
            end = self._local(topic_partition)
            if end is not None:
                found[topic_partition][self._broker_id] = end
        for broker_id, topic_partitions, answer in asked:
            try:
                response = await answer
            except KafkaError:
                continue
            assert isinstance(response, DescribeReplicasResponse)
            if response.error_code:
                continue
            for topic_partition, replica in zip(topic_partitions, response.replicas, strict=True):
                if replica.present:
                    end = LogEnd(replica.last_epoch, replica.log_end_offset)
                    found[topic_partition][broker_id] = end
        return found

    def _request(self, topic_partitions: Sequence[TopicPartition]) -> DescribeReplicasRequest:
        topics = self._state.context.topics
        return DescribeReplicasRequest(
            controller_epoch=self._state.context.controller_epoch,
            replicas=[
                AskedReplica(topic_id=topics[each.topic].topic_id, index=each.partition)
                for each in topic_partitions
            ],
        )
