"""One connection over a socket pair: order of answers, overtaking, back-pressure, hanging up."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from millstream.model.deferred import Deferred
from millstream.model.errors import ConnectionClosedError, ProtocolError
from millstream.net.connection import Connection, ConnectionPolicy, Served
from millstream.net.receive_budget import ReceiveBudget
from millstream.net.transport import PlainTransport
from millstream.protocol.framing import FrameReader
from millstream.protocol.outgoing import Outgoing

PRODUCE = 0
FETCH = 1
JOIN = 11


def frame(key: int, body: bytes) -> bytes:
    return struct.pack(">ih", 2 + len(body), key) + body


def outgoing(data: bytes) -> Outgoing:
    return Outgoing([data], len(data))


class FileRange:
    """A payload that lies in a file."""

    def __init__(self, file: IO[bytes], data: bytes) -> None:
        self._file = file
        self._file.write(data)
        self._file.flush()
        self.size = len(data)
        self.position = 0

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        self._file.seek(0)
        return self._file.read()


POLICY = ConnectionPolicy(
    frozenset({PRODUCE}), max_unsent_bytes=16 << 20, questions=frozenset({FETCH})
)


@contextmanager
def connected(
    serve: Callable[[memoryview], Served],
    budget: ReceiveBudget | None = None,
    frames: FrameReader | None = None,
    policy: ConnectionPolicy = POLICY,
) -> Iterator[tuple[asyncio.AbstractEventLoop, socket.socket, Connection, list[Connection]]]:
    loop = asyncio.new_event_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    closed: list[Connection] = []
    connection = Connection(
        PlainTransport(ours, loop),
        loop=loop,
        serve=serve,
        frames=frames or FrameReader(1 << 20),
        budget=budget or ReceiveBudget(-1),
        policy=policy,
        on_closed=closed.append,
    )
    connection.start()
    try:
        yield loop, theirs, connection, closed
    finally:
        connection.close()
        theirs.close()
        loop.close()


def turn(loop: asyncio.AbstractEventLoop, times: int = 5) -> None:
    for _ in range(times):
        loop.call_soon(loop.stop)
        loop.run_forever()


def stopped_clock(loop: asyncio.AbstractEventLoop) -> Callable[[float], None]:
    """Stop a loop's clock; return what sets it forward by so many seconds."""
    now = loop.time()

    def advance(seconds: float) -> None:
        nonlocal now
        now += seconds

    loop.time = lambda: now  # type: ignore[method-assign]
    return advance


def received(peer: socket.socket) -> bytes:
    try:
        return peer.recv(1 << 20)
    except BlockingIOError:
        return b""


def test_pipelined_requests_are_answered_in_order() -> None:
    def serve(view: memoryview) -> Served:
        return outgoing(bytes(view[2:]))

    with connected(serve) as (loop, peer, _, _):
        peer.sendall(b"".join(frame(FETCH, b"%d;" % n) for n in range(100)))
        turn(loop)
        assert received(peer) == b"".join(b"%d;" % n for n in range(100))


def test_a_request_that_is_cut_in_two_is_served_once_whole() -> None:
    with connected(lambda view: outgoing(bytes(view[2:]))) as (loop, peer, connection, _):
        whole = frame(FETCH, b"hello")
        peer.sendall(whole[:7])
        turn(loop)
        assert received(peer) == b""
        assert connection.partial_frame_bytes == 7
        peer.sendall(whole[7:])
        turn(loop)
        assert received(peer) == b"hello"


def test_nothing_overtakes_a_request_that_waits() -> None:
    waiting: Deferred[Outgoing | None] = Deferred()
    served: list[bytes] = []

    def serve(view: memoryview) -> Served:
        served.append(bytes(view[2:]))
        return waiting if view[2:] == b"slow" else outgoing(bytes(view[2:]))

    with connected(serve) as (loop, peer, _, _):
        peer.sendall(frame(FETCH, b"slow") + frame(FETCH, b"next") + frame(PRODUCE, b"after"))
        turn(loop)
        assert served == [b"slow"]
        waiting.complete(outgoing(b"slow"))
        turn(loop)
        assert served == [b"slow", b"next", b"after"]
        assert received(peer) == b"slownextafter"


