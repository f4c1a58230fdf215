"""Answers onto a socket, in order: bytes by sendmsg, file slices by sendfile.

Records leave a broker as references to a file (``protocol.outgoing.Payload``): the kernel moves
them from the page cache to the socket and Python never sees them. Bytes in front of a slice are
sent with the flag `MORE`, so that header and records share packets. Encrypted sockets are in
``net.transport``.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable
from typing import Final

from millstream.platform import MORE, send_file, send_pieces
from millstream.protocol.outgoing import Payload, Records

_BYTES = (bytes, bytearray, memoryview)
_MAX_VECTOR = 64
_JOINED_BYTES = 16 * 1024
_SENDFILE_STEP = 1 << 30
SHORT_FILE: Final = "a file ended before the slice that was promised from it"


class SocketWriter:
    """The outgoing half of one non-blocking socket."""

    __slots__ = ("_chunks", "_fd", "_offset", "_socket", "pending_bytes")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._chunks: deque[Records] = deque()
        self._offset = 0
        self.pending_bytes = 0
        """Memory that what is kept takes: slices of files take none."""

    def send(self, chunks: list[Records]) -> bool:
        """Send what the socket takes now and keep the rest; True when nothing is left.

        OSError when the peer is gone.
        """
        if not self._chunks:
            alone = _as_one(chunks)
            if alone is not None:
                return self._send_alone(alone)
            return self._send_straight(chunks)
        self._enqueue(chunks)
        return self.flush()

    def flush(self) -> bool:
        """Send more of what is kept; True when nothing is left."""
        chunks = self._chunks
        try:
            while chunks:
                first = chunks[0]
                if isinstance(first, _BYTES):
                    self._send_vector()
                else:
                    self._send_slice(first)
        except (BlockingIOError, InterruptedError):
            return False
        return True

    def _send_alone(self, chunk: bytes | bytearray | memoryview) -> bool:
        """The common case, one small answer: no queue is touched when the socket takes it."""
        try:
            sent = self._socket.send(chunk)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent == len(chunk):
            return True
        self._enqueue((memoryview(chunk)[sent:],))
        return False

    def _send_straight(self, chunks: list[Records]) -> bool:
        """Send piece by piece as long as the socket takes each whole; queue what it does not.

        The answer to a fetch is a header and a slice, and mostly both go at once.
        """
        last = len(chunks) - 1
        for index, chunk in enumerate(chunks):
            size = len(chunk)
            try:
                if isinstance(chunk, _BYTES):
                    sent = self._socket.send(chunk, MORE if index < last else 0)
                else:
                    sent = send_file(self._fd, chunk.fileno(), chunk.position, size)
                    if sent == 0 < size:
                        raise ConnectionResetError(SHORT_FILE)
            except (BlockingIOError, InterruptedError):
                sent = 0
            if sent < size:
                self._enqueue(chunks[index:])
                self._offset = sent
                return False
        return True

    def _enqueue(self, chunks: Iterable[Records]) -> None:
        for chunk in chunks:
            if len(chunk):
                self._chunks.append(chunk)
                self.pending_bytes += _memory_of(chunk)

    def _send_vector(self) -> None:
        vector: list[bytes | bytearray | memoryview] = []
        more = 0
        for chunk in self._chunks:
            if not isinstance(chunk, _BYTES):
                more = MORE
                break
            vector.append(chunk)
            if len(vector) == _MAX_VECTOR:
                break
        if self._offset:
            vector[0] = memoryview(vector[0])[self._offset :]
        self._advance(send_pieces(self._socket, vector, more))

    def _send_slice(self, piece: Payload) -> None:
        remaining = len(piece) - self._offset
        sent = send_file(
            self._fd,
            piece.fileno(),
            piece.position + self._offset,
            min(remaining, _SENDFILE_STEP),
        )
        if sent == 0:
            raise ConnectionResetError(SHORT_FILE)
        self._advance(sent)

    def _advance(self, sent: int) -> None:
        sent += self._offset
        chunks = self._chunks
        while chunks:
            size = len(chunks[0])
            if sent < size:
                break
            sent -= size
            self.pending_bytes -= _memory_of(chunks.popleft())
        self._offset = sent


def _memory_of(chunk: Records) -> int:
    """Return how many bytes of memory a chunk keeps."""
    return len(chunk) if isinstance(chunk, _BYTES) else 0


def _as_one(chunks: list[Records]) -> bytes | bytearray | memoryview | None:
    """Return the chunks as one buffer, where they are in memory and copying them costs little.

    The answers to a handful of pipelined requests go out by one plain ``send`` so, which is cheaper
    than a gathered one.
    """
    if len(chunks) == 1:
        only = chunks[0]
        return only if isinstance(only, _BYTES) else None
    size = 0
    for chunk in chunks:
        if not isinstance(chunk, _BYTES):
            return None
        size += len(chunk)
        if size > _JOINED_BYTES:
            return None
    return b"".join(chunks)  # type: ignore[arg-type]  # nothing but buffers is left
