"""TLS over a socket pair: what goes through it, and what breaks it."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest
from tests import certificates
from tests.unit.net.test_connection import FETCH, POLICY, FileRange, frame, outgoing, turn

from millstream.net.connection import Connection, Served
from millstream.net.receive_budget import ReceiveBudget
from millstream.net.tls_handshake import TlsHandshake
from millstream.net.transport import SCRATCH_BYTES, Scratch, TlsTransport
from millstream.protocol.framing import FrameReader
from millstream.protocol.outgoing import Outgoing


class Pair:
    """A transport on the broker's side, and a client of Python's own TLS."""

    def __init__(self, stack: ExitStack, *, version: ssl.TLSVersion | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        stack.callback(self.loop.close)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.wire = theirs
        stack.callback(theirs.close)
        stack.callback(ours.close)
        context = certificates.client_side()
        if version is not None:
            context.maximum_version = version
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.failures: list[str] = []
        self.transport: TlsTransport | None = None
        self.handshake = TlsHandshake(
            ours,
            loop=self.loop,
            context=certificates.server_side(),
            scratch=Scratch(),
            on_done=self._done,
            on_failed=self.failures.append,
        )

    def _done(self, transport: TlsTransport) -> None:
        self.transport = transport

    def shake(self) -> TlsTransport:
        while True:
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.move()
            else:
                break
        self.move()
        assert self.transport is not None, self.failures
        return self.transport

    def move(self) -> None:
        """Exchange what both sides have to say."""
        self.wire.send(self.outgoing.read())
        turn(self.loop)
        self.take()

    def take(self) -> None:
        while True:
            try:
                data = self.wire.recv(1 << 20)
            except BlockingIOError:
                return
            if not data:
                self.incoming.write_eof()
                return
            self.incoming.write(data)

    def received(self, transport: TlsTransport | None = None) -> bytes:
        """Return all that arrives at the client, while the transport flushes."""
        got = b""
        quiet = 0
        while quiet < 3:
            done = transport is None or transport.flush()
            turn(self.loop, 1)
            self.take()
            try:
                while data := self.client.read(1 << 16):
                    got += data
                    quiet = 0
                break
            except ssl.SSLWantReadError:
                quiet += done
        return got

    def say(self, data: bytes) -> bytes:
        """Encrypt what the client says; nothing is sent yet."""
        view = memoryview(data)
        while view:
            view = view[self.client.write(view) :]
        return self.outgoing.read()

    def serve(self, serve: object) -> tuple[Connection, list[Connection]]:
        closed: list[Connection] = []
        assert self.transport is not None
        connection = Connection(
            self.transport,
            loop=self.loop,
            serve=serve,  # type: ignore[arg-type]
            frames=FrameReader(1 << 20),
            budget=ReceiveBudget(-1),
            policy=POLICY,
            on_closed=closed.append,
        )
        connection.start()
        return connection, closed


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[IO[bytes]]:
    with (tmp_path / "file").open("w+b", buffering=0) as opened:
        yield opened


def echo(view: memoryview) -> Served:
    return outgoing(bytes(view[2:]))


def test_requests_are_served_and_answered_in_order(pair: Pair) -> None:
    pair.shake()
    pair.serve(echo)
    pair.wire.send(pair.say(b"".join(frame(FETCH, b"%d;" % n) for n in range(100))))
    assert pair.received() == b"".join(b"%d;" % n for n in range(100))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_spoken(version: ssl.TLSVersion) -> None:
    with ExitStack() as stack:
        pair = Pair(stack, version=version)
        transport = pair.shake()
        assert transport.tls.version() == ("TLSv1.2" if "1_2" in version.name else "TLSv1.3")
        pair.serve(echo)
        pair.wire.send(pair.say(frame(FETCH, b"hello")))
        assert pair.received() == b"hello"


def test_what_is_decrypted_already_is_served_though_the_socket_is_silent(pair: Pair) -> None:
    """The records are larger than the free space of the buffer, and arrive at once."""
    pair.shake()
    seen: list[bytes] = []

    def serve(view: memoryview) -> Served:
        seen.append(bytes(view[2:]))
        return outgoing(b".")

    pair.serve(serve)
    bodies = [os.urandom(9_000) for _ in range(20)]
    pair.wire.send(pair.say(b"".join(frame(FETCH, body) for body in bodies)))
    turn(pair.loop, 60)
    assert seen == bodies


def test_a_request_that_came_with_the_end_of_the_handshake_is_served(pair: Pair) -> None:
    while True:
        try:
            pair.client.do_handshake()
        except ssl.SSLWantReadError:
            pair.move()
        else:
            break
    pair.wire.send(pair.outgoing.read() + pair.say(frame(FETCH, b"early")))
    turn(pair.loop)
    pair.serve(echo)
    assert pair.received() == b"early"


def test_a_large_request_arrives_whole(pair: Pair) -> None:
    pair.shake()
    body = os.urandom(700_000)
    seen: list[bytes] = []

    def serve(view: memoryview) -> Served:
        seen.append(bytes(view[2:]))
        return None

    pair.serve(serve)
    sealed = memoryview(pair.say(frame(FETCH, body)))
    while sealed:
        try:
            sealed = sealed[pair.wire.send(sealed) :]
        except BlockingIOError:
            turn(pair.loop)
    turn(pair.loop, 20)
    assert seen == [body]


def test_slices_of_files_and_bytes_arrive_in_order_and_take_no_memory(
    pair: Pair, file: IO[bytes]
) -> None:
    transport = pair.shake()
    data = os.urandom(3 << 20)
    piece = FileRange(file, data)
    assert not transport.send([b"head", piece, bytearray(b"tail" * 10_000)])
    assert transport.pending_bytes < SCRATCH_BYTES * 1.1 + 50_000
    assert pair.received(transport) == b"head" + data + b"tail" * 10_000
    assert transport.pending_bytes == 0


def test_an_answer_given_while_another_is_kept_follows_it(pair: Pair) -> None:
    transport = pair.shake()
    assert not transport.send([b"a" * 3_000_000])
    assert not transport.send([b"b"])
    assert not transport.send([b"c", b"d"])
    assert pair.received(transport) == b"a" * 3_000_000 + b"bcd"


def test_a_file_that_is_too_short_breaks_the_connection(pair: Pair, file: IO[bytes]) -> None:
    transport = pair.shake()
    piece = FileRange(file, b"x" * 100)
    piece.size = 200
    with pytest.raises(ConnectionResetError):
        transport.send([b"head", piece])


def test_a_close_is_announced_to_the_peer(pair: Pair) -> None:
    pair.shake()
    connection, _ = pair.serve(echo)
    connection.close()
    pair.take()
    assert pair.client.read(10) == b""  # and no "EOF in violation of protocol"


def test_a_peer_that_ends_tls_is_let_go_with_what_it_had_said(pair: Pair) -> None:
    pair.shake()
    seen: list[bytes] = []

    def serve(view: memoryview) -> Served:
        seen.append(bytes(view[2:]))
        return None

    _, closed = pair.serve(serve)
    sealed = pair.say(frame(FETCH, b"bye"))
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.wire.send(sealed + pair.outgoing.read())
    turn(pair.loop)
    assert (seen, len(closed)) == ([b"bye"], 1)


@pytest.mark.parametrize("wrong", [b"\x17\x03\x03\x00\x20" + bytes(32), b"GET / HTTP/1.1\r\n\r\n"])
def test_a_record_that_is_forged_closes_the_connection(
    pair: Pair, wrong: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    pair.shake()
    seen: list[bytes] = []

    def serve(view: memoryview) -> Served:
        seen.append(bytes(view[2:]))
        return None

    _, closed = pair.serve(serve)
    with caplog.at_level("INFO"):
        pair.wire.send(pair.say(frame(FETCH, b"before")) + wrong)
        turn(pair.loop)
    assert (seen, len(closed)) == ([b"before"], 1)
    (line,) = caplog.records
    assert "TLS: " in line.message
    assert line.exc_info is None


def test_a_record_that_is_cut_short_is_no_request(pair: Pair) -> None:
    pair.shake()
    seen: list[bytes] = []

    def serve(view: memoryview) -> Served:
        seen.append(bytes(view))
        return None

    _, closed = pair.serve(serve)
    pair.wire.send(pair.say(frame(FETCH, b"never whole"))[:-3])
    turn(pair.loop)
    assert not closed
    pair.wire.close()
    turn(pair.loop)
    assert (seen, len(closed)) == ([], 1)


def test_records_without_content_do_not_keep_the_loop(pair: Pair) -> None:
    transport = pair.shake()
    for _ in range(200):
        pair.client.write(b"")
    pair.wire.send(pair.outgoing.read() or b"")
    with pytest.raises(BlockingIOError):
        transport.receive_into(memoryview(bytearray(100)))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (struct.pack(">ihh", 20, 18, 3) + bytes(16), "does not speak TLS"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "does not speak TLS"),
        (b"\x16\x03\x01\x00\x05\x01\xff\xff\xff\xff", "the TLS handshake failed: "),
        (b"\x15\x03\x03\x00\x02\x02\x28", "the TLS handshake failed: "),
    ],
)
def test_what_is_no_handshake_fails_at_once(pair: Pair, said: bytes, reason: str) -> None:
    pair.wire.send(said)
    turn(pair.loop)
    (told,) = pair.failures
    assert reason in told


def test_a_peer_that_hangs_up_in_the_handshake_fails(pair: Pair) -> None:
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.do_handshake()
    pair.wire.send(pair.outgoing.read()[:20])
    turn(pair.loop)
    assert not pair.failures
    pair.wire.close()
    turn(pair.loop)
    assert pair.failures == ["hung up during the TLS handshake"]


def test_a_peer_that_only_looks_whether_anybody_listens_gives_no_reason(pair: Pair) -> None:
    pair.wire.close()
    turn(pair.loop)
    assert pair.failures == [""]


def test_a_client_that_trusts_somebody_else_is_told_of_in_one_line(pair: Pair) -> None:
    context = certificates.client_side(trusted=certificates.authority("another"))
    pair.client = context.wrap_bio(pair.incoming, pair.outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        pair.shake()
    pair.move()
    (told,) = pair.failures
    assert told == "the TLS handshake failed: tlsv1 alert unknown ca"


def test_a_handshake_that_is_given_up_tells_nobody(pair: Pair) -> None:
    pair.handshake.close()
    pair.wire.close()
    turn(pair.loop)
    assert pair.failures == []
    assert pair.transport is None


def test_an_unread_answer_beyond_the_limit_closes(pair: Pair) -> None:
    pair.shake()

    def serve(view: memoryview) -> Served:
        return Outgoing([bytes(20 << 20)], 20 << 20)

    _, closed = pair.serve(serve)
    pair.wire.send(pair.say(frame(FETCH, b"much")))
    turn(pair.loop)
    assert len(closed) == 1


def test_a_peer_that_takes_all_gets_a_few_mib_at_a_time(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop has others to serve than one reader of a large answer."""

    class Greedy:
        taken = 0

        def send(self, data: memoryview) -> int:
            self.taken += len(data)
            return len(data)

    transport, greedy = pair.shake(), Greedy()
    monkeypatch.setattr(transport, "_socket", greedy)
    size = 24 << 20
    turns = 0
    done = transport.send([bytes(size)])
    assert greedy.taken < 8 << 20
    while not done:
        before = greedy.taken
        done = transport.flush()
        assert greedy.taken - before < 8 << 20
        turns += 1
    assert turns > 3
    assert greedy.taken > size
    monkeypatch.undo()