def test_produce_requests_are_handled_while_earlier_ones_wait_and_answered_in_order() -> None:
    waiting: list[Deferred[Outgoing | None]] = []

    def serve(view: memoryview) -> Served:
        cell: Deferred[Outgoing | None] = Deferred()
        waiting.append(cell)
        return cell

    with connected(serve) as (loop, peer, _, _):
        peer.sendall(b"".join(frame(PRODUCE, b"%d" % n) for n in range(3)))
        turn(loop)
        assert len(waiting) == 3
        waiting[2].complete(outgoing(b"2"))
        waiting[1].complete(outgoing(b"1"))
        turn(loop)
        assert received(peer) == b""
        waiting[0].complete(outgoing(b"0"))
        turn(loop)
        assert received(peer) == b"012"


def test_answers_that_are_ready_in_one_turn_leave_together() -> None:
    waiting = [Deferred[Outgoing | None]() for _ in range(3)]
    served = iter(waiting)

    with connected(lambda _: next(served)) as (loop, peer, _, _):
        peer.sendall(b"".join(frame(PRODUCE, b"") for _ in waiting))
        turn(loop)
        waiting[0].complete(outgoing(b"one;"))
        assert received(peer) == b"", "others wait behind it"
        waiting[1].complete(outgoing(b"two;"))
        turn(loop)
        assert received(peer) == b"one;two;"
        waiting[2].complete(outgoing(b"three;"))
        assert received(peer) == b"three;", "nothing waits behind it"


def test_requests_that_come_while_an_answer_is_read_wait_for_its_last_byte() -> None:
    size = 3 << 20

    def serve(view: memoryview) -> Served:
        return outgoing(bytes(view[2:3]) * size)

    with connected(serve) as (loop, peer, _, _):
        peer.sendall(frame(FETCH, b"1"))
        turn(loop)
        got = bytearray()
        for asked in (b"2", b"3"):
            # There is room again when the request is seen, or there is none.
            for _ in range(3):
                got += received(peer)
            peer.sendall(frame(FETCH, asked))
            turn(loop, 1)
        for _ in range(5000):
            got += received(peer)
            turn(loop, 1)
            if len(got) == 3 * size:
                break
        assert got == b"1" * size + b"2" * size + b"3" * size


def test_a_request_without_an_answer_leaves_no_gap() -> None:
    def serve(view: memoryview) -> Served:
        return None if view[2:] == b"quiet" else outgoing(bytes(view[2:]))

    with connected(serve) as (loop, peer, _, _):
        peer.sendall(frame(PRODUCE, b"quiet") + frame(PRODUCE, b"loud"))
        turn(loop)
        assert received(peer) == b"loud"


