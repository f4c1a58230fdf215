"""Producers of a simulation, and what all its clients share: they speak the protocol and write down
what they learn.

Clients run on a machine of their own that never fails; they find leaders through metadata of any
broker, and believe no metadata of an older leader epoch than they have seen.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Final

from millstream.history.checker import History, Outcome, PartitionKey, Send
from millstream.model.broker import BrokerId, Endpoint
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.broker_channels import BrokerChannels
from millstream.runtime.pauses import pause
from millstream.sim.broker import LISTENER
from millstream.sim.coordination import Ensemble
from millstream.sim.loop import NodeClock
from millstream.sim.network import Host, Network

FIRST_CLIENT: Final = 100
REQUEST_MS: Final = 3_000
PRODUCE_VERSION: Final = 12
_NOT_SENT: Final = frozenset({ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS})
"""What proves that a write was not made."""
_PRODUCER_FAULTS: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""What no idempotent producer that sends in order is ever answered."""


class Client:
    """What producers and consumers share: a host, channels, and who leads."""

    def __init__(
        self,
        number: int,
        network: Network,
        brokers: Sequence[int],
        history: History,
        ensemble: Ensemble,
    ) -> None:
        self.clock = NodeClock(network.loop)
        self.chance = network.loop.chance
        self.history = history
        self.problems: list[str] = []
        self.stopped = False
        self._ensemble = ensemble
        self.brokers = brokers
        self._leaders: dict[PartitionKey, tuple[int, BrokerId]] = {}
        """Leader epoch and leader."""
        host = Host(number, self.clock)
        network.hosts[number] = host
        self._channels = BrokerChannels(
            network.opener(host),
            self.clock,
            client_id=f"client-{number}",
            endpoint_of=lambda broker: Endpoint(LISTENER, f"broker-{broker}", broker),
        )

    async def ask(
        self,
        broker: BrokerId,
        request: Request,
        version: int | None = None,
        lane: str = "",
        timeout_ms: float = REQUEST_MS,
    ) -> Response:
        """Ask a broker; KafkaError when it does not answer in ``timeout_ms``."""
        return await self._channels.send(broker, request, timeout_ms, version=version, lane=lane)

    def forget(self, broker: BrokerId, request: Request, version: int, lane: str) -> None:
        """Send what nobody answers."""
        channel = self._channels.channel(broker, lane)
        sent = channel.send(request, timeout_ms=REQUEST_MS, version=version)
        sent.on_done(lambda _: None)

    def may_be_told_old_news(self, broker: BrokerId, since_ms: float) -> bool:
        """Tell whether what a broker has answered since a moment may be out of date: its session
        was ended early, and its lease went on.
        """
        return self._ensemble.was_misled(broker, since_ms)

    def any_broker(self) -> BrokerId:
        """Return a broker, alive or not."""
        return BrokerId(self.chance.choice(self.brokers))

    async def leader_of(self, partition_key: PartitionKey) -> BrokerId:
        """Return who leads, as far as this client knows; NOT_LEADER_OR_FOLLOWER when nobody."""
        if partition_key not in self._leaders:
            await self._look_up(partition_key)
        leader = self._leaders[partition_key][1]
        if leader < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        return leader

    def epoch_of(self, partition_key: PartitionKey) -> int:
        """Return the newest leader epoch that this client has seen."""
        return self._leaders[partition_key][0]

    async def _look_up(self, partition_key: PartitionKey) -> None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=partition_key[0])], allow_auto_topic_creation=False
        )
        response = await self.ask(self.any_broker(), request, lane="metadata")
        assert isinstance(response, MetadataResponse)
        for topic in response.topics:
            for each in topic.partitions:
                known = self._leaders.get(
                    (partition_key[0], each.partition_index), (-1, BrokerId(-1))
                )
                if each.leader_epoch >= known[0]:
                    found = (each.leader_epoch, BrokerId(each.leader_id))
                    self._leaders[partition_key[0], each.partition_index] = found
        if partition_key not in self._leaders:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def look_again(self, partition_key: PartitionKey) -> None:
        """Wait a little, then find out anew who leads."""
        await pause(self.clock, 20 + 200 * self.chance.random())
        try:
            await self._look_up(partition_key)
        except KafkaError:
            return


