"""What the producer's core sends, on a scripted loop and brokers."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest
from tests.client_twin import TwinBroker, TwinCluster, TwinLoop

from millstream.client.core.producer.accumulator import MemoryWaiter, TopicBuffer
from millstream.client.core.producer.batch import Delivery, RecordMetadata
from millstream.client.core.producer.core import ProducerCore, complete_settings
from millstream.client.core.settings import ProducerSettings, read_settings
from millstream.client.errors import BrokerError, ClosedError, TimedOutError
from millstream.model.deferred import spawn
from millstream.model.errors import ConfigError, ErrorCode
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
from millstream.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from millstream.records.batch import header_at

TOPIC = "t"


class World:
    """A producer core, a cluster with one topic, and what was acknowledged."""

    def __init__(
        self, brokers: int = 1, partitions: int = 1, seed: int = 0, **more: object
    ) -> None:
        self.loop = TwinLoop(seed)
        self.cluster = TwinCluster(self.loop, range(1, brokers + 1))
        self.topic = self.cluster.create_topic(TOPIC, partitions)
        given = {"linger_ms": 0, **more}
        read = read_settings(ProducerSettings, {"bootstrap.servers": self.cluster.bootstrap}, given)
        self.core = ProducerCore(
            self.loop, complete_settings(read, set(given)), contextlib.nullcontext()
        )
        self.loop.run(self.core.open_topic(TOPIC))
        self.outcomes: list[tuple[RecordMetadata | None, Exception | None]] = []

    def send(self, value: bytes, partition: int | None = 0, key: bytes | None = None) -> Delivery:
        buffer = self.core.accumulator.topic(TOPIC)
        appended = self.core.accumulator.append(
            self.core.plan(buffer, key, value, partition),
            1,
            key,
            value,
            (),
            lambda metadata, error: self.outcomes.append((metadata, error)),
        )
        assert appended is not None
        return Delivery(*appended)

    def flush(self) -> None:
        self.loop.run(self.core.flush())

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [each.value for each in self.topic.partitions[partition].records()]

    def produces(self) -> list[ProduceRequest]:
        return [
            each
            for broker in self.cluster.brokers.values()
            for each in broker.requests
            if isinstance(each, ProduceRequest)
        ]


def refusing(error: ErrorCode, times: int, offset: int = -1) -> object:
    left = [times]

    def hook(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, ProduceRequest) or not left[0]:
            return None
        left[0] -= 1
        topic = request.topic_data[0]
        rows = [
            PartitionProduceResponse(index=each.index, error_code=error.code, base_offset=offset)
            for each in topic.partition_data
        ]
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=rows
                )
            ]
        )

    return hook


def test_records_arrive_with_their_offsets() -> None:
    world = World()
    for number in range(5):
        world.send(b"%d" % number)
    world.flush()
    assert world.values() == [b"0", b"1", b"2", b"3", b"4"]
    assert [metadata.offset for metadata, _ in world.outcomes if metadata] == [0, 1, 2, 3, 4]
    assert world.core.accumulator.held_bytes == 0
    assert world.core.metrics.values()["producer-metrics", "record-send-total"] == 5


def test_a_delivery_that_times_out_tells_the_last_refusal() -> None:
    world = World(request_timeout_ms=1_000, delivery_timeout_ms=5_000)
    world.cluster.hooks.append(refusing(ErrorCode.NOT_ENOUGH_REPLICAS, 1_000_000))
    lost = world.send(b"lost")
    world.loop.advance(6_000)
    with pytest.raises(
        TimedOutError,
        match=r"^1 record for .* was not delivered within 5000 ms \(delivery\.timeout\.ms\), after "
        r"\d+ attempts: the last ended with NOT_ENOUGH_REPLICAS",
    ):
        lost._outcome()


def test_halves_expire_when_the_whole_would_have() -> None:
    world = World(partitions=2, request_timeout_ms=1_000, delivery_timeout_ms=10_000)
    world.cluster.hooks += [
        refusing(ErrorCode.MESSAGE_TOO_LARGE, 1),  # type: ignore[list-item]
        refusing(ErrorCode.NOT_ENOUGH_REPLICAS, 1_000_000),  # type: ignore[list-item]
    ]
    world.cluster.after = lambda *asked: 500.0 if isinstance(asked[2], ProduceRequest) else 0.0
    early = [world.send(b"early") for _ in range(2)]
    world.loop.advance(200)
    late = world.send(b"late", partition=1)
    world.loop.advance(9_900)
    assert all(each.done() for each in early)
    assert not late.done()
    world.loop.advance(200)
    assert late.done()
    assert world.core.accumulator.held_bytes == 0


def test_linger_gathers_records() -> None:
    world = World(linger_ms=50)
    world.send(b"a")
    world.loop.advance(30)
    world.send(b"b")
    world.loop.advance(10)
    assert not world.produces()
    world.loop.advance(20)
    assert len(world.produces()) == 1
    assert world.values() == [b"a", b"b"]


def test_a_full_batch_does_not_linger_and_the_open_one_does() -> None:
    world = World(linger_ms=1000, batch_size=1000)
    for _ in range(12):
        world.send(bytes(100))
    world.loop.advance(100)
    assert len(world.values()) == 7
    world.loop.advance(1000)
    assert len(world.values()) == 12


def test_five_requests_in_flight_and_no_more() -> None:
    world = World(batch_size=0)
    world.send(b"first")
    world.flush()
    world.cluster.after = lambda *_: 100
    for number in range(12):
        world.send(b"%d" % number)
    world.loop.advance(50)
    assert len(world.produces()) == 6
    world.flush()
    assert len(world.values()) == 13


def test_one_batch_of_each_partition_up_to_the_size_of_a_request() -> None:
    world = World(partitions=4, max_request_size=2500, batch_size=1000)
    world.cluster.after = lambda *_: 10
    for partition in range(4):
        world.send(bytes(800), partition)
    world.flush()
    sizes = [len(each.topic_data[0].partition_data) for each in world.produces()]
    assert sum(sizes) == 4
    assert max(sizes) == 2


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ],
)
def test_what_passes_is_tried_again_in_order(error: ErrorCode) -> None:
    world = World(batch_size=0)
    world.send(b"0")
    world.flush()
    world.cluster.hooks.append(refusing(error, 3))
    for number in range(1, 8):
        world.send(b"%d" % number)
    world.flush()
    assert world.values() == [b"%d" % number for number in range(8)]
    assert all(metadata for metadata, _ in world.outcomes)


def test_what_is_sent_again_goes_one_by_one() -> None:
    """A batch with a number that overtook another one would be refused, or found out of order."""
    world = World(batch_size=0)
    world.send(b"0")
    world.flush()
    arrived: list[tuple[int, float]] = []

    def note(_: TwinBroker, request: Request) -> None:
        if isinstance(request, ProduceRequest):
            (row,) = request.topic_data[0].partition_data
            assert row.records is not None
            sequence = header_at(memoryview(row.records)).base_sequence
            arrived.append((sequence, world.loop.now_ms()))

    world.cluster.hooks += [note, refusing(ErrorCode.NOT_ENOUGH_REPLICAS, 5)]
    world.cluster.after = lambda *_: 100
    for number in range(1, 9):
        world.send(b"%d" % number)
    world.flush()
    assert world.values() == [b"%d" % number for number in range(9)]
    first, again, new = arrived[:5], arrived[5:10], arrived[10:]
    assert [each for each, _ in first] == [each for each, _ in again] == [1, 2, 3, 4, 5]
    assert first[-1][1] == first[0][1], "five requests were in flight"
    times = [at for _, at in again]
    assert all(after - before >= 100 for before, after in pairwise(times)), times
    assert [each for each, _ in new] == [6, 7, 8]


def test_what_does_not_pass_fails_and_the_rest_goes_on_in_a_new_epoch() -> None:
    world = World(batch_size=0)
    world.send(b"0")
    world.flush()
    world.cluster.hooks.append(refusing(ErrorCode.INVALID_RECORD, 1))
    deliveries = [world.send(b"%d" % number) for number in range(1, 7)]
    world.flush()
    with pytest.raises(BrokerError) as caught:
        deliveries[0]._outcome()
    assert caught.value.error is ErrorCode.INVALID_RECORD
    assert not caught.value.retriable
    assert world.values() == [b"%d" % number for number in (0, 2, 3, 4, 5, 6)]
    assert header_at(world.topic.partitions[0].batches[-1]).producer_epoch == 1


def test_a_duplicate_that_the_broker_forgot_is_a_success() -> None:
    world = World()
    world.cluster.hooks.append(refusing(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, 1))
    delivery = world.send(b"a")
    world.flush()
    assert delivery._outcome().offset == -1


def test_a_cut_connection_after_the_append_doubles_nothing() -> None:
    world = World(batch_size=0)
    world.send(b"0")
    world.flush()
    cut = [True]

    def after(broker: TwinBroker, connection: object, request: Request) -> float | None:
        if isinstance(request, ProduceRequest) and cut[0]:
            cut[0] = False
            connection.cut()  # type: ignore[attr-defined]
        return 0.0

    world.cluster.after = after
    for number in range(1, 6):
        world.send(b"%d" % number)
    world.flush()
    assert world.values() == [b"%d" % number for number in range(6)]
    assert [metadata.offset for metadata, _ in world.outcomes if metadata] == list(range(6))


def test_a_moved_leader_is_followed_by_the_hint() -> None:
    world = World(brokers=2)
    world.send(b"0")
    world.flush()
    world.cluster.move_leader(TOPIC, 0, 2)
    before = world.core.metadata.version
    world.send(b"1")
    world.flush()
    assert world.values() == [b"0", b"1"]
    assert world.core.metadata.version > before


def test_a_topic_created_anew_is_followed() -> None:
    world = World()
    for number in range(3):
        world.send(b"%d" % number)
        world.flush()
    world.topic = world.cluster.create_topic(TOPIC)
    for number in range(3, 6):
        world.send(b"%d" % number)
        world.flush()
    assert world.values() == [b"3", b"4", b"5"]
    assert header_at(world.topic.partitions[0].batches[0]).base_sequence == 0


def test_delivery_times_out_and_what_follows_is_sent_on() -> None:
    world = World(delivery_timeout_ms=5000, request_timeout_ms=1000, batch_size=0)
    world.send(b"0")
    world.flush()
    world.cluster.brokers[1].stop()
    lost = world.send(b"lost")
    world.loop.advance(4000)
    kept = world.send(b"kept")
    world.loop.advance(1500)
    with pytest.raises(TimedOutError, match=r"delivery\.timeout\.ms"):
        lost._outcome()
    assert not kept.done()
    world.cluster.brokers[1].start()
    world.flush()
    assert kept._outcome().offset == 1
    assert world.values() == [b"0", b"kept"]
    assert world.core.accumulator.held_bytes == 0


def test_a_batch_that_is_too_large_is_split() -> None:
    world = World()

    def hook(broker: TwinBroker, request: Request) -> Response | None:
        if isinstance(request, ProduceRequest):
            data = request.topic_data[0].partition_data[0].records
            assert data is not None
            if header_at(data).count > 2:
                return refusing(ErrorCode.MESSAGE_TOO_LARGE, 1)(broker, request)  # type: ignore[operator]
        return None

    world.cluster.hooks.append(hook)
    deliveries = [world.send(b"%d" % number) for number in range(9)]
    world.flush()
    assert world.values() == [b"%d" % number for number in range(9)]
    assert [each._outcome().offset for each in deliveries] == list(range(9))
    assert world.core.metrics.values()["producer-metrics", "batch-split-total"] > 2
    assert world.core.accumulator.held_bytes == 0


def test_a_batch_that_may_be_there_already_is_not_split() -> None:
    """Its halves would not be recognised as duplicates. The topic's limit was lowered meanwhile."""
    world = World()
    world.send(b"0")
    world.flush()
    world.cluster.after = lambda *asked: None if isinstance(asked[2], ProduceRequest) else 0.0
    halves = [world.send(b"1"), world.send(b"2")]
    while len(world.values()) < 3:
        world.loop.advance(1)
    world.cluster.brokers[1].stop()
    world.cluster.hooks.append(refusing(ErrorCode.MESSAGE_TOO_LARGE, 1))  # type: ignore[arg-type]
    world.cluster.after = lambda *_: 0.0
    world.cluster.brokers[1].start()
    world.flush()
    after = world.send(b"3")
    world.flush()
    assert world.values() == [b"0", b"1", b"2", b"3"]
    for each in halves:
        with pytest.raises(BrokerError, match=r"MESSAGE_TOO_LARGE.*may be there"):
            each._outcome()
    assert after._outcome().offset == 3
    assert world.core.accumulator.held_bytes == 0


