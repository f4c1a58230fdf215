"""Every rule of replication is needed: without it, the simulator finds something wrong within a
bounded number of seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from millstream.controller import election, isr_changes
from millstream.model.broker import BrokerId
from millstream.replication.follower import FollowerReplication
from millstream.replication.isr import PendingExpand
from millstream.replication.leader import LeaderReplication
from millstream.runtime import broker_metadata, partitions
from millstream.runtime.broker_metadata import BrokerMetadata
from millstream.runtime.partition import Partition
from millstream.runtime.replica_manager import ReplicaManager
from millstream.sim.cluster import SimCluster
from millstream.sim.faults import Swarm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SEEDS = 40
Patch = Callable[[pytest.MonkeyPatch], None]


def truncates_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """KIP-101: what lies above a follower's high watermark may be committed."""
    follow = ReplicaManager.follow

    def mutant(self: ReplicaManager, partition: Partition, state: Any) -> None:
        partition.log.truncate_to(partition.log.high_watermark, now_ms=0)
        follow(self, partition, state)

    patch.setattr(ReplicaManager, "follow", mutant)


def commits_below_min_isr(patch: pytest.MonkeyPatch) -> None:
    """KIP-966: the eligible leader replicas then lack what the last member committed alone."""
    patch.setattr(LeaderReplication, "is_under_min_isr", property(lambda self: False))


def acknowledges_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "wait_for_commit", lambda self, last_offset, callback: callback(None))


def joins_without_the_start_of_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """KAFKA-7128: a new leader's high watermark lags behind what was committed."""

    def mutant(self: LeaderReplication, fetch: Any, progress: Any) -> bool:
        return bool(progress.log_end_offset >= 0)

    patch.setattr(LeaderReplication, "_may_join", mutant)


def commits_without_who_may_be_in_sync(patch: pytest.MonkeyPatch) -> None:
    """KIP-497: the controller may hold the ISR that was proposed."""
    patch.setattr(PendingExpand, "maximal_isr", property(lambda self: self.isr))


def trusts_who_lost_its_power(patch: pytest.MonkeyPatch) -> None:
    """A place in the ISR counts no more once what earned it is gone."""
    patch.setattr(election, "place_counts", lambda state, broker_id, electorate: True)


def elects_whoever_lives(patch: pytest.MonkeyPatch) -> None:
    def mutant(state: Any, electorate: Any, min_insync_replicas: int) -> Any:
        live = [each for each in state.replicas if each in electorate.live]
        if not live:
            return original(state, electorate, min_insync_replicas)
        state = election.with_isr(state, (live[0],), min_insync_replicas=min_insync_replicas)
        return replace(state, leader=BrokerId(live[0]))

    original = election._elected
    patch.setattr(election, "_elected", mutant)


def takes_stale_pushes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerMetadata, "check_controller", lambda self, controller_epoch: None)
    patch.setattr(broker_metadata, "_newer", lambda older, pushed: pushed or older)
    patch.setattr(partitions, "newer", lambda state, known: state != known)
    apply_topic = BrokerMetadata.apply_topic

    def mutant(self: BrokerMetadata, update: Any) -> bool:
        known = self.cache.topic(update.name)
        if known is not None and len(known.partitions) == update.partition_count:
            self._put(update)
            return True
        return apply_topic(self, update)

    patch.setattr(BrokerMetadata, "apply_topic", mutant)


def ignores_broker_epochs(patch: pytest.MonkeyPatch) -> None:
    """KIP-380, KIP-841, KIP-903: what an earlier life of a broker fetched says nothing of this."""

    def apply(self: BrokerMetadata, update: Any) -> None:
        original(
            self,
            broker_metadata.MetadataUpdate(
                **{name: getattr(update, name) for name in update.__slots__}
                | {"broker_epoch": self.broker_epoch}
            ),
        )

    original = BrokerMetadata.apply
    patch.setattr(BrokerMetadata, "apply", apply)
    patch.setattr(isr_changes, "_check_members", lambda context, state, wanted: None)
    patch.setattr(election, "place_counts", lambda state, broker_id, electorate: True)
    patch.setattr(
        LeaderReplication,
        "_may_join",
        lambda self, fetch, progress: (
            progress.log_end_offset >= max(self.high_watermark, self.leader_epoch_start_offset)
        ),
    )


def leads_without_producer_state(patch: pytest.MonkeyPatch) -> None:
    """A retry that the leader before has written is then written again."""
    lead = ReplicaManager.lead

    def mutant(self: ReplicaManager, partition: Partition, state: Any) -> None:
        if partition.leading is None:
            partition.log.forget_oldest_producers(0)
        lead(self, partition, state)

    patch.setattr(ReplicaManager, "lead", mutant)


def does_not_truncate_at_all(patch: pytest.MonkeyPatch) -> None:
    """A leader that does not compare epochs lets logs diverge."""
    patch.setattr(FollowerReplication, "_diverging", lambda self, diverging, log, now_ms: ())


CUTS = ("isolate", "cut one way", "kill leader", "pause")
LOSS = ("power loss", "kill all")

MUTATIONS: tuple[tuple[Patch, tuple[str, ...]], ...] = (
    (truncates_to_the_high_watermark, ("elect", "kill leader", "kill all")),
    (commits_below_min_isr, ("isolate", "kill leader", "kill", "pause")),
    (acknowledges_before_the_commit, CUTS),
    (joins_without_the_start_of_the_epoch, ("kill", "kill leader")),
    (commits_without_who_may_be_in_sync, ("isolate", "kill", "slow messages", "cut one way")),
    (trusts_who_lost_its_power, LOSS),
    (elects_whoever_lives, ("isolate", "kill leader", "kill")),
    (takes_stale_pushes, ("pause", "slow messages", "kill controller", "cut one way")),
    (ignores_broker_epochs, LOSS),
    (leads_without_producer_state, ("kill leader", "reset", "elect")),
    (does_not_truncate_at_all, CUTS),
)


def first_caught(kinds: tuple[str, ...], seeds: int = SEEDS) -> tuple[int, list[str]] | None:
    for seed in range(1, seeds + 1):
        cluster = SimCluster(seed, swarm=Swarm.of(*kinds, every_ms=800.0))
        try:
            report = cluster.run(12)
        except Exception as error:
            return seed, [repr(error)]
        if report.problems:
            return seed, report.problems
    return None


@pytest.mark.parametrize(
    ("mutate", "kinds"), MUTATIONS, ids=[mutate.__name__ for mutate, _ in MUTATIONS]
)
def test_a_cluster_that(
    mutate: Patch, kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert first_caught(kinds) is not None
