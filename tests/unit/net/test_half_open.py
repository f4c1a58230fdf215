"""Peers that are not authenticated: how many, how long, and who gives way."""

from __future__ import annotations

import logging
import os
import select
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from tests import certificates
from tests.unit.net.hand_loop import HandLoop
from tests.unit.net.test_listener import HELLO, Echo

from millstream.model.principal import ANONYMOUS, KafkaPrincipal
from millstream.net.connection import ConnectionPolicy
from millstream.net.connection_quotas import ConnectionLimits, ConnectionQuotas
from millstream.net.half_open import HalfOpen
from millstream.net.handshake_turns import STEPS_PER_PASS, HandshakeTurns
from millstream.net.listener import Listener
from millstream.net.peer import Peer
from millstream.net.peer_authentication import AuthenticationError, Protection
from millstream.net.receive_budget import ReceiveBudget
from millstream.net.transport import Scratch
from millstream.security.distinguished_name import subject_of

DEADLINE_S = 10


class Tls:
    """The broker's side of TLS."""

    def __init__(self) -> None:
        self.context = certificates.server_side("requested")

    def principal(self, tls: ssl.SSLObject) -> KafkaPrincipal:
        certificate = tls.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        name = subject_of(certificate)
        if name == "CN=nobody":
            raise AuthenticationError("no rule applies to CN=nobody")
        if name == "CN=broken":
            raise IndexError("no such group")
        return KafkaPrincipal("User", name)


