"""Who leads a partition: the first replica in assignment order that is alive and in sync."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from millstream.model.broker import BrokerId
from millstream.model.leadership import NO_LEADER, PartitionState
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch


def elect_leader(
    replicas: Sequence[BrokerId], isr: Collection[BrokerId], live: Collection[BrokerId]
) -> BrokerId:
    """Return the first of ``replicas`` that is live and in the ISR; NO_LEADER when none is."""
    for broker_id in replicas:
        if broker_id in isr and broker_id in live:
            return broker_id
    return NO_LEADER


def new_partition(
    replicas: tuple[BrokerId, ...],
    live: Collection[BrokerId],
    controller_epoch: int,
    leader_epoch: LeaderEpoch = 0,
) -> PartitionState:
    """Return the first state of a partition: every live replica is in sync, the first one leads."""
    isr = tuple(broker_id for broker_id in replicas if broker_id in live)
    if len(isr) == len(replicas):
        isr = replicas
    leader = elect_leader(replicas, isr, live)
    return PartitionState(replicas, leader, leader_epoch, isr, 0, controller_epoch)


def after_restart(
    state: PartitionState,
    live: Collection[BrokerId],
    *,
    controller_epoch: int,
    lost_records: bool,
    log_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> PartitionState:
    """Return the state once the live brokers are known again; the same object when nothing changes.

    A leader that may have lost records it had shown (``lost_records``: its broker did not stop
    cleanly) gets a new leader epoch, so that consumers notice (KIP-320). So does one whose log
    holds a later epoch (``log_epoch``) than the store knows of: epochs never go back in a log.
    """
    leader = elect_leader(state.replicas, state.isr, live)
    leads_on = leader == state.leader and log_epoch <= state.leader_epoch
    if leads_on and not (lost_records and leader in live):
        return state
    return replace(
        state,
        leader=leader,
        leader_epoch=max(state.leader_epoch, log_epoch) + 1,
        partition_epoch=state.partition_epoch + 1,
        controller_epoch=controller_epoch,
    )
