"""Leader election of a partition. Pure: takes a partition state and the live brokers, returns
another state.

The rules, in the order in which they are tried (KIP-966, KIP-841):

1. the first replica in assignment order that is live and whose ISR membership counts;
2. else the first that is live and whose ELR membership counts: it is then alone in the ISR;
3. else, by :func:`last_resort`, the replica with the longest log, among the last known ELR once all
   of them are live, or, if the topic allows unclean elections, among all live replicas. Records may
   be lost;
4. else there is no leader.

A membership in the ISR or ELR was gained in some broker epoch. It counts as long as the broker has
lost nothing since: its *continuity*, the broker epoch since which it lost nothing, is not later.

Every change of the leader and every removal raises the leader epoch. Members that are removed while
fewer than ``min.insync.replicas`` are left have everything that is committed, since nothing more is
committed without them: they become eligible leader replicas until enough are in sync again. The ISR
may become empty.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

from millstream.controller.reachability import ReachabilityReports
from millstream.model.broker import NO_BROKER_EPOCH, BrokerId
from millstream.model.leadership import (
    NO_LEADER,
    IsrMember,
    LeaderRecoveryState,
    PartitionState,
)
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class Electorate:
    """The brokers that may lead (live and not in controlled shutdown), with their continuity."""

    live: frozenset[BrokerId]
    continuity: Mapping[BrokerId, int]

    def without(self, gone: Collection[BrokerId]) -> Electorate:
        """Return the same without some brokers."""
        return Electorate(self.live.difference(gone), self.continuity)


class LogEnd(NamedTuple):
    """The end of a replica's log, compared by epoch first."""

    last_epoch: LeaderEpoch
    log_end_offset: Offset


@dataclass(frozen=True, slots=True)
class LastResort:
    """The replicas among which the one with the longest log becomes leader; ``unclean`` if it may
    lack committed records because the topic allows that.
    """

    candidates: tuple[BrokerId, ...]
    unclean: bool


# --- places ------------------------------------------------------------------------------------


def membership_epoch(state: PartitionState, broker_id: BrokerId) -> int:
    """Return the broker epoch in which a member of ISR or ELR was added."""
    for member in state.isr_broker_epochs:
        if member.broker_id == broker_id:
            return member.broker_epoch
    return NO_BROKER_EPOCH


def membership_counts(state: PartitionState, broker_id: BrokerId, electorate: Electorate) -> bool:
    """True if a live broker has lost nothing since it became a member of ISR or ELR."""
    continuity = electorate.continuity.get(broker_id, NO_BROKER_EPOCH)
    return continuity <= membership_epoch(state, broker_id)


def required_isr(state: PartitionState, min_insync_replicas: int) -> int:
    """Return how many replicas must be in sync for anything to be committed."""
    return min(min_insync_replicas, len(state.replicas))


def with_isr(
    state: PartitionState,
    isr: Sequence[BrokerId],
    *,
    min_insync_replicas: int,
    epochs: Iterable[IsrMember] = (),
) -> PartitionState:
    """Return the state with another ISR: removed members become ELR members while too few are in
    sync.

    ``epochs`` are those of added members; the others keep theirs.
    """
    members = tuple(isr)
    elr: tuple[BrokerId, ...] = ()
    last_known: tuple[BrokerId, ...] = ()
    if len(members) < required_isr(state, min_insync_replicas):
        eligible = {*state.elr, *state.isr} - set(members)
        elr = tuple(each for each in state.replicas if each in eligible)
        last_known = tuple(each for each in state.last_known_elr if each not in members)
    known = {each.broker_id: each for each in state.isr_broker_epochs}
    known.update((each.broker_id, each) for each in epochs)
    kept = tuple(known[each] for each in (*members, *elr) if each in known)
    return replace(state, isr=members, elr=elr, last_known_elr=last_known, isr_broker_epochs=kept)


