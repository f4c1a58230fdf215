"""A small HTTP server for machines that watch this one: GET and HEAD of a few paths, no more.

Answers are written in pieces, between which the loop serves others; a peer that does not read a
piece, or does not finish its request, is closed after ``TIMEOUT_S``, and any peer after
``CONNECTION_S``: there are few connections, and whoever asks for health needs one. One request a
connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0
CONNECTION_S: Final = 60.0
MAX_CONNECTIONS: Final = 16
_MAX_HEAD_BYTES: Final = 16 * 1024
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A status, and the pieces of a body."""

    status: int
    content_type: str
    pieces: AsyncIterator[bytes]


def text_answer(status: int, text: str) -> HttpAnswer:
    """Return an answer of one line of plain text."""

    async def pieces() -> AsyncIterator[bytes]:
        yield f"{text}\n".encode()

    return HttpAnswer(status, "text/plain; charset=utf-8", pieces())


Respond = Callable[[str], Awaitable[HttpAnswer]]
"""Returns the answer to a path."""


class HttpServer:
    """Listens on one address from its construction on. OSError where that cannot be."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, host: str, port: int, respond: Respond
    ) -> None:
        self._loop = loop
        self._respond = respond
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket = _listening(host, port)
        self.port = int(self._socket.getsockname()[1])
        self._starting = loop.create_task(self._start())

    async def _start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, sock=self._socket, limit=_MAX_HEAD_BYTES
        )

    def close(self) -> None:
        """Close everything, answers on their way included."""
        self._starting.cancel()
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for task in tuple(self._tasks):
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        # What is written has left when it has been waited for: nothing is owed then to a peer that
        # does not read, for whom a connection would stay open after its end.
        writer.transport.set_write_buffer_limits(0)
        try:
            if len(self._tasks) <= MAX_CONNECTIONS:
                await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The peer has gone, reads nothing, or sends nothing that is a request.
            writer.transport.abort()
        except asyncio.CancelledError:  # the server is closed
            writer.transport.abort()
        except Exception:
            log.exception("a request for metrics or health failed")
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            with suppress(OSError, RuntimeError):
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends_s = self._loop.time() + CONNECTION_S
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            answer = text_answer(400, "this is no request of HTTP/1.1")
        elif words[0] not in (b"GET", b"HEAD"):
            answer = text_answer(405, "only GET and HEAD are served here")
        else:
            path = words[1].split(b"?", 1)[0].decode("latin-1")
            answer = await self._respond(path)
        is_chunked = words[-1] == b"HTTP/1.1"
        lines = [
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}",
            f"Content-Type: {answer.content_type}",
            "Cache-Control: no-store",
            "Connection: close",
        ]
        if is_chunked:
            lines.append("Transfer-Encoding: chunked")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        if words[0] != b"HEAD":
            async for piece in answer.pieces:
                if piece:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
                    left_s = ends_s - self._loop.time()
                    await asyncio.wait_for(writer.drain(), min(TIMEOUT_S, left_s))
            if is_chunked:
                writer.write(b"0\r\n\r\n")
        await asyncio.wait_for(writer.drain(), TIMEOUT_S)


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; an empty host is every address, of both families where the
    machine has both.
    """
    if not host:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("0.0.0.0", port))
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, port), family=family)
