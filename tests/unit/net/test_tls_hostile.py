"""A client that makes the broker compute once its handshake is done: it ends, or is served."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from tests.tls_hostile import hostile
from tests.unit.net.test_connection import FETCH, frame, turn
from tests.unit.net.test_transport import Pair, echo

from millstream.net import transport as transport_module

KEY_UPDATE_BYTES = 27


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def ask(pair: Pair, text: bytes) -> bytes:
    """Send a request, and return what is answered."""
    pair.wire.send(pair.say(frame(FETCH, text)))
    turn(pair.loop)
    pair.take()
    return pair.client.read(100)


def test_who_changes_keys_now_and_then_is_served(stack: ExitStack) -> None:
    pair = Pair(stack)
    pair.shake()
    pair.serve(echo)
    client = hostile(pair.client)
    for number in range(50):
        client.ask_for_new_keys()
        assert ask(pair, b"%d" % number).endswith(b"%d" % number)


def test_a_flood_of_key_updates_is_closed(
    stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Pair(stack)
    transport = pair.shake()
    _, closed = pair.serve(echo)
    client = hostile(pair.client)
    sent = 0
    with caplog.at_level(logging.INFO):
        while not closed:
            for _ in range(200):
                client.ask_for_new_keys()
            with suppress(OSError):
                sent += pair.wire.send(pair.outgoing.read())
            turn(pair.loop)
            assert sent < 2 * transport_module._MAX_BARREN_BYTES, "it goes on for ever"
            # What it is answered with is bounded too, though it reads nothing.
            assert transport.pending_bytes + len(transport._outgoing.read()) < 200_000
    assert sent > transport_module._MAX_BARREN_BYTES
    assert "TLS: the peer sends records without content" in caplog.text


def test_another_handshake_is_refused_and_costs_nothing(stack: ExitStack) -> None:
    pair = Pair(stack, version=ssl.TLSVersion.TLSv1_2)
    context = pair.client.context
    context.options &= ~ssl.OP_NO_RENEGOTIATION
    pair.client = context.wrap_bio(pair.incoming, pair.outgoing, server_hostname="localhost")
    pair.shake()
    _, closed = pair.serve(echo)
    assert ask(pair, b"before").endswith(b"before")
    hostile(pair.client).ask_for_another_handshake()
    pair.move()
    with pytest.raises(ssl.SSLError, match="NO_RENEGOTIATION"):
        pair.client.read(100)
    assert not closed
    pair.wire.close()
    turn(pair.loop)
    assert len(closed) == 1


def test_garbage_at_a_third_of_the_bytes_of_the_end_of_a_handshake(stack: ExitStack) -> None:
    """Every byte of the ClientHello: ``tests/system/test_before_authentication``."""
    at, size = 0, 1
    while at < size:
        pair = Pair(stack, version=ssl.TLSVersion.TLSv1_3)
        with suppress(ssl.SSLWantReadError):
            pair.client.do_handshake()
        pair.move()
        pair.client.do_handshake()
        said = bytearray(pair.outgoing.read())
        size = len(said)
        said[at] ^= 0xFF
        pair.wire.send(said)
        turn(pair.loop)
        pair.wire.close()
        turn(pair.loop)
        # A change of the version in a record's head is not looked at in TLS 1.3.
        assert len(pair.failures) == 1 or pair.transport is not None
        if pair.transport is not None:
            served: list[bytes] = []
            _, closed = pair.serve(lambda view: served.append(bytes(view)))  # noqa: B023
            turn(pair.loop)
            assert len(closed) == 1
            assert not served
        at += 3
