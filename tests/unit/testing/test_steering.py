"""The parts of a machine that a test steers: clock, disk, connections, requests, directories."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from millstream.handlers.request import Answer, ConnectionInfo, Reply, RequestContext
from millstream.handlers.routes import ROUTES
from millstream.model.deferred import Deferred
from millstream.model.errors import ConnectionClosedError
from millstream.protocol.api import ApiKey
from millstream.protocol.codec import encode_request, request_decoder
from millstream.protocol.framing import FrameReader
from millstream.protocol.headers import decode_request_header
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.outgoing import Outgoing
from millstream.runtime.services import Services
from millstream.testing.cuts import CuttableLinks, CuttableNetwork
from millstream.testing.frames import Frame
from millstream.testing.host import LOCK, PREFIX, new_directory
from millstream.testing.interception import Interception
from millstream.testing.steered_clock import ClusterClock, CountedOffload, SteeredClock
from millstream.testing.steered_disk import SteeredDisk


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def passes(loop: asyncio.AbstractEventLoop, count: int = 3) -> None:
    for _ in range(count):
        loop.run_until_complete(asyncio.sleep(0))


def test_an_advance_runs_what_came_due_in_its_order(loop: asyncio.AbstractEventLoop) -> None:
    clock = SteeredClock(loop, 0.0)
    cluster = ClusterClock(loop, clock)
    ran: list[str] = []
    clock.call_later(60_000, lambda: ran.append("minute"))
    clock.call_later(1_000, lambda: ran.append("second"))
    clock.call_later(5_000, lambda: ran.append("never")).cancel()
    cluster.call_later(1_000, lambda: ran.append("between brokers"))
    before, between = clock.now_ms(), cluster.monotonic_ms()
    clock.advance(30_000)
    assert clock.owes()
    passes(loop)
    assert ran == ["second"]
    assert not clock.owes()
    clock.advance(31_000)
    passes(loop)
    assert ran == ["second", "minute"]
    assert 61_000 <= clock.now_ms() - before < 121_000
    assert 61_000 <= cluster.now_ms() - before < 121_000
    assert cluster.monotonic_ms() - between < 60_000
    assert clock.timers == {}


def test_work_of_other_threads_is_counted(loop: asyncio.AbstractEventLoop) -> None:
    offload = CountedOffload(loop.call_soon_threadsafe)
    outcome = offload.run("lane", lambda: 7)
    assert offload.working == 1
    outcome.on_done(lambda _: loop.stop())
    loop.run_forever()
    assert (outcome.result(), offload.working) == (7, 0)
    offload.close()


def test_a_disk_is_full_broken_and_well_again(tmp_path: Path) -> None:
    disk = SteeredDisk(lambda: False)
    path = str(tmp_path / "a")
    file = disk.open(path, create=True)
    file.write_at(0, b"abc")
    disk.is_full = True
    for fails in (
        lambda: file.write_at(3, b"d"),
        lambda: disk.open(str(tmp_path / "b"), create=True),
        lambda: disk.make_directory(str(tmp_path / "c")),
    ):
        with pytest.raises(OSError, match="No space left") as failed:
            fails()
        assert failed.value.errno == errno.ENOSPC
    assert disk.space(str(tmp_path)).usable_bytes == 0
    assert (file.read_at(0, 9), file.size()) == (b"abc", 3)
    disk.open(path, create=True)
    disk.sync_files([file, file])
    disk.is_full, disk.is_broken = False, True
    for fails in (
        lambda: file.read_at(0, 1),
        file.sync,
        lambda: disk.map(path),
        lambda: disk.sync_all(str(tmp_path)),
        lambda: disk.sync_directory(str(tmp_path)),
    ):
        with pytest.raises(OSError, match="Input/output error"):
            fails()
    disk.is_broken = False
    file.reserve(0, 4096)
    file.write_at(3, b"d")
    file.give_back_reserved()
    assert disk.map(path)[:] == b"abcd"


class Wire:
    """A transport or a link, and what was sent on it."""

    received_size = pending_bytes = 0

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.sent: list[Any] = []
        self.is_closed = False

    def send(self, outgoing: Outgoing) -> None:
        self.sent.append(outgoing)

    def close(self) -> None:
        self.is_closed = True


class Owner:
    def __init__(self) -> None:
        self.heard: list[object] = []

    def connected(self) -> None:
        self.heard.append("connected")

    def frame_received(self, frame: memoryview) -> None:
        self.heard.append(bytes(frame))

    def closed(self, reason: str, *, by_peer: bool = False) -> None:
        self.heard.append(reason)


class Wires:
    def __init__(self) -> None:
        self.opened: list[Wire] = []

    def open(self, host: str, port: int, owner: Any) -> Wire:
        self.opened.append(Wire(owner))
        return self.opened[-1]


@pytest.mark.parametrize("kind", ["network", "links"])
def test_what_is_cut_waits_and_comes_in_order(kind: str) -> None:
    wires = Wires()
    owner = Owner()
    begin: Callable[[Owner], Any]
    if kind == "network":
        network = CuttableNetwork()
        around = network.around(cast(Any, wires))
        begin = lambda owner: around.open("h", 1, owner)  # noqa: E731

        def cut(is_cut: bool) -> None:
            network.cut([("h", 1), ("other", 2)] if is_cut else [("other", 2)])
    else:
        links = CuttableLinks()
        open_link = links.around(lambda owner: cast(Any, wires.open("", 0, owner)))
        begin = cast(Any, open_link)

        def cut(is_cut: bool) -> None:
            links.cut(is_cut=is_cut)

    transport = begin(owner)
    (wire,) = wires.opened
    wire.owner.connected()
    transport.send("1")
    cut(True)
    transport.send("2")
    buffer = bytearray(b"kept")
    wire.owner.frame_received(memoryview(buffer))
    buffer[:] = b"gone"  # a connection reads the next frame into the same buffer
    wire.owner.closed("the end")
    assert (wire.sent, owner.heard) == (["1"], ["connected"])
    late, later = Owner(), begin(Owner())
    second = begin(late)
    assert len(wires.opened) == 1
    later.close()
    cut(False)
    assert wire.sent == ["1", "2"]
    assert owner.heard == ["connected", b"kept", "the end"]
    assert len(wires.opened) == 2
    wires.opened[1].owner.connected()
    second.send("3")
    assert (late.heard, wires.opened[1].sent) == (["connected"], ["3"])
    second.close()
    assert wires.opened[1].is_closed


class Shown:
    """An interception between one connection and a handler that answers with a count."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.told: list[Frame] = []
        self.handled: list[str] = []
        self.interception = Interception(loop, self.told.append, [], records=False)
        self._route = ROUTES[ApiKey.HEARTBEAT]
        decode = request_decoder(ApiKey.HEARTBEAT, 4)
        self._decode, self._handle = self.interception.around(self._route, 4, decode, self._count)

    def _count(self, services: Services, context: RequestContext, request: Any) -> Reply:
        self.handled.append(request.member_id)
        return HeartbeatResponse(error_code=len(self.handled))

    def ask(self, member: str, connection: int = 1, listener: str = "CLIENT") -> Reply:
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
        reader = FrameReader(1 << 20)
        data = b"".join(
            bytes(cast(bytes, each)) for each in encode_request(request, 4, 9, "c").pieces
        )
        reader.writable()[: len(data)] = data
        reader.received(len(data))
        frame = reader.next_frame()
        assert frame is not None
        header = decode_request_header(frame)
        info = ConnectionInfo(connection, listener, "127.0.0.1", 1)
        context = RequestContext(info, header.key, 4, 9, "c")
        decoded = self._decode(frame, header.body_position)
        frame[:] = bytes(len(frame))  # the buffer is used again
        return self._handle(cast(Any, None), context, decoded)


