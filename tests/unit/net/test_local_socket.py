"""Sockets of one machine: who may connect, how frames travel, and who has ended a connection."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream import platform
from millstream.model.errors import ConfigError, ProtocolError
from millstream.net import local_socket
from millstream.net.local_socket import LocalClient, LocalConnection, LocalListener
from millstream.protocol.outgoing import Outgoing

MAX_FRAME_BYTES = 1 << 20


class Owner:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.refuse = False

    def connected(self) -> None:
        self.events.append("connected")

    def frame_received(self, frame: memoryview) -> None:
        if self.refuse:
            raise ProtocolError("nonsense")
        self.events.append(bytes(frame[:20]).decode())

    def closed(self, reason: str, *, by_peer: bool) -> None:
        self.events.append(f"closed by {'peer' if by_peer else 'us'}: {reason}")


class Site:
    """A listener in a directory, and what it has accepted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        self.loop = loop
        self.path = path
        self.owners: list[Owner] = []
        self.accepted: list[LocalConnection] = []
        self.listener = LocalListener(loop, path, self._accept, max_frame_bytes=MAX_FRAME_BYTES)

    def _accept(self, connection: LocalConnection) -> Owner:
        self.accepted.append(connection)
        self.owners.append(Owner())
        return self.owners[-1]

    def client(self) -> tuple[Owner, LocalClient]:
        owner = Owner()
        client = LocalClient(self.loop, self.path, owner, max_frame_bytes=MAX_FRAME_BYTES)
        count = len(self.owners)
        until(self.loop, lambda: owner.events == ["connected"] and len(self.owners) > count)
        return owner, client


def until(loop: asyncio.AbstractEventLoop, true: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not true():
            await asyncio.sleep(0.001)

    loop.run_until_complete(asyncio.wait_for(wait(), 10))


def frame(text: bytes) -> Outgoing:
    return Outgoing([struct.pack(">i", len(text)), text], 4 + len(text))


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def site(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> Iterator[Site]:
    site = Site(loop, tmp_path / "here.sock")
    yield site
    for connection in site.accepted:
        connection.close()
    site.listener.close()


def test_frames_travel_both_ways_and_an_end_is_told_to_the_other_side(site: Site) -> None:
    owner, client = site.client()
    client.send(frame(b"question"))
    until(site.loop, lambda: site.owners[0].events == ["question"])
    site.accepted[0].send(frame(b"answer"))
    until(site.loop, lambda: owner.events[-1] == "answer")
    client.close()
    until(site.loop, lambda: len(site.owners[0].events) == 2)
    assert site.owners[0].events[-1].startswith("closed by peer")
    assert owner.events == ["connected", "answer"], "whoever closes is not told"


def test_what_one_side_refuses_is_ended_by_itself(site: Site) -> None:
    owner, client = site.client()
    site.owners[0].refuse = True
    client.send(frame(b"x"))
    until(site.loop, lambda: len(owner.events) == 2)
    assert site.owners[0].events == ["closed by us: nonsense"]
    assert owner.events[-1].startswith("closed by peer")


@pytest.mark.parametrize("size", [-1, 0, MAX_FRAME_BYTES + 1, 0x7FFFFFFF])
def test_a_frame_of_a_size_that_is_not_taken_closes(site: Site, size: int) -> None:
    owner, client = site.client()
    client.send(Outgoing([struct.pack(">i", size)], 4))
    until(site.loop, lambda: len(owner.events) == 2)
    assert "allowed are" in site.owners[0].events[0]


def test_sending_never_waits_for_the_reader(site: Site) -> None:
    owner, client = site.client()
    assert client._connection is not None
    client._connection._transport.unwatch_readable()
    count = 64
    for number in range(count):
        site.accepted[0].send(frame(b"%03d" % number + bytes(100_000)))
    assert site.accepted[0].pending_bytes > 1_000_000
    client._connection._transport.watch_readable(client._connection._on_readable)
    until(site.loop, lambda: len(owner.events) == 1 + count)
    assert [each[:3] for each in owner.events[1:]] == [f"{number:03}" for number in range(count)]
    assert site.accepted[0].pending_bytes == 0
    client.close()


def test_a_socket_is_of_its_user_alone(site: Site) -> None:
    assert stat.S_IMODE(site.path.stat().st_mode) == 0o600
    assert os.umask(os.umask(0o022)) != 0o177, "the mask of the process is what it was"


def test_another_user_is_turned_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, first = site.client()
    monkeypatch.setattr(local_socket, "_is_same_user", lambda sock: False)
    stranger = Owner()
    LocalClient(site.loop, site.path, stranger, max_frame_bytes=MAX_FRAME_BYTES)
    until(site.loop, lambda: len(stranger.events) == 2)
    assert stranger.events[-1].startswith("closed by peer")
    assert len(site.accepted) == 1
    assert owner.events == ["connected"]
    first.close()


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="the system does not tell")
def test_the_user_of_a_peer_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        assert local_socket._is_same_user(one)
        mine = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
        assert local_socket._is_same_user(one) == (mine == 0)


def test_a_socket_that_a_killed_process_left_is_replaced(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    path = tmp_path / "here.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(path))
    refused = Owner()
    LocalClient(loop, path, refused, max_frame_bytes=MAX_FRAME_BYTES)
    until(loop, lambda: len(refused.events) == 1)
    assert refused.events == ["closed by peer: connection refused"]
    site = Site(loop, path)
    _, client = site.client()
    client.close()
    site.accepted[0].close()
    site.listener.close()
    assert list(tmp_path.iterdir()) == []


def test_a_path_may_be_longer_than_the_kernel_takes(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 90) / ("e" * 90)
    deep.mkdir(parents=True)
    site = Site(loop, deep / "here.sock")
    owner, client = site.client()
    client.send(frame(b"deep"))
    until(loop, lambda: site.owners[0].events == ["deep"])
    client.close()
    until(loop, lambda: len(site.owners[0].events) == 2)
    site.listener.close()
    assert owner.events == ["connected"]


def test_a_path_that_is_too_long_for_the_system_is_named(
    loop: asyncio.AbstractEventLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "IS_LINUX", False)
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(ConfigError, match="shorter path"):
        Site(loop, deep / "here.sock")
