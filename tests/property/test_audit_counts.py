"""Whatever happens to the audit log, every event is in a record or counted as left out."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security.audit.audit_events import Site, at, decided, login

from millstream.security.audit.kinds import EventKind, Outcome
from millstream.security.audit.machine import Reason
from millstream.security.audit.rate_limit import TokenBucket

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["login", "denied", "read", "write", "tick", "room", "lose", "settings"]),
        st.integers(0, 3_000),
        st.integers(0, 3),
    ),
    max_size=120,
)


def told(records: list[dict[str, Any]]) -> Counter[str]:
    """Count the events that records stand for, by what they say."""
    counts: Counter[str] = Counter()
    for record in records:
        data = record["data"]
        if "counts" in data:
            counts.update(data["counts"])
            assert data["total"] == sum(data["counts"].values())
        else:
            word = f"{data['kind']}.{data['outcome']}"
            counts[word] += data.get("repeated", {"count": 1})["count"]
    return counts


@given(STEPS, st.integers(1, 5), st.integers(1, 5), st.sampled_from([0, 500, 5_000]))
def test_no_event_is_lost_without_a_trace(
    steps: list[tuple[str, int, int]], rate: int, burst: int, interval_ms: int
) -> None:
    site = Site(
        room=3, max_events_per_second=rate, burst_events=burst, repeat_interval_ms=interval_ms
    )
    machine, now_ms = site.machine, 0
    seen: Counter[str] = Counter()
    for step, passed_ms, number in steps:
        now_ms += passed_ms
        now = at(now_ms)
        if step == "login":
            machine.authentication(login(), now)
            seen["authentication.failed"] += 1
        elif step == "denied":
            machine.authorization(decided(is_allowed=False), now)
            seen["management.denied"] += 1
        elif step in ("read", "write"):
            kind = EventKind.CONSUME if step == "read" else EventKind.PRODUCE
            if not machine.counts(kind, (number,), now):
                machine.repeatable(decided(kind, name=str(number)), (number,), now)
            seen[f"{kind.value}.{Outcome.ALLOWED.value}"] += 1
        elif step == "tick":
            machine.tick(now)
        elif step == "room":
            site.room = number
        elif step == "lose" and site.entries:
            machine.lost(site.entries.pop(number % len(site.entries)), Reason.WRITE_FAILED, now)
        elif step == "settings":
            policy = machine._policy
            machine.set_policy(type(policy)(policy.routes, rate + number, burst, interval_ms), now)
    site.room = 1_000
    machine.end(at(now_ms + 1_000))
    assert not machine.left_out
    assert told(site.records) == seen


@given(st.lists(st.integers(0, 400), max_size=200), st.integers(1, 20), st.integers(1, 10))
def test_the_bucket_never_lets_more_through_than_it_says(
    pauses: list[int], rate: int, burst: int
) -> None:
    bucket, now_ms, taken_ms = TokenBucket(rate, burst, 0.0), 0, list[int]()
    for pause in pauses:
        now_ms += pause
        if bucket.take(float(now_ms)):
            taken_ms.append(now_ms)
    for first, begins_ms in enumerate(taken_ms):
        for last in range(first, len(taken_ms)):
            seconds = (taken_ms[last] - begins_ms) / 1_000
            assert last - first + 1 <= burst + rate * seconds + 1e-6