def test_requests_are_shown_and_decided(loop: asyncio.AbstractEventLoop) -> None:
    shown = Shown(loop)
    assert isinstance(shown.ask("unwatched"), HeartbeatResponse)
    assert shown.told == []
    shown.interception.watch([ApiKey.HEARTBEAT], records=False)
    between = shown.ask("broker", listener="INTERNAL")
    assert isinstance(between, HeartbeatResponse)

    def decided(action: str, **more: Any) -> Deferred[Answer]:
        reply = shown.ask(action)
        assert isinstance(reply, Deferred)
        assert not reply.done
        told = shown.told[-1]
        assert HeartbeatRequest.decode_body(4, told["body"]).member_id == action
        shown.interception.decided(told["number"], {"action": action, **more})
        return reply

    served = decided("serve").result()
    assert isinstance(served, HeartbeatResponse)
    assert served.error_code == 3
    failed = decided("fail", code=25).result()
    assert isinstance(failed, HeartbeatResponse)
    assert failed.error_code == 25
    body = HeartbeatResponse(error_code=27).encode_body(4)
    made = decided("answer", body=body).result()
    assert isinstance(made, HeartbeatResponse)
    assert made.error_code == 27
    assert not decided("silence").done
    for action in ("disconnect", "lose"):
        with pytest.raises(ConnectionClosedError):
            decided(action).result()
    late = decided("delay", delay_s=0.001)
    assert not late.done
    late.on_done(lambda _: loop.stop())
    loop.run_forever()
    assert shown.handled == ["unwatched", "broker", "serve", "lose", "delay"]


def test_what_follows_on_a_connection_keeps_its_place(loop: asyncio.AbstractEventLoop) -> None:
    shown = Shown(loop)
    shown.interception.watch([ApiKey.HEARTBEAT], records=False)
    first = shown.ask("first")
    shown.interception.watch([], records=False)
    second, elsewhere = shown.ask("second"), shown.ask("elsewhere", connection=2)
    assert isinstance(second, Deferred)
    assert isinstance(elsewhere, HeartbeatResponse)
    for told in list(shown.told):
        shown.interception.decided(told["number"], {"action": "serve"})
    assert isinstance(first, Deferred)
    assert shown.handled == ["elsewhere", "first", "second"]
    assert isinstance(shown.ask("third"), HeartbeatResponse)


def test_all_is_told_while_recording(loop: asyncio.AbstractEventLoop) -> None:
    shown = Shown(loop)
    shown.interception.watch([], records=True)
    shown.ask("m")
    request, answer = shown.told
    assert (request["event"], answer["event"]) == ("request", "answer")
    assert request["number"] == answer["number"]
    assert HeartbeatResponse.decode_body(4, answer["body"]).error_code == 1


def test_directories_whose_host_was_killed_are_removed(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / LOCK).touch()
    (left / "data").write_text("x")
    others = tmp_path / f"{PREFIX}beginning"
    others.mkdir()  # no lock yet: its host has just begun
    first, lock = new_directory(tmp_path)
    second, other_lock = new_directory(tmp_path)
    assert not left.exists()
    assert {first, second, others} == set(tmp_path.iterdir())
    for each in (lock, other_lock):
        os.close(each)
