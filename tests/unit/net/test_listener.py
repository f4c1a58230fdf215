"""Listening sockets over the loopback: who is accepted, who has to wait, who is closed in time."""

from __future__ import annotations

import errno
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.descriptors import open_descriptors
from tests.unit.net.hand_loop import HandLoop

from millstream.model.deferred import Deferred
from millstream.model.errors import ProtocolError
from millstream.net import listener
from millstream.net.connection import ConnectionPolicy, Served
from millstream.net.connection_quotas import ConnectionLimits, ConnectionQuotas
from millstream.net.listener import Listener
from millstream.net.peer import Peer
from millstream.net.receive_budget import ReceiveBudget
from millstream.protocol.framing import FrameReader
from millstream.protocol.outgoing import Outgoing
from millstream.security.quotas import AddressRates, Windows

HELLO = struct.pack(">ih", 7, 1) + b"hello"


class Echo:
    """A session that answers with what it was sent; to ``wait`` it never answers."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.is_closed = False
        self.serve: Callable[[memoryview], Served] = self._serve

    def _serve(self, frame: memoryview) -> Served:
        data = bytes(frame[2:])
        if data == b"wait!":
            return Deferred()
        if data == b"wrong":
            raise ProtocolError("nonsense")
        if data == b"large":
            return Outgoing([bytes(32 << 20)], 32 << 20)
        return Outgoing([data], len(data))

    def limit(self, frames: FrameReader) -> None:
        pass

    def closed(self) -> None:
        self.is_closed = True


class Place:
    """Listeners with shared quotas, and the peers that a test connects to them."""

    def __init__(self, stack: ExitStack) -> None:
        self.loop = HandLoop()
        self.sessions: list[Echo] = []
        self._stack = stack
        self._quotas: ConnectionQuotas | None = None
        stack.callback(self.loop.close)

    def listen(
        self, budget: ReceiveBudget | None = None, *, for_brokers: bool = False, **limits: object
    ) -> int:
        if self._quotas is None:
            self._quotas = ConnectionQuotas(ConnectionLimits(**limits))  # type: ignore[arg-type]
        listener = Listener(
            "PLAINTEXT",
            loop=self.loop,
            quotas=self._quotas,
            budget=budget or ReceiveBudget(-1),
            policy=ConnectionPolicy(frozenset({0})),
            for_brokers=for_brokers,
        )
        port = listener.bind("127.0.0.1", 0)
        listener.start(self._open)
        self._stack.callback(listener.close)
        return port

    def set_limits(self, **limits: object) -> None:
        assert self._quotas is not None
        self._quotas.set_limits(ConnectionLimits(**limits))  # type: ignore[arg-type]

    @property
    def connection_count(self) -> int:
        assert self._quotas is not None
        return self._quotas.connection_count

    def connect(self, port: int, source: str = "127.0.0.1") -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", port), source_address=(source, 0))
        peer.setblocking(False)
        self._stack.callback(peer.close)
        self.loop.turn()
        return peer

    def fill_a_hole(self) -> int:
        """Take the lowest descriptor that is free and return it."""
        descriptor = os.dup(0)
        self._stack.callback(os.close, descriptor)
        return descriptor

    def is_served(self, peer: socket.socket) -> bool:
        try:
            peer.send(HELLO)
            self.loop.turn()
            return peer.recv(100) == b"hello"
        except (BlockingIOError, ConnectionError):
            return False

    def is_closed(self, peer: socket.socket) -> bool:
        self.loop.turn()
        try:
            return peer.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def _open(self, peer: Peer) -> Echo:
        self.sessions.append(Echo(peer))
        return self.sessions[-1]


@pytest.fixture
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


def test_a_peer_is_known_by_number_listener_and_address(place: Place) -> None:
    port = place.listen()
    ports = [place.connect(port).getsockname()[1] for _ in range(2)]
    peers = [session.peer for session in place.sessions]
    assert [(peer.listener, peer.host, peer.port) for peer in peers] == [
        ("PLAINTEXT", "127.0.0.1", port) for port in ports
    ]
    assert len({peer.connection_id for peer in peers}) == 2


def test_who_is_hung_up_on_stands_in_the_log(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    peer = place.connect(place.listen())
    peer.send(HELLO.replace(b"hello", b"wrong"))
    assert place.is_closed(peer)
    assert f"closing the connection of 127.0.0.1:{peer.getsockname()[1]}: nonsense" in caplog.text


def test_a_session_hears_that_its_peer_has_gone(place: Place) -> None:
    port = place.listen()
    peer, other = place.connect(port), place.connect(port)
    peer.close()
    place.loop.turn()
    assert [session.is_closed for session in place.sessions] == [True, False]
    assert place.is_served(other)


def test_closing_a_listener_closes_its_connections(place: Place) -> None:
    listener = Listener(
        "PLAINTEXT",
        loop=place.loop,
        quotas=ConnectionQuotas(ConnectionLimits()),
        budget=ReceiveBudget(-1),
        policy=ConnectionPolicy(frozenset()),
    )
    port = listener.bind("127.0.0.1", 0)
    listener.start(Echo)
    peer = place.connect(port)
    assert listener.connection_count == 1
    listener.close()
    assert place.is_closed(peer)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_port_that_is_taken_is_an_error(place: Place) -> None:
    port = place.listen()
    listener = Listener(
        "PLAINTEXT",
        loop=place.loop,
        quotas=ConnectionQuotas(ConnectionLimits()),
        budget=ReceiveBudget(-1),
        policy=ConnectionPolicy(frozenset()),
    )
    with pytest.raises(OSError, match="in use"):
        listener.bind("127.0.0.1", port)
    listener.close()


def test_an_address_that_this_machine_has_not_is_no_reason_not_to_listen(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As `localhost` and "every address" are, where a container has names for IPv6 and no more.
    def found(host: str | None, port: int, **_: object) -> list[object]:
        def row(family: int, *address: str | int) -> tuple[object, ...]:
            return (family, socket.SOCK_STREAM, 6, "", address)

        absent = row(socket.AF_INET6, "2001:db8::1", port, 0, 0)
        unknown = row(socket.AF_IPX, "::", port, 0, 0)
        there = row(socket.AF_INET, "127.0.0.1", port)
        return [absent, unknown, there] if host else [absent, unknown]

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", found)
        port = place.listen()
    assert place.is_served(place.connect(port))
    listener = Listener(
        "PLAINTEXT",
        loop=place.loop,
        quotas=ConnectionQuotas(ConnectionLimits()),
        budget=ReceiveBudget(-1),
        policy=ConnectionPolicy(frozenset()),
    )
    monkeypatch.setattr(socket, "getaddrinfo", found)
    with pytest.raises(OSError, match="requested address"):
        listener.bind("", 0)
    listener.close()


# How many


def test_one_address_may_hold_so_many_connections(place: Place) -> None:
    port = place.listen(max_connections_per_ip=2)
    first, second, third = (place.connect(port) for _ in range(3))
    assert place.is_served(first)
    assert place.is_served(second)
    assert place.is_closed(third)
    assert place.is_served(place.connect(port, "127.0.0.2"))
    first.close()
    place.loop.turn()
    assert place.is_served(place.connect(port))


def test_a_peer_that_went_before_it_was_served_does_not_count(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")  # as macOS says of a socket that is reset

    port = place.listen(max_connections_per_ip=1)
    with monkeypatch.context() as patched:
        patched.setattr(listener, "_prepare", gone)
        assert place.is_closed(place.connect(port))
    assert place.is_served(place.connect(port))


def test_an_address_may_have_a_limit_of_its_own(place: Place) -> None:
    port = place.listen(
        max_connections_per_ip=1,
        max_connections_per_ip_overrides=(("127.0.0.2", 2), ("127.0.0.3", 0)),
    )
    assert place.is_served(place.connect(port, "127.0.0.2"))
    assert place.is_served(place.connect(port, "127.0.0.2"))
    assert place.is_closed(place.connect(port, "127.0.0.2"))
    assert place.is_closed(place.connect(port, "127.0.0.3"))


def test_over_the_limit_of_all_peers_wait_in_the_backlog(place: Place) -> None:
    port = place.listen(max_connections=2)
    first, second, third = (place.connect(port) for _ in range(3))
    assert place.is_served(second)
    place.loop.advance(2)
    assert not place.is_served(third)
    first.close()
    place.loop.advance(1)
    assert third.recv(100) == b"hello"
    assert place.connection_count == 2


def test_the_limits_are_those_of_the_broker_and_not_of_a_listener(place: Place) -> None:
    ports = place.listen(max_connections_per_ip=3, max_connections=4), place.listen()
    peers = [place.connect(port) for port in ports * 2]
    assert [place.is_served(peer) for peer in peers] == [True, True, True, False]
    assert place.is_closed(peers[3])
    assert place.is_served(place.connect(ports[1], "127.0.0.2"))
    assert not place.is_served(place.connect(ports[0], "127.0.0.3"))


def test_clients_do_not_keep_brokers_out(place: Place) -> None:
    ports = place.listen(max_connections=2, max_creation_rate=3), place.listen(for_brokers=True)
    first, second = place.connect(ports[0]), place.connect(ports[0])
    place.loop.advance(1)
    brokers = [place.connect(ports[1]) for _ in range(4)]
    assert all(place.is_served(broker) for broker in brokers)
    assert place.is_served(second)
    place.loop.advance(1)
    # Room is made for the first broker and the others are more than there may be: both have to go.
    assert place.is_closed(first)
    assert place.is_closed(second)
    assert all(place.is_served(broker) for broker in brokers)
    assert not place.is_served(place.connect(ports[0]))


def test_over_a_limit_that_was_lowered_those_go_that_were_silent_longest(place: Place) -> None:
    port = place.listen()
    peers = [place.connect(port) for _ in range(4)]
    for _ in range(3):
        place.loop.advance(1)
        assert place.is_served(peers[0])
        assert place.is_served(peers[2])
    place.set_limits(max_connections=2)
    place.loop.advance(1)
    assert [place.is_closed(peer) for peer in peers] == [False, True, False, True]


def test_limits_change_while_the_listener_is_at_work(place: Place) -> None:
    port = place.listen(max_connections_per_ip=1)
    place.connect(port)
    assert place.is_closed(place.connect(port))
    place.set_limits(max_connections_per_ip=2)
    assert place.is_served(place.connect(port))


def test_so_many_new_connections_in_a_second(place: Place) -> None:
    port = place.listen(max_creation_rate=3)
    peers = [place.connect(port) for _ in range(5)]
    assert [place.is_served(peer) for peer in peers] == [True, True, True, False, False]
    place.loop.advance(1)
    assert [peer.recv(100) for peer in peers[3:]] == [b"hello", b"hello"]


def test_without_file_descriptors_the_loop_does_not_spin(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    port = place.listen()
    peer = socket.socket()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        peer.setblocking(False)
        peer.connect_ex(("127.0.0.1", port))
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))
        place.loop.turn(20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert caplog.text.count("cannot accept on PLAINTEXT") == 1
    place.loop.advance(1)
    assert place.is_served(peer)
    peer.close()


def test_connections_leave_the_files_some_descriptors(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    highest = max(open_descriptors())
    while place.fill_a_hole() < highest:
        pass
    for_all = place.listen(last_descriptor=highest + 20)
    for_brokers = place.listen(for_brokers=True)
    peers = [place.connect(for_all) for _ in range(20)]
    served = [peer for peer in peers if place.is_served(peer)]
    assert 0 < len(served) < 11  # each takes two of them, in this process
    assert place.is_served(place.connect(for_brokers))
    assert "too few file descriptors" in caplog.text
    for peer in served:
        peer.close()
    place.loop.advance(1)
    assert place.is_served(place.connect(for_all))


# How long


def test_a_silent_peer_is_closed_and_one_that_speaks_is_not(place: Place) -> None:
    port = place.listen(idle_ms=5000)
    silent, speaks = place.connect(port), place.connect(port)
    for _ in range(4):
        place.loop.advance(2)
        assert place.is_served(speaks)
    assert place.is_closed(silent)


def test_a_peer_that_is_owed_an_answer_is_not_idle(place: Place) -> None:
    port = place.listen(idle_ms=5000)
    peer = place.connect(port)
    peer.send(HELLO.replace(b"hello", b"wait!"))
    place.loop.advance(60)
    assert not place.is_closed(peer)


def test_without_an_idle_time_silence_is_fine(place: Place) -> None:
    port = place.listen(idle_ms=-1)
    peer = place.connect(port)
    place.loop.advance(60)
    assert place.is_served(peer)


def test_a_peer_that_leaves_its_answer_unread_is_closed(place: Place) -> None:
    port = place.listen(idle_ms=5000)
    peer = place.connect(port)
    peer.send(HELLO.replace(b"hello", b"large"))
    place.loop.advance(4)
    assert place.connection_count == 1
    place.loop.advance(4)
    assert place.connection_count == 0


def test_a_frame_that_is_not_finished_in_time_closes_the_connection(place: Place) -> None:
    port = place.listen(frame_deadline_ms=5000)
    peer = place.connect(port)
    for _ in range(20):
        place.loop.advance(1)
        assert place.is_served(peer)
    peer.send(HELLO[:6])
    for byte in b"abc":
        place.loop.advance(1)
        peer.send(bytes([byte]))
    assert not place.is_closed(peer)
    place.loop.advance(4)
    assert place.is_closed(peer)


def test_a_large_frame_on_a_slow_line_has_more_time(place: Place) -> None:
    port = place.listen(frame_deadline_ms=2000)
    peer = place.connect(port)
    size = 1 << 20
    peer.send(struct.pack(">ih", size + 2, 1))
    for _ in range(10):
        peer.send(bytes(size // 10))
        place.loop.advance(1)
    assert not place.is_closed(peer)
    place.loop.advance(20)
    assert place.is_closed(peer)


def test_what_came_behind_a_request_that_waits_is_not_late(place: Place) -> None:
    port = place.listen(frame_deadline_ms=2000)
    peer = place.connect(port)
    peer.send(HELLO.replace(b"hello", b"wait!") + HELLO + HELLO[:5])
    place.loop.advance(30)
    assert not place.is_closed(peer)


def test_what_came_behind_an_answer_that_is_left_unread_is_not_late(place: Place) -> None:
    port = place.listen(frame_deadline_ms=2000)
    peers = [place.connect(port) for _ in range(2)]
    large = HELLO.replace(b"hello", b"large")
    peers[0].send(large + HELLO + HELLO[:5])
    peers[1].send(large + HELLO[:5])
    place.loop.advance(30)
    assert place.connection_count == 2
    for peer, answers in zip(peers, (b"hello", b""), strict=True):
        left = (32 << 20) + len(answers)
        while left:
            place.loop.turn(1)
            left -= len(peer.recv(1 << 20))
        peer.send(HELLO[5:])
        place.loop.turn()
        assert peer.recv(100) == b"hello"


def test_a_frame_that_the_broker_has_no_memory_for_is_not_late(place: Place) -> None:
    port = place.listen(ReceiveBudget(1000), frame_deadline_ms=5000)
    slow, other = place.connect(port), place.connect(port)
    whole = struct.pack(">ih", 802, 1) + bytes(800)
    for peer in (slow, other):
        peer.send(whole[:600])
        place.loop.turn()
    other.send(whole[600:])
    place.loop.advance(10)
    assert place.is_closed(slow)
    assert len(other.recv(1000)) == 800


def test_a_peer_whose_address_connects_too_often_is_held_back_and_closed(place: Place) -> None:
    port = place.listen()
    quotas = place._quotas
    assert quotas is not None
    rates = quotas.rates = AddressRates(Windows(count=2))
    rates.set(None, 1)
    first, second = place.connect(port), place.connect(port)
    other = place.connect(port, "127.0.0.2")
    assert place.is_served(first)
    assert place.is_served(other)
    assert not place.is_served(second)
    assert not place.is_closed(second), "it would try again at once"
    assert place.connection_count == 2
    place.loop.advance(3)
    assert place.is_closed(second)
    assert place.is_served(place.connect(port))


def test_brokers_are_not_held_back(place: Place) -> None:
    port = place.listen(for_brokers=True)
    quotas = place._quotas
    assert quotas is not None
    rates = quotas.rates = AddressRates(Windows(count=2))
    rates.set(None, 0.1)
    assert all(place.is_served(place.connect(port)) for _ in range(3))
