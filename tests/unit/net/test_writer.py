"""Answers onto a socket: every byte once and in order, however little the socket takes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from millstream.net.writer import SocketWriter
from millstream.protocol.outgoing import Records


class Slice:
    """A payload that lies in a file."""

    def __init__(self, file: IO[bytes], position: int, size: int) -> None:
        self._file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        self._file.seek(self.position)
        return self._file.read(self.size)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def file(tmp_path: Path) -> Iterator[IO[bytes]]:
    with (tmp_path / "file").open("w+b", buffering=0) as opened:
        opened.write(bytes(range(256)) * 1024)
        yield opened


def drained(writer: SocketWriter, peer: socket.socket, done: bool) -> bytes:
    got = bytearray()
    for _ in range(10_000):
        try:
            got += peer.recv(3000)
        except BlockingIOError:
            if done:
                return bytes(got)
        done = writer.flush()
    raise AssertionError("the writer does not come to an end")


def test_bytes_and_slices_arrive_in_order(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes]
) -> None:
    writer = SocketWriter(pair[0])
    chunks: list[Records] = [
        b"head",
        Slice(file, 100, 200_000),
        bytearray(b"between"),
        memoryview(b"two"),
        Slice(file, 0, 1),
        Slice(file, 5000, 0),
        b"",
        b"tail" * 10_000,
    ]
    data = bytes(range(256)) * 1024
    done = writer.send(chunks)
    assert not done
    assert drained(writer, pair[1], done) == (
        b"head" + data[100:200_100] + b"between" + b"two" + data[:1] + b"tail" * 10_000
    )
    assert writer.pending_bytes == 0


def test_more_pieces_than_one_call_takes(pair: tuple[socket.socket, socket.socket]) -> None:
    writer = SocketWriter(pair[0])
    chunks: list[Records] = [b"%05d" % n * 50 for n in range(300)]
    whole = b"".join(b"%05d" % n * 50 for n in range(300))
    assert drained(writer, pair[1], writer.send(chunks)) == whole


def test_an_answer_given_while_another_is_kept_follows_it(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    writer = SocketWriter(pair[0])
    assert not writer.send([b"a" * 100_000])
    assert not writer.send([b"b"])
    assert not writer.send([b"c", b"d"])
    assert drained(writer, pair[1], False) == b"a" * 100_000 + b"bcd"


def test_what_is_kept_is_counted_as_memory_unless_it_lies_in_a_file(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes]
) -> None:
    writer = SocketWriter(pair[0])
    writer.send([Slice(file, 0, 200_000)])
    assert writer.pending_bytes == 0
    writer.send([b"x" * 1000, Slice(file, 0, 1000)])
    assert writer.pending_bytes == 1000
    drained(writer, pair[1], False)
    assert writer.pending_bytes == 0


def test_a_file_that_is_too_short_breaks_the_connection(
    pair: tuple[socket.socket, socket.socket], file: IO[bytes]
) -> None:
    """Better than an answer whose bytes are not those that it announced."""
    writer = SocketWriter(pair[0])
    file.truncate(10)
    with pytest.raises(ConnectionResetError):
        writer.send([b"head", Slice(file, 20, 100)])


def test_a_peer_that_has_gone_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    writer = SocketWriter(pair[0])
    pair[1].close()
    with pytest.raises(OSError, match="Broken pipe"):
        writer.send([b"x"])
