from __future__ import annotations

from millstream.coordinator.deadlines import Deadlines


def test_due_keys_come_out_earliest_first() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("late", 30)
    deadlines.set("early", 10)
    assert deadlines.next_ms == 10
    assert deadlines.pop_due(30) == "early"
    assert deadlines.pop_due(30) == "late"
    assert deadlines.pop_due(30) is None
    assert len(deadlines) == 0


def test_nothing_is_due_before_its_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    assert deadlines.pop_due(9.5) is None
    assert deadlines.deadline("a") == 10


def test_a_deadline_that_moved_later_is_kept_until_then() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    for later in range(11, 1000):
        deadlines.set("a", later)
    assert deadlines.pop_due(500) is None
    assert deadlines.next_ms == 999
    assert deadlines.pop_due(999) == "a"


def test_moving_later_makes_no_heap_entries() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for moved in range(1000):
        deadlines.set("a", 10 + moved)
    assert deadlines._pushed == 1


def test_a_deadline_that_moved_earlier_is_met() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 100)
    deadlines.set("a", 10)
    assert deadlines.pop_due(10) == "a"
    assert deadlines.pop_due(1000) is None


def test_a_cancelled_key_never_comes() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("b", 20)
    deadlines.cancel("a")
    deadlines.cancel("a")
    assert deadlines.next_ms == 20
    assert "a" not in deadlines
    assert deadlines.pop_due(100) == "b"


def test_a_key_can_come_back_after_it_was_cancelled() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.cancel("a")
    deadlines.set("a", 50)
    assert deadlines.pop_due(20) is None
    assert deadlines.pop_due(50) == "a"
