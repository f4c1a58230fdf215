"""A connection to another broker: it connects, brings frames both ways, and says why it ends."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from millstream.model.errors import ProtocolError
from millstream.net.channel import Channel, LoopNetwork
from millstream.protocol.outgoing import Outgoing


class Owner:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.refuse = False

    def connected(self) -> None:
        self.events.append("connected")

    def frame_received(self, frame: memoryview) -> None:
        if self.refuse:
            raise ProtocolError("nonsense")
        self.events.append(bytes(frame).decode())

    def closed(self, reason: str) -> None:
        self.events.append(f"closed: {reason}")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def until(loop: asyncio.AbstractEventLoop, true: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not true():
            await asyncio.sleep(0.001)

    loop.run_until_complete(asyncio.wait_for(wait(), 10))


def opened(
    loop: asyncio.AbstractEventLoop, listener: socket.socket, host: str = "127.0.0.1"
) -> tuple[Owner, Channel, socket.socket]:
    owner = Owner()
    channel = LoopNetwork(loop).open(host, listener.getsockname()[1], owner)
    assert owner.events == []
    until(loop, lambda: bool(owner.events))
    assert owner.events == ["connected"]
    accepted, _ = listener.accept()
    return owner, channel, accepted


def frame(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_frames_go_both_ways(
    loop: asyncio.AbstractEventLoop, listener: socket.socket, host: str
) -> None:
    owner, channel, peer = opened(loop, listener, host)
    with peer:
        channel.send(Outgoing([b"ab", b"cd"], 4))
        assert peer.recv(100) == b"abcd"
        peer.sendall(frame("one") + frame("two"))
        until(loop, lambda: len(owner.events) == 3)
        assert owner.events == ["connected", "one", "two"]
        channel.close()
        assert peer.recv(100) == b""
    assert owner.events[3:] == []


def test_a_part_of_a_frame_counts_as_received(
    loop: asyncio.AbstractEventLoop, listener: socket.socket
) -> None:
    owner, channel, peer = opened(loop, listener)
    with peer:
        assert channel.received_size == 0
        peer.sendall(frame("one")[:5])
        until(loop, lambda: channel.received_size == 5)
        assert owner.events == ["connected"]
        peer.sendall(frame("one")[5:])
        until(loop, lambda: len(owner.events) == 2)
        assert channel.received_size == 7
        channel.close()


def test_a_refused_connection_is_told_after_the_call(
    loop: asyncio.AbstractEventLoop, listener: socket.socket
) -> None:
    port = listener.getsockname()[1]
    listener.close()
    owner = Owner()
    LoopNetwork(loop).open("127.0.0.1", port, owner)
    assert owner.events == []
    until(loop, lambda: bool(owner.events))
    assert owner.events == ["closed: connection refused"]


@pytest.mark.parametrize("host", ["nowhere.invalid", "no..name", "x" * 64])
def test_a_name_without_an_address_is_told(loop: asyncio.AbstractEventLoop, host: str) -> None:
    owner = Owner()
    LoopNetwork(loop).open(host, 9, owner)
    assert owner.events == []
    until(loop, lambda: bool(owner.events))
    assert owner.events[0].startswith("closed: ")


def named(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Give every name these addresses."""

    async def found(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in hosts]

    monkeypatch.setattr(loop, "getaddrinfo", found)


def test_every_address_of_a_name_is_tried(
    loop: asyncio.AbstractEventLoop, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As `localhost` where it is ::1 first and the broker listens on 0.0.0.0.
    named(loop, monkeypatch, "127.0.0.2", "127.0.0.1")
    owner, channel, peer = opened(loop, listener, "both.example")
    with peer:
        peer.sendall(frame("one"))
        until(loop, lambda: len(owner.events) == 2)
        assert owner.events == ["connected", "one"]
        channel.close()


def test_an_address_that_does_not_answer_keeps_nobody_from_the_next(
    loop: asyncio.AbstractEventLoop, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.net.channel.ADDRESS_PATIENCE_SECONDS", 0.05)
    port = listener.getsockname()[1]
    with ExitStack() as stack:
        deaf = stack.enter_context(socket.create_server(("127.0.0.2", port), backlog=0))
        for _ in range(4):  # more than the backlog holds: the system drops what comes then
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(deaf.getsockname())
        named(loop, monkeypatch, "127.0.0.2", "127.0.0.1")
        _, channel, peer = opened(loop, listener, "both.example")
        peer.close()
        channel.close()


@pytest.mark.parametrize(
    "hosts", [("127.0.0.1", "255.255.255.255"), ("255.255.255.255", "127.0.0.1")]
)
def test_a_name_is_refused_when_all_its_addresses_are(
    loop: asyncio.AbstractEventLoop,
    listener: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    hosts: tuple[str, str],
) -> None:
    # "Refused" is what a broker is taken for dead by: an address that fails otherwise says no such.
    port = listener.getsockname()[1]
    listener.close()
    named(loop, monkeypatch, "127.0.0.1", "127.0.0.2")
    all_refused, one_refused = Owner(), Owner()
    LoopNetwork(loop).open("both.example", port, all_refused)
    until(loop, lambda: bool(all_refused.events))
    named(loop, monkeypatch, *hosts)
    LoopNetwork(loop).open("both.example", port, one_refused)
    until(loop, lambda: bool(one_refused.events))
    assert all_refused.events == ["closed: connection refused"]
    assert len(one_refused.events) == 1
    assert "refused" not in one_refused.events[0]


def test_the_end_of_the_other_side_is_told_once(
    loop: asyncio.AbstractEventLoop, listener: socket.socket
) -> None:
    owner, channel, peer = opened(loop, listener)
    peer.close()
    until(loop, lambda: len(owner.events) == 2)
    channel.send(Outgoing([b"late"], 4))
    channel.close()
    assert owner.events == ["connected", "closed: the other side closed the connection"]


def test_nonsense_closes(loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
    owner, _, peer = opened(loop, listener)
    owner.refuse = True
    with peer:
        peer.sendall(frame("x"))
        until(loop, lambda: len(owner.events) == 2)
        assert owner.events[1] == "closed: nonsense"
        assert peer.recv(1) == b""


def test_what_the_socket_does_not_take_follows(
    loop: asyncio.AbstractEventLoop, listener: socket.socket
) -> None:
    owner, channel, peer = opened(loop, listener)
    data = b"x" * (32 << 20)
    channel.send(Outgoing([data], len(data)))
    received = 0
    peer.setblocking(False)

    def more() -> bool:
        nonlocal received
        try:
            received += len(peer.recv(1 << 20))
        except BlockingIOError:
            return False
        return received == len(data)

    with peer:
        until(loop, more)
        channel.close()
    assert owner.events == ["connected"]
