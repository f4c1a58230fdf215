"""The HTTP server for machines that watch a broker, and peers that do not read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from tests.descriptors import open_descriptors

from millstream.net import http_server
from millstream.net.http_server import HttpAnswer, HttpServer, text_answer


async def respond(path: str) -> HttpAnswer:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(int(path.strip("/"))):
            yield bytes(40_000)

    return text_answer(404, "no") if path == "/no" else HttpAnswer(200, "text/plain", pieces())


async def ask(port: int, head: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    found = await reader.read()
    writer.close()
    return found


def test_a_request_is_answered_and_the_connection_closed() -> None:
    async def scenario() -> None:
        server = HttpServer(asyncio.get_running_loop(), "127.0.0.1", 0, respond)
        head, _, body = (await ask(server.port, b"GET /3 HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Transfer-Encoding: chunked" in head
        assert body.count(b"9c40\r\n" + bytes(40_000) + b"\r\n") == 3
        assert body.endswith(b"0\r\n\r\n")
        plain = await ask(server.port, b"GET /2 HTTP/1.0\r\n\r\n")
        assert plain.endswith(b"\r\n\r\n" + bytes(80_000))
        assert b"404" in (await ask(server.port, b"HEAD /no HTTP/1.1\r\n\r\n")).split(b"\r\n")[0]
        assert b"405" in (await ask(server.port, b"POST /no HTTP/1.1\r\n\r\n")).split(b"\r\n")[0]
        assert b"400" in (await ask(server.port, b"nonsense\r\n\r\n")).split(b"\r\n")[0]
        server.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("pieces", [1, 2, 1000])
def test_a_peer_that_reads_nothing_keeps_no_connection(
    monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    """Whoever is let go with something still to be sent to him is let go all the same: else each
    would keep a descriptor for as long as he likes.
    """

    async def scenario() -> None:
        asked = asyncio.Event()

        async def noted(path: str) -> HttpAnswer:
            monkeypatch.setattr(http_server, "TIMEOUT_S", 0.1)  # of what it is given to read
            asked.set()
            return await respond(path)

        server = HttpServer(asyncio.get_running_loop(), "127.0.0.1", 0, noted)
        await ask(server.port, b"HEAD /1 HTTP/1.1\r\n\r\n")
        monkeypatch.undo()
        await asyncio.sleep(0.05)
        before = len(open_descriptors())
        asked.clear()
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            peer.connect(("127.0.0.1", server.port))
            peer.sendall(b"GET /%d HTTP/1.1\r\n\r\n" % pieces)
            await asked.wait()
            while server._tasks:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            assert len(open_descriptors()) <= before + 1, "the peer's own, and no other"
        server.close()

    asyncio.run(scenario())


def test_a_peer_that_reads_slowly_keeps_its_connection_for_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sixteen of them would keep out whoever asks whether the broker is well."""
    monkeypatch.setattr(http_server, "CONNECTION_S", 0.2)

    async def endless(path: str) -> HttpAnswer:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(0.01)
                yield b"piece"

        return HttpAnswer(200, "text/plain", pieces())

    async def scenario() -> None:
        server = HttpServer(asyncio.get_running_loop(), "127.0.0.1", 0, endless)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with suppress(ConnectionResetError):
            assert not (await reader.read()).endswith(b"0\r\n\r\n"), "it is not whole"
        writer.close()
        server.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))