class Place:
    """A listener with TLS, SASL or both, and its peers."""

    def __init__(self, stack: ExitStack, protocol: str, *, limit: int = 5, per_ip: int = 5) -> None:
        self.loop = HandLoop()
        self.stack = stack
        stack.callback(self.loop.close)
        self.sessions: list[Echo] = []
        self.half_open = HalfOpen(limit=limit, limit_per_address=per_ip)
        self.quotas = ConnectionQuotas(ConnectionLimits(max_connections_per_ip=50))
        tls = Tls() if protocol.endswith("SSL") else None
        self.listener = Listener(
            "SECURE",
            loop=self.loop,
            quotas=self.quotas,
            budget=ReceiveBudget(-1),
            policy=ConnectionPolicy(frozenset({0})),
            protection=Protection(
                protocol, self.half_open, Scratch(), HandshakeTurns(self.loop), tls
            ),
        )
        self.port = self.listener.bind("127.0.0.1", 0)
        self.listener.start(self._open)
        stack.callback(self.listener.close)

    def _open(self, peer: Peer) -> Echo:
        self.sessions.append(Echo(peer))
        return self.sessions[-1]

    def connect(self) -> socket.socket:
        sock = self.stack.enter_context(socket.create_connection(("127.0.0.1", self.port)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self.loop.turn()
        return sock

    def hello(self, sock: socket.socket) -> None:
        """Say the first words of a client of TLS."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = certificates.client_side().wrap_bio(
            incoming, outgoing, server_hostname="localhost"
        )
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        sock.send(outgoing.read())
        self.loop.turn()

    def secure(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        context = context or certificates.client_side()
        sock = self.stack.enter_context(
            context.wrap_socket(
                self.connect(), server_hostname="localhost", do_handshake_on_connect=False
            )
        )
        while True:
            try:
                sock.do_handshake()
            except ssl.SSLWantReadError:
                self.loop.turn()
            else:
                self.loop.turn()
                return sock

    def ask(self, sock: socket.socket, said: bytes = HELLO) -> bytes:
        sock.send(said)
        for _ in range(10):
            self.loop.turn()
            try:
                return sock.recv(100)
            except (BlockingIOError, ssl.SSLWantReadError):
                pass
        return b"nothing"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_a_client_is_served_over_tls_and_counts_as_half_open_no_more(stack: ExitStack) -> None:
    place = Place(stack, "SSL")
    sock = place.secure()
    assert place.ask(sock) == b"hello"
    (session,) = place.sessions
    assert (session.peer.protocol, session.peer.principal) == ("SSL", ANONYMOUS)
    assert len(place.half_open) == 0
    place.loop.advance(2 * DEADLINE_S)
    assert place.ask(sock) == b"hello"


def test_a_fault_behind_the_handshake_leaves_nothing_open(
    stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(stack, "SSL")
    sock = place.secure(certificates.client_side(certificates.client("broken")))
    assert is_closed(sock)
    assert "no such group" in caplog.text
    assert len(place.half_open) == 0
    assert place.listener.connection_count == 0
    assert place.quotas.connection_count == 0


def test_the_certificate_says_who_the_client_is(stack: ExitStack) -> None:
    place = Place(stack, "SSL")
    place.secure(certificates.client_side(certificates.client("ann")))
    assert place.sessions[0].peer.principal == KafkaPrincipal("User", "CN=ann")


def test_a_certificate_that_speaks_for_nobody_is_refused(
    stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(stack, "SSL")
    with caplog.at_level(logging.INFO):
        sock = place.secure(certificates.client_side(certificates.client("nobody")))
    assert is_closed(sock)
    assert not place.sessions
    assert place.quotas.connection_count == 0
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "no rule applies to CN=nobody"
    ]


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_a_silent_peer_is_closed_at_the_deadline(stack: ExitStack, protocol: str) -> None:
    place = Place(stack, protocol)
    sock = place.connect()
    place.loop.advance(DEADLINE_S - 1)
    assert not is_closed(sock)
    place.loop.advance(2)
    assert is_closed(sock)
    assert (len(place.half_open), place.quotas.connection_count) == (0, 0)


def test_a_peer_that_dribbles_has_no_more_time(stack: ExitStack) -> None:
    place = Place(stack, "SSL")
    sock = place.connect()
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(60)
    for at in range(DEADLINE_S + 1):
        if is_closed(sock):
            break
        sock.send(hello[at : at + 1])
        place.loop.advance(1)
    assert is_closed(sock)


def test_the_oldest_gives_way(stack: ExitStack) -> None:
    place = Place(stack, "SSL", limit=3)
    silent = [place.connect() for _ in range(3)]
    assert place.ask(place.secure()) == b"hello"
    assert [is_closed(sock) for sock in silent] == [True, False, False]
    assert place.quotas.connection_count == 3


def test_the_oldest_of_the_same_address_gives_way(stack: ExitStack) -> None:
    place = Place(stack, "SASL_PLAINTEXT", per_ip=2)
    silent = [place.connect() for _ in range(4)]
    assert [is_closed(sock) for sock in silent] == [True, True, False, False]


def test_many_silent_peers_do_not_keep_others_out(stack: ExitStack) -> None:
    place = Place(stack, "SSL", limit=10, per_ip=10)
    working = place.secure()
    for _ in range(100):
        place.connect()
    assert place.ask(working) == b"hello"
    assert place.ask(place.secure()) == b"hello"
    assert len(place.half_open) == 9


def test_sasl_counts_until_the_session_says_who_it_is(stack: ExitStack) -> None:
    place = Place(stack, "SASL_SSL", limit=2)
    done, _ = place.secure(), place.secure()
    place.sessions[0].peer.on_authenticated()
    assert len(place.half_open) == 1
    place.loop.advance(DEADLINE_S + 1)
    assert [session.is_closed for session in place.sessions] == [False, True]
    assert place.ask(done) == b"hello"
    assert place.quotas.connection_count == 1


@pytest.mark.parametrize(
    "said", [struct.pack(">ihh", 30, 18, 3) + bytes(26), b"GET / HTTP/1.1\r\n\r\n", b"\x16" * 100]
)
def test_garbage_is_closed_at_once_with_one_line(
    stack: ExitStack, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(stack, "SSL")
    sock = place.connect()
    with caplog.at_level(logging.INFO):
        sock.send(said)
        place.loop.turn()
    (line,) = caplog.records
    assert "the TLS handshake failed: " in line.message
    assert line.exc_info is None
    assert place.quotas.connection_count == 0


def test_a_close_of_the_listener_closes_those_in_the_handshake(stack: ExitStack) -> None:
    place = Place(stack, "SSL")
    sock = place.connect()
    place.listener.close()
    assert is_closed(sock)
    assert (len(place.half_open), place.quotas.connection_count) == (0, 0)


class TestManyHandshakesAtOnce:
    COUNT = 3 * STEPS_PER_PASS + 2

    def greet(self, place: Place) -> list[socket.socket]:
        """Connect, and have all say hello before anything of it is read."""
        peers = [place.connect() for _ in range(self.COUNT)]
        context = certificates.client_side()
        for peer in peers:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
            peer.send(outgoing.read())
        return peers

    def answered(self, peers: list[socket.socket]) -> list[int]:
        return [at for at, peer in enumerate(peers) if select.select([peer], [], [], 0)[0]]

    def test_only_a_few_go_on_in_one_pass_of_the_loop(self, stack: ExitStack) -> None:
        place = Place(stack, "SSL", limit=50, per_ip=50)
        peers = self.greet(place)
        seen = 0
        while seen < len(peers):
            place.loop.turn(1)
            now = len(self.answered(peers))
            assert seen < now <= seen + STEPS_PER_PASS
            seen = now

    def test_who_has_gone_takes_no_turn(self, stack: ExitStack) -> None:
        place = Place(stack, "SSL", limit=50, per_ip=50)
        peers = self.greet(place)
        place.loop.turn(1)
        assert len(self.answered(peers)) == STEPS_PER_PASS
        place.listener.close()
        place.loop.turn()
        assert len(place.half_open) == 0
        assert place.listener.connection_count == 0

    def test_a_step_that_fails_does_not_stop_the_others(self, stack: ExitStack) -> None:
        place = Place(stack, "SSL", limit=50, per_ip=50)
        peers = self.greet(place)
        place.loop.turn(1)
        gone = set(range(self.COUNT)) - set(self.answered(peers))
        for at in sorted(gone)[:3]:
            peers[at].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peers[at].close()
        rest = [peer for peer in peers if peer.fileno() >= 0]
        place.loop.turn(20)
        assert len(self.answered(rest)) == len(rest)
        sock = place.secure()
        assert place.ask(sock) == b"hello"
