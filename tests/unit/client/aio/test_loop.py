"""The same core on asyncio."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.descriptors import open_descriptors
from tests.unit.client.scripted_broker import TOPIC, ScriptedBroker, first_address_is_deaf

from millstream.client import TopicPartition
from millstream.client.aio import Admin, Consumer, Producer
from millstream.client.aio.loop import AsyncioLoop
from millstream.client.core.network import Network
from millstream.client.core.settings import ClientSettings, read_settings
from millstream.client.errors import ConnectionFailedError
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse


def network(loop: AsyncioLoop, bootstrap: str) -> Network:
    return Network(loop, read_settings(ClientSettings, {"bootstrap.servers": bootstrap}))


def test_requests_and_nothing_is_left() -> None:
    async def run(bootstrap: str) -> None:
        loop = AsyncioLoop()
        cluster = network(loop, bootstrap)
        for _ in range(3):
            answer = await loop.future(cluster.send_any(MetadataRequest(topics=[])))
            assert isinstance(answer, MetadataResponse)
        await loop.close()
        assert len(asyncio.all_tasks()) == 1

    before = open_descriptors()
    with ScriptedBroker() as broker:
        asyncio.run(run(broker.bootstrap))
    assert open_descriptors() == before


def test_uvloop_will_do_as_well() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def run(bootstrap: str) -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            assert (await producer.send_and_wait(TOPIC, bytes(500_000))).offset == 0
            await producer.send(TOPIC, b"b")
        async with Consumer[bytes, bytes](bootstrap_servers=bootstrap) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0)])
            consumer.seek_to_beginning()
            seen = 0
            async with asyncio.timeout(60):
                while seen < 2:
                    seen += len(await consumer.poll(1))
        async with Admin(bootstrap_servers=bootstrap) as admin:
            assert await admin.list_topics() == [TOPIC]
        # Memory is given back when the system has what was written, which uvloop tells later.
        async with Producer(bootstrap_servers=bootstrap, acks=0) as producer:
            await producer.send_and_wait(TOPIC, bytes(500_000))
        cancelled = Producer(bootstrap_servers=bootstrap)
        await cancelled.start()
        await cancelled.send(TOPIC, b"c")
        closing = asyncio.create_task(cancelled.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert len(asyncio.all_tasks()) == 1

    with ScriptedBroker() as broker:
        uvloop.run(run(broker.bootstrap))


def test_an_address_that_does_not_answer_keeps_nobody_from_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(bootstrap: str) -> None:
        loop = AsyncioLoop()
        answer = await loop.future(network(loop, bootstrap).send_any(MetadataRequest(topics=[])))
        assert isinstance(answer, MetadataResponse)
        await loop.close()

    monkeypatch.setattr("millstream.client.aio.loop.ADDRESS_PATIENCE_MS", 100)
    before = open_descriptors()
    with ScriptedBroker() as broker, first_address_is_deaf(monkeypatch, broker.port) as bootstrap:
        asyncio.run(run(bootstrap))
    assert open_descriptors() == before


def test_a_refused_connection_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    async def run() -> None:
        loop = AsyncioLoop()
        cluster = network(loop, f"127.0.0.1:{port}")
        with pytest.raises(ConnectionFailedError):
            await loop.future(cluster.send_any(MetadataRequest(topics=[])))
        await loop.close()

    asyncio.run(run())


@pytest.mark.parametrize("host", ["broker..example", "a" * 64 + ".example"])
def test_what_is_not_the_name_of_a_host_is_said(host: str) -> None:
    async def run() -> None:
        loop = AsyncioLoop()
        cluster = network(loop, f"{host}:1")
        with pytest.raises(ConnectionFailedError, match="not the name of a host"):
            await loop.future(cluster.send_any(MetadataRequest(topics=[])))
        await loop.close()

    asyncio.run(run())
