"""What a peer may make the broker hold, and do, before its TLS handshake is done."""

from __future__ import annotations

import gc
import logging
import socket
import struct
import weakref
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.unit.net.test_half_open import Place, is_closed

from millstream.net import tls_handshake
from millstream.net.half_open import HalfOpen, address_group
from millstream.net.peer_authentication import _HalfOpen
from millstream.net.tls_handshake import MAX_RECEIVED_BYTES, RECEIVED_BYTES

RECORD_BYTES = 16_000


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def endless_hello(size: int) -> Iterator[bytes]:
    """Yield the records of a ClientHello that announces 128 KiB, so OpenSSL waits for all of it."""
    announced = b"\x01" + (131_000).to_bytes(3, "big") + b"\x03\x03" + bytes(32)
    left = announced + bytes(size - len(announced))
    while left:
        piece, left = left[:RECORD_BYTES], left[RECORD_BYTES:]
        yield b"\x16\x03\x01" + struct.pack(">H", len(piece)) + piece


def half_open_of(place: Place) -> list[_HalfOpen]:
    authentication = place.listener._authentication
    assert authentication is not None
    return list(authentication.half_open.values())


def feed(place: Place, sock: socket.socket, data: bytes) -> None:
    """Send all of it, while the broker reads."""
    view = memoryview(data)
    while view:
        try:
            view = view[sock.send(view) :]
        except BlockingIOError:
            place.loop.turn()
        except OSError:  # it has been closed
            return
    place.loop.turn()


def test_a_handshake_that_is_longer_than_any_is_closed(
    stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(stack, "SSL")
    sock = place.connect()
    with caplog.at_level(logging.INFO):
        for record in endless_hello(MAX_RECEIVED_BYTES - 1_000):
            feed(place, sock, record)
        assert not is_closed(sock)
        feed(place, sock, b"\x16\x03\x01\x10\x00" + bytes(4_096))
    assert is_closed(sock)
    (line,) = caplog.records
    assert "the TLS handshake failed: it is longer than any" in line.message
    assert place.quotas.connection_count == len(place.half_open) == 0


def test_little_is_received_at_once(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory between the socket and OpenSSL keeps the size of what was once put into it."""
    place = Place(stack, "SSL")
    sock = place.connect()
    written: list[int] = []
    handshake = half_open_of(place)[0].handshake
    assert handshake is not None
    incoming = handshake._incoming

    class Counted:
        def write(self, data: memoryview) -> int:
            written.append(len(data))
            return incoming.write(data)

    monkeypatch.setattr(handshake, "_incoming", Counted())
    monkeypatch.setattr(handshake, "_step", lambda: None)
    for record in endless_hello(60_000):
        sock.send(record)
    place.loop.turn(10)
    assert sum(written) >= 60_000
    assert max(written) <= RECEIVED_BYTES


def test_a_peer_that_does_not_read_what_it_is_told_is_closed(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_handshake, "MAX_UNSENT_BYTES", 100)
    place = Place(stack, "SSL")
    sock = place.connect()
    with caplog.at_level(logging.INFO):
        place.hello(sock)
    assert "the peer reads nothing" in caplog.text
    assert place.quotas.connection_count == 0


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("::1", "::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("a:b", "a:b"),
    ],
)
def test_an_address_counts_with_those_that_its_owner_has_too(address: str, group: str) -> None:
    assert address_group(address) == group


def test_addresses_of_one_subscriber_share_a_limit() -> None:
    half_open = HalfOpen(limit=10, limit_per_address=2)
    gone: list[int] = []
    for number, host in enumerate(["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]):
        half_open.add(number, host, lambda number=number: gone.append(number))
    assert not gone
    half_open.add(3, "2001:db8::3", lambda: gone.append(3))
    assert gone == [0]
    for number in range(4):
        half_open.remove(number)
    assert len(half_open) == 0
    half_open.add(4, "2001:db8::9", lambda: gone.append(4))
    half_open.add(5, "2001:db8::9", lambda: gone.append(5))
    assert gone == [0]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("how", ["it goes", "it gives way"])
def test_a_peer_that_is_gone_leaves_nothing_to_the_garbage_collector(
    stack: ExitStack, no_collector: None, protocol: str, how: str
) -> None:
    """A broker collects garbage seldom: thousands of peers would leave hundreds of MiB behind."""
    place = Place(stack, protocol, limit=1)
    sock = place.connect() if protocol == "SASL_PLAINTEXT" else place.secure()
    half = place.connect()  # in its handshake, and before it the first one has given way
    kept: list[weakref.ref[object]] = []
    for each in half_open_of(place):
        kept += [weakref.ref(part) for part in (each.handshake, each.connection) if part]
    kept += [weakref.ref(connection) for connection in place.listener._connections]
    assert kept
    if how == "it goes":
        half.close()
        sock.close()
    else:
        place.connect()
        sock.close()
    place.loop.turn()
    assert [each() for each in kept] == [None] * len(kept)
