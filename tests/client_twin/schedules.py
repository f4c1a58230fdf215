"""Seeded schedules of trouble for one producer, and what must hold afterwards.

A schedule sends numbered records to some partitions while connections are delayed, cut before or
after a request was handled, reset and refused, brokers stop and start, leaders move, and answers
say NOT_LEADER or that replicas are missing. What must hold, per partition:

* a record that was acknowledged is there, once, and at the offset that was told;
* no record is there twice;
* records stand in the order in which they were sent.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from tests.client_twin.cluster import TwinBroker, TwinCluster
from tests.client_twin.loop import Connection, TwinLoop

from millstream.client.core.producer.accumulator import MemoryWaiter
from millstream.client.core.producer.batch import Delivery
from millstream.client.core.producer.core import ProducerCore, complete_settings
from millstream.client.core.settings import ProducerSettings, read_settings
from millstream.model.errors import ErrorCode
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.api_versions import ApiVersionsRequest
from millstream.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

TOPIC = "t"
PASSING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
AFTER_APPEND = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


@dataclass
class Sent:
    partition: int
    number: int
    delivery: Delivery


class Schedule:
    """One run: deterministic in its seed."""

    def __init__(self, seed: int) -> None:
        self.loop = TwinLoop(seed)
        self.chance = self.loop.chance
        self.brokers = self.chance.choice((1, 2, 3))
        self.partitions = self.chance.choice((1, 1, 2, 3))
        self.cluster = TwinCluster(self.loop, range(1, self.brokers + 1))
        self.cluster.create_topic(TOPIC, self.partitions)
        self.trouble = self.chance.choice((0.02, 0.1, 0.3))
        self.is_calm = False
        self.sent: list[Sent] = []
        self.full = 0
        self.core = self._core()

    def _core(self) -> ProducerCore:
        chance = self.chance
        given: dict[str, object] = {
            "linger_ms": chance.choice((0, 0, 5, 20)),
            "batch_size": chance.choice((0, 100, 200, 1000)),
            "buffer_memory": chance.choice((3_000, 20_000, 33_554_432)),
            "max_in_flight_requests_per_connection": chance.choice((1, 2, 5, 5)),
            "request_timeout_ms": chance.choice((300, 1000)),
            "delivery_timeout_ms": chance.choice((1500, 5000, 60_000)),
            "retry_backoff_ms": chance.choice((1, 20)),
            "reconnect_backoff_ms": 10,
            "reconnect_backoff_max_ms": 100,
        }
        read = read_settings(ProducerSettings, {"bootstrap.servers": self.cluster.bootstrap}, given)
        return ProducerCore(
            self.loop, complete_settings(read, set(given)), contextlib.nullcontext()
        )

    # --- trouble ---------------------------------------------------------------------------------

    def _strikes(self) -> bool:
        return not self.is_calm and self.chance.random() < self.trouble

    def _latency(self) -> float:
        if self._strikes():
            return self.chance.choice((50.0, 400.0, 1500.0))
        return self.chance.choice((0.1, 1.0, 5.0))

    def _before(self, broker: TwinBroker, connection: Connection, request: Request) -> bool:
        """Cut before the request is handled: it is lost."""
        if isinstance(request, ApiVersionsRequest) or not self._strikes():
            return True
        connection.cut(ConnectionResetError(104, "reset") if self.chance.random() < 0.5 else None)
        return False

    def _after(self, broker: TwinBroker, connection: Connection, request: Request) -> float | None:
        """Cut after it was handled, keep silent, or be slow."""
        if isinstance(request, ApiVersionsRequest) or not self._strikes():
            return 0.0
        how = self.chance.random()
        if how < 0.4:
            connection.cut()
        elif how < 0.6:
            # Silence on this connection from now on: answers come in order.
            connection.state["cut"] = True
            return None
        return self.chance.choice((10.0, 200.0, 900.0))

    def _refuse(self, broker: TwinBroker, request: Request) -> Response | None:
        """Refuse, or append and refuse."""
        if not isinstance(request, ProduceRequest) or not self._strikes():
            return None
        if self.chance.random() < 0.5:
            response = self.cluster.handlers[ProduceRequest](broker, request)
            assert isinstance(response, ProduceResponse)
            for topic in response.responses:
                for row in topic.partition_responses:
                    if row.error_code == 0:
                        row.error_code = self.chance.choice(AFTER_APPEND).code
                        row.base_offset = -1
            return response
        error = self.chance.choice(PASSING)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=each.index, error_code=error.code, base_offset=-1
                        )
                        for each in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def _disturb(self) -> None:
        if not self._strikes():
            return
        what = self.chance.random()
        broker = self.chance.choice(list(self.cluster.brokers.values()))
        if what < 0.3:
            broker.stop()
            self.loop.call_at(
                self.loop.now_ms() + self.chance.choice((20, 300, 2000)), broker.start
            )
        elif what < 0.7:
            self.cluster.move_leader(
                TOPIC,
                self.chance.randrange(self.partitions),
                self.chance.choice(list(self.cluster.brokers)),
            )
        else:
            for connection in list(self.loop.network.connections):
                if connection.address == broker.address and connection.is_open:
                    connection.cut(ConnectionResetError(104, "reset"))

    # --- the run ---------------------------------------------------------------------------------

    def run(self) -> None:
        self.loop.run(self.core.open_topic(TOPIC))
        self.loop.network.latency_ms = self._latency
        self.cluster.before = self._before
        self.cluster.after = self._after
        self.cluster.hooks.append(self._refuse)
        numbers = [0] * self.partitions
        for _ in range(self.chance.choice((5, 20, 60))):
            self._disturb()
            for _ in range(self.chance.choice((1, 1, 3, 10))):
                self._send(numbers)
            self.loop.advance(self.chance.choice((0, 0, 1, 5, 50)))
        self.is_calm = True
        for broker in self.cluster.brokers.values():
            broker.start()
        self.loop.run(self.core.flush())
        self.check()
        self.loop.run(self.core.close(10_000))
        # Nothing may arrive late that changes a log.
        self.loop.advance(10_000)
        self.check()
        assert self.core.accumulator.held_bytes == 0
        assert not self.loop.network.connections

    def _send(self, numbers: list[int]) -> None:
        partition = self.chance.randrange(self.partitions)
        value = b"%d" % numbers[partition]
        accumulator = self.core.accumulator
        queue = self.core.plan(accumulator.topic(TOPIC), None, value, partition)
        appended = accumulator.append(queue, 1, None, value, (), None)
        if appended is None:
            self.full += 1
            waiter = MemoryWaiter(lambda: None)
            accumulator.wait_for_memory(waiter)
            self.core.sender.wake()
            self.loop.advance(5)
            accumulator.stop_waiting(waiter)
            accumulator.wake_waiters()
            return
        self.sent.append(Sent(partition, numbers[partition], Delivery(*appended)))
        numbers[partition] += 1

    def check(self) -> None:
        for index, partition in enumerate(self.cluster.topics[TOPIC].partitions):
            there = [int(record.value or b"-1") for record in partition.records()]
            assert len(set(there)) == len(there), f"doubled in partition {index}: {there}"
            assert there == sorted(there), f"reordered in partition {index}: {there}"
            for each in self.sent:
                if each.partition != index:
                    continue
                assert each.delivery.done(), "a flush leaves nothing without an outcome"
                batch = each.delivery._batch
                if batch.error is not None:
                    continue
                assert each.number in there, f"lost from partition {index}: {each.number}"
                offset = each.delivery._outcome().offset
                assert offset in (-1, there.index(each.number)), "another offset than was told"

    @property
    def acknowledged(self) -> int:
        return sum(1 for each in self.sent if each.delivery._batch.error is None)
