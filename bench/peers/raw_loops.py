"""The raw limits of a machine: a loop that only receives and writes, one that only sends a file.

They answer the same requests as a broker, but know no protocol: a frame in, the same answer out.
One process, one epoll loop, as few system calls as there can be. Run as
``python -m bench.peers.raw_loops receive FILE ANSWER`` or ``… send FILE HEAD BODY_BYTES``, where
ANSWER and HEAD are hexadecimal; the first line on standard output is ``listening on HOST:PORT``.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from typing import Protocol

BUFFER_BYTES = 1 << 20


class Frames:
    """Counts whole frames in a stream of size-prefixed ones without keeping their bytes."""

    def __init__(self) -> None:
        self._left = 0
        self._prefix = b""

    def count(self, data: memoryview) -> int:
        """Take the next bytes of the stream and return how many frames they complete."""
        at, end, whole = 0, len(data), 0
        while at < end:
            if self._left:
                step = min(self._left, end - at)
                self._left -= step
                at += step
                whole += self._left == 0
            else:
                missing = 4 - len(self._prefix)
                self._prefix += data[at : at + missing]
                at += missing
                if len(self._prefix) == 4:
                    self._left = int.from_bytes(self._prefix, "big")
                    self._prefix = b""
        return whole


class Peer(Protocol):
    """What one connection does when its socket is ready."""

    def on_readable(self) -> bool:
        """Return False when the other side has closed."""

    def on_writable(self) -> bool:
        """Return False when nothing is left to send."""


class Receiver:
    """Writes what arrives to a file, and answers each frame."""

    def __init__(self, connection: socket.socket, file: int, answer: bytes) -> None:
        self._socket = connection
        self._file = file
        self._answer = answer
        self._frames = Frames()
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def on_readable(self) -> bool:
        size = self._socket.recv_into(self._buffer)
        if size == 0:
            return False
        data = self._buffer[:size]
        os.write(self._file, data)
        whole = self._frames.count(data)
        if whole:
            self._socket.send(self._answer * whole)
        return True

    def on_writable(self) -> bool:
        return False


class Sender:
    """Answers each frame with a head and `body_bytes` of a file, by sendfile."""

    def __init__(
        self, connection: socket.socket, file: int, *, head: bytes, body_bytes: int
    ) -> None:
        self._socket = connection
        self._file = file
        self._file_bytes = os.fstat(file).st_size
        self._head = head
        self._body_bytes = body_bytes
        self._frames = Frames()
        self._buffer = memoryview(bytearray(4096))
        self._due = 0
        self._head_sent = False
        self._body_sent = 0
        self._position = 0

    def on_readable(self) -> bool:
        size = self._socket.recv_into(self._buffer)
        if size == 0:
            return False
        self._due += self._frames.count(self._buffer[:size])
        return True

    def on_writable(self) -> bool:
        try:
            while self._due:
                self._send_one()
        except BlockingIOError:
            return True
        return False

    def _send_one(self) -> None:
        if not self._head_sent:
            # A head is far smaller than a socket's buffer: it goes out whole or not at all.
            self._socket.send(self._head, socket.MSG_MORE)
            self._head_sent = True
        while self._body_sent < self._body_bytes:
            left = self._body_bytes - self._body_sent
            at = self._position + self._body_sent
            self._body_sent += os.sendfile(self._socket.fileno(), self._file, at, left)
        self._position += self._body_bytes
        if self._position + self._body_bytes > self._file_bytes:
            self._position = 0
        self._head_sent, self._body_sent = False, 0
        self._due -= 1


class Server:
    """Accepts connections and serves them from one loop until it is killed."""

    def __init__(self, arguments: list[str]) -> None:
        self._receives = arguments[0] == "receive"
        self._answer = bytes.fromhex(arguments[2])
        self._body_bytes = 0 if self._receives else int(arguments[3])
        flags = os.O_RDWR | os.O_CREAT if self._receives else os.O_RDONLY
        self._file = os.open(arguments[1], flags, 0o644)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._peers: dict[int, tuple[socket.socket, Peer]] = {}
        self._poll = select.epoll()
        self._poll.register(self._listener.fileno(), select.EPOLLIN)

    def run(self) -> None:
        host, port = self._listener.getsockname()
        print(f"listening on {host}:{port}", flush=True)
        while True:
            for descriptor, events in self._poll.poll():
                if descriptor == self._listener.fileno():
                    self._accept()
                else:
                    self._serve(descriptor, events)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        if self._receives and not self._peers:
            # A run begins: the file holds what one run sends, never more.
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
        peer: Peer
        if self._receives:
            peer = Receiver(connection, self._file, self._answer)
        else:
            peer = Sender(connection, self._file, head=self._answer, body_bytes=self._body_bytes)
        self._peers[connection.fileno()] = (connection, peer)
        self._poll.register(connection.fileno(), select.EPOLLIN)

    def _serve(self, descriptor: int, events: int) -> None:
        connection, peer = self._peers[descriptor]
        try:
            alive = not events & ~select.EPOLLOUT or peer.on_readable()
            blocked = alive and peer.on_writable()
        except ConnectionError:
            alive = blocked = False
        if not alive:
            self._poll.unregister(descriptor)
            connection.close()
            del self._peers[descriptor]
        elif blocked or events & select.EPOLLOUT:
            self._poll.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if blocked else 0))


if __name__ == "__main__":
    Server(sys.argv[1:]).run()
