"""Quotas beside a plain copy of the structure that Kafka samples in, and what they hold to."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.security.quotas import (
    MAX_THROTTLE_MS,
    SENSOR_EXPIRY_MS,
    ClientQuotas,
    QuotaLimits,
    Rate,
    TokenBucket,
    Windows,
    quota_number,
)


@dataclass
class Sample:
    start: float
    last: float
    value: float = 0.0


class SampledSum:
    """``SampledStat``, ``WindowedSum`` and ``Rate`` of Apache Kafka: a ring of samples, which are
    reset where they lie.
    """

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.samples: list[Sample] = []
        self.current = 0

    def record(self, value: float, now: float) -> None:
        if not self.samples:
            self.samples.append(Sample(now, now))
        sample = self.samples[self.current]
        if now - sample.start >= self.windows.window_ms:
            self.current = (self.current + 1) % (self.windows.count + 1)
            if self.current >= len(self.samples):
                self.samples.append(Sample(now, now))
            sample = self.samples[self.current]
            sample.start, sample.last, sample.value = now, now, 0.0
        sample.value += value
        sample.last = now

    def span(self, now: float) -> float:
        for sample in self.samples:
            if now - sample.last >= self.windows.count * self.windows.window_ms:
                sample.start, sample.last, sample.value = now, now, 0.0
        oldest = min((sample.start for sample in self.samples), default=now)
        elapsed = now - oldest
        full = int(elapsed // self.windows.window_ms)
        if full < self.windows.count - 1:
            elapsed += (self.windows.count - 1 - full) * self.windows.window_ms
        return max(elapsed, 1.0)

    def measure(self, now: float) -> float:
        span = self.span(now)
        return sum(sample.value for sample in self.samples) / (span / 1000)


WINDOWS = st.builds(Windows, count=st.integers(1, 5), window_ms=st.sampled_from([100, 1000]))
STEPS = st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 1000)), max_size=60)


@given(WINDOWS, STEPS)
def test_a_rate_is_kafkas(windows: Windows, steps: list[tuple[int, int]]) -> None:
    ours, theirs, now = Rate(windows), SampledSum(windows), 1_000_000.0
    for pause, value in steps:
        now += pause
        ours.record(value, now)
        theirs.record(value, now)
        assert ours.span_ms(now) == theirs.span(now)
        assert ours.measure(now) == theirs.measure(now)
        now += pause
        assert ours.measure(now) == theirs.measure(now)


@pytest.mark.slow
@given(
    WINDOWS,
    st.integers(0, 2000),
    st.lists(st.tuples(st.integers(0, 1500), st.integers(-300, 1000)), max_size=60),
)
@example(windows=Windows(count=1, window_ms=100), limit=0, steps=[(0, 1)])
@example(windows=Windows(count=1, window_ms=100), limit=667, steps=[(0, 1)])
def test_who_is_let_through_at_a_glance_is_below_the_quota(
    windows: Windows, limit: int, steps: list[tuple[int, int]]
) -> None:
    """``ClientQuotas.record`` measures nobody who cannot have used more; some of what was recorded
    may be taken back, also in a later window.
    """
    quotas, theirs, now = ClientQuotas(windows), SampledSum(windows), 1_000_000.0
    quotas.limits.set("ann", None, float(limit))
    for pause, value in steps:
        now += pause
        waits = quotas.record("ann", "any", value, now)
        theirs.record(value, now)
        excess = theirs.measure(now) - limit
        if limit:
            # A wait is rounded to whole milliseconds, as Kafka rounds it: half a one is none.
            assert waits == max(0, floor(excess / limit * theirs.span(now) + 0.5))
        else:
            assert (waits > 0) == (excess > 0)


def test_a_quota_that_changes_holds_at_once() -> None:
    quotas = ClientQuotas(Windows())
    assert quotas.record("ann", "c", 10_000, 0.0) == 0, "no quota"
    quotas.limits.set("ann", None, 100.0)
    assert quotas.record("ann", "c", 10_000, 0.0) > 0
    quotas.limits.set("ann", "c", 1e9)
    assert quotas.record("ann", "c", 10_000, 0.0) == 0
    quotas.limits.set("ann", "c", None)
    assert quotas.record("ann", "c", 0, 0.0) > 0, "its usage of before"
    quotas.limits.set("ann", None, None)
    assert quotas.record("ann", "c", 10_000, 0.0) == 0
    assert not quotas.is_limited


def test_usage_that_is_forgotten_begins_anew() -> None:
    quotas = ClientQuotas(Windows())
    quotas.limits.set(None, "", 1.0)
    assert quotas.record("ann", "old", 100, 0.0) > 0
    later = float(SENSOR_EXPIRY_MS)
    assert quotas.record("ann", "new", 100, later) > 0, "what is unused is forgotten now"
    assert quotas.sensor_count == 1
    assert quotas.record("ann", "old", 100, later) > 0
    assert quotas.sensor_count == 2, "what counts is what is kept"


@given(
    st.integers(10, 1000), st.lists(st.tuples(st.integers(0, 50), st.integers(1, 500)), min_size=1)
)
def test_who_waits_as_told_keeps_to_its_quota(limit: int, sends: list[tuple[int, int]]) -> None:
    windows = Windows()
    quotas = ClientQuotas(windows)
    quotas.limits.set("ann", None, float(limit))
    now, total, largest = 0.0, 0, 0
    for pause, size in sends:
        now += pause
        total += size
        largest = max(largest, size)
        now += quotas.record("ann", "any", size, now)
    # As in Kafka, what was used is forgotten after all windows, though somebody may still wait
    # for it: then there is a burst anew.
    bursts = 1 + now / (windows.count * windows.window_ms)
    assert total <= limit * (now / 1000) + bursts * limit * windows.full_ms / 1000 + largest + 1


@given(
    st.integers(1, 100), st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 50)), min_size=1)
)
def test_a_bucket_gives_no_more_than_its_rate_and_one_burst(
    limit: int, takes: list[tuple[int, int]]
) -> None:
    windows = Windows(count=3)
    bucket, now, given_out, largest = TokenBucket(windows), 5_000.0, 0, 0
    for pause, value in takes:
        now += pause
        if bucket.throttle_ms(limit, now) == 0:
            bucket.record(value, limit, now)
            given_out += value
            largest = max(largest, value)
    assert given_out <= limit * (now - 5_000) / 1000 + limit * 3 + largest + 1


NAMES = st.sampled_from(["ann", "bob"])
CLIENTS = st.sampled_from(["c", "d"])
ENTITIES = st.tuples(st.none() | st.just("") | NAMES, st.none() | st.just("") | CLIENTS).filter(any)


@given(st.dictionaries(ENTITIES, st.integers(1, 100)), NAMES, CLIENTS)
def test_the_most_specific_quota_counts(
    quotas: dict[tuple[str | None, str | None], int], user: str, client: str
) -> None:
    limits = QuotaLimits()
    for entity, limit in quotas.items():
        limits.set(*entity, float(limit))
    order = [(user, client), (user, ""), (user, None), ("", client), ("", ""), ("", None)]
    order += [(None, client), (None, "")]
    expected = next((quotas[each] for each in order if each in quotas), None)
    found = limits.find(user, client)
    assert (None if found is None else found[1]) == expected


@given(
    limit=st.floats(allow_nan=False, min_value=5e-324),
    value=st.integers(1, 1 << 31),
)
def test_no_quota_is_too_small_or_too_large_to_wait_for(limit: float, value: int) -> None:
    windows = Windows(3, 1_000)
    rate, bucket = Rate(windows), TokenBucket(windows)
    rate.record(value, 1_000.0)
    bucket.record(value, limit, 1_000.0)
    for now_ms in (1_000.0, 1_500.0):
        assert 0 <= rate.throttle_ms(limit, now_ms) <= MAX_THROTTLE_MS
        assert 0 <= bucket.throttle_ms(limit, now_ms) <= MAX_THROTTLE_MS


def test_a_stored_quota_that_is_no_number_is_none() -> None:
    for text in ("nan", "NaN", "", "x"):
        assert quota_number({"producer_byte_rate": text}, "producer_byte_rate") is None


def test_long_client_ids_are_not_kept() -> None:
    quotas = ClientQuotas(Windows())
    quotas.limits.set(None, "", 1.0)
    ids = [f"{number}" + "x" * 30_000 for number in range(10)]
    assert all(quotas.record("ann", each, 100, 0.0) > 0 for each in ids)
    assert quotas.sensor_count == len(ids), "each has its own"
    assert quotas.record("ann", ids[0], 0, 0.0) > 0
    kept = sum(len(part or "") for level in quotas._sensors for part in level)
    assert kept < 10 * 300