def _written(
    state: PartitionState, controller_epoch: int, *, raise_leader_epoch: bool
) -> PartitionState:
    return replace(
        state,
        leader_epoch=state.leader_epoch + (1 if raise_leader_epoch else 0),
        partition_epoch=state.partition_epoch + 1,
        controller_epoch=controller_epoch,
    )


# --- elections ---------------------------------------------------------------------------------


def elect_leader(
    replicas: Sequence[BrokerId], isr: Collection[BrokerId], live: Collection[BrokerId]
) -> BrokerId:
    """Return the first of ``replicas`` that is live and in the ISR; NO_LEADER when none is."""
    for broker_id in replicas:
        if broker_id in isr and broker_id in live:
            return broker_id
    return NO_LEADER


def _elected(
    state: PartitionState, electorate: Electorate, min_insync_replicas: int
) -> PartitionState:
    """Return the state with the leader by rules 1 and 2, or with none."""
    for place in (state.isr, state.elr):
        able = [each for each in place if membership_counts(state, each, electorate)]
        leader = elect_leader(state.replicas, able, electorate.live)
        if leader == NO_LEADER:
            continue
        if place is state.elr:
            state = with_isr(state, (leader,), min_insync_replicas=min_insync_replicas)
        return replace(state, leader=leader)
    return replace(state, leader=NO_LEADER)


def new_partition(
    replicas: tuple[BrokerId, ...],
    live: Collection[BrokerId],
    controller_epoch: int,
    leader_epoch: LeaderEpoch = 0,
    broker_epochs: Mapping[BrokerId, int] | None = None,
) -> PartitionState:
    """Return the first state of a partition: every live replica is in sync, the first one leads."""
    isr = tuple(broker_id for broker_id in replicas if broker_id in live)
    if len(isr) == len(replicas):
        isr = replicas
    leader = elect_leader(replicas, isr, live)
    members: tuple[IsrMember, ...] = ()
    if broker_epochs:
        members = tuple(IsrMember(each, broker_epochs[each]) for each in isr)
    return PartitionState(
        replicas, leader, leader_epoch, isr, 0, controller_epoch, isr_broker_epochs=members
    )


def after_leaving(
    state: PartitionState,
    gone: AbstractSet[BrokerId],
    electorate: Electorate,
    *,
    min_insync_replicas: int,
    controller_epoch: int,
) -> PartitionState:
    """Return the state after brokers have failed; the same object if none of them is concerned."""
    if state.leader not in gone and gone.isdisjoint(state.isr):
        return state
    electorate = electorate.without(gone)
    left = tuple(each for each in state.isr if each not in gone)
    after = with_isr(state, left, min_insync_replicas=min_insync_replicas)
    if state.leader in gone or state.leader == NO_LEADER:
        after = _elected(after, electorate, min_insync_replicas)
    return _written(after, controller_epoch, raise_leader_epoch=True)


def after_joining(
    state: PartitionState,
    joined: AbstractSet[BrokerId],
    electorate: Electorate,
    *,
    min_insync_replicas: int,
    controller_epoch: int,
) -> PartitionState:
    """Return the state after brokers have registered: memberships of theirs that no longer count
    are removed, and a partition without a leader may get one. The same object when nothing changes.
    """
    lost = {
        each
        for each in joined & {*state.isr, *state.elr}
        if not membership_counts(state, each, electorate)
    }
    after = state
    if lost:
        known = {each.broker_id for each in state.isr_broker_epochs} - lost
        last_known = (*state.last_known_elr, *(each for each in state.replicas if each in lost))
        after = replace(
            state,
            isr=tuple(each for each in state.isr if each not in lost),
            elr=tuple(each for each in state.elr if each not in lost),
            last_known_elr=tuple(dict.fromkeys(last_known)),
            isr_broker_epochs=tuple(e for e in state.isr_broker_epochs if e.broker_id in known),
        )
    if after.leader == NO_LEADER or after.leader in lost:
        after = _elected(after, electorate, min_insync_replicas)
    if after == state:
        return state
    changed = after.leader != state.leader or after.isr != state.isr
    return _written(after, controller_epoch, raise_leader_epoch=changed)


