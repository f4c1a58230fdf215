"""The producer under asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import pytest
from tests.unit.client.scripted_broker import TOPIC, ScriptedBroker

from millstream.client.aio import Producer
from millstream.client.errors import BufferFullError, ClosedError
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.produce import ProduceRequest


def test_records_are_sent_and_awaited() -> None:
    async def run(bootstrap: str) -> None:
        async with Producer(bootstrap_servers=bootstrap, batch_size=500) as producer:
            futures = [await producer.send(TOPIC, b"%d" % number) for number in range(100)]
            assert [(await each).offset for each in futures] == list(range(100))
            assert (await producer.send_and_wait(TOPIC, b"x", headers={"a": b"b"})).offset == 100
            await producer.flush()
            assert len(await producer.partitions_for(TOPIC)) == 1
            assert producer.metrics()["producer-metrics", "record-send-total"] == 101
        with pytest.raises(ClosedError):
            await producer.send(TOPIC, b"")
        await producer.close()
        assert len(asyncio.all_tasks()) == 1

    with ScriptedBroker() as broker:
        asyncio.run(run(broker.bootstrap))


def test_a_producer_that_was_not_started_says_so() -> None:
    async def run() -> None:
        with pytest.raises(ClosedError, match="async with"):
            await Producer(bootstrap_servers="127.0.0.1:1").send(TOPIC, b"")

    asyncio.run(run())


async def fill(producer: Producer) -> None:
    for _ in range(1000):
        await producer.send(TOPIC, bytes(100))


def test_a_full_buffer_waits() -> None:
    opened = threading.Event()

    def gate(request: Request) -> Response | None:
        if isinstance(request, ProduceRequest):
            opened.wait(30)
        return None

    async def run(bootstrap: str) -> None:
        async with Producer(
            bootstrap_servers=bootstrap, buffer_memory=20_000, max_block_ms=50
        ) as producer:
            with pytest.raises(BufferFullError):
                await fill(producer)
            opened.set()
            await producer.flush()
            assert (await producer.send_and_wait(TOPIC, bytes(100))).offset > 10

    with ScriptedBroker() as broker:
        broker.intercept.append(gate)
        asyncio.run(run(broker.bootstrap))


def test_a_large_record_gets_memory_beside_many_small_ones() -> None:
    async def run(bootstrap: str) -> None:
        async with Producer(
            bootstrap_servers=bootstrap, buffer_memory=60_000, batch_size=2_000, max_block_ms=20_000
        ) as producer:
            sent = 0
            until = asyncio.Event()

            async def small() -> None:
                nonlocal sent
                while not until.is_set():
                    await producer.send(TOPIC, bytes(100))
                    sent += 1

            busy = [asyncio.create_task(small()) for _ in range(50)]
            while producer.metrics()["producer-metrics", "waiting-threads"] < 50:
                await asyncio.sleep(0)
            began = sent
            large = asyncio.create_task(producer.send(TOPIC, bytes(50_000)))
            while not large.done() and sent < began + 20_000:
                await asyncio.sleep(0)
            until.set()
            assert large.done()
            assert large.exception() is None
            await asyncio.gather(*busy)
            await producer.flush()
            assert producer.metrics()["producer-metrics", "buffer-available-bytes"] == 60_000

    with ScriptedBroker() as broker:
        asyncio.run(run(broker.bootstrap))


def test_memory_that_was_kept_for_a_cancelled_send_goes_to_the_next() -> None:
    opened = threading.Event()

    def gate(request: Request) -> Response | None:
        if isinstance(request, ProduceRequest):
            opened.wait(30)
        return None

    async def run(bootstrap: str) -> None:
        async with Producer(
            bootstrap_servers=bootstrap, buffer_memory=20_000, max_block_ms=20_000
        ) as producer:
            await producer.send(TOPIC, bytes(9_000))
            large = asyncio.create_task(producer.send(TOPIC, bytes(15_000)))
            small = asyncio.create_task(producer.send(TOPIC, bytes(5_000)))
            await asyncio.sleep(0.05)
            assert not small.done()
            large.cancel()
            await asyncio.wait([small], timeout=10)
            assert small.done()
            with pytest.raises(asyncio.CancelledError):
                await large
            opened.set()
            await producer.flush()
            assert producer.metrics()["producer-metrics", "buffer-available-bytes"] == 20_000

    with ScriptedBroker() as broker:
        broker.intercept.append(gate)
        asyncio.run(run(broker.bootstrap))


def test_without_acknowledgements_closing_sends_what_waits() -> None:
    opened = threading.Event()

    def gate(request: Request) -> Response | None:
        if isinstance(request, ProduceRequest):
            opened.wait(30)
        return None

    async def run(bootstrap: str) -> int:
        async with Producer(
            bootstrap_servers=bootstrap, acks=0, buffer_memory=1 << 20, max_block_ms=100
        ) as producer:
            sent = 0
            with contextlib.suppress(BufferFullError):
                while sent < 1000:
                    await producer.send(TOPIC, bytes(100_000))
                    sent += 1
            # The sockets take some megabytes.
            assert sent < 1000
            opened.set()
        return sent

    with ScriptedBroker() as broker:
        broker.intercept.append(gate)
        sent = asyncio.run(run(broker.bootstrap))
        deadline = time.monotonic() + 20
        while broker.end_offset < sent and time.monotonic() < deadline:
            time.sleep(0.01)
        assert broker.end_offset == sent


def test_a_cancelled_close_leaves_nothing_at_work() -> None:
    asked_for, opened = threading.Event(), threading.Event()

    def gate(request: Request) -> Response | None:
        if isinstance(request, ProduceRequest):
            asked_for.set()
            opened.wait(30)
        return None

    async def run(broker: ScriptedBroker) -> None:
        producer = Producer(bootstrap_servers=broker.bootstrap)
        await producer.start()
        future = await producer.send(TOPIC, b"a")
        closing = asyncio.create_task(producer.close())
        assert await asyncio.to_thread(asked_for.wait, 30)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert future.done()
        with pytest.raises(ClosedError):
            await future
        assert len(asyncio.all_tasks()) == 1
        opened.set()
        asked = len(broker.requests)
        await asyncio.sleep(0.3)
        assert len(broker.requests) == asked
        await producer.close()

    with ScriptedBroker() as broker:
        broker.intercept.append(gate)
        asyncio.run(run(broker))
