"""The blocking producer over real sockets: futures, callbacks, memory, forks, and its end."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from tests.descriptors import open_descriptors
from tests.unit.client.scripted_broker import TOPIC, CutConnectionError, ScriptedBroker
from tests.waiting import wait_until

from millstream.client import Producer, RecordMetadata
from millstream.client.core.producer.transactions import TransactionState
from millstream.client.errors import (
    BrokerError,
    BufferFullError,
    ClosedError,
    ForkedError,
    RecordTooLargeError,
    SerializationError,
    TimedOutError,
    TransactionStateError,
    WaitInCallbackError,
)
from millstream.model.errors import ConfigError, ErrorCode
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
from millstream.protocol.messages.produce import ProduceRequest
from millstream.records.batch import iter_batches
from millstream.records.record import Record, read_records


def records(broker: ScriptedBroker) -> list[Record]:
    return [
        record
        for data in broker.batches
        for batch in iter_batches(data)
        for record in read_records(batch)
    ]


def fill(producer: Producer) -> None:
    for _ in range(1000):
        producer.send(TOPIC, bytes(100))


class Gate:
    """Holds Produce requests back until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    def __call__(self, request: Request) -> Response | None:
        if isinstance(request, ProduceRequest):
            self.opened.wait(30)
        return None


def test_send_and_wait() -> None:
    with ScriptedBroker() as broker, Producer(bootstrap_servers=broker.bootstrap) as producer:
        first = producer.send(TOPIC, b"a", key=b"k", headers={"h": b"1", "n": None})
        assert first.result(10) == RecordMetadata(TOPIC, 0, 0, first.result().timestamp_ms)
        assert producer.send(TOPIC, "text", timestamp_ms=5).result(10).timestamp_ms == 5
        assert producer.send(TOPIC, None, "k").result(10).offset == 2
        assert first.exception() is None
        assert [(each.key, each.value, each.headers) for each in records(broker)] == [
            (b"k", b"a", (("h", b"1"), ("n", None))),
            (None, b"text", ()),
            (b"k", None, ()),
        ]


def test_callbacks_come_in_order_and_their_errors_do_no_harm() -> None:
    offsets: list[int] = []

    def told(metadata: RecordMetadata | None, error: Exception | None) -> None:
        assert metadata is not None
        offsets.append(metadata.offset)
        raise RuntimeError("of the user's own")

    with ScriptedBroker() as broker:
        with Producer(bootstrap_servers=broker.bootstrap, batch_size=200) as producer:
            for number in range(50):
                producer.send(TOPIC, b"%d" % number, on_delivery=told)
            producer.flush(10)
        assert offsets == list(range(50))


def test_many_threads_may_send() -> None:
    with ScriptedBroker() as broker:
        with Producer(bootstrap_servers=broker.bootstrap, batch_size=500) as producer:

            def send(name: int) -> None:
                for number in range(200):
                    producer.send(TOPIC, b"%d %d" % (name, number))

            threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        rows = [bytes(each.value or b"").split() for each in records(broker)]
        for name in range(4):
            mine = [int(number) for who, number in rows if int(who) == name]
            assert mine == list(range(200))


def test_memory_is_bounded_and_a_full_buffer_waits_or_says_so() -> None:
    with ScriptedBroker() as broker:
        gate = Gate()
        broker.intercept.append(gate)
        producer = Producer(
            bootstrap_servers=broker.bootstrap, buffer_memory=50_000, max_block_ms=50, linger_ms=0
        )
        with pytest.raises(BufferFullError, match=r"max\.block\.ms"):
            fill(producer)
        metrics = producer.metrics()
        assert metrics["producer-metrics", "buffer-exhausted-total"] == 1
        assert metrics["producer-metrics", "buffer-available-bytes"] < 400
        timer = threading.Timer(0.05, gate.opened.set)
        core = producer._core
        core.settings = dataclasses.replace(core.settings, max_block_ms=10_000)
        timer.start()
        producer.send(TOPIC, bytes(100)).result(10)
        timer.join()
        producer.close()
        assert producer.metrics()["producer-metrics", "buffer-available-bytes"] == 50_000


def test_what_cannot_be_sent_is_said_at_once() -> None:
    with ScriptedBroker() as broker:
        with Producer(
            bootstrap_servers=broker.bootstrap, max_request_size=1000, max_block_ms=300
        ) as producer:
            with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
                producer.send(TOPIC, bytes(1000))
            with pytest.raises(SerializationError):
                producer.send(TOPIC, 5)
            with pytest.raises(SerializationError, match="UTF-8"):
                producer.send(TOPIC, b"", key="\ud800")
            with pytest.raises(SerializationError):
                producer.send(TOPIC, b"", headers=[(b"name", b"")])  # type: ignore[list-item]
            with pytest.raises(SerializationError, match="header"):
                producer.send(TOPIC, b"", headers={"\ud800": b""})
            for moment in (1 << 63, 1.5, "now"):
                with pytest.raises(SerializationError, match="milliseconds"):
                    producer.send(TOPIC, b"", timestamp_ms=moment)  # type: ignore[arg-type]
            with pytest.raises(SerializationError, match="milliseconds"):
                producer.send_values([b""], TOPIC, timestamp_ms=1 << 63)
            with pytest.raises(BrokerError) as caught:
                producer.send(TOPIC, b"", partition=7)
            assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert caught.value.advice
        with pytest.raises(ClosedError):
            producer.send(TOPIC, b"")
    with pytest.raises(ConfigError, match="the nearest is 'linger_ms'"):
        Producer(bootstrap_servers="a:1", lingerms=1)