def after_leader_restart(
    state: PartitionState, live_epochs: Mapping[BrokerId, int], *, controller_epoch: int
) -> PartitionState:
    """Return the state with a restarted leader in a new leader epoch; part of
    :func:`after_controller_election`. The same object when nothing changes.

    It restarted while there was no controller. Its high watermark restarts at the last checkpoint,
    and must not go back within one leader epoch. Its membership counts, otherwise it would not be
    the leader any more; the membership gets the new broker epoch.
    """
    earned = membership_epoch(state, state.leader)
    live = live_epochs.get(state.leader, NO_BROKER_EPOCH)
    if NO_BROKER_EPOCH in (earned, live) or live <= earned:
        return state
    members = tuple(
        IsrMember(each.broker_id, live) if each.broker_id == state.leader else each
        for each in state.isr_broker_epochs
    )
    after = replace(state, isr_broker_epochs=members)
    return _written(after, controller_epoch, raise_leader_epoch=True)


def after_controller_election(
    state: PartitionState,
    live_epochs: Mapping[BrokerId, int],
    electorate: Electorate,
    *,
    min_insync_replicas: int,
    controller_epoch: int,
) -> PartitionState:
    """Return the state adjusted to the live brokers and their broker epochs, for a controller that
    was just elected. The same object when nothing changes.

    Everything that happened without a controller is applied in one step: an intermediate state
    might have a leader whose membership does not count, and brokers could read it from the store.
    Memberships that no longer count are removed first, so that ``min.insync.replicas`` is compared
    with what is left.
    """
    gone = frozenset({*state.isr, state.leader} - live_epochs.keys() - {NO_LEADER})
    after = after_joining(
        state,
        live_epochs.keys(),
        electorate,
        min_insync_replicas=min_insync_replicas,
        controller_epoch=controller_epoch,
    )
    after = after_leaving(
        after,
        gone,
        electorate,
        min_insync_replicas=min_insync_replicas,
        controller_epoch=controller_epoch,
    )
    after = after_leader_restart(after, live_epochs, controller_epoch=controller_epoch)
    if after is state:
        return state
    return replace(
        after,
        leader_epoch=min(after.leader_epoch, state.leader_epoch + 1),
        partition_epoch=state.partition_epoch + 1,
    )


def after_smaller_min_isr(
    state: PartitionState, *, min_insync_replicas: int, controller_epoch: int
) -> PartitionState:
    """Return the state without eligible leader replicas if enough replicas are in sync now. The
    same object when nothing changes.

    From then on the leader commits without them (KIP-966 clears them for the same reason).
    """
    enough = len(state.isr) >= required_isr(state, min_insync_replicas)
    if not enough or not (state.elr or state.last_known_elr):
        return state
    after = with_isr(state, state.isr, min_insync_replicas=min_insync_replicas)
    return _written(after, controller_epoch, raise_leader_epoch=False)


def preferred(
    state: PartitionState, electorate: Electorate, *, controller_epoch: int
) -> PartitionState | None:
    """Return the state with its preferred leader; None if that replica cannot lead.

    The same object when it leads already.
    """
    first = state.replicas[0]
    if state.leader == first:
        return state
    if first not in state.isr or first not in electorate.live:
        return None
    if not membership_counts(state, first, electorate):
        return None
    return _written(replace(state, leader=first), controller_epoch, raise_leader_epoch=True)


def after_unreachable(
    state: PartitionState,
    reports: ReachabilityReports,
    electorate: Electorate,
    *,
    suspected: Collection[BrokerId] = (),
    controller_epoch: int,
) -> PartitionState:
    """Return the state led by another in-sync replica where none can reach the leader.

    Every live follower in the ISR has to say that it cannot fetch from the leader: while one can,
    the others are ill, and leave the ISR after ``replica.lag.time.max.ms``. The first of them in
    assignment order leads that may be elected, is not ``suspected``, and that no member of the
    ISR, the present leader included, says to be out of reach. The ISR stays as it is: the old
    leader holds all that is committed, and follows if it can. The same object when nothing changes.
    """
    followers = [each for each in state.isr if each != state.leader and each in electorate.live]
    if not followers or not all(reports.cannot_reach(each, state.leader) for each in followers):
        return state
    able = [
        each
        for each in followers
        if each not in suspected
        and membership_counts(state, each, electorate)
        and not any(reports.cannot_reach(other, each) for other in state.isr)
    ]
    leader = elect_leader(state.replicas, able, electorate.live)
    if leader == NO_LEADER:
        return state
    return _written(replace(state, leader=leader), controller_epoch, raise_leader_epoch=True)


