"""The share consumer under asyncio, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import pytest
from tests.unit.client.scripted_broker import TOPIC, ScriptedBroker
from tests.unit.client.share_script import ShareScript

from millstream.client import AcknowledgeType, Producer, TopicPartition
from millstream.client.aio import ShareConsumer
from millstream.client.core.consumer.errors import WakeupError
from millstream.client.errors import ClosedError

COUNT = 20


@pytest.fixture
def script() -> Iterator[ShareScript]:
    with ScriptedBroker() as broker:
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send_values([b"%d" % number for number in range(COUNT)], TOPIC)
        yield ShareScript(broker)


async def consumer_of(script: ShareScript, **settings: object) -> ShareConsumer[bytes, bytes]:
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(
        bootstrap_servers=script.broker.bootstrap, group_id="g", **settings
    )
    await consumer.subscribe(TOPIC)
    return consumer


def test_polls_accept_what_earlier_ones_returned(script: ShareScript) -> None:
    async def run() -> None:
        async with await consumer_of(script, max_poll_records=8) as consumer:
            seen = [record.offset for _ in range(3) for record in await consumer.poll(60)]
            assert seen == list(range(COUNT))
            await consumer.commit()

    asyncio.run(run())
    assert script.types == dict.fromkeys(range(COUNT), 1)
    assert (script.closed, script.left) == (1, 1)


def test_a_loop_that_is_left_accepts_what_it_has_worked_on(script: ShareScript) -> None:
    async def run() -> None:
        async with await consumer_of(script) as consumer:
            async for record in consumer:
                if record.offset == 5:
                    break

    asyncio.run(run())
    assert script.types == dict.fromkeys(range(5), 1)


def test_the_callback_may_be_a_coroutine(script: ShareScript) -> None:
    told: list[int] = []

    async def hear(
        offsets: Mapping[TopicPartition, frozenset[int]], error: Exception | None
    ) -> None:
        await asyncio.sleep(0)
        assert error is None
        told.extend(sorted(offsets[TopicPartition(TOPIC, 0)]))

    async def run() -> None:
        async with await consumer_of(script, share_acknowledgement_mode="explicit") as consumer:
            consumer.set_acknowledgement_callback(hear)
            for record in await consumer.poll(60):
                consumer.acknowledge(record, AcknowledgeType.REJECT)
            consumer.commit_async()
            while not told:
                await consumer.poll(0.05)

    asyncio.run(run())
    assert told == list(range(COUNT))
    assert set(script.types.values()) == {3}


def test_a_cancelled_poll_loses_nothing(script: ShareScript) -> None:
    async def run() -> None:
        async with await consumer_of(script) as consumer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(3_600), 0)
            seen = len(await consumer.poll(60))
            assert seen == COUNT
            await consumer.commit()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(3_600), 0.1)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await consumer.poll(60)
        with pytest.raises(ClosedError):
            await consumer.poll(1)

    asyncio.run(run())
    assert script.types == dict.fromkeys(range(COUNT), 1)
