"""Many short seeds, and those that once found something wrong."""

from __future__ import annotations

import pytest

from millstream.sim.cluster import SimCluster
from millstream.sim.faults import Swarm

FOUND = (
    # seed, seconds, kinds of faults, what it found
    (3, 12, ("power loss", "kill", "kill leader"), "a torn leader-epoch-checkpoint was believed"),
    (1083, 20, (), "a broker whose flush had failed was trusted at its next start"),
    (1309, 20, (), "the same, while its trust marker was being written"),
    (3004, 15, (), "an eviction took away the registration of the next life, and nobody saw it"),
    (61821, 5, (), "the same, while the registration was being looked at"),
    (61203, 5, (), "a broker that had stopped fetching was told to follow somebody else"),
    (204, 20, (), "a leader of another life in the same leader epoch"),
    (20096, 6, (), "the log of a topic that was deleted while its broker started was kept"),
    (72653, 5, (), "the same, of a topic that was half deleted when its broker looked"),
    (30094, 5, (), "a controller showed itself what was decided for a life that had ended"),
    (
        40524,
        5,
        (),
        "a directory came back with a former life of a topic, and the broker did not start",
    ),
    (51397, 5, (), "a follower could not begin its log inside a batch, as its leader's log did"),
    (
        31,
        12,
        ("min isr", "kill", "kill leader", "isolate"),
        "a follower ended where its leader's log began, inside another batch",
    ),
    (8, 8, (), "a coordinator waited for a fraction of a millisecond, and spun"),
    (930092, 5, (), "a leader without its lease handed out what another one's members had settled"),
)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("seed", "seconds", "kinds", "what"), FOUND, ids=[f[3] for f in FOUND])
def test_what_once_failed(seed: int, seconds: int, kinds: tuple[str, ...], what: str) -> None:
    swarm = Swarm.of(*kinds, every_ms=800.0) if kinds else None
    assert SimCluster(seed, swarm=swarm).run(seconds).problems == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(2_000, 2_200, 25))
def test_seeds(first: int) -> None:
    """A few hundred short lives of clusters; `make sim` runs as many as one likes."""
    for seed in range(first, first + 25):
        assert SimCluster(seed).run(4).problems == [], f"seed {seed}"