def test_single_records_at_fault_are_named() -> None:
    world = World(linger_ms=10)

    def hook(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, ProduceRequest):
            return None
        topic = request.topic_data[0]
        row = PartitionProduceResponse(
            index=0,
            error_code=ErrorCode.INVALID_RECORD.code,
            base_offset=-1,
            record_errors=[
                BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")
            ],
            error_message="one record has no key",
        )
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=[row]
                )
            ]
        )

    world.cluster.hooks.append(hook)
    good, bad = world.send(b"a"), world.send(b"b")
    world.flush()
    with pytest.raises(BrokerError, match="no key"):
        bad._outcome()
    with pytest.raises(BrokerError, match="one record has no key"):
        good._outcome()


def test_without_acknowledgement_nothing_is_waited_for() -> None:
    world = World(acks=0)
    delivery = world.send(b"a")
    world.flush()
    assert delivery._outcome().offset == -1
    world.loop.advance(10)
    assert world.values() == [b"a"]
    assert not any(
        isinstance(each, InitProducerIdRequest) for each in world.cluster.brokers[1].requests
    )


def test_one_request_in_flight_keeps_the_order_without_idempotence() -> None:
    world = World(enable_idempotence=False, max_in_flight_requests_per_connection=1, batch_size=0)
    world.cluster.hooks.append(refusing(ErrorCode.NOT_ENOUGH_REPLICAS, 3))
    for number in range(6):
        world.send(b"%d" % number)
    world.flush()
    assert world.values() == [b"%d" % number for number in range(6)]