def test_a_file_slice_goes_out_between_the_bytes_around_it(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096
    file = (tmp_path / "slice").open("w+b")
    piece = FileRange(file, data)

    def serve(view: memoryview) -> Served:
        return Outgoing([b"head", piece, b"tail"], len(data) + 8)

    with connected(serve) as (loop, peer, connection, _):
        peer.sendall(frame(FETCH, b""))
        got = b""
        for _ in range(200):
            turn(loop, 1)
            got += received(peer)
            if len(got) == len(data) + 8:
                break
        assert got == b"head" + data + b"tail"
        assert not connection.waits_for_reader
    file.close()


def test_an_answer_that_is_not_read_holds_the_next_request_back() -> None:
    served = 0

    def serve(view: memoryview) -> Served:
        nonlocal served
        served += 1
        return outgoing(b"x" * (4 << 20))

    with connected(serve) as (loop, peer, connection, _):
        peer.sendall(frame(FETCH, b"1"))
        turn(loop)
        assert connection.waits_for_reader
        peer.sendall(frame(FETCH, b"2"))
        turn(loop)
        assert served == 1
        total = 0
        for _ in range(5000):
            total += len(received(peer))
            turn(loop, 1)
            if total == 8 << 20:
                break
        assert (served, total) == (2, 8 << 20)


@pytest.mark.parametrize("error", [ProtocolError("bad"), ConnectionClosedError("bye")])
def test_a_fault_hangs_up_after_the_answers_before_it(error: Exception) -> None:
    def serve(view: memoryview) -> Served:
        if view[2:] == b"bad":
            raise error
        return outgoing(b"ok")

    with connected(serve) as (loop, peer, connection, closed):
        peer.sendall(frame(FETCH, b"good") + frame(FETCH, b"bad") + frame(FETCH, b"good"))
        turn(loop)
        assert received(peer) == b"ok"
        assert connection.closed
        assert closed == [connection]


def test_an_impossible_size_hangs_up() -> None:
    with connected(lambda view: outgoing(b"")) as (loop, peer, connection, _):
        peer.sendall(struct.pack(">i", 2**31 - 1))
        turn(loop)
        assert connection.closed


def test_many_large_answers_asked_for_at_once_come_as_they_are_read() -> None:
    served = 0

    def serve(view: memoryview) -> Served:
        nonlocal served
        served += 1
        return outgoing(b"x" * (9 << 20))

    with connected(serve) as (loop, peer, _, _):
        peer.sendall(frame(FETCH, b"1") * 10)
        turn(loop)
        assert served == 1
        total = 0
        for _ in range(20_000):
            total += len(received(peer))
            turn(loop, 1)
            if total == 90 << 20:
                break
        assert (served, total) == (10, 90 << 20)


def test_answers_that_nobody_reads_have_a_limit() -> None:
    with connected(lambda view: outgoing(b"x" * (32 << 20))) as (loop, peer, connection, _):
        peer.sendall(frame(FETCH, b"1"))
        turn(loop)
        assert connection.closed


def test_over_the_budget_only_the_oldest_unfinished_frame_grows() -> None:
    budget = ReceiveBudget(1000)
    answer = lambda view: outgoing(b"ok")  # noqa: E731
    with (
        connected(answer, budget) as (loop, old, _, _),
        connected(answer, budget) as (other_loop, new, _, _),
    ):
        whole = frame(FETCH, b"x" * 2000)
        old.sendall(whole[:600])
        turn(loop)
        new.sendall(whole[:600])
        turn(other_loop)
        new.sendall(whole[600:])
        turn(other_loop)
        assert received(new) == b""
        assert budget.used_bytes == 1200
        old.sendall(whole[600:])
        turn(loop)
        assert received(old) == b"ok"
        turn(other_loop)
        assert received(new) == b"ok"
        assert budget.used_bytes == 0


def test_an_answer_that_comes_after_the_peer_has_gone_is_dropped() -> None:
    waiting: Deferred[Outgoing | None] = Deferred()
    with connected(lambda view: waiting) as (loop, peer, connection, _):
        peer.sendall(frame(FETCH, b""))
        turn(loop)
        connection.close()
        waiting.complete(outgoing(b"late"))
        turn(loop)
        assert connection.closed


# What waits for an answer that nothing may overtake


def test_behind_a_request_that_waits_little_is_read_ahead() -> None:
    frames = FrameReader(1 << 20)
    waiting: Deferred[Outgoing | None] = Deferred()

    def serve(view: memoryview) -> Served:
        return waiting if view[2:] == b"slow" else outgoing(b"%d" % len(view))

    with connected(serve, frames=frames) as (loop, peer, connection, _):
        peer.sendall(frame(FETCH, b"slow"))
        turn(loop)
        large = frame(FETCH, b"x" * 100_000)
        sent = peer.send(large[:60_000])
        turn(loop, 50)
        assert 0 < frames.frame_pending <= 16 * 1024
        assert connection.partial_frame_bytes == 0
        waiting.complete(outgoing(b"slow"))
        turn(loop)
        assert received(peer) == b"slow"
        assert connection.partial_frame_bytes > 0
        while sent < len(large):
            sent += peer.send(large[sent:])
            turn(loop)
        turn(loop, 50)
        assert received(peer) == b"100002"


def test_a_peer_that_goes_while_its_request_waits_is_noticed() -> None:
    with connected(lambda view: Deferred()) as (loop, peer, connection, closed):
        peer.sendall(frame(FETCH, b"slow") + frame(FETCH, b"next"))
        turn(loop)
        assert not connection.closed
        peer.close()
        turn(loop)
        assert closed == [connection]


def test_a_request_that_came_behind_one_that_waits_is_served_though_nothing_more_comes() -> None:
    waiting: Deferred[Outgoing | None] = Deferred()

    def serve(view: memoryview) -> Served:
        return waiting if view[2:] == b"slow" else outgoing(bytes(view[2:]))

    with connected(serve) as (loop, peer, _, _):
        peer.sendall(frame(FETCH, b"slow"))
        turn(loop)
        peer.sendall(frame(FETCH, b"next"))
        turn(loop)
        waiting.complete(outgoing(b"slow"))
        turn(loop)
        assert received(peer) == b"slownext"


@pytest.mark.parametrize(
    "policy",
    [
        ConnectionPolicy(frozenset({PRODUCE}), max_owed_answers=2),
        ConnectionPolicy(frozenset({PRODUCE}), max_owed_request_bytes=20),
    ],
    ids=["answers", "bytes"],
)
def test_requests_that_wait_for_their_commit_have_a_limit(policy: ConnectionPolicy) -> None:
    waiting: list[Deferred[Outgoing | None]] = []

    def serve(view: memoryview) -> Served:
        waiting.append(Deferred())
        return waiting[-1]

    with connected(serve, policy=policy) as (loop, peer, _, _):
        peer.sendall(b"".join(frame(PRODUCE, b"%08d" % n) for n in range(5)))
        turn(loop)
        assert len(waiting) == 2
        for n in range(5):
            waiting[n].complete(outgoing(b"%d" % n))
            turn(loop)
            assert len(waiting) == min(5, n + 3)
        assert received(peer) == b"01234"


def test_an_answer_that_is_settled_by_a_later_request_does_not_overtake_an_earlier_one() -> None:
    """As when the second of two batches finds that the disk has failed."""
    waiting: Deferred[Outgoing | None] = Deferred()

    def serve(view: memoryview) -> Served:
        if view[2:] == b"second":
            return waiting
        if view[2:] == b"third":
            waiting.complete(outgoing(b"second;"))
        return outgoing(bytes(view[2:]) + b";")

    with connected(serve) as (loop, peer, _, _):
        peer.sendall(frame(FETCH, b"first") + frame(PRODUCE, b"second") + frame(PRODUCE, b"third"))
        turn(loop)
        assert received(peer) == b"first;second;third;"


# Faults


def test_a_fault_of_ours_hangs_up_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def serve(view: memoryview) -> Served:
        if view[2:] == b"bad":
            raise RuntimeError("a fault of ours")
        return outgoing(b"ok")

    with connected(serve) as (loop, peer, _, closed):
        peer.sendall(frame(FETCH, b"good") + frame(FETCH, b"bad") + frame(FETCH, b"good"))
        turn(loop)
        assert received(peer) == b"ok"
        assert len(closed) == 1
    assert "a fault of ours" in caplog.text


@pytest.mark.parametrize("error", [ConnectionClosedError("bye"), RuntimeError("a fault of ours")])
def test_an_answer_that_fails_hangs_up_and_harms_nobody_else(error: Exception) -> None:
    waiting: Deferred[Outgoing | None] = Deferred()
    others: list[int] = []
    with connected(lambda view: waiting) as (loop, peer, connection, _):
        peer.sendall(frame(PRODUCE, b""))
        turn(loop)
        waiting.on_done(lambda _: others.append(1))
        waiting.fail(error)
        assert connection.closed
        assert others == [1]


def test_nothing_is_served_once_an_answer_has_hung_up() -> None:
    served: list[bytes] = []

    def serve(view: memoryview) -> Served:
        served.append(bytes(view[2:]))
        failed: Deferred[Outgoing | None] = Deferred()
        failed.fail(ConnectionClosedError("bye"))
        return failed

    with connected(serve) as (loop, peer, connection, _):
        peer.sendall(frame(PRODUCE, b"1") + frame(PRODUCE, b"2"))
        turn(loop)
        assert connection.closed
        assert served == [b"1"]


def test_a_file_slice_that_is_not_read_takes_no_memory_and_no_limit(tmp_path: Path) -> None:
    size = 32 << 20  # twice the limit
    with (tmp_path / "slice").open("w+b") as file:
        piece = FileRange(file, b"")
        file.truncate(size)
        piece.size = size
        with connected(lambda view: Outgoing([b"head", piece], size + 4)) as (loop, peer, c, _):
            peer.sendall(frame(FETCH, b""))
            turn(loop)
            assert c.waits_for_reader
            assert not c.closed


def test_a_buffer_that_rests_is_given_back() -> None:
    frames = FrameReader(1 << 20)
    with connected(lambda view: outgoing(b"ok"), frames=frames) as (loop, peer, connection, _):
        whole = frame(FETCH, b"x" * 200_000)
        sent = 0
        while sent < len(whole):
            sent += peer.send(whole[sent:])
            turn(loop)
        turn(loop, 50)
        assert received(peer) == b"ok"
        assert frames.capacity > 100_000
        connection.rest()
        assert frames.capacity == 16 * 1024
        peer.sendall(frame(FETCH, b"y"))
        turn(loop)
        assert received(peer) == b"ok"


@pytest.mark.parametrize("reset", [False, True])
def test_what_a_peer_said_before_it_went_is_handled(reset: bool) -> None:
    """As the LeaveGroup of a consumer that closes while its JoinGroup waits for the others."""
    served: list[bytes] = []

    def serve(view: memoryview) -> Served:
        served.append(bytes(view[2:]))
        if view[2:] == b"bad":
            raise ProtocolError("nonsense")
        return Deferred() if view[2:] == b"slow" else outgoing(bytes(1 << 20))

    with connected(serve) as (loop, peer, _, closed):
        peer.sendall(frame(JOIN, b"slow") + frame(JOIN, b"leave") + frame(FETCH, b"more"))
        turn(loop)
        peer.sendall(frame(JOIN, b"commit") + frame(JOIN, b"bad") + frame(JOIN, b"after"))
        assert served == [b"slow"]
        if reset:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        turn(loop)
        assert served == [b"slow", b"leave", b"commit", b"bad"]
        assert len(closed) == 1


def test_a_peer_that_goes_in_the_middle_of_a_request_said_nothing() -> None:
    served: list[bytes] = []

    def serve(view: memoryview) -> Served:
        served.append(bytes(view[2:]))
        return Deferred()

    with connected(serve) as (loop, peer, _, closed):
        peer.sendall(frame(PRODUCE, b"one") + frame(PRODUCE, b"two") + frame(JOIN, b"three")[:-1])
        turn(loop)
        peer.close()
        turn(loop)
        assert served == [b"one", b"two"]
        assert len(closed) == 1


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("key", [FETCH, PRODUCE])
def test_a_muted_connection_answers_and_handles_nothing_more_for_a_while(
    key: int, is_late: bool
) -> None:
    served: list[bytes] = []
    answer: Deferred[Outgoing | None] = Deferred()

    def serve(view: memoryview) -> Served:
        served.append(bytes(view[2:]))
        return answer if len(served) == 1 else outgoing(bytes(view[2:]))

    with connected(serve) as (loop, peer, connection, closed):
        advance = stopped_clock(loop)
        peer.sendall(frame(key, b"one"))
        turn(loop)
        if is_late:
            connection.mute(20)
            answer.complete(outgoing(b"one"))
        else:
            answer.complete(outgoing(b"one"))
            connection.mute(20)
        turn(loop)
        assert received(peer) == b"one", "the answer does not wait"
        peer.sendall(frame(key, b"two"))
        flood = 0
        while True:
            try:
                flood += peer.send(frame(key, b"x" * 1_000))
            except BlockingIOError:
                break
            turn(loop, 1)
        assert served == [b"one"]
        assert flood > 0, "the peer is held back by the network"
        advance(0.019)
        turn(loop)
        assert served == [b"one"]
        advance(0.001)
        turn(loop)
        assert served[1] == b"two"
        assert received(peer).startswith(b"two")
        assert not closed


def test_a_muted_peer_may_go() -> None:
    with connected(lambda view: outgoing(bytes(view[2:]))) as (loop, peer, connection, closed):
        connection.mute(5)
        peer.close()
        turn(loop)
        assert closed == [connection]
        loop.run_until_complete(asyncio.sleep(0.01))


def test_nothing_is_kept_of_a_muted_peer_that_has_gone() -> None:
    with connected(lambda view: outgoing(bytes(view[2:]))) as (loop, peer, connection, closed):
        connection.mute(10**9)
        connection.mute(10**9)
        peer.close()
        turn(loop)
        assert closed == [connection]
        assert [each for each in loop._scheduled if not each.cancelled()] == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("key", [FETCH, PRODUCE])
def test_what_came_together_with_a_request_that_mutes_waits(key: int) -> None:
    served: list[bytes] = []
    answer: Deferred[Outgoing | None] = Deferred()

    def serve(view: memoryview) -> Served:
        served.append(bytes(view[2:]))
        if len(served) > 1:
            return outgoing(bytes(view[2:]))
        connection.mute(20)
        loop.call_soon(answer.complete, outgoing(b"one;"))
        return answer

    with connected(serve) as (loop, peer, connection, _):
        advance = stopped_clock(loop)
        peer.sendall(b"".join(frame(key, b"%d;" % n) for n in range(100)))
        turn(loop)
        assert received(peer) == b"one;"
        assert len(served) == 1
        advance(0.02)
        turn(loop)
        assert received(peer) == b"".join(b"%d;" % n for n in range(1, 100))
