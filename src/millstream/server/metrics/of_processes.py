"""Metrics of the process that runs a keeper and brokers: which of them run, and since when.

It has no event loop: what comes is answered from its own wait for output and signals. An answer is
a few lines, which a socket takes at once; a peer that sends nothing for ``PATIENCE_S`` is closed.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from prometheus_client.process_collector import ProcessCollector

from millstream.model.errors import ConfigError
from millstream.server.metrics import catalogue
from millstream.server.metrics.families import CONTENT_TYPE, Family, text_of, written
from millstream.server.supervisor import Child

PATIENCE_S: Final = 10.0
MAX_PEERS: Final = 16
_MAX_HEAD_BYTES: Final = 16 * 1024


class ProcessWatcher:
    """Serves `/metrics`, `/health/live` and `/health/ready` of all processes of one machine."""

    def __init__(
        self, host: str, port: int, selector: selectors.BaseSelector, children: Sequence[Child]
    ) -> None:
        self._selector = selector
        self._children = children
        self._process = ProcessCollector(registry=None)
        self._peers: dict[socket.socket, tuple[bytes, float]] = {}
        try:
            self._socket = socket.create_server((host, port))
        except OSError as error:
            raise ConfigError(
                f"metrics.port: cannot listen on {host or '*'}:{port}: {error.strerror}"
            ) from error
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Serve no more."""
        for peer in tuple(self._peers):
            self._drop(peer)
        self._selector.unregister(self._socket)
        self._socket.close()

    def _accept(self) -> None:
        now_s = time.monotonic()
        for peer, (_, since_s) in tuple(self._peers.items()):
            if now_s - since_s > PATIENCE_S or len(self._peers) >= MAX_PEERS:
                self._drop(peer)
        with suppress(OSError):
            peer, _ = self._socket.accept()
            peer.setblocking(False)
            self._peers[peer] = b"", now_s
            take: Callable[[], None] = partial(self._take, peer)
            self._selector.register(peer, selectors.EVENT_READ, take)

    def _drop(self, peer: socket.socket) -> None:
        del self._peers[peer]
        self._selector.unregister(peer)
        peer.close()

    def _take(self, peer: socket.socket) -> None:
        if peer not in self._peers:
            return
        head, since_s = self._peers[peer]
        try:
            piece = peer.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        head += piece
        if piece and b"\r\n\r\n" not in head and len(head) <= _MAX_HEAD_BYTES:
            self._peers[peer] = head, since_s
            return
        if b"\r\n\r\n" in head:
            with suppress(OSError):
                peer.send(self._answer(head))
        self._drop(peer)

    def _answer(self, head: bytes) -> bytes:
        status, kind, body = "200 OK", "text/plain; charset=utf-8", b"alive\n"
        down = [child.program.name for child in self._children if not child.is_ready]
        match _path_of(head):
            case None:
                status, body = "400 Bad Request", b"this is no GET or HEAD of HTTP/1.1\n"
            case "/metrics":
                kind, body = CONTENT_TYPE, self._text()
            case "/health/live":
                pass
            case "/health/ready" if down:
                status, body = "503 Service Unavailable", f"down: {', '.join(down)}\n".encode()
            case "/health/ready":
                body = b"ready\n"
            case _:
                status, body = "404 Not Found", b"there is no such path\n"
        answer = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return answer.encode() if head.startswith(b"HEAD ") else answer.encode() + body

    def _text(self) -> bytes:
        up, restarts = Family(catalogue.PROCESS_UP), Family(catalogue.PROCESS_RESTARTS)
        for child in self._children:
            up.add(child.is_ready, child.program.name)
            restarts.add(max(0, child.starts - 1), child.program.name)
        pieces = [*text_of(up), *text_of(restarts)]
        return b"".join(pieces) + b"".join(written(metric) for metric in self._process.collect())


def _path_of(head: bytes) -> str | None:
    """Return the path that a request asks for; None where it asks for none."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
        return None
    return words[1].split(b"?", 1)[0].decode("latin-1")