def test_closing_fails_what_cannot_be_sent() -> None:
    world = World()
    world.send(b"0")
    world.flush()
    world.cluster.brokers[1].stop()
    delivery = world.send(b"1")
    world.loop.run(world.core.close(3000))
    with pytest.raises(ClosedError):
        delivery._outcome()
    assert world.core.accumulator.held_bytes == 0
    assert not world.loop.network.connections


def test_memory_runs_out_and_comes_back() -> None:
    world = World(buffer_memory=10_000)
    world.cluster.brokers[1].stop()
    buffer = world.core.accumulator.topic(TOPIC)
    queue = buffer.queues[0]
    count = 0
    while world.core.accumulator.append(queue, 1, None, bytes(100), (), None):
        count += 1
    assert 20 < count < 100
    freed: list[int] = []
    waiter = MemoryWaiter(lambda: freed.append(1))
    world.core.accumulator.wait_for_memory(waiter)
    world.cluster.brokers[1].start()
    world.flush()
    assert freed
    assert world.core.accumulator.held_bytes == waiter.kept
    world.core.accumulator.stop_waiting(waiter)
    assert world.core.accumulator.free_bytes == 10_000


def test_who_waits_for_much_memory_is_not_passed_by_who_waits_for_little() -> None:
    world = World(buffer_memory=10_000, batch_size=1_000, max_in_flight_requests_per_connection=1)
    world.cluster.brokers[1].stop()
    accumulator = world.core.accumulator
    queue = accumulator.topic(TOPIC).queues[0]
    while accumulator.append(queue, 1, None, bytes(100), (), None):
        pass
    order: list[str] = []
    sizes = {"large": 8_000, "small": 100}
    waiters = []
    for name, size in sizes.items():
        assert accumulator.append(queue, 1, None, bytes(size), (), None) is None
        waiters.append(MemoryWaiter(lambda name=name: order.append(name)))
        accumulator.wait_for_memory(waiters[-1])
    world.cluster.brokers[1].start()
    while not order:
        world.loop.advance(1)
        # Others who come later find nothing free before those who wait.
        assert order or accumulator.append(queue, 1, None, bytes(100), (), None) is None
    assert order[0] == "large"
    for waiter, size in zip(waiters, sizes.values(), strict=True):
        accumulator.stop_waiting(waiter)
        assert accumulator.append(queue, 1, None, bytes(size), (), None)
        accumulator.wake_waiters()
    world.flush()
    assert accumulator.free_bytes == 10_000


