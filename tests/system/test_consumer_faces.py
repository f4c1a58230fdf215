"""Both faces of the consumer over a real broker: iteration, commits within it, wakeups, closing."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from tests.broker_process import BrokerProcess

from millstream.client import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition, aio
from millstream.client.core.admin.topics import NewTopic
from millstream.client.core.consumer.errors import RecordError, WakeupError
from millstream.client.errors import ClosedError, ForkedError
from millstream.model.errors import ConfigError

pytestmark = pytest.mark.system

COUNT = 1_200


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as process:
        yield process


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=5) as producer:
        for number in range(COUNT):
            producer.send(name, b"%d" % number, partition=0)
    return name


def numbers(values: list[bytes | None]) -> list[int]:
    return [int(value or b"-1") for value in values]


def test_a_commit_within_the_loop_covers_what_the_loop_has_seen(
    broker: BrokerProcess, topic: str
) -> None:
    place = TopicPartition(topic, 0)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
    }
    with Consumer[bytes, bytes](settings, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        seen = []
        for record in consumer:
            seen.append(record.value)
            if record.offset in (0, 123, 700):
                consumer.commit()
                assert consumer.position(place) == record.offset + 1
                committed = consumer.committed([place])[place]
                assert committed is not None
                assert committed.offset == record.offset + 1
            if len(seen) == COUNT:
                break
        assert numbers(seen) == list(range(COUNT))


def test_what_the_loop_did_not_see_is_not_committed_at_the_end(
    broker: BrokerProcess, topic: str
) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
    }
    for first in (0, 300):
        with Consumer[bytes, bytes](settings) as consumer:
            consumer.subscribe([topic])
            for record in consumer:
                assert record.offset >= first
                if record.offset == 299:
                    break
                if record.offset == first == 300:
                    break


def test_seek_and_pause_within_the_loop(broker: BrokerProcess, topic: str) -> None:
    place = TopicPartition(topic, 0)
    with Consumer[bytes, bytes](bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 5:
                consumer.seek(place, 1_000)
            if len(seen) == 8:
                break
        assert seen == [0, 1, 2, 3, 4, 5, 1_000, 1_001]
        consumer.pause(place)
        assert consumer.paused() == {place}
        assert consumer.poll(0.3) == []
        consumer.resume(place)
        assert consumer.poll(5)[0].offset == 1_002


def test_another_thread_wakes_it(broker: BrokerProcess, topic: str) -> None:
    with Consumer[bytes, bytes](bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_end()
        timer = threading.Timer(0.3, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(60)
        timer.join()


def test_nothing_is_left_after_close(broker: BrokerProcess, topic: str) -> None:
    process = psutil.Process()
    threads, files = threading.active_count(), process.num_fds()
    for _ in range(3):
        consumer: Consumer[bytes, bytes] = Consumer(
            bootstrap_servers=broker.bootstrap, group_id=f"{topic}-left"
        )
        consumer.subscribe([topic])
        consumer.poll(0.2)
        consumer.close()
        consumer.close()
    assert threading.active_count() == threads
    assert process.num_fds() == files
    with pytest.raises(ClosedError):
        consumer.poll(0)


def test_close_ends_in_time_when_no_broker_answers() -> None:
    consumer: Consumer[bytes, bytes] = Consumer(
        bootstrap_servers="127.0.0.1:1", group_id="nobody", request_timeout_ms=1_000
    )
    consumer.subscribe(["nothing"])
    assert consumer.poll(0.2) == []
    began = time.monotonic()
    consumer.close(2)
    assert time.monotonic() - began < 20


def test_a_wrong_setting_names_the_nearest_and_leaves_no_thread() -> None:
    threads = threading.active_count()
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset"):
        Consumer({"bootstrap.servers": "x:1", "auto.offset.rest": "earliest"})
    with pytest.raises(ConfigError):
        Consumer(bootstrap_servers="x:1", group_id="")
    assert threading.active_count() == threads


class Hearing:
    """Writes down in which order it is called."""

    def __init__(self, heard: list[str]) -> None:
        self._heard = heard

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._heard.append("assigned")

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._heard.append("revoked")


def test_the_asyncio_face(broker: BrokerProcess, topic: str) -> None:
    place = TopicPartition(topic, 0)
    heard: list[str] = []

    class Listener:
        async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            await asyncio.sleep(0)
            heard.append("assigned")

        async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            await asyncio.sleep(0)
            heard.append("revoked")

    async def run() -> None:
        async with aio.Consumer[bytes, int](
            bootstrap_servers=broker.bootstrap,
            group_id=f"{topic}-aio",
            auto_offset_reset="earliest",
            value_deserializer=lambda topic, data: int(data),
        ) as consumer:
            await consumer.subscribe([topic], listener=Listener())  # type: ignore[arg-type]
            seen = []
            async for record in consumer:
                seen.append(record.value)
                if record.offset == 10:
                    await consumer.commit()
                    assert await consumer.position(place) == 11
                if len(seen) == COUNT:
                    break
            assert seen == list(range(COUNT))
            await consumer.commit({place: OffsetAndMetadata(7, "seven")})
            assert (await consumer.committed([place]))[place] == OffsetAndMetadata(7, "seven", -1)
            assert await consumer.end_offsets([place]) == {place: COUNT}
            assert len(await consumer.partitions_for(topic)) == 1
            consumer.seek(place, 3)
            assert (await consumer.poll(5, max_records=1))[0].value == 3
        assert heard == ["assigned", "revoked"]

    asyncio.run(run())


def test_an_error_in_a_record_leaves_the_position_at_it(broker: BrokerProcess, topic: str) -> None:
    def refuse(topic: str, data: bytes) -> bytes:
        if data == b"600":
            raise ValueError(data)
        return data

    place = TopicPartition(topic, 0)
    with Consumer[bytes, bytes](
        bootstrap_servers=broker.bootstrap, value_deserializer=refuse, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([place])
        seen: list[int] = []
        with pytest.raises(RecordError) as caught:
            seen.extend(record.offset for record in consumer)
        assert seen == list(range(600))
        assert (caught.value.offset, consumer.position(place)) == (600, 600)
        consumer.seek(place, caught.value.next_offset)
        assert consumer.poll(5)[0].offset == 601


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_listener_commits_and_seeks(
    broker: BrokerProcess, new_topic: Callable[[], str], strategy: str
) -> None:
    topic = new_topic()
    places = [TopicPartition(topic, number) for number in range(2)]
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)]).get_all()
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, partition=number % 2)

    class Listener:
        def __init__(self, consumer: Consumer[bytes, bytes]) -> None:
            self.consumer = consumer
            self.committed: list[TopicPartition] = []

        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            for place in partitions:
                if self.consumer.committed([place])[place] is None:
                    self.consumer.seek(place, 10)

        def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            offsets = {place: self.consumer.position(place) for place in partitions}
            self.consumer.commit(offsets)
            self.committed += partitions

    settings: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": topic,
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 200,
        "partition.assignment.strategy": strategy,
    }
    seen: list[tuple[int, int]] = []
    with Consumer[bytes, bytes](settings) as first, Consumer[bytes, bytes](settings) as second:
        listeners = [Listener(each) for each in (first, second)]
        first.subscribe([topic], listener=listeners[0])
        deadline = time.monotonic() + 30
        while len(seen) < 80 and time.monotonic() < deadline:
            seen += [(each.partition, each.offset) for each in first.poll(0.2)]
        second.subscribe([topic], listener=listeners[1])
        while not (len(first.assignment()) == len(second.assignment()) == 1):
            assert time.monotonic() < deadline
            assert first.poll(0.1) == second.poll(0.1) == []
        assert first.assignment() | second.assignment() == set(places)
        assert set(second.assignment()) <= set(listeners[0].committed)
    assert sorted(seen) == [(p, o) for p in range(2) for o in range(10, 50)]


def test_subscribing_to_nothing_tells_the_listener(broker: BrokerProcess, topic: str) -> None:
    heard: list[str] = []

    async def run() -> None:
        async with aio.Consumer[bytes, bytes](
            bootstrap_servers=broker.bootstrap, group_id=topic
        ) as consumer:
            await consumer.subscribe(iter([topic]), listener=Hearing(heard))  # type: ignore[arg-type]
            while not consumer.assignment():
                await consumer.poll(0.2)
            await consumer.subscribe([])

    with Consumer[bytes, bytes](bootstrap_servers=broker.bootstrap, group_id=topic) as consumer:
        consumer.subscribe(iter([topic]), listener=Hearing(heard))  # type: ignore[arg-type]
        while not consumer.assignment():
            consumer.poll(0.2)
        consumer.subscribe([])
        assert heard == ["assigned", "revoked"]
    asyncio.run(asyncio.wait_for(run(), 120))
    assert heard == ["assigned", "revoked"] * 2


def test_an_interrupted_unsubscribe_goes_on_in_the_next_poll(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    with Consumer[bytes, bytes](bootstrap_servers=broker.bootstrap, group_id=topic) as consumer:
        consumer.subscribe([topic], listener=Hearing(heard))  # type: ignore[arg-type]
        while not consumer.assignment():
            consumer.poll(0.2)
        loop = consumer._loop
        post, posted = loop.post, threading.Semaphore(1)

        def interrupted(callback: Callable[[], None]) -> None:
            post(callback)
            if not posted.acquire(blocking=False):
                monkeypatch.setattr(loop, "post", post)
                raise KeyboardInterrupt

        monkeypatch.setattr(loop, "post", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.unsubscribe()
        deadline = time.monotonic() + 60
        while consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.2)
        assert heard == ["assigned", "revoked"]


def test_a_cancelled_poll_loses_nothing(broker: BrokerProcess, topic: str) -> None:
    heard: list[str] = []

    async def run() -> None:
        async with aio.Consumer[bytes, bytes](
            bootstrap_servers=broker.bootstrap, group_id=topic, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.subscribe([topic], listener=Hearing(heard))  # type: ignore[arg-type]
            seen: list[bytes | None] = []
            while len(seen) < COUNT:
                try:
                    records = await asyncio.wait_for(consumer.poll(10), 0.003)
                except TimeoutError:
                    continue
                seen += [record.value for record in records]
            assert numbers(seen) == list(range(COUNT))

    asyncio.run(asyncio.wait_for(run(), 60))
    assert heard == ["assigned", "revoked"]


def test_a_consumer_is_of_no_use_after_a_fork(broker: BrokerProcess, topic: str) -> None:
    with Consumer[bytes, bytes](bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        child = os.fork()
        if child == 0:
            try:
                consumer.poll(0)
            except ForkedError:
                os._exit(7)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        consumer.seek_to_beginning()
        assert consumer.poll(10)[0].offset == 0
