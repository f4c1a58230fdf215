from __future__ import annotations

import pytest

from millstream.keeper.sessions import (
    LOOK_MS,
    MAX_TIMEOUT_MS,
    MIN_TIMEOUT_MS,
    Sessions,
    granted_timeout,
)

TIMEOUT_MS = 1_000


def looked(sessions: Sessions, start_ms: float, end_ms: float) -> list[int]:
    """Look as often as a keeper does; return what has expired at the end."""
    found: list[int] = []
    now_ms = start_ms
    while now_ms < end_ms:
        now_ms = min(end_ms, now_ms + LOOK_MS)
        found = sessions.expired(now_ms)
    return found


def test_a_session_ends_one_time_out_after_its_last_request() -> None:
    sessions = Sessions(0)
    sessions.add(1, b"s", TIMEOUT_MS, 0)
    assert looked(sessions, 0, 600) == []
    assert sessions.heard(1, 600)
    assert looked(sessions, 600, 1_599) == []
    assert looked(sessions, 1_599, 1_600) == [1]
    assert sessions.end(1)
    assert not sessions.end(1)
    assert not sessions.heard(1, 1_600)


def test_only_who_knows_the_secret_resumes() -> None:
    sessions = Sessions(0)
    sessions.add(1, b"secret", TIMEOUT_MS, 0)
    assert sessions.resume(1, b"Secret", 900) is None
    assert sessions.resume(2, b"secret", 900) is None
    assert looked(sessions, 0, 1_000) == [1], "a wrong secret prolongs nothing"
    assert sessions.resume(1, b"secret", 1_000) is not None
    assert looked(sessions, 1_000, 1_999) == []


@pytest.mark.parametrize("pause_ms", [500, 5_000])
def test_a_pause_of_the_keeper_moves_every_deadline(pause_ms: int) -> None:
    sessions = Sessions(0)
    sessions.add(1, b"s", TIMEOUT_MS, 0)
    assert looked(sessions, 0, 900) == []
    after_ms = 900 + LOOK_MS + pause_ms
    assert sessions.expired(after_ms) == []
    assert looked(sessions, after_ms, after_ms + 49) == []
    assert looked(sessions, after_ms + 49, after_ms + 50) == [1]


def test_time_outs_are_bounded() -> None:
    assert [granted_timeout(each) for each in (0, 6_000, 10**9)] == [
        MIN_TIMEOUT_MS,
        6_000,
        MAX_TIMEOUT_MS,
    ]
