"""Asks brokers how far their replicas reach, for elections that have nothing else to go by."""

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
from millstream.runtime.controlling.controller_desk import ControllerDesk

TIMEOUT_MS: Final = 2_000

Send = Callable[[BrokerId, Request, float], Deferred[Response]]
LocalLogEnd = Callable[[TopicPartition], LogEnd | None]


class LogEnds:
    """Implements ``replica_control.AskLogs``. ``local`` knows the replicas on this broker."""

    def __init__(
        self, desk: ControllerDesk, broker_id: BrokerId, send: Send, local: LocalLogEnd
    ) -> None:
        self._desk = desk
        self._broker_id = broker_id
        self._send = send
        self._local = local

    def ask(
        self, wanted: Mapping[TopicPartition, Sequence[BrokerId]]
    ) -> Deferred[Mapping[TopicPartition, Mapping[BrokerId, LogEnd]]]:
        """Return the ends of the replicas named; who does not answer is left out."""
        return spawn(self._ask(wanted))

    async def _ask(
        self, wanted: Mapping[TopicPartition, Sequence[BrokerId]]
    ) -> Mapping[TopicPartition, Mapping[BrokerId, LogEnd]]:
        by_broker: dict[BrokerId, list[TopicPartition]] = {}
        for place, brokers in wanted.items():
            for broker_id in brokers:
                by_broker.setdefault(broker_id, []).append(place)
        found: dict[TopicPartition, dict[BrokerId, LogEnd]] = {place: {} for place in wanted}
        asked = [
            (broker_id, places, self._send(broker_id, self._request(places), TIMEOUT_MS))
            for broker_id, places in by_broker.items()
            if broker_id != self._broker_id
        ]
        for place in by_broker.get(self._broker_id, ()):
            end = self._local(place)
            if end is not None:
                found[place][self._broker_id] = end
        for broker_id, places, answer in asked:
            try:
                response = await answer
            except KafkaError:
                continue
            assert isinstance(response, DescribeReplicasResponse)
            if response.error_code:
                continue
            for place, replica in zip(places, response.replicas, strict=True):
                if replica.present:
                    end = LogEnd(replica.last_epoch, replica.log_end_offset)
                    found[place][broker_id] = end
        return found

    def _request(self, places: Sequence[TopicPartition]) -> DescribeReplicasRequest:
        topics = self._desk.context.topics
        return DescribeReplicasRequest(
            controller_epoch=self._desk.context.controller_epoch,
            replicas=[
                AskedReplica(topic_id=topics[each.topic].topic_id, index=each.partition)
                for each in places
            ],
        )
