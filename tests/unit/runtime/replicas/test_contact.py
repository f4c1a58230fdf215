"""A leader whose followers wait for its answer does not take them for silent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.runtime.replica_site import ClusterSite

from millstream.model.broker import BrokerId
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.replica_manager import CONTACT_INTERVAL_MS, ReplicaManager
from millstream.sim.disk import MemoryFile
from millstream.storage.segment import Segment

TWO, THREE = BrokerId(2), BrokerId(3)


class Watched:
    """Three brokers, each of which looks regularly who reaches whom."""

    def __init__(self) -> None:
        self.site = ClusterSite()
        self.silent: frozenset[BrokerId] = frozenset()

    def replicas(self, broker_id: int) -> ReplicaManager:
        replicas = self.site[broker_id].partitions.replicas
        assert replicas is not None
        return replicas

    def run(self, for_ms: int) -> None:
        for _ in range(for_ms // CONTACT_INTERVAL_MS):
            self.site.advance(CONTACT_INTERVAL_MS)
            self.silent = self.replicas(1).check_contact()
            for each in (TWO, THREE):
                self.replicas(each).check_contact()


def read_from_disk(site: ClusterSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the bytes that followers want be on a disk that does not answer, as those of one that is
    far behind with another partition are.
    """
    site[1].offload.held = True
    monkeypatch.setattr(MemoryFile, "is_cached", lambda self, position, size: False)
    monkeypatch.setattr(Segment, "hinted_position", lambda self, offset: None)


@pytest.fixture
def watched() -> Watched:
    watched = Watched()
    watched.run(2_000)
    return watched


def test_followers_that_stop_to_fetch_are_silent(watched: Watched) -> None:
    assert watched.silent == frozenset()
    watched.site.cut(2, 1)
    watched.run(2_000)
    assert watched.silent == {TWO}


def test_a_fetch_that_waits_for_the_disk_is_no_silence(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the leader that is slow, and it knows of the fetch."""
    site = watched.site
    read_from_disk(site, monkeypatch)
    site[1].produce()
    watched.run(10_000)
    assert watched.replicas(2).unreachable_leaders() == {1}, "it owes them an answer"
    assert watched.silent == frozenset()
    monkeypatch.undo()
    site[1].offload.held = False
    site[1].offload.release()
    watched.run(2_000)
    assert watched.silent == frozenset()
    assert site[2].end == 1
    site.cut(2, 1)
    site.cut(3, 1)
    watched.run(2_000)
    assert watched.silent == {TWO, THREE}


def test_a_fetch_whose_follower_has_gone_is_not_waited_for(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = watched.site
    read_from_disk(site, monkeypatch)
    site[1].produce()
    watched.run(2_000)
    site.kill(2)
    for link in site.links:
        if link.touches(TWO):
            link.close()
    watched.run(2_000)
    assert watched.silent == {TWO}


def test_a_leader_whose_answer_takes_long_to_arrive_is_in_reach(watched: Watched) -> None:
    site = watched.site
    site.cut(1, 2)
    for _ in range(10):
        watched.run(CONTACT_INTERVAL_MS)
        for link in site.links:
            if link.touches(TWO):
                link.received_size += 100_000
        assert watched.replicas(2).unreachable_leaders() == frozenset()
    watched.run(2_000)
    assert watched.replicas(2).unreachable_leaders() == {1}


class CountedPartitions(dict[Partition, None]):
    """The partitions that a broker leads; counts how often they are looked through."""

    looks = 0

    def __iter__(self) -> Iterator[Partition]:
        self.looks += 1
        return super().__iter__()


def test_a_broker_that_follows_nothing_here_costs_nothing(watched: Watched) -> None:
    """It is silent for ever, and a leader may have a hundred thousand partitions."""
    site = watched.site
    site.cut(2, 1)
    site.controller.elect(1, 1, 3)
    watched.run(3_000)
    replicas = watched.replicas(1)
    counted = replicas._leading = CountedPartitions(replicas._leading)
    watched.run(10_000)
    assert watched.silent == frozenset()
    assert counted.looks <= 2, "those of the lag time"
    site.controller.elect(1, 1, 2, 3)
    watched.run(500)
    assert watched.silent == {TWO}, "the ISR has changed"
