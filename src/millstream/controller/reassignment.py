"""Moves a partition to other brokers. Pure; every step is another state (KIP-455).

::

    settled --start--> moving --all adding replicas in sync--> settled
       ^                 |
       +-----cancel------+

* **start**: the replicas become the union of the present and the target ones; the added ones begin
  to fetch.
* **all adding replicas in sync**: the replicas shrink to the target. Another leader is elected if
  it is removed. A removed replica deletes its log when its broker receives the higher leader epoch.
* **cancel**: the added ones are removed, the others stay.

A start during a move replaces its target. Each of these raises the leader epoch, so that a broker
with stale metadata neither deletes nor serves the partition. None of them removes the last replica
that has all committed records: a reassignment waits for a leader, and a request that would remove
it is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from millstream.controller.assignment import check_manual_replicas
from millstream.controller.election import Electorate, elect_leader, membership_counts, with_isr
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import NO_LEADER, PartitionState


def is_moving(state: PartitionState) -> bool:
    """True while replicas are being added or removed."""
    return bool(state.adding_replicas or state.removing_replicas)


def target_of(state: PartitionState) -> tuple[BrokerId, ...]:
    """Return the replicas after the reassignment."""
    return tuple(each for each in state.replicas if each not in state.removing_replicas)


def origin_of(state: PartitionState) -> tuple[BrokerId, ...]:
    """Return the replicas before the reassignment."""
    return tuple(each for each in state.replicas if each not in state.adding_replicas)


def start(
    state: PartitionState,
    target: Sequence[int],
    brokers: Collection[BrokerId],
    electorate: Electorate,
    *,
    min_insync_replicas: int,
    controller_epoch: int,
) -> PartitionState:
    """Return the partition with a reassignment to ``target`` started, or finished if nothing has to
    be copied; the same object if it already has these replicas.

    Raises INVALID_REPLICA_ASSIGNMENT for an invalid target.
    """
    # A present replica may stay although its broker is down; a new one has to be on a live broker.
    check_manual_replicas(target, {*brokers, *state.replicas}, None)
    wanted = tuple(BrokerId(each) for each in target)
    origin = origin_of(state)
    if wanted == target_of(state) and wanted == state.replicas:
        return state
    removing = tuple(each for each in origin if each not in wanted)
    moved = replace(
        state,
        replicas=(*wanted, *removing),
        adding_replicas=tuple(each for each in wanted if each not in origin),
        removing_replicas=removing,
    )
    moved = _keep_only(moved, moved.replicas, electorate, min_insync_replicas)
    _refuse_loss(state, moved)
    settled = settle(
        moved,
        electorate,
        min_insync_replicas=min_insync_replicas,
        controller_epoch=controller_epoch,
    )
    return settled or _written(moved, state, controller_epoch)


def settle(
    state: PartitionState,
    electorate: Electorate,
    *,
    min_insync_replicas: int,
    controller_epoch: int,
) -> PartitionState | None:
    """Return the partition with the reassignment finished, or None while not all target replicas
    are in sync.
    """
    if not is_moving(state):
        return None
    target = target_of(state)
    if not set(state.adding_replicas) <= set(state.isr):
        return None
    # The remaining replicas have to be able to lead, and enough of them to go on as before.
    left = [each for each in target if each in state.isr]
    if not left or len(left) < min(min_insync_replicas, len(target), len(state.isr)):
        return None
    after = replace(state, replicas=target, adding_replicas=(), removing_replicas=())
    after = _keep_only(after, target, electorate, min_insync_replicas)
    if after.leader == NO_LEADER and state.leader != NO_LEADER:
        return None
    return _written(after, state, controller_epoch)


def cancel(
    state: PartitionState,
    electorate: Electorate,
    *,
    min_insync_replicas: int,
    controller_epoch: int,
) -> PartitionState:
    """Return the partition with the reassignment cancelled.

    Raises NO_REASSIGNMENT_IN_PROGRESS, and INVALID_REPLICA_ASSIGNMENT if none of the remaining
    replicas is in sync.
    """
    if not is_moving(state):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    origin = origin_of(state)
    after = replace(state, replicas=origin, adding_replicas=(), removing_replicas=())
    after = _keep_only(after, origin, electorate, min_insync_replicas)
    _refuse_loss(state, after)
    return _written(after, state, controller_epoch)


def _refuse_loss(before: PartitionState, after: PartitionState) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT if no replica would be left that is known to have everything
    committed.
    """
    if before.leader != NO_LEADER:
        is_lost = after.leader == NO_LEADER
    elif before.isr or before.elr:
        is_lost = not (after.isr or after.elr)
    else:
        is_lost = not {*(before.last_known_elr or origin_of(before))} <= {*after.replicas}
    if is_lost:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "none of the remaining replicas is known to have all committed records",
        )


def _keep_only(
    state: PartitionState,
    replicas: Sequence[BrokerId],
    electorate: Electorate,
    min_insync_replicas: int,
) -> PartitionState:
    """Remove all other replicas from ISR and ELR, and elect another leader if it was one of
    them.
    """
    isr = tuple(each for each in replicas if each in state.isr)
    after = with_isr(state, isr, min_insync_replicas=min_insync_replicas)
    after = replace(
        after,
        elr=tuple(each for each in after.elr if each in replicas),
        last_known_elr=tuple(each for each in after.last_known_elr if each in replicas),
    )
    if state.leader in replicas:
        return after
    able = [each for each in isr if membership_counts(after, each, electorate)]
    return replace(after, leader=elect_leader(replicas, able, electorate.live))


def _written(
    after: PartitionState, before: PartitionState, controller_epoch: int
) -> PartitionState:
    return replace(
        after,
        leader_epoch=before.leader_epoch + 1,
        partition_epoch=before.partition_epoch + 1,
        controller_epoch=controller_epoch,
    )
