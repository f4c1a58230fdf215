"""Batch after batch runs on the same threads, and a forked child has threads of its own."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from millstream.spark.lakehouse import parallelism
from millstream.spark.lakehouse.landing_ahead import LandingAhead
from millstream.spark.lakehouse.parallelism import run_in_threads


def test_batches_use_the_threads_of_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallelism, "cores", lambda: 3)
    used: set[threading.Thread] = set()

    def work(number: int) -> int:
        used.add(threading.current_thread())
        return number

    for _ in range(20):
        ahead = LandingAhead(None, lambda: run_in_threads(work, range(6)))
        assert ahead.result() == list(range(6))
    # A thread is idle a moment after its last result was there.
    assert len(used) <= 2 * (3 + 1)


def test_one_that_waits_for_others_does_not_hold_them_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallelism, "cores", lambda: 2)
    together = threading.Barrier(16, timeout=30)

    def work(number: int) -> int:
        together.wait()
        return number

    loads = [LandingAhead(None, lambda: run_in_threads(work, range(2))) for _ in range(8)]
    assert [each.result() for each in loads] == [[0, 1]] * 8


_FORKS = """
import os, warnings
from millstream.spark.lakehouse.landing_ahead import LandingAhead
warnings.simplefilter("ignore")  # of threads: they are what this is about
assert LandingAhead(None, lambda: 1).result() == 1
child = os.fork()
if not child:
    os._exit(LandingAhead(None, lambda: 7).result())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_does_not_wait_for_its_parents_threads() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORKS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "7\n", done.stderr
