"""A client's TLS against what no server sends: cut, changed, repeated and foreign bytes."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.tls_authority import Authority
from tests.tls_peer import TlsPeer, server_context

from millstream.client.core.tls import TlsTransport
from millstream.client.errors import ClientError
from millstream.records.crc32c import Buffer

HOST = "broker.example"


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    listener = server_context(*authority.issue("broker", [HOST]))
    return ssl.create_default_context(cafile=authority.path), listener


class Owner:
    def __init__(self) -> None:
        self.data = bytearray()
        self.ends = 0

    def connected(self) -> None:
        pass

    def received(self, data: Buffer) -> None:
        assert not self.ends
        self.data += data

    @property
    def room(self) -> memoryview | None:
        return None

    def filled(self, count: int) -> None:
        raise AssertionError("there is no room")

    def closed(self, error: OSError | ClientError | None) -> None:
        self.ends += 1


class Wire:
    def __init__(self, peer: TlsPeer) -> None:
        self.peer = peer
        self.answers = bytearray()
        self.is_closed = False

    def write(self, pieces: Sequence[Buffer], on_sent: Callable[[], None] | None = None) -> None:
        assert not self.is_closed
        self.answers += self.peer.feed(b"".join(pieces))

    def close(self) -> None:
        self.is_closed = True


@settings(max_examples=examples(150), deadline=None)
@given(
    at=st.integers(0, 4000),
    change=st.sampled_from(["cut", "flip", "repeat", "insert"]),
    foreign=st.binary(min_size=1, max_size=64),
    in_handshake=st.booleans(),
)
def test_changed_bytes_end_the_connection_and_bring_no_data(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    at: int,
    change: str,
    foreign: bytes,
    in_handshake: bool,
) -> None:
    owner, wire = Owner(), Wire(TlsPeer(contexts[1]))
    transport = TlsTransport(contexts[0], HOST, owner).over(wire)
    transport.connected()
    sent = b"an answer of a broker" * 50
    if not in_handshake:
        deliver(transport, wire)
        wire.answers += wire.peer.send(sent)
    data = bytes(wire.answers)
    wire.answers.clear()
    at %= len(data)
    changed = {
        "cut": data[:at],
        "flip": data[:at] + bytes([data[at] ^ (foreign[0] or 1)]) + data[at + 1 :],
        "repeat": data[: at + 1] + data,
        "insert": data[:at] + foreign + data[at:],
    }[change]
    feed(transport, wire, changed)
    if not in_handshake and change == "insert" and at == 0 and not owner.ends:
        feed(transport, wire, b"\0" * 20_000)
    transport.closed(None)
    assert owner.ends == 1
    assert sent.startswith(bytes(owner.data)) or owner.data == sent
    transport.close()


def deliver(transport: TlsTransport, wire: Wire) -> None:
    while wire.answers:
        data = bytes(wire.answers)
        wire.answers.clear()
        feed(transport, wire, data)


def feed(transport: TlsTransport, wire: Wire, data: bytes) -> None:
    for begin in range(0, len(data), 700):
        if not wire.is_closed:
            transport.received(data[begin : begin + 700])
