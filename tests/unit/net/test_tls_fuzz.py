"""Handshakes and records with wrong bytes anywhere: they end, and never become a request."""

from __future__ import annotations

import random
import ssl
from contextlib import ExitStack

import pytest
from tests.unit.net.test_connection import FETCH, frame, turn
from tests.unit.net.test_transport import Pair, echo

SEEDS = range(60)


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Flip, drop, repeat, insert or cut something."""
    at = chance.randrange(len(data))
    match chance.randrange(5):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at] + data[at + chance.randrange(1, 20) :]
        case 2:
            return data[:at] + data[max(0, at - 30) :]
        case 3:
            return data[:at] + chance.randbytes(chance.randrange(1, 40)) + data[at:]
        case _:
            return data[:at]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_handshake_fails_or_goes_on_and_ends(seed: int) -> None:
    chance = random.Random(seed)
    wrong = chance.randrange(2)
    with ExitStack() as stack:
        version = chance.choice([ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
        pair = Pair(stack, version=version)
        for flight in range(3):
            try:
                pair.client.do_handshake()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                break
            said = pair.outgoing.read()
            if said and flight == wrong:
                said = damaged(chance, said)
            try:
                pair.wire.send(said)
            except OSError:
                break
            turn(pair.loop)
            if pair.failures:
                break
            pair.take()
        pair.wire.close()
        turn(pair.loop)
        # A server may be done where a client is not: then the connection finds the end.
        assert len(pair.failures) == 1 or pair.transport is not None
        if pair.transport is not None:
            _, closed = pair.serve(echo)
            turn(pair.loop)
            assert len(closed) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_records_never_become_requests(seed: int) -> None:
    chance = random.Random(seed)
    with ExitStack() as stack:
        pair = Pair(stack)
        pair.shake()
        seen: list[bytes] = []

        def serve(view: memoryview) -> None:
            seen.append(bytes(view[2:]))

        _, closed = pair.serve(serve)
        bodies = [chance.randbytes(chance.randrange(1, 3000)) for _ in range(5)]
        sealed = b"".join(pair.say(frame(FETCH, body)) for body in bodies)
        pair.wire.send(damaged(chance, sealed))
        turn(pair.loop, 20)
        pair.wire.close()
        turn(pair.loop)
        assert seen == bodies[: len(seen)]
        assert len(seen) < len(bodies)
        assert len(closed) == 1
