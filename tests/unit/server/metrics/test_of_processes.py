"""What watches the processes of one machine: no peer ends it, whatever it sends."""

from __future__ import annotations

import selectors
import socket

import pytest

from millstream.server.metrics.of_processes import ProcessWatcher


def ask(data: bytes) -> bytes:
    """Send bytes to a watcher of no processes; return what it answers before it closes."""
    with selectors.DefaultSelector() as selector:
        watcher = ProcessWatcher("127.0.0.1", 0, selector, [])
        try:
            with socket.create_connection(("127.0.0.1", watcher.port), timeout=20) as peer:
                peer.sendall(data)
                for _ in range(2):  # it is accepted, then read
                    for key, _ in selector.select(20):
                        key.data()
                return peer.recv(4096)
        finally:
            watcher.close()


def test_health_is_answered() -> None:
    assert ask(b"GET /health/ready HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\nready\n")
    assert ask(b"GET /nothing?a=b HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 404 ")
    assert ask(b"HEAD /health/live HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "line", [b"", b"GET", b"GET /metrics", b"\xff\xfe\0", b"  ", b"PUT / HTTP/1.1"]
)
def test_what_is_no_request_is_refused(line: bytes) -> None:
    assert ask(line + b"\r\n\r\n").startswith(b"HTTP/1.1 40")
