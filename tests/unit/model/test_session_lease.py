from __future__ import annotations

import pytest

from millstream.model.session_lease import SessionLease

TIMEOUT_MS = 6_000.0


def test_nothing_is_known_before_an_answer_and_after_the_end() -> None:
    lease = SessionLease(TIMEOUT_MS)
    assert (lease.holds(0), lease.remaining_ms(0)) == (False, 0)
    lease.confirm(1_000)
    assert lease.holds(1_000)
    lease.forget()
    assert (lease.holds(1_000), lease.remaining_ms(1_000)) == (False, 0)


def test_a_session_is_counted_from_the_last_request_that_was_answered() -> None:
    lease = SessionLease(TIMEOUT_MS)
    lease.confirm(2_000)
    lease.confirm(1_000)
    assert lease.holds(7_999)
    assert not lease.holds(8_000)


@pytest.mark.parametrize("rate", [0.96, 1.0, 1.04])
def test_a_lease_ends_before_the_session_though_clocks_differ_in_rate(rate: float) -> None:
    """The server counts the time-out by its own clock, from the moment of the request on."""
    lease = SessionLease(TIMEOUT_MS)
    lease.confirm(0)
    assert lease.remaining_ms(TIMEOUT_MS * rate) <= 0
    assert lease.remaining_ms(0.9 * TIMEOUT_MS * rate) > 0
