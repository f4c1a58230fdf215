"""Simulated clusters: a few seeds of each start, the same history twice, and what checkers find."""

from __future__ import annotations

import pytest

from millstream.sim.cluster import SimCluster


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_nothing_is_lost(seed: int) -> None:
    report = SimCluster(seed).run(5)
    assert report.problems == []
    assert report.sometimes["sent and acknowledged"] > 10
    assert report.sometimes["read"] > 10


@pytest.mark.slow
def test_the_same_seed_twice_gives_the_same_history() -> None:
    one, other = SimCluster(6).run(5), SimCluster(6).run(5)
    assert (one.trace_hash, one.events) == (other.trace_hash, other.events)
    assert SimCluster(7).run(5).trace_hash != one.trace_hash
