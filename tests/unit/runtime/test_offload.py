"""Blocking work on lanes: order within one, independence between two, results on the loop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest

from millstream.model.deferred import Deferred
from millstream.runtime.offload import InlineOffload, ThreadOffload


class HandLoop:
    """Runs what came home when the test says so."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def call(self, function: Callable[[], None]) -> None:
        self._calls.put(function)

    def run(self, outcome: Deferred[object]) -> None:
        while not outcome.done:
            self._calls.get(timeout=10)()


def test_a_lane_works_in_order_and_fills_on_the_loop() -> None:
    loop = HandLoop()
    offload = ThreadOffload(loop.call)
    threads: list[str] = []
    order: list[int] = []

    def work(n: int) -> int:
        threads.append(threading.current_thread().name)
        order.append(n)
        return n

    outcomes = [offload.run("disk", lambda n=n: work(n)) for n in range(10)]
    outcomes[-1].on_done(lambda _: threads.append(threading.current_thread().name))
    loop.run(outcomes[-1])
    assert order == list(range(10))
    assert [cell.result() for cell in outcomes] == order
    assert threads[-1] == threading.main_thread().name
    assert set(threads[:-1]) == {"offload-disk"}
    offload.close()


def test_a_slow_lane_does_not_hold_another_one_up() -> None:
    loop = HandLoop()
    offload = ThreadOffload(loop.call)
    gate = threading.Event()
    slow = offload.run("slow", lambda: gate.wait(10))
    quick = offload.run("quick", lambda: "done")
    loop.run(quick)
    assert not slow.done
    gate.set()
    loop.run(slow)
    offload.close()


@pytest.mark.parametrize("threaded", [True, False])
def test_an_exception_fails_the_cell(threaded: bool) -> None:
    loop = HandLoop()
    offload = ThreadOffload(loop.call) if threaded else InlineOffload()

    def broken() -> None:
        raise OSError("disk")

    outcome = offload.run("disk", broken)
    loop.run(outcome)
    with pytest.raises(OSError, match="disk"):
        outcome.result()
    offload.close()


def test_close_finishes_what_was_given() -> None:
    loop = HandLoop()
    offload = ThreadOffload(loop.call)
    done: list[int] = []
    for n in range(100):
        offload.run("disk", lambda n=n: done.append(n))
    offload.close()
    assert done == list(range(100))
