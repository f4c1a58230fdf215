"""Where a new log is made."""

from __future__ import annotations

import pytest

from millstream.model.topic import TopicPartition
from millstream.storage import log_placement
from millstream.storage.log_placement import LogPlacement

T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
ONLINE = ("/a", "/b", "/c")


def test_the_directory_with_the_fewest_logs_that_takes_new_ones() -> None:
    placement = LogPlacement()
    assert placement.choose(T0, ONLINE, ["/a", "/a", "/b"]) == "/c"
    placement.cordoned = frozenset({"/c"})
    assert placement.choose(T0, ONLINE, ["/a", "/a", "/b"]) == "/b"
    placement.cordoned = frozenset(ONLINE)
    assert placement.choose(T0, ONLINE, ["/a", "/a", "/b"]) == "/c", "somewhere it has to be"
    assert placement.choose(T0, ["/a"], []) == "/a"


def test_a_preference_counts_once_and_where_its_directory_is_online() -> None:
    placement = LogPlacement()
    placement.cordoned = frozenset({"/a"})
    placement.prefer(T0, "/a")
    placement.prefer(T1, "/gone")
    assert placement.choose(T0, ONLINE, ["/a", "/b"]) == "/a"
    assert placement.choose(T0, ONLINE, ["/a", "/b"]) == "/c"
    assert placement.choose(T1, ONLINE, ["/a", "/b"]) == "/c"


def test_only_so_many_preferences_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_placement, "MAX_PREFERENCES", 2)
    placement = LogPlacement()
    for each in (T0, T1, T0, T2):
        placement.prefer(each, "/a")
    assert placement.choose(T0, ONLINE, ["/a"]) == "/a"
    assert placement.choose(T1, ONLINE, ["/a"]) == "/b", "the oldest is forgotten"
    assert placement.choose(T2, ONLINE, ["/a"]) == "/a"
