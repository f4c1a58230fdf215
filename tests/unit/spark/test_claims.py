"""Who of several attempts writes a task of a micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.spark.sink_claims import Claim, SupersededError


def at_third_look(do: Callable[[], object]) -> tuple[list[float], Callable[[float], None]]:
    """Return the waits so far, and a sleep that does something at the third one."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            do()

    return waits, sleep


def test_a_speculative_copy_waits_for_the_attempt_that_lives(tmp_path: Path) -> None:
    """It took over, and the attempt that lost to it counted as a failure of the task."""
    first = Claim.take(tmp_path, 7, "run 1")
    waits, sleep = at_third_look(first.release)
    copy = Claim.take(tmp_path, 7, "run 1", sleep=sleep)
    assert len(waits) == 3
    copy.check()
    copy.release()
    retry = Claim.take(tmp_path, 7, "run 1", sleep=sleep)
    assert len(waits) == 3
    retry.release()


@pytest.mark.parametrize("run", ["", "run 2"])
def test_another_run_takes_over_at_once(tmp_path: Path, run: str) -> None:
    first = Claim.take(tmp_path, 7, "run 1" if run else "")
    waits, sleep = at_third_look(first.release)
    other = Claim.take(tmp_path, 7, run, sleep=sleep)
    assert not waits
    with pytest.raises(SupersededError):
        first.check()
    first.release()
    other.release()


def test_another_run_comes_while_a_copy_waits(tmp_path: Path) -> None:
    first = Claim.take(tmp_path, 7, "run 1")
    later: list[Claim] = []
    _, sleep = at_third_look(lambda: later.append(Claim.take(tmp_path, 7, "run 2")))
    with pytest.raises(SupersededError, match="another run"):
        Claim.take(tmp_path, 7, "run 1", sleep=sleep)
    later[0].check()
    with pytest.raises(SupersededError):
        first.check()
    for claim in (first, *later):
        claim.release()


def test_an_attempt_that_is_silent_is_taken_over_from(tmp_path: Path) -> None:
    first = Claim.take(tmp_path, 7, "run 1")
    waits, sleep = at_third_look(lambda: None)
    copy = Claim.take(tmp_path, 7, "run 1", silent_s=0.0, sleep=sleep)
    assert len(waits) < 5
    with pytest.raises(SupersededError):
        first.check()
    first.release()
    copy.release()