def test_what_no_topic_can_be_called_spoils_nothing_for_the_others() -> None:
    with ScriptedBroker() as broker, Producer(bootstrap_servers=broker.bootstrap) as producer:
        for name in ("\ud800", 5, None, "x" * 40_000):
            with pytest.raises(BrokerError) as caught:
                producer.send(name, b"")  # type: ignore[arg-type]
            assert caught.value.error is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert producer.send(TOPIC, b"a").result(10).offset == 0
    with pytest.raises(ConfigError, match="UTF-8"):
        Producer(bootstrap_servers="a:1", client_id="\ud800")


def test_serializers_and_a_partitioner_of_the_user() -> None:
    asked: list[tuple[str, bytes | None, bytes | None, int]] = []

    def choose(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        asked.append((topic, key, value, count))
        return 0

    with (
        ScriptedBroker() as broker,
        Producer(
            bootstrap_servers=broker.bootstrap,
            value_serializer=lambda topic, value: repr(value).encode(),
            key_serializer=lambda topic, key: None if key is None else bytes([key]),
            partitioner=choose,
        ) as producer,
    ):
        producer.send(TOPIC, {"a": 1}, 7).result(10)
        assert asked == [(TOPIC, b"\x07", b"{'a': 1}", 1)]


def test_a_cut_connection_loses_and_doubles_nothing() -> None:
    with ScriptedBroker() as broker:
        cuts = [3]

        def cut(request: Request) -> Response | None:
            if isinstance(request, ProduceRequest) and cuts[0]:
                cuts[0] -= 1
                if cuts[0] % 2:
                    records_ = request.topic_data[0].partition_data[0].records
                    assert records_ is not None
                    broker.append(bytes(records_))
                raise CutConnectionError
            return None

        broker.intercept.append(cut)
        with Producer(bootstrap_servers=broker.bootstrap, batch_size=100) as producer:
            futures = [producer.send(TOPIC, b"%d" % number) for number in range(30)]
            assert [each.result(20).offset for each in futures] == list(range(30))
        assert [each.value for each in records(broker)] == [b"%d" % each for each in range(30)]


def test_close_gives_up_after_its_timeout_and_leaves_nothing() -> None:
    threads, descriptors = threading.active_count(), open_descriptors()
    with ScriptedBroker() as broker:
        gate = Gate()
        broker.intercept.append(gate)
        producer = Producer(bootstrap_servers=broker.bootstrap)
        future = producer.send(TOPIC, b"a")
        with pytest.raises(TimedOutError, match="still on its way"):
            future.result(0.01)
        producer.close(0.05)
        with pytest.raises(ClosedError):
            future.result()
        with pytest.raises(ClosedError):
            producer.flush()
        producer.close()
        gate.opened.set()
    deadline = time.monotonic() + 10
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == threads
    assert open_descriptors() == descriptors


@contextlib.contextmanager
def interrupted_after(delay_s: float) -> Iterator[None]:
    """Ctrl-C, as it comes to whatever the main thread does then."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, delay_s)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_interrupted_close_leaves_nothing_and_nobody_waits() -> None:
    threads = threading.active_count()
    with ScriptedBroker() as broker:
        gate = Gate()
        broker.intercept.append(gate)
        producer = Producer(bootstrap_servers=broker.bootstrap)
        future = producer.send(TOPIC, b"a")
        with interrupted_after(0.2):
            producer.close()
        assert not producer._loop._thread.is_alive()
        with pytest.raises(ClosedError):
            future.result(10)
        producer.close()
        gate.opened.set()
    assert threading.active_count() == threads


def test_an_interrupted_send_leaves_nothing_behind() -> None:
    with ScriptedBroker() as broker:
        gate = Gate()
        broker.intercept.append(gate)
        with Producer(bootstrap_servers=broker.bootstrap, buffer_memory=20_000) as producer:
            with interrupted_after(0.3):
                fill(producer)
            # While somebody waits for memory no batch lingers.
            assert producer._accumulator.waiting == 0
            gate.opened.set()


def test_each_failure_of_rows_tells_of_its_own_rows() -> None:
    with ScriptedBroker() as broker:
        gate = Gate()
        broker.intercept.append(gate)
        producer = Producer(bootstrap_servers=broker.bootstrap)
        futures = [producer.send_values([b""] * count, TOPIC) for count in (2, 3)]
        producer.close(0)
        gate.opened.set()
        for count, future in [(2, futures[0]), (3, futures[1]), (2, futures[0])]:
            with pytest.raises(ClosedError, match="before these were delivered") as caught:
                future.result(10)
            assert caught.value.__notes__ == [f"{count} rows were not delivered, 0 were"]


def test_an_exit_in_a_callback_ends_nothing() -> None:
    with ScriptedBroker() as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap)
        producer.send(TOPIC, b"a", on_delivery=lambda *_: sys.exit(1)).result(10)
        assert producer.send(TOPIC, b"b").result(10).offset == 1
        producer.close(10)


def test_without_acknowledgements_memory_is_bounded_and_closing_sends_what_waits() -> None:
    with ScriptedBroker() as broker:
        gate = Gate()
        broker.intercept.append(gate)
        sent = 0
        with Producer(
            bootstrap_servers=broker.bootstrap, acks=0, buffer_memory=1 << 20, max_block_ms=100
        ) as producer:
            with contextlib.suppress(BufferFullError):
                while sent < 1000:
                    producer.send(TOPIC, bytes(100_000))
                    sent += 1
            # The sockets take some megabytes.
            assert sent < 1000
            gate.opened.set()
        deadline = time.monotonic() + 20
        while broker.end_offset < sent and time.monotonic() < deadline:
            time.sleep(0.01)
        assert broker.end_offset == sent


def test_a_callback_must_not_wait() -> None:
    heard: list[Exception] = []
    done = threading.Event()
    with ScriptedBroker() as broker, Producer(bootstrap_servers=broker.bootstrap) as producer:

        def told(metadata: RecordMetadata | None, error: Exception | None) -> None:
            for wait in (producer.flush, producer.send(TOPIC, b"next").result):
                try:
                    wait()
                except WaitInCallbackError as refused:
                    heard.append(refused)
            done.set()

        producer.send(TOPIC, b"a", on_delivery=told)
        assert done.wait(10)
        producer.flush(10)
    assert len(heard) == 2
    assert [each.value for each in records(broker)] == [b"a", b"next"]


def test_a_wrong_partitioner_leaves_no_thread() -> None:
    threads = threading.active_count()
    with pytest.raises(ConfigError, match="partitioner"):
        Producer(bootstrap_servers="a:1", partitioner="murmur3")
    assert threading.active_count() == threads


def test_close_in_a_callback() -> None:
    done = threading.Event()
    with ScriptedBroker() as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap)

        def told(metadata: RecordMetadata | None, error: Exception | None) -> None:
            producer.close()
            done.set()

        producer.send(TOPIC, b"a", on_delivery=told)
        assert done.wait(10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_and_the_parent_goes_on() -> None:
    with ScriptedBroker() as broker, Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(TOPIC, b"a").result(10)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                producer.send(TOPIC, b"b")
            except ForkedError:
                producer.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert producer.send(TOPIC, b"c").result(10).offset == 1


def test_partitions_and_metrics() -> None:
    with ScriptedBroker() as broker, Producer(bootstrap_servers=broker.bootstrap) as producer:
        assert [each.leader for each in producer.partitions_for(TOPIC)] == [1]
        producer.send(TOPIC, b"a").result(10)
        metrics = producer.metrics()
        assert metrics["producer-metrics", "record-send-total"] == 1
        assert metrics["producer-topic-metrics", f"{TOPIC}.record-send-total"] == 1
        assert metrics["producer-metrics", "request-latency-max"] > 0


def test_an_interrupt_while_it_begins_to_wait_keeps_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ScriptedBroker() as broker:
        gate = Gate()
        broker.intercept.append(gate)
        with Producer(bootstrap_servers=broker.bootstrap, buffer_memory=20_000) as producer:
            accumulator = producer._accumulator

            def interrupt() -> None:
                # The waiter is queued, and its caller has not heard of it yet.
                monkeypatch.undo()
                raise KeyboardInterrupt

            monkeypatch.setattr(accumulator, "wake_waiters", interrupt)
            with pytest.raises(KeyboardInterrupt):
                fill(producer)
            assert accumulator.waiting == 0
            gate.opened.set()
            producer.flush()
            assert accumulator.free_bytes == 20_000


def test_an_interrupted_operation_of_transactions_is_continued_by_the_same_call() -> None:
    with ScriptedBroker() as broker:
        opened = threading.Event()

        def coordinate(request: Request) -> Response | None:
            if isinstance(request, FindCoordinatorRequest):
                there = Coordinator(
                    key="x",
                    node_id=1,
                    host="127.0.0.1",
                    port=broker.port,
                    error_code=0,
                    error_message=None,
                )
                return FindCoordinatorResponse(coordinators=[there])
            if isinstance(request, InitProducerIdRequest):
                opened.wait(30)
            return None

        broker.intercept.append(coordinate)
        with Producer(bootstrap_servers=broker.bootstrap, transactional_id="x") as producer:
            with interrupted_after(0.3):
                producer.init_transactions()
            opened.set()
            control = producer._transactions()
            wait_until(lambda: control.manager.state is TransactionState.READY, "the producer id")
            producer.init_transactions()
            with pytest.raises(TransactionStateError, match="called before"):
                producer.init_transactions()
