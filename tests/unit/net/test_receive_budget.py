"""The memory that unfinished requests take in all."""

from __future__ import annotations

from millstream.net.receive_budget import ReceiveBudget


class Reader:
    """A connection as the budget sees it."""

    def __init__(self, budget: ReceiveBudget) -> None:
        self._budget = budget
        self.reads = True

    def holds(self, size: int, *, frame: int = 0) -> None:
        self.reads = self._budget.note(self, size, frame)

    def resume(self) -> None:
        self.reads = True

    def gone(self) -> None:
        self._budget.forget(self)


def readers(budget: ReceiveBudget, count: int) -> list[Reader]:
    return [Reader(budget) for _ in range(count)]


def test_without_a_limit_nothing_is_counted() -> None:
    assert not ReceiveBudget(-1).limits
    assert not ReceiveBudget(0).limits
    assert ReceiveBudget(1).limits


def test_over_the_limit_the_frame_that_began_first_goes_on_and_the_others_wait() -> None:
    budget = ReceiveBudget(100)
    first, second, third = readers(budget, 3)
    first.holds(60)
    second.holds(60)
    third.holds(0)
    assert [reader.reads for reader in (first, second, third)] == [True, False, False]
    first.holds(90)
    assert first.reads
    first.holds(0)
    assert [reader.reads for reader in (first, second, third)] == [True, True, True]
    assert budget.used_bytes == 60


def test_a_turn_passes_on_when_the_first_one_goes_away() -> None:
    budget = ReceiveBudget(100)
    first, second, third = readers(budget, 3)
    first.holds(60)
    second.holds(60)
    third.holds(60)
    first.gone()
    assert [second.reads, third.reads] == [True, False]
    second.gone()
    assert third.reads
    third.gone()
    assert budget.used_bytes == 0


def test_a_stream_without_gaps_between_its_frames_gives_way_to_the_others() -> None:
    budget = ReceiveBudget(100)
    stream, second, third = readers(budget, 3)
    stream.holds(60)
    second.holds(60)
    third.holds(60)
    stream.holds(10, frame=1)
    assert [reader.reads for reader in (stream, second, third)] == [False, True, False]
    second.holds(0)
    assert [reader.reads for reader in (stream, second, third)] == [True, True, True]
