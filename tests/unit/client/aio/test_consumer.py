"""The consumer under asyncio: it shares the event loop, and ends when it is told to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from tests.unit.client.scripted_broker import TOPIC, CutConnectionError, ScriptedBroker

from millstream.client import Producer, TopicPartition
from millstream.client.aio import Consumer
from millstream.client.errors import ClosedError
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.find_coordinator import FindCoordinatorRequest


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as made:
        with Producer(bootstrap_servers=made.bootstrap) as producer:
            producer.send_values([b"%d" % number for number in range(20)], TOPIC)
        yield made


def test_polls_that_do_not_wait_let_others_run(broker: ScriptedBroker) -> None:
    async def run() -> None:
        ran: list[int] = []

        async def other() -> None:
            while True:
                ran.append(1)
                await asyncio.sleep(0)

        async with Consumer[bytes, bytes](bootstrap_servers=broker.bootstrap) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0)])
            consumer.seek_to_beginning()
            seen = 0
            deadline = time.monotonic() + 60
            while seen < 5:
                seen += len(await consumer.poll(0, max_records=5))
                assert time.monotonic() < deadline
            task = asyncio.create_task(other())
            # These lie ready; the other task runs all the same.
            for _ in range(3):
                seen += len(await consumer.poll(0, max_records=5))
            assert seen == 20
            assert len(ran) >= 3
            task.cancel()

    asyncio.run(run())


def test_a_cancelled_close_leaves_nothing_at_work(broker: ScriptedBroker) -> None:
    asked_for, opened = threading.Event(), threading.Event()

    def gate(request: Request) -> Response | None:
        if isinstance(request, FindCoordinatorRequest):
            asked_for.set()
            opened.wait(30)
            raise CutConnectionError
        return None

    async def run() -> None:
        broker.intercept.append(gate)
        consumer = Consumer[bytes, bytes](bootstrap_servers=broker.bootstrap, group_id="g")
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.seek_to_beginning()
        async with asyncio.timeout(60):
            while not await consumer.poll(1):
                pass
        # The last commit looks for its coordinator.
        closing = asyncio.create_task(consumer.close())
        assert await asyncio.to_thread(asked_for.wait, 30)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert len(asyncio.all_tasks()) == 1
        opened.set()
        asked = len(broker.requests)
        await asyncio.sleep(0.3)
        assert len(broker.requests) == asked
        with pytest.raises(ClosedError):
            await consumer.poll(0)

    asyncio.run(run())
