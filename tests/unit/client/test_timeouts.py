"""Every time-out names the brokers that it is about: a listener that answers nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

import pytest

from millstream.client import Admin, Consumer, Producer, aio
from millstream.client.errors import ClientError
from millstream.model.topic import TopicPartition

PLACE = TopicPartition("t", 0)
WAITS = {
    "default.api.timeout.ms": 300,
    "max.block.ms": 300,
    "delivery.timeout.ms": 400,
    "request.timeout.ms": 300,
    "linger.ms": 0,
}


@pytest.fixture
def address() -> Iterator[str]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def settings(address: str, *names: str) -> dict[str, object]:
    kept = {name: value for name, value in WAITS.items() if name in names}
    return {"bootstrap.servers": address, **kept}


def consuming(address: str) -> Consumer[bytes, bytes]:
    chosen = settings(address, "default.api.timeout.ms", "request.timeout.ms")
    consumer = Consumer[bytes, bytes](chosen | {"group.id": "g"})
    consumer.assign([PLACE])
    return consumer


def listed(address: str) -> None:
    with Admin(settings(address, "default.api.timeout.ms")) as admin:
        admin.list_topics()


def positioned(address: str) -> None:
    with consuming(address) as consumer:
        try:
            consumer.position(PLACE)
        finally:
            consumer.close(0)


def ended(address: str) -> None:
    with consuming(address) as consumer:
        try:
            consumer.end_offsets([PLACE])
        finally:
            consumer.close(0)


def committed(address: str) -> None:
    with consuming(address) as consumer:
        try:
            consumer.committed([PLACE])
        finally:
            consumer.close(0)


def sent(address: str) -> None:
    with Producer(settings(address, "max.block.ms", "request.timeout.ms")) as producer:
        try:
            producer.send("t", b"value").result(5)
        finally:
            producer.close(0)


def flushed(address: str) -> None:
    producer = Producer(settings(address, "max.block.ms", "request.timeout.ms"))
    try:
        producer.partitions_for("t")
    finally:
        producer.close(0)


def begun(address: str) -> None:
    chosen = settings(address, "max.block.ms") | {"transactional.id": "id"}
    producer = Producer(chosen)
    try:
        producer.init_transactions()
    finally:
        producer.close(0)


@pytest.mark.parametrize("call", [listed, positioned, ended, committed, sent, flushed, begun])
def test_a_time_out_names_the_broker(call: Callable[[str], None], address: str) -> None:
    with pytest.raises(ClientError) as caught:
        call(address)
    assert address in str(caught.value)


def test_so_do_those_of_asyncio(address: str) -> None:
    async def run() -> None:
        producer = aio.Producer(settings(address, "max.block.ms", "request.timeout.ms"))
        await producer.start()
        with pytest.raises(ClientError) as caught:
            await producer.send("t", b"value")
        assert address in str(caught.value)
        await producer.close(0)
        chosen = settings(address, "default.api.timeout.ms", "request.timeout.ms")
        consumer = aio.Consumer[bytes, bytes](chosen | {"group.id": "g"})
        await consumer.start()
        consumer.assign([PLACE])
        with pytest.raises(ClientError) as caught:
            await consumer.position(PLACE)
        assert address in str(caught.value)
        await consumer.close(0)

    asyncio.run(run())


def test_a_time_out_says_why_there_was_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    settings = {"bootstrap.servers": address, "max.block.ms": 300}
    with Producer(settings) as producer, pytest.raises(ClientError) as raised:
        producer.partitions_for("t")
    assert f"no connection to {address}; " in str(raised.value)
    assert "connection refused" in str(raised.value)
