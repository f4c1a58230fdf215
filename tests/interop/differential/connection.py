"""A blocking connection that sends exactly the bytes it is told to."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Final

TIMEOUT_S: Final = 60.0


class ConnectionClosedError(Exception):
    """The broker closed the connection where an answer was due."""


class RawConnection:
    """One TCP connection, with TLS where a context is given: frames out, frames in."""

    def __init__(
        self, bootstrap: str, timeout_s: float = TIMEOUT_S, tls: ssl.SSLContext | None = None
    ) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._next_correlation_id = 1

    def next_correlation_id(self) -> int:
        """Return a number not used before on this connection."""
        self._next_correlation_id += 1
        return self._next_correlation_id

    def send_frame(self, payload: bytes) -> None:
        """Send ``payload`` behind its length."""
        self.send_bytes(struct.pack(">i", len(payload)) + payload)

    def send_bytes(self, data: bytes) -> None:
        """Send ``data`` as it is."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError) as error:
            raise ConnectionClosedError from error

    def receive_frame(self, *, within_s: float = TIMEOUT_S) -> bytes:
        """Return the next answer without its length; ConnectionClosedError when none comes,
        TimeoutError when it takes longer.
        """
        self._socket.settimeout(within_s)
        (length,) = struct.unpack(">i", self._receive(4))
        return self._receive(length)

    def _receive(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._socket.recv(count - len(parts))
            except (ConnectionResetError, ssl.SSLError) as error:
                raise ConnectionClosedError from error
            if not part:
                raise ConnectionClosedError
            parts += part
        return bytes(parts)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
