"""What is kept of the usage of clients, and for how long."""

from __future__ import annotations

from millstream.security.quotas import SENSOR_EXPIRY_MS, ClientQuotas, Windows


def test_usage_that_was_forgotten_is_counted_anew_for_whoever_comes_back() -> None:
    """A client whose usage was dropped must not go on in an object that nobody else sees."""
    quotas = ClientQuotas(Windows(count=2, window_ms=1_000))
    quotas.limits.set("user", None, 1_000)
    quotas.limits.set("other", None, 1_000)
    assert quotas.record("user", "one", 500, 0.0) == 0
    later_ms = 2.0 * SENSOR_EXPIRY_MS
    assert quotas.record("other", "one", 1, later_ms) == 0
    assert quotas.sensor_count == 1, "the user's was forgotten"
    assert quotas.record("user", "one", 900, later_ms) == 0
    assert quotas.record("user", "two", 900, later_ms) > 0, "both ids of a user count together"
    assert quotas.sensor_count == 2


def test_a_quota_that_is_removed_holds_no_longer() -> None:
    quotas = ClientQuotas(Windows(count=2, window_ms=1_000))
    quotas.limits.set("user", None, 10)
    assert quotas.record("user", "one", 1_000, 0.0) > 0
    quotas.limits.set("user", None, None)
    assert not quotas.is_limited
    assert quotas.record("user", "one", 1_000, 1.0) == 0