def test_who_stops_to_wait_leaves_the_memory_to_the_next() -> None:
    world = World(buffer_memory=10_000)
    world.cluster.brokers[1].stop()
    accumulator = world.core.accumulator
    queue = accumulator.topic(TOPIC).queues[0]
    assert accumulator.append(queue, 1, None, bytes(5_000), (), None)
    assert accumulator.append(queue, 1, None, bytes(9_000), (), None) is None
    first = MemoryWaiter(lambda: None)
    accumulator.wait_for_memory(first)
    assert accumulator.append(queue, 1, None, bytes(100), (), None) is None
    woken: list[int] = []
    accumulator.wait_for_memory(MemoryWaiter(lambda: woken.append(1)))
    assert not woken
    accumulator.stop_waiting(first)
    accumulator.wake_waiters()
    assert woken


def test_settings_that_depend_on_each_other() -> None:
    servers = {"bootstrap.servers": "a:1"}

    def complete(**given: object) -> ProducerSettings:
        return complete_settings(read_settings(ProducerSettings, servers, given), set(given))

    assert complete().enable_idempotence
    assert not complete(acks=1).enable_idempotence
    with pytest.raises(ConfigError, match="acks=all"):
        complete(acks=1, enable_idempotence=True)
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms"):
        complete(delivery_timeout_ms=10)
    assert complete(request_timeout_ms=500_000).delivery_timeout_ms == 500_005


