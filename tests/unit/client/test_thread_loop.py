"""The background thread: time, hand-over, connections, and nothing left behind."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

import pytest
from tests.descriptors import open_descriptors
from tests.unit.client.scripted_broker import TOPIC, ScriptedBroker, first_address_is_deaf

from millstream.client import Admin, Consumer, Producer, socket_transport, thread_loop
from millstream.client.core.network import Network
from millstream.client.core.settings import ClientSettings, read_settings
from millstream.client.core.waiting import sleep
from millstream.client.errors import ClosedError, ConnectionFailedError, ForkedError
from millstream.client.settings import Address
from millstream.client.thread_loop import ThreadLoop
from millstream.model.deferred import Deferred, spawn
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millstream.records.crc32c import Buffer


def network(loop: ThreadLoop, bootstrap: str) -> Network:
    return Network(loop, read_settings(ClientSettings, {"bootstrap.servers": bootstrap}))


def test_work_is_handed_over_and_results_come_back() -> None:
    loop = ThreadLoop()
    try:
        threads: list[bool] = []

        async def work() -> int:
            threads.append(loop.is_own_thread)
            await sleep(loop, 5)
            return 7

        assert loop.submit(lambda: spawn(work())).result(10) == 7
        assert threads == [True]

        def fails() -> Deferred[int]:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            loop.submit(fails).result(10)
    finally:
        loop.close()


def test_an_error_in_a_callback_is_told_to_who_waits() -> None:
    """What they wait for may be what the callback was to do."""
    loop = ThreadLoop()
    try:
        cell: Deferred[int] = Deferred()
        waiting = loop.submit(lambda: cell)

        def breaks() -> None:
            raise ValueError("broken")

        loop.post(breaks)
        with pytest.raises(ValueError, match="broken"):
            waiting.result(10)
        loop.post(lambda: cell.complete(3))  # too late, and harmless
        assert loop.submit(lambda: Deferred.of(4)).result(10) == 4
    finally:
        loop.close()


def test_timers_run_in_order_and_may_be_cancelled() -> None:
    loop = ThreadLoop()
    order: list[int] = []
    done = threading.Event()

    def begin() -> None:
        now = loop.now_ms()
        loop.call_at(now + 20, lambda: order.append(2))
        loop.call_at(now + 10, lambda: order.append(1))
        loop.call_at(now + 15, lambda: order.append(9)).cancel()
        loop.call_at(now + 30, done.set)

    loop.post(begin)
    assert done.wait(10)
    loop.close()
    assert order == [1, 2]


def test_a_timer_may_be_as_far_off_as_it_likes() -> None:
    loop = ThreadLoop()
    try:
        waiting = loop.submit(lambda: sleep(loop, float("inf")))
        # The thread waits for the timer by now, and takes work all the same.
        for number in range(3):
            assert loop.submit(lambda number=number: Deferred.of(number)).result(10) == number  # type: ignore[misc]
        assert not waiting.done()
    finally:
        loop.close()


def test_requests_over_a_socket_and_nothing_is_left() -> None:
    threads, before = threading.active_count(), open_descriptors()
    with ScriptedBroker() as broker:
        loop = ThreadLoop()
        cluster = network(loop, f"localhost:{broker.port}")
        asked = loop.submit(lambda: cluster.send_any(MetadataRequest(topics=[])))
        assert isinstance(asked.result(10), MetadataResponse)
        loop.close()
    assert threading.active_count() == threads
    assert open_descriptors() == before
    with pytest.raises(ClosedError):
        loop.post(lambda: None)


def test_an_address_that_does_not_answer_keeps_nobody_from_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket_transport, "ADDRESS_PATIENCE_MS", 100)
    with ScriptedBroker() as broker, first_address_is_deaf(monkeypatch, broker.port) as bootstrap:
        loop = ThreadLoop()
        try:
            asked = loop.submit(
                lambda: network(loop, bootstrap).send_any(MetadataRequest(topics=[]))
            )
            assert isinstance(asked.result(10), MetadataResponse)
        finally:
            loop.close()


class ClosesTheOther:
    """Closes another connection once its own is established."""

    room = None

    def __init__(self) -> None:
        self.other: socket_transport.SocketTransport | None = None
        self.events: list[str] = []

    def connected(self) -> None:
        self.events.append("connected")
        if self.other is not None:
            self.other.close()

    def received(self, data: Buffer) -> None:
        self.events.append("received")

    def filled(self, count: int) -> None:
        self.events.append("filled")

    def closed(self, error: OSError | None) -> None:
        self.events.append("closed")


def test_a_connection_that_another_one_closes_in_the_same_pass_of_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = ThreadLoop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])
        ends = ClosesTheOther(), ClosesTheOther()

        def connect() -> None:
            first, second = (loop.connect(address, each) for each in ends)
            ends[0].other, ends[1].other = second, first
            # Both are established when the loop looks for the first time.
            loop.call_soon(lambda: time.sleep(0.1))

        try:
            loop.post(connect)
            while not (ends[0].events or ends[1].events):
                time.sleep(0.01)
            loop.submit(lambda: sleep(loop, 10)).result(10)
        finally:
            loop.close()
    assert [*ends[0].events, *ends[1].events] == ["connected"]
    assert caplog.records == []


def test_a_refused_connection_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    loop = ThreadLoop()
    try:
        cluster = network(loop, f"127.0.0.1:{port}")
        with pytest.raises(ConnectionFailedError, match="refused"):
            loop.submit(lambda: cluster.send_any(MetadataRequest(topics=[]))).result(10)
        cluster = network(loop, "no-such-host.invalid:1")
        with pytest.raises(ConnectionFailedError):
            loop.submit(lambda: cluster.send_any(MetadataRequest(topics=[]))).result(60)
    finally:
        loop.close()


@pytest.mark.parametrize("host", ["broker..example", "a" * 64 + ".example"])
def test_what_is_not_the_name_of_a_host_is_said(host: str) -> None:
    loop = ThreadLoop()
    try:
        cluster = network(loop, f"{host}:1")
        with pytest.raises(ConnectionFailedError, match="not the name of a host"):
            loop.submit(lambda: cluster.send_any(MetadataRequest(topics=[]))).result(60)
    finally:
        loop.close()


def test_an_error_in_a_callback_does_not_end_the_thread() -> None:
    loop = ThreadLoop()
    try:
        loop.post(lambda: 1 // 0 and None)
        assert loop.submit(lambda: Deferred.of(3)).result(10) == 3
    finally:
        loop.close()


def test_an_exit_in_a_callback_does_not_end_the_thread() -> None:
    loop = ThreadLoop()
    try:
        loop.post(lambda: sys.exit(3))
        assert loop.submit(lambda: Deferred.of(3)).result(10) == 3
    finally:
        loop.close()


def test_who_waits_hears_of_the_end() -> None:
    loop = ThreadLoop()
    waiting = loop.submit(lambda: sleep(loop, 3_600_000))
    loop.close()
    with pytest.raises(ClosedError):
        waiting.result(10)


def test_a_signal_handler_may_post_while_its_thread_does() -> None:
    loop = ThreadLoop()
    done = threading.Event()

    class Interrupted(deque[Callable[[], None]]):
        def append(self, callback: Callable[[], None], /) -> None:
            super().append(callback)
            if not self.was_interrupted:
                self.was_interrupted = True
                loop.post(done.set)

        was_interrupted = False

    loop._posted = Interrupted()
    thread = threading.Thread(target=loop.post, args=(lambda: None,), daemon=True)
    thread.start()
    assert done.wait(10)
    thread.join(10)
    loop.close()


@pytest.mark.parametrize("kind", [Producer, Consumer, Admin])
def test_a_client_that_is_dropped_warns_and_leaves_no_thread(
    kind: type[Producer] | type[Consumer[bytes, bytes]] | type[Admin],
) -> None:
    threads = set(threading.enumerate())
    with ScriptedBroker() as broker:
        inside = set(threading.enumerate())
        client = kind(bootstrap_servers=broker.bootstrap)
        if isinstance(client, Producer):
            client.send(TOPIC, b"still sent")
        (thread,) = set(threading.enumerate()) - inside - set(broker._threads)
        held = [client]
        del client
        with pytest.warns(ResourceWarning, match=f"a {kind.__name__} was not closed"):
            held.clear()
        thread.join(30)
        assert not thread.is_alive()
        assert broker.end_offset == (kind is Producer)
    assert set(threading.enumerate()) <= threads


def test_the_end_of_a_program_tells_of_records_that_were_not_sent() -> None:
    lines = [
        "from millstream.client import Producer",
        "producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)",
        f"producer.send({TOPIC!r}, b'a')",
        f"producer.send({TOPIC!r}, b'b')",
    ]
    with ScriptedBroker() as broker:
        ended = subprocess.run(
            [sys.executable, "-c", "import sys\n" + "\n".join(lines), broker.bootstrap],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert "2 records have no outcome at the end of the program" in ended.stderr


def test_a_forked_process_is_refused() -> None:
    loop = ThreadLoop()
    try:
        loop._process_id += 1
        with pytest.raises(ForkedError):
            loop.submit(lambda: Deferred.of(3))
        with pytest.raises(ForkedError):
            loop.post(lambda: None)
    finally:
        loop._process_id -= 1
        loop.close()


def test_work_that_does_not_return_does_not_keep_a_loop_from_closing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread_loop, "_HELPERS_S", 0.05)
    returns = threading.Event()
    loop = ThreadLoop()
    future = loop.submit(lambda: loop.run_blocking(returns.wait))
    closing = threading.Thread(target=loop.close, daemon=True)
    closing.start()
    closing.join(10)
    is_closed = not closing.is_alive()
    returns.set()
    closing.join(10)
    assert is_closed
    assert "millstream-helper is left" in caplog.text
    with pytest.raises(ClosedError):
        future.result(10)
