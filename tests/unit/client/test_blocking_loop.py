"""The loop that its caller turns: nothing runs unless somebody waits."""

from __future__ import annotations

import threading

import pytest

from millstream.client.blocking_loop import BlockingLoop
from millstream.client.errors import TimedOutError
from millstream.client.settings import Address
from millstream.model.deferred import Deferred


class Events:
    room = None

    def __init__(self) -> None:
        self.ended: Deferred[object] = Deferred()

    def connected(self) -> None:
        raise AssertionError("nobody is there")

    def received(self, data: object) -> None: ...

    def filled(self, count: int) -> None: ...

    def closed(self, error: object) -> None:
        self.ended.complete(error)


@pytest.mark.parametrize("host", ["there..is.none", "x" * 64 + ".example"])
def test_a_name_without_an_address(host: str) -> None:
    loop, events = BlockingLoop(), Events()
    loop.connect(Address(host, 1), events)
    assert not events.ended.done
    error = loop.wait_for(events.ended, 10_000, "in vain")
    assert isinstance(error, OSError)
    loop.close_transports()


def test_timers_run_while_somebody_waits() -> None:
    loop = BlockingLoop()
    outcome: Deferred[str] = Deferred()
    loop.call_at(loop.now_ms() + 5, lambda: outcome.complete("done"))
    assert not outcome.done
    assert loop.wait_for(outcome, 10_000, "in vain") == "done"
    with pytest.raises(TimedOutError, match="nothing came"):
        loop.wait_for(Deferred[None](), 5, "nothing came")
    loop.close_transports()


def test_what_is_due_runs_without_a_wait() -> None:
    loop = BlockingLoop()
    ran: list[str] = []
    loop.call_at(0, lambda: loop.call_soon(lambda: ran.append("now")))
    loop.call_at(loop.now_ms() + 60_000, lambda: ran.append("later"))
    loop.run_due()
    assert ran == ["now"]
    loop.close_transports()


def test_no_thread_is_made() -> None:
    before = threading.active_count()
    loop = BlockingLoop()
    assert loop.wait_for(loop.run_blocking(lambda: 7), 1_000, "in vain") == 7
    failing = loop.run_blocking(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failing.result()
    assert threading.active_count() == before
    loop.close_transports()


def test_an_error_in_a_callback_ends_the_wait_that_it_ran_in() -> None:
    """Otherwise what the callback should have completed would be waited for without end."""
    loop = BlockingLoop()

    def fail() -> None:
        raise TypeError("a mistake")

    loop.call_soon(fail)
    with pytest.raises(TypeError, match="a mistake"):
        loop.wait_for(Deferred[None](), 2_000, "in vain")
    outcome: Deferred[str] = Deferred()
    loop.call_soon(lambda: outcome.complete("the loop goes on"))
    assert loop.wait_for(outcome, 2_000, "in vain") == "the loop goes on"
    loop.close_transports()


def test_an_interrupt_is_no_error_of_a_callback() -> None:
    loop = BlockingLoop()

    def interrupt() -> None:
        raise KeyboardInterrupt

    loop.call_soon(interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.wait_for(Deferred[None](), 2_000, "in vain")
    loop.close_transports()