class Producer:
    """Sends unique values to one partition, one batch at a time."""

    def __init__(
        self,
        client: Client,
        partition_key: PartitionKey,
        name: str,
        *,
        acks: int,
        once: bool,
        pause_ms: float,
    ) -> None:
        self._client = client
        self._partition_key = partition_key
        self.name = name
        self.acks = acks
        self._once = once
        self._pause_ms = pause_ms
        self._count = 0
        self._sequence = 0
        self._producer_id = -1
        self.last_acknowledged_ms = -1.0
        self.held = False
        """True while it is to send nothing new."""
        self.done: Deferred[None] | None = None

    def start(self) -> None:
        """Send until the client is stopped."""
        self.done = run_client(self._client, self._send_all())

    async def _send_all(self) -> None:
        client = self._client
        while self._once and self._producer_id < 0 and not client.stopped:
            await self._find_producer_id()
        while not client.stopped:
            await pause(client.clock, client.chance.expovariate(1 / self._pause_ms))
            if not self.held:
                await self._send_batch()

    async def _find_producer_id(self) -> None:
        client = self._client
        try:
            response = await client.ask(
                client.any_broker(),
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0),
            )
        except KafkaError:
            await pause(client.clock, 100)
            return
        assert isinstance(response, InitProducerIdResponse)
        if not response.error_code:
            self._producer_id = response.producer_id
        else:
            await pause(client.clock, 100)

    async def _send_batch(self) -> None:
        client = self._client
        count = client.chance.choice((1, 1, 1, 3))
        sends = [self._new_send() for _ in range(count)]
        records = self._batch(sends)
        if self.acks == 0:
            await self._throw(records)
            return
        never_sent = True
        while True:
            error, offset = await self._attempt(records)
            if error is ErrorCode.NONE:
                for index, send in enumerate(sends):
                    send.outcome = Outcome.ACKNOWLEDGED
                    send.offset = offset + index if offset >= 0 else -1
                self._sequence += count
                self.last_acknowledged_ms = client.clock.monotonic_ms()
                return
            never_sent = never_sent and error in _NOT_SENT
            if error in _PRODUCER_FAULTS:
                client.problems.append(f"{self.name} was answered {error.name}")
            if not self._once or client.stopped or error in _PRODUCER_FAULTS:
                if never_sent:
                    for send in sends:
                        send.outcome = Outcome.REFUSED
                if self._once:
                    client.stopped = True
                else:
                    await client.look_again(self._partition_key)
                return
            await client.look_again(self._partition_key)

    def _new_send(self) -> Send:
        self._count += 1
        return self._client.history.send(
            Send(
                self._partition_key,
                f"{self.name}:{self._count}",
                self.name,
                durable=self.acks == -1,
                once=self._once,
            )
        )

    def _batch(self, sends: Sequence[Send]) -> bytes:
        options = (
            BatchOptions(
                producer_id=self._producer_id, producer_epoch=0, base_sequence=self._sequence
            )
            if self._once
            else BatchOptions()
        )
        builder = BatchBuilder(options)
        for send in sends:
            builder.append(self._client.clock.now_ms(), None, str(send.value).encode())
        return builder.build()

    async def _throw(self, records: bytes) -> None:
        """Send with acks=0: nobody answers, and the lane is given up after a while."""
        client = self._client
        try:
            leader = await client.leader_of(self._partition_key)
        except KafkaError:
            await client.look_again(self._partition_key)
            return
        client.forget(leader, self._request(records), PRODUCE_VERSION, lane=self.name)
        if client.chance.random() < 0.1:
            await client.look_again(self._partition_key)

    def _request(self, records: bytes) -> ProduceRequest:
        topic, index = self._partition_key
        partition = PartitionProduceData(index=index, records=records)
        return ProduceRequest(
            acks=self.acks,
            timeout_ms=REQUEST_MS // 2,
            topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
        )

    async def _attempt(self, records: bytes) -> tuple[ErrorCode, int]:
        client = self._client
        request = self._request(records)
        try:
            leader = await client.leader_of(self._partition_key)
        except KafkaError:
            return ErrorCode.BROKER_NOT_AVAILABLE, -1
        try:
            response = await client.ask(leader, request, PRODUCE_VERSION, lane=self.name)
        except KafkaError as error:
            return error.error, -1
        assert isinstance(response, ProduceResponse)
        answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return ErrorCode.of(answer.error_code), answer.base_offset


def run_client(client: Client, work: Coroutine[Deferred[Any], None, None]) -> Deferred[None]:
    """Drive what a client does; an error that it does not expect is a problem."""
    done = spawn(work)

    def ended(outcome: Deferred[None]) -> None:
        try:
            outcome.result()
        except Exception as error:
            client.problems.append(f"a client ended: {error!r}")

    done.on_done(ended)
    return done
