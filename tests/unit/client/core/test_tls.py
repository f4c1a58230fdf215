"""TLS between a transport and its owner, against a server in memory, in all chunkings."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import pytest
from tests.tls_authority import Authority
from tests.tls_peer import TlsPeer, server_context

from millstream.client.core.tls import TlsTransport
from millstream.client.errors import ClientError, ConnectionFailedError, TlsError
from millstream.records.crc32c import Buffer

HOST = "broker.example"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def listener(authority: Authority) -> ssl.SSLContext:
    return server_context(*authority.issue("broker", [HOST, "127.0.0.1"]))


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.path)


class Owner:
    """The events that the owner of a connection gets."""

    def __init__(self, room: int | None = None) -> None:
        self.is_connected = False
        self.data = bytearray()
        self.end: list[OSError | ClientError | None] = []
        self._room = None if room is None else memoryview(bytearray(room))
        self.on_data: Callable[[], None] = lambda: None

    def connected(self) -> None:
        self.is_connected = True

    def received(self, data: Buffer) -> None:
        self.data += data
        self.on_data()

    @property
    def room(self) -> memoryview | None:
        return self._room

    def filled(self, count: int) -> None:
        assert self._room is not None
        self.received(bytes(self._room[:count]))

    def closed(self, error: OSError | ClientError | None) -> None:
        self.end.append(error)


class Wire:
    """A transport whose other end is a peer in memory; answers come in chunks of a size."""

    def __init__(self, peer: TlsPeer, chunk: int = 1 << 20) -> None:
        self.peer = peer
        self.chunk = chunk
        self.answers = bytearray()
        self.is_closed = False

    def write(self, pieces: Sequence[Buffer], on_sent: Callable[[], None] | None = None) -> None:
        assert not self.is_closed
        self.answers += self.peer.feed(b"".join(pieces))
        if on_sent is not None:
            on_sent()

    def close(self) -> None:
        self.is_closed = True

    def deliver(self, transport: TlsTransport) -> None:
        """Hand over what the peer has answered."""
        while self.answers and not self.is_closed:
            room = transport.room
            assert room is not None
            count = min(self.chunk, len(room), len(self.answers))
            room[:count] = self.answers[:count]
            del self.answers[:count]
            transport.filled(count)


def connect(context: ssl.SSLContext, wire: Wire, owner: Owner, host: str = HOST) -> TlsTransport:
    transport = TlsTransport(context, host, owner).over(wire)
    transport.connected()
    wire.deliver(transport)
    return transport


@pytest.mark.parametrize("chunk", [1, 7, 1000, 16_400, 1 << 20])
@pytest.mark.parametrize("room", [None, 5, 100_000])
def test_bytes_arrive_whole_in_whatever_pieces_they_come(
    authority: Authority, listener: ssl.SSLContext, chunk: int, room: int | None
) -> None:
    owner, wire = Owner(room), Wire(TlsPeer(listener), chunk)
    transport = connect(trusting(authority), wire, owner)
    assert owner.is_connected
    sent: list[bool] = []
    request = [b"head", b"x" * 3, memoryview(b"y" * 70_000), b"tail"]
    transport.write(request, lambda: sent.append(True))
    assert wire.peer.received == b"".join(request)
    assert sent == [True]
    size = 3_000 if chunk == 1 or room == 5 else 100_000
    answer = bytes(range(256)) * (size // 256)
    wire.answers += wire.peer.send(answer[:10]) + wire.peer.send(answer[10:])
    wire.deliver(transport)
    assert owner.data == answer
    assert owner.end == []


def test_closing_says_that_nothing_follows(authority: Authority, listener: ssl.SSLContext) -> None:
    owner, wire = Owner(), Wire(TlsPeer(listener))
    connect(trusting(authority), wire, owner).close()
    assert wire.is_closed
    assert wire.peer.has_ended
    assert owner.end == []


def test_the_peers_end_is_reported_once(authority: Authority, listener: ssl.SSLContext) -> None:
    owner, wire = Owner(), Wire(TlsPeer(listener))
    transport = connect(trusting(authority), wire, owner)
    transport.closed(None)
    transport.closed(None)
    assert owner.end == [None]


def test_an_owner_that_closes_while_it_reads_hears_no_more(
    authority: Authority, listener: ssl.SSLContext
) -> None:
    owner, wire = Owner(10), Wire(TlsPeer(listener))
    transport = connect(trusting(authority), wire, owner)
    owner.on_data = transport.close
    wire.answers += wire.peer.send(b"z" * 100)
    wire.deliver(transport)
    assert owner.data == b"z" * 10
    assert wire.is_closed


def refusals(authority: Authority) -> Iterator[tuple[str, ssl.SSLContext, ssl.SSLContext, str]]:
    other = Authority(authority.directory, "another authority")
    good = server_context(*authority.issue("good", [HOST]))
    yield "host name", good, trusting(authority), "is not for other.example"
    yield "authority", good, trusting(other), "not signed by a trusted authority"
    old = authority.issue("old", ["other.example"], age=timedelta(9), life=timedelta(2))
    yield "expired", server_context(*old), trusting(authority), "has expired"
    old_only = ssl.create_default_context(cafile=authority.path)
    old_only.maximum_version = ssl.TLSVersion.TLSv1_2
    new_only = server_context(*authority.issue("new", ["other.example"]))
    new_only.minimum_version = ssl.TLSVersion.TLSv1_3
    yield "version", new_only, old_only, "no TLS version that ssl.enabled.protocols allows"


def test_a_handshake_that_fails_says_why(authority: Authority) -> None:
    for about, listener, context, words in refusals(authority):
        owner, wire = Owner(), Wire(TlsPeer(listener))
        connect(context, wire, owner, "other.example")
        (error,) = owner.end
        assert isinstance(error, TlsError), about
        assert words in str(error), about
        assert wire.is_closed, about
        assert not owner.is_connected, about


def test_without_identification_any_name_will_do(
    authority: Authority, listener: ssl.SSLContext
) -> None:
    context = trusting(authority)
    context.check_hostname = False
    owner = Owner()
    connect(context, Wire(TlsPeer(listener)), owner, "other.example")
    assert owner.is_connected


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_listener_that_wants_a_certificate_is_named(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    certificate, key = authority.issue("asks", [HOST])
    listener = server_context(certificate, key, authority=authority.path)
    context = trusting(authority)
    context.minimum_version = context.maximum_version = version
    owner = Owner()
    connect(context, Wire(TlsPeer(listener)), owner)
    (error,) = owner.end
    assert isinstance(error, TlsError)
    assert "ssl.keystore.location" in str(error)
    context.load_cert_chain(*authority.issue("ann"))
    welcome = Owner()
    connect(context, Wire(TlsPeer(listener)), welcome)
    assert welcome.is_connected
    assert welcome.end == []


def test_a_peer_without_tls_is_told_apart(authority: Authority) -> None:
    owner = Owner()
    transport = TlsTransport(trusting(authority), HOST, owner).over(Wire(mute_peer()))
    transport.connected()
    transport.received(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    (error,) = owner.end
    assert isinstance(error, TlsError)
    assert "does not speak TLS" in str(error)


def test_an_end_during_the_handshake_may_pass(authority: Authority) -> None:
    owner = Owner()
    transport = TlsTransport(trusting(authority), HOST, owner).over(Wire(mute_peer()))
    transport.connected()
    transport.closed(None)
    (error,) = owner.end
    assert isinstance(error, ConnectionFailedError)
    assert "during the TLS handshake; its listener may have no TLS" in str(error)


def mute_peer() -> TlsPeer:
    """A peer that never answers."""
    peer = TlsPeer(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    peer.feed = lambda data: b""  # type: ignore[method-assign]
    return peer
