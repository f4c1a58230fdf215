"""Which test follows which in a whole run."""

from __future__ import annotations

from tests.spreading import spread


def test_the_shorter_list_lies_evenly_among_the_longer() -> None:
    assert spread([1, 2, 3], list("abcdefghi")) == [*"a", 1, *"bcd", 2, *"efg", 3, *"hi"]


def test_nothing_is_lost_and_each_list_keeps_its_order() -> None:
    merged = spread(range(100), range(1000, 1007), [])
    assert [each for each in merged if each < 1000] == list(range(100))
    assert [each for each in merged if each >= 1000] == list(range(1000, 1007))


def test_one_list_is_left_alone() -> None:
    assert spread([3, 1, 2]) == [3, 1, 2]