def test_a_new_id_is_asked_for_when_epochs_run_out() -> None:
    world = World(batch_size=0)
    world.send(b"0")
    world.flush()
    assert world.core.sender.sequences is not None
    world.core.sender.sequences.identity.epoch = 2**15 - 1
    world.cluster.hooks.append(refusing(ErrorCode.INVALID_RECORD, 1))
    world.send(b"bad")
    world.flush()
    world.send(b"1")
    world.flush()
    last = header_at(world.topic.partitions[0].batches[-1])
    assert (last.producer_epoch, last.base_sequence) == (0, 0)
    assert last.producer_id == world.cluster.next_producer_id
    assert world.values() == [b"0", b"1"]


def test_a_flush_ends_at_once_when_nothing_waits() -> None:
    world = World()
    world.loop.run(world.core.flush())


def test_close_runs_twice() -> None:
    world = World()
    world.loop.run(spawn(world.core.close(1000)))
    world.loop.run(spawn(world.core.close(1000)))


def test_the_end_is_told_to_who_appends_at_that_moment() -> None:
    """Else a record came after the last look at what waits, and had no outcome ever."""
    world = World()
    seen: list[bool] = []

    class Watched:
        def __enter__(self) -> None:
            seen.append(world.core.accumulator.is_closed)

        def __exit__(self, *_: object) -> None:
            seen.append(world.core.accumulator.is_closed)

    world.core.accumulator.lock = Watched()
    world.loop.run(world.core.close(1_000))
    assert (False, True) in zip(seen[::2], seen[1::2], strict=True)


def test_to_end_while_it_closes_is_harmless() -> None:
    """As when close() is cancelled under asyncio."""
    world = World(linger_ms=1_000)
    record = world.send(b"a")
    closing = spawn(world.core.close(60_000))
    world.core.end()
    assert record.done()
    assert closing.done
    world.core.metadata.request_update()
    world.core.end()


def test_a_record_that_another_thread_sends_during_a_pass_disturbs_nothing() -> None:
    world = World(partitions=2)
    meanwhile: list[int] = []

    class Interrupted(TopicBuffer):
        """A topic at which the pass of the sender is interrupted by a thread of the user's."""

        __slots__ = ()

        def __hash__(self) -> int:
            if meanwhile:
                world.send(b"b", meanwhile.pop())
            return object.__hash__(self)

    world.core.accumulator.topic(TOPIC).__class__ = Interrupted
    world.send(b"a", 0)
    meanwhile.append(1)
    world.flush()
    world.flush()
    assert (world.values(0), world.values(1)) == ([b"a"], [b"b"])