def before_shutdown(
    state: PartitionState,
    stopping: BrokerId,
    electorate: Electorate,
    *,
    min_insync_replicas: int,
    controller_epoch: int,
) -> PartitionState | None:
    """Return the state without a broker in controlled shutdown; None if no other replica can lead.

    The same object if the broker is neither leader nor in the ISR (Kafka:
    ``ControlledShutdownPartitionLeaderElectionStrategy``).
    """
    if stopping not in state.isr and state.leader != stopping:
        return state
    electorate = electorate.without((stopping,))
    left = tuple(each for each in state.isr if each != stopping)
    after = with_isr(state, left, min_insync_replicas=min_insync_replicas)
    if state.leader == stopping:
        able = [each for each in left if membership_counts(state, each, electorate)]
        leader = elect_leader(state.replicas, able, electorate.live)
        if leader == NO_LEADER:
            return None
        after = replace(after, leader=leader)
    return _written(after, controller_epoch, raise_leader_epoch=True)


# --- unclean elections and last known ELR --------------------------------------------------------


def last_resort(
    state: PartitionState, electorate: Electorate, *, allow_unclean: bool
) -> LastResort | None:
    """Return the replicas whose logs are compared for a partition without a leader; None to
    wait.
    """
    if state.leader != NO_LEADER:
        return None
    if not state.isr and not state.elr:
        held_everything = state.last_known_elr or state.replicas
        if electorate.live.issuperset(held_everything):
            return LastResort(tuple(held_everything), unclean=False)
    if allow_unclean:
        live = tuple(each for each in state.replicas if each in electorate.live)
        if live:
            return LastResort(live, unclean=True)
    return None


def elect_longest(
    state: PartitionState,
    logs: Mapping[BrokerId, LogEnd],
    *,
    broker_epochs: Mapping[BrokerId, int],
    controller_epoch: int,
) -> PartitionState:
    """Return the state led by the replica with the longest log, of several the first in assignment
    order.

    It is marked as recovering unless no other replica could have had more. The new leader epoch is
    higher than every epoch in the logs. ``broker_epochs`` are those of the brokers that live.
    """
    assert logs
    epoch = max(end.last_epoch for end in logs.values())
    order = [each for each in state.replicas if each in logs]
    leader = max(order, key=lambda each: logs[each])
    recovery = LeaderRecoveryState.RECOVERING
    if state.is_alone:
        recovery = LeaderRecoveryState.RECOVERED
    after = replace(
        state,
        leader=leader,
        isr=(leader,),
        elr=(),
        last_known_elr=(),
        leader_recovery_state=recovery,
        leader_epoch=max(state.leader_epoch, epoch),
        isr_broker_epochs=(IsrMember(leader, broker_epochs.get(leader, NO_BROKER_EPOCH)),),
    )
    return _written(after, controller_epoch, raise_leader_epoch=True)


# --- a broker on its own -------------------------------------------------------------------------


def after_restart(
    state: PartitionState,
    live: Collection[BrokerId],
    *,
    controller_epoch: int,
    lost_records: bool,
    log_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> PartitionState:
    """Return the state once the live brokers are known again; the same object when nothing changes.

    A leader that may have lost records which consumers have read (``lost_records``: its broker did
    not stop cleanly) gets a new leader epoch, so that consumers detect it (KIP-320). So does one
    whose log has a later epoch (``log_epoch``) than the store: epochs never go back in a log.
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
