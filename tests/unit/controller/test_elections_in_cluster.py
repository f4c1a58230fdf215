"""Elections among replicas: each test is a rule of the election, or of KIP-966 and KIP-841."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controller.states import EPOCH, brokers, electorate, ids, members, state

from millstream.controller.election import (
    LastResort,
    LogEnd,
    after_controller_election,
    after_joining,
    after_leader_restart,
    after_leaving,
    after_smaller_min_isr,
    before_shutdown,
    elect_longest,
    last_resort,
    membership_counts,
    new_partition,
    preferred,
    with_isr,
)
from millstream.model.broker import BrokerId
from millstream.model.leadership import (
    NO_LEADER,
    IsrMember,
    LeaderRecoveryState,
    PartitionState,
)


def leaving(
    before: PartitionState, *gone: int, live: tuple[int, ...], minimum: int = 2
) -> PartitionState:
    return after_leaving(
        before,
        brokers(*gone),
        electorate(*live),
        min_insync_replicas=minimum,
        controller_epoch=EPOCH,
    )


def joining(
    before: PartitionState, *joined: int, live: tuple[int, ...], lost: tuple[int, ...] = ()
) -> PartitionState:
    return after_joining(
        before,
        brokers(*joined),
        electorate(*live, lost=lost),
        min_insync_replicas=2,
        controller_epoch=EPOCH,
    )


THREE = state((1, 2, 3), leader=1, isr=(1, 2, 3))


# --- a broker dies ---------------------------------------------------------------------------


def test_the_next_in_assignment_order_leads() -> None:
    after = leaving(state((3, 1, 2), leader=3, isr=(1, 2, 3)), 3, live=(1, 2))
    assert (after.leader, after.isr, after.elr) == (1, (1, 2), ())


def test_a_leader_outside_the_isr_is_never_chosen() -> None:
    after = leaving(state((1, 2, 3), leader=1, isr=(1, 3)), 1, live=(2, 3))
    assert after.leader == 3


def test_a_removal_raises_leader_epoch_and_partition_epoch_and_is_signed() -> None:
    for gone in (1, 3):  # the leader, and a follower
        after = leaving(THREE, gone, live=tuple({1, 2, 3} - {gone}))
        assert (after.leader_epoch, after.partition_epoch, after.controller_epoch) == (8, 21, EPOCH)


def test_a_failure_of_a_broker_without_replicas_changes_nothing() -> None:
    before = state((1, 2, 3), leader=1, isr=(1, 2))
    assert leaving(before, 3, 9, live=(1, 2)) is before


def test_a_removed_member_below_min_isr_becomes_an_elr_member() -> None:
    after = leaving(state((1, 2, 3), leader=1, isr=(1, 2)), 2, live=(1,))
    assert (after.leader, after.isr, after.elr) == (1, (1,), (2,))
    assert after.isr_broker_epochs == members(1, 2)


def test_the_isr_may_become_empty() -> None:
    after = leaving(THREE, 1, 2, 3, live=())
    assert (after.leader, after.isr, after.elr) == (NO_LEADER, (), (1, 2, 3))


def test_with_enough_in_sync_there_is_no_elr() -> None:
    before = state((1, 2, 3), leader=1, isr=(1,), elr=(2,), last_known=(3,))
    after = with_isr(before, ids(1, 3), min_insync_replicas=2, epochs=members(3))
    assert (after.isr, after.elr, after.last_known_elr) == ((1, 3), (), ())
    assert after.isr_broker_epochs == members(1, 3)


def test_min_insync_replicas_is_bounded_by_the_replication_factor() -> None:
    after = leaving(state((1, 2), leader=1, isr=(1, 2)), 2, live=(1,), minimum=5)
    assert after.elr == (2,)
    after = with_isr(state((1,), leader=1, isr=(1,)), ids(1), min_insync_replicas=5)
    assert after.elr == ()


# --- a broker comes back -----------------------------------------------------------------------


def test_an_eligible_replica_leads_alone() -> None:
    before = state((1, 2, 3), elr=(2, 3))
    after = joining(before, 3, live=(3,))
    assert (after.leader, after.isr, after.elr) == (3, (3,), (2,))
    assert after.leader_epoch == before.leader_epoch + 1


def test_isr_members_are_elected_before_elr_members() -> None:
    after = joining(state((1, 2, 3), isr=(3,), elr=(1,)), 1, 3, live=(1, 3))
    assert after.leader == 3


def test_a_broker_that_lost_data_loses_its_memberships() -> None:
    before = state((1, 2, 3), elr=(2, 3))
    after = joining(before, 2, live=(2,), lost=(2,))
    assert (after.leader, after.elr, after.last_known_elr) == (NO_LEADER, (3,), (2,))
    again = joining(after, 3, live=(2, 3), lost=(2,))
    assert (again.leader, again.isr) == (3, (3,))


def test_a_membership_gained_after_the_loss_counts() -> None:
    before = state((1, 2, 3), elr=(2,))
    came_in = (IsrMember(BrokerId(2), 1000),)
    trusted = PartitionState(
        before.replicas, NO_LEADER, 7, (), 20, 3, elr=ids(2), isr_broker_epochs=came_in
    )
    assert joining(trusted, 2, live=(2,), lost=(2,)).leader == 2


def test_a_broker_of_no_part_changes_nothing() -> None:
    assert joining(THREE, 9, live=(1, 2, 3, 9)) is THREE
    assert joining(THREE, 3, live=(1, 2, 3)) is THREE


# --- preferred leaders, and stopping ---------------------------------------------------------


def test_the_preferred_replica_leads_if_it_is_live_and_in_sync() -> None:
    before = state((1, 2, 3), leader=2, isr=(1, 2, 3))
    after = preferred(before, electorate(1, 2, 3), controller_epoch=EPOCH)
    assert after is not None
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1, 2, 3), 8)
    assert preferred(before, electorate(2, 3), controller_epoch=EPOCH) is None
    behind = state((1, 2, 3), leader=2, isr=(2, 3))
    assert preferred(behind, electorate(1, 2, 3), controller_epoch=EPOCH) is None
    assert preferred(THREE, electorate(1, 2, 3), controller_epoch=EPOCH) is THREE


def stopping(before: PartitionState, broker_id: int) -> PartitionState | None:
    return before_shutdown(
        before,
        BrokerId(broker_id),
        electorate(1, 2, 3),
        min_insync_replicas=2,
        controller_epoch=EPOCH,
    )


def test_a_broker_that_stops_gives_its_leadership_away_and_leaves_the_isr() -> None:
    after = stopping(THREE, 1)
    assert after is not None
    assert (after.leader, after.isr, after.leader_epoch) == (2, (2, 3), 8)
    follower = stopping(THREE, 2)
    assert follower is not None
    assert (follower.leader, follower.isr) == (1, (1, 3))


def test_a_partition_without_another_candidate_keeps_its_leader() -> None:
    assert stopping(state((1, 2, 3), leader=1, isr=(1,), elr=(2,)), 1) is None
    untouched = state((1, 2, 3), leader=1, isr=(1, 3))
    assert stopping(untouched, 2) is untouched


# --- where nobody is known to have everything --------------------------------------------------


def test_no_unclean_election_while_a_complete_replica_exists() -> None:
    waiting = state((1, 2, 3), elr=(2,))
    assert last_resort(waiting, electorate(1, 3), allow_unclean=False) is None
    assert last_resort(THREE, electorate(1, 2, 3), allow_unclean=True) is None


def test_everybody_that_had_everything_is_waited_for() -> None:
    lost = state((1, 2, 3), last_known=(2, 3))
    assert last_resort(lost, electorate(1, 2), allow_unclean=False) is None
    found = last_resort(lost, electorate(2, 3), allow_unclean=False)
    assert found == LastResort(ids(2, 3), unclean=False)


def test_an_unclean_election_takes_any_live_replica() -> None:
    waiting = state((1, 2, 3), elr=(2,))
    found = last_resort(waiting, electorate(1, 3), allow_unclean=True)
    assert found == LastResort(ids(1, 3), unclean=True)
    assert last_resort(waiting, electorate(), allow_unclean=True) is None


def longest(before: PartitionState, logs: dict[int, LogEnd]) -> PartitionState:
    return elect_longest(
        before,
        {BrokerId(each): end for each, end in logs.items()},
        broker_epochs={BrokerId(each): 500 + each for each in logs},
        controller_epoch=EPOCH,
    )


def test_the_longest_log_is_that_of_the_latest_epoch_first() -> None:
    logs = {1: LogEnd(4, 900), 2: LogEnd(6, 100), 3: LogEnd(6, 100)}
    after = longest(state((3, 2, 1)), logs)
    assert (after.leader, after.isr, after.leader_epoch) == (3, (3,), 8)
    assert after.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert after.isr_broker_epochs == (IsrMember(BrokerId(3), 503),)


def test_leader_epochs_go_beyond_those_of_the_logs() -> None:
    assert longest(state((1, 2)), {1: LogEnd(30, 1)}).leader_epoch == 31


def test_the_only_replica_has_nothing_to_recover() -> None:
    after = longest(state((1,), last_known=(1,)), {1: LogEnd(2, 1)})
    assert after.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_a_new_partition_has_its_members_epochs() -> None:
    epochs = {BrokerId(1): 11, BrokerId(2): 12}
    made = new_partition(ids(1, 2), ids(1, 2), EPOCH, broker_epochs=epochs)
    assert made.isr_broker_epochs == (IsrMember(BrokerId(1), 11), IsrMember(BrokerId(2), 12))


# --- what holds whatever happens ---------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(st.sampled_from(("leave", "join", "lose", "stop")), st.integers(1, 3)), max_size=25
)


@given(EVENTS, st.integers(1, 3))
@pytest.mark.parametrize("replicas", [(1, 2, 3), (2, 1), (3,)])
def test_leaders_are_in_sync_and_epochs_never_go_back(
    replicas: tuple[int, ...], events: list[tuple[str, int]], minimum: int
) -> None:
    now = state(replicas, leader=replicas[0], isr=replicas)
    live, lost = {1, 2, 3}, set[int]()
    for event, broker_id in events:
        before = now
        if event == "leave":
            live.discard(broker_id)
            now = leaving(now, broker_id, live=tuple(live), minimum=minimum)
        elif event == "stop" and broker_id in live:
            now = (
                before_shutdown(
                    now,
                    BrokerId(broker_id),
                    electorate(*live, lost=lost),
                    min_insync_replicas=minimum,
                    controller_epoch=EPOCH,
                )
                or now
            )
        elif broker_id not in live:
            live.add(broker_id)
            lost |= {broker_id} if event == "lose" else set()
            now = joining(now, broker_id, live=tuple(live), lost=tuple(lost))
        assert now.leader in (*now.isr, NO_LEADER)
        assert now.leader in (*live, NO_LEADER)
        assert not set(now.isr) & set(now.elr)
        assert {*now.isr, *now.elr} <= set(replicas)
        assert now.leader_epoch >= before.leader_epoch
        if now.leader != before.leader:
            assert now.leader_epoch > before.leader_epoch
        if now != before:
            assert now.partition_epoch == before.partition_epoch + 1
        if not lost:  # everything committed is with somebody that is waited for
            assert now.isr or now.elr


def test_a_smaller_min_isr_leaves_no_eligible_replicas_where_enough_are_in_sync() -> None:
    """What is committed from then on, they need not have."""
    before = state((1, 2, 3), leader=1, isr=(1,), elr=(2,), last_known=(3,))

    def at(minimum: int) -> PartitionState:
        return after_smaller_min_isr(before, min_insync_replicas=minimum, controller_epoch=EPOCH)

    assert at(2) is before
    after = at(1)
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (1, ids(1), (), ())
    assert after.isr_broker_epochs == members(1)
    assert after.leader_epoch == before.leader_epoch
    assert after.partition_epoch == before.partition_epoch + 1


# --- a new controller ----------------------------------------------------------------------------


def test_a_restarted_leader_gets_a_new_leader_epoch() -> None:
    """All brokers were away for less than a session: nobody saw that the leader had stopped."""
    before = state((1, 2, 3), leader=1, isr=(1, 2, 3))
    earned = before.isr_broker_epochs[0].broker_epoch
    after = after_leader_restart(
        before, {BrokerId(1): earned + 5, BrokerId(2): earned}, controller_epoch=EPOCH
    )
    assert (after.leader, after.isr) == (before.leader, before.isr)
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.isr_broker_epochs[0] == IsrMember(BrokerId(1), earned + 5)
    assert after.isr_broker_epochs[1:] == before.isr_broker_epochs[1:]
    again = after_leader_restart(after, {BrokerId(1): earned + 5}, controller_epoch=EPOCH)
    assert again is after


@pytest.mark.parametrize("live_epochs", [{}, {1: -1}, {1: 0}])
def test_a_leader_that_lived_on_keeps_its_epoch(live_epochs: dict[BrokerId, int]) -> None:
    before = state((1, 2, 3), leader=1, isr=(1, 2, 3))
    assert after_leader_restart(before, live_epochs, controller_epoch=EPOCH) is before


def claimed(
    before: PartitionState, live_epochs: dict[int, int], *, lost: tuple[int, ...] = ()
) -> PartitionState:
    """What a controller makes of a state that it finds; those in ``lost`` have lost their logs."""
    return after_controller_election(
        before,
        {BrokerId(each): epoch for each, epoch in live_epochs.items()},
        electorate(*live_epochs, lost=lost),
        min_insync_replicas=2,
        controller_epoch=EPOCH,
    )


def test_changes_without_a_controller_are_applied_in_one_step() -> None:
    """The leader lost its log, a follower left: no state in between names that leader again."""
    after = claimed(THREE, {1: 1000, 2: 102}, lost=(1,))
    assert (after.leader, after.isr) == (2, (2,))
    assert (after.elr, after.last_known_elr) == (ids(3), ids(1)), "3 left while too few were left"
    assert after.isr_broker_epochs == members(2, 3)
    assert after.partition_epoch == THREE.partition_epoch + 1
    assert after.leader_epoch == THREE.leader_epoch + 1
    assert after.controller_epoch == EPOCH


def test_a_restarted_leader_whose_membership_counts_gets_its_new_broker_epoch() -> None:
    after = claimed(THREE, {1: 500, 2: 102})
    assert (after.leader, after.isr) == (1, (1, 2))
    assert after.isr_broker_epochs == (IsrMember(BrokerId(1), 500), *members(2))
    assert after.partition_epoch == THREE.partition_epoch + 1
    assert after.leader_epoch == THREE.leader_epoch + 1


def test_a_restarted_leader_that_lost_its_log_does_not_regain_its_membership() -> None:
    """Alone, it leads no more: the epoch of its new life is not taken for the one it earned."""
    after = claimed(THREE, {1: 1000}, lost=(1,))
    assert (after.leader, after.isr, after.elr) == (NO_LEADER, (), ids(2, 3))
    assert after.isr_broker_epochs == members(2, 3)
    back = joining(after, 2, live=(1, 2), lost=(1,))
    assert (back.leader, back.isr) == (2, ids(2))


def test_where_nothing_happened_nothing_is_written() -> None:
    assert claimed(THREE, {1: 101, 2: 102, 3: 103}) is THREE


@given(
    st.sets(st.integers(1, 3)),
    st.sets(st.integers(1, 3)),
    st.dictionaries(st.integers(1, 3), st.sampled_from((0, 500))),
    st.sets(st.integers(1, 3)),
)
def test_after_a_controller_election_only_memberships_that_count_are_left(
    isr: set[int], elr: set[int], lives: dict[int, int], lost: set[int]
) -> None:
    """A broker is in the life in which it earned its place (0) or in a later one; only who began
    another life can have lost its log.
    """
    leader = min(isr, default=NO_LEADER)
    before = state((1, 2, 3), leader=leader, isr=sorted(isr), elr=sorted(elr - isr))
    live_epochs = {each: later or 100 + each for each, later in lives.items()}
    gave_up = tuple(each for each, later in lives.items() if later and each in lost)
    after = claimed(before, live_epochs, lost=gave_up)
    voters = electorate(*live_epochs, lost=gave_up)
    assert set(after.isr) <= live_epochs.keys()
    assert all(membership_counts(after, each, voters) for each in (*after.isr, *after.elr))
    assert after.leader in (*after.isr, NO_LEADER)
    able = [each for each in before.isr if each in live_epochs and each not in gave_up]
    if able:
        assert after.leader in able
    if after is not before:
        assert after.partition_epoch == before.partition_epoch + 1
        assert after.leader_epoch in (before.leader_epoch, before.leader_epoch + 1)
    if after.leader == before.leader != NO_LEADER and lives[after.leader]:
        assert after.leader_epoch == before.leader_epoch + 1, "another life, another epoch"
    assert claimed(after, live_epochs, lost=gave_up) is after
