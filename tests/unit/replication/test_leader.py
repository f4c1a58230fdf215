"""The leader's rules, each by its name: become leader, high watermark, expand, shrink, answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.replication.leading import (
    LAG_MS,
    ME,
    MY_EPOCH,
    RULES,
    B,
    C,
    D,
    fetch,
    leader,
    only,
    proposed,
    state,
)

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import IsrMember
from millstream.replication.effects import (
    AdvanceHighWatermark,
    AwaitNewState,
    ProposeIsr,
    RetryProposal,
)
from millstream.replication.isr import Committed, PendingExpand, PendingShrink
from millstream.replication.leader import FollowerFetch

# Become leader


def test_become_leader_starts_its_epoch_at_the_log_end_without_follower_progress() -> None:
    machine = leader(end=100, high_watermark=80)
    assert machine.leader_epoch_start_offset == 100
    assert machine.isr == Committed((ME, B, C))
    assert machine.high_watermark == 80
    assert [each.log_end_offset for each in machine.progress.values()] == [-1, -1]


def test_a_new_leader_epoch_clears_what_is_known_of_followers() -> None:
    machine = leader()
    fetch(machine, B, 100)
    machine.on_append(120)
    machine.on_state(state(ME, B, C, leader_epoch=6, partition_epoch=8), 5)
    assert machine.leader_epoch_start_offset == 120
    assert machine.progress[B].log_end_offset == -1


def test_the_same_leader_epoch_adopts_the_isr_and_looks_at_the_high_watermark_again() -> None:
    """KAFKA-13091: a shrink that came by another way commits what waited for who left."""
    machine = leader(end=100)
    fetch(machine, B, 100)
    effects = machine.on_state(state(ME, B, partition_epoch=8), 5)
    assert effects == (AdvanceHighWatermark(100),)
    assert machine.progress[B].log_end_offset == 100


def test_an_older_partition_epoch_changes_nothing() -> None:
    machine = leader()
    assert machine.on_state(state(ME, partition_epoch=6), 5) == ()
    assert machine.on_state(state(ME, partition_epoch=7), 5) == ()
    assert machine.isr.isr == (ME, B, C)


# High watermark


def test_the_high_watermark_is_the_smallest_log_end_of_the_isr() -> None:
    machine = leader(end=100, high_watermark=0)
    assert fetch(machine, B, 90) == ()
    assert fetch(machine, C, 60) == (AdvanceHighWatermark(60),)
    assert fetch(machine, C, 95) == (AdvanceHighWatermark(90),)
    assert fetch(machine, B, 100) == (AdvanceHighWatermark(95),)


def test_the_high_watermark_does_not_wait_for_replicas_out_of_sync() -> None:
    machine = leader(ME, B, end=100)
    fetch(machine, C, 10)
    assert only(fetch(machine, B, 100), AdvanceHighWatermark).offset == 100


def test_the_high_watermark_never_goes_back() -> None:
    machine = leader(end=100, high_watermark=80)
    fetch(machine, B, 50)
    assert fetch(machine, C, 50) == ()
    assert machine.high_watermark == 80


def test_alone_in_the_isr_an_append_commits_at_once() -> None:
    machine = leader(ME, end=100)
    assert machine.on_append(101) == (AdvanceHighWatermark(101),)


def test_below_min_isr_nothing_is_committed() -> None:
    """KIP-966: what counts as committed is on min.insync.replicas brokers."""
    machine = leader(ME, end=100, min_isr=2)
    assert machine.is_under_min_isr
    assert machine.on_append(101) == ()
    assert machine.high_watermark == 80


def test_the_effective_min_isr_is_no_larger_than_the_replicas() -> None:
    machine = leader(ME, min_isr=2, replicas=(ME,))
    assert machine.effective_min_isr == 1
    assert machine.on_append(101) == (AdvanceHighWatermark(101),)


def test_a_pending_member_counts_for_the_high_watermark_and_not_for_min_isr() -> None:
    machine = leader(ME, end=100, high_watermark=80, min_isr=2)
    assert isinstance(fetch(machine, B, 100)[0], ProposeIsr)
    assert machine.is_under_min_isr
    assert machine.on_append(101) == ()
    effects = machine.on_isr_answer(1, state(ME, B, partition_epoch=8), 2)
    assert effects == (AdvanceHighWatermark(100),)


def test_smaller_min_isr_commits_what_waited() -> None:
    machine = leader(ME, end=100, min_isr=2)
    assert machine.on_rules(RULES) == (AdvanceHighWatermark(100),)


def test_eligible_leader_replicas_are_waited_for_where_min_isr_became_smaller() -> None:
    """They may be elected until the controller has let go of them."""
    machine = leader(ME, end=100, min_isr=2)
    kept = replace(state(ME, partition_epoch=8), elr=(B,))
    assert machine.on_state(kept, 1) == ()
    assert machine.on_rules(RULES) == ()
    assert machine.on_append(101) == ()
    assert machine.on_state(state(ME, partition_epoch=9), 2) == (AdvanceHighWatermark(101),)


# Expand


def test_a_follower_that_has_caught_up_is_proposed_with_its_broker_epoch() -> None:
    machine = leader(ME, B, end=100)
    fetch(machine, B, 100, epoch=22, live=22)
    effect = only(fetch(machine, C, 100, epoch=33, live=33), ProposeIsr)
    assert effect.members == (IsrMember(ME, MY_EPOCH), IsrMember(B, 22), IsrMember(C, 33))
    assert (effect.leader_epoch, effect.partition_epoch) == (5, 7)


def test_a_member_that_has_not_fetched_yet_is_named_without_an_epoch() -> None:
    machine = leader(ME, B, end=100)
    effect = only(fetch(machine, C, 100), ProposeIsr)
    assert effect.members[1] == IsrMember(B, -1)


def test_expansion_needs_the_high_watermark() -> None:
    machine = leader(ME, end=100, high_watermark=100)
    machine.on_append(150)
    assert machine.high_watermark == 150
    assert fetch(machine, B, 149) == ()
    assert proposed(fetch(machine, B, 150)) == (ME, B)


def test_expansion_needs_the_start_of_the_leader_epoch() -> None:
    """KAFKA-7128: below it may lie what the leader before committed."""
    machine = leader(ME, C, end=100, high_watermark=50)
    assert fetch(machine, B, 99) == ()
    assert proposed(fetch(machine, B, 100)) == (ME, C, B)


@pytest.mark.parametrize("live", [None, 22])
def test_expansion_needs_the_broker_epoch_that_the_follower_fetched_with(live: int | None) -> None:
    """KIP-841, KIP-903: a broker that is gone, or has been born again, does not join."""
    machine = leader(ME, B, end=100)
    assert fetch(machine, C, 100, epoch=21, live=live) == ()


def test_one_proposal_at_a_time() -> None:
    machine = leader(ME, end=100)
    assert proposed(fetch(machine, B, 100)) == (ME, B)
    assert fetch(machine, C, 100) == ()


def test_a_broker_that_is_no_replica_is_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        fetch(leader(), D, 100)
    assert caught.value.error is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_fetch_with_a_stale_broker_epoch_is_refused() -> None:
    """KIP-380, KAFKA-15653."""
    machine = leader()
    fetch(machine, B, 90, epoch=30, live=30)
    with pytest.raises(KafkaError) as caught:
        fetch(machine, B, 100, epoch=29, live=30)
    assert caught.value.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert machine.progress[B].log_end_offset == 90


# Shrink


def test_a_follower_not_caught_up_for_the_lag_time_is_proposed_for_removal() -> None:
    machine = leader(end=100, high_watermark=0)
    fetch(machine, B, 100, now_ms=LAG_MS)
    fetch(machine, C, 60, now_ms=LAG_MS)
    assert proposed(machine.check_shrink(LAG_MS + 1)) == (ME, B)
    assert isinstance(machine.isr, PendingShrink)
    assert tuple(each.broker_id for each in machine.isr.members) == (ME, B)
    assert machine.high_watermark == 60


def test_no_follower_is_removed_in_the_first_lag_time_of_a_leadership() -> None:
    machine = leader(end=100)
    assert machine.check_shrink(LAG_MS) == ()


def test_a_follower_at_the_log_end_stays_in_sync_without_fetches() -> None:
    machine = leader(end=100)
    fetch(machine, B, 100)
    fetch(machine, C, 100)
    assert machine.check_shrink(10 * LAG_MS) == ()


def test_a_follower_that_is_always_a_little_behind_stays() -> None:
    """It reads at each fetch what was the end at the one before (KAFKA: KIP-16)."""
    machine = leader(end=100)
    end = 100
    for moment in range(0, 3 * LAG_MS, LAG_MS // 2):
        fetch(machine, B, end, now_ms=moment)
        fetch(machine, C, end, now_ms=moment)
        end += 10
        machine.on_append(end)
    assert machine.check_shrink(3 * LAG_MS) == ()


def test_a_repeated_fetch_at_the_log_end_only_renews_the_time() -> None:
    """As ``on_follower_fetch`` would have it, at a smaller price."""
    long, short = leader(end=100), leader(end=100)
    for machine in (long, short):
        fetch(machine, B, 100)
        fetch(machine, C, 100)
    assert fetch(long, B, 100, now_ms=2 * LAG_MS) == ()
    assert short.on_same_fetch(FollowerFetch(B, 100, 21, 21), 2 * LAG_MS)
    assert short.progress[B] == long.progress[B]
    for machine in (long, short):
        machine.on_append(110)
        effects = machine.check_shrink(2 * LAG_MS + 1)
        assert proposed(effects) == (ME, B), "B was there a moment ago, C was not"


@pytest.mark.parametrize(
    "other",
    [
        FollowerFetch(B, 101, 21, 21),
        FollowerFetch(B, 99, 21, 21),
        FollowerFetch(B, 100, 22, 22),
        FollowerFetch(B, 100, 21, 21, log_start_offset=7),
        FollowerFetch(C, 100, 30, 30),
        FollowerFetch(D, 100, 40, 40),
    ],
    ids=["further", "back", "new life", "log start", "first", "no replica"],
)
def test_any_other_fetch_is_none_of_the_same(other: FollowerFetch) -> None:
    machine = leader(end=100)
    fetch(machine, B, 100)
    before = replace(machine.progress[B])
    assert not machine.on_same_fetch(other, 2 * LAG_MS)
    assert machine.progress[B] == before


def test_a_member_that_is_behind_or_out_of_the_isr_says_more_than_the_same() -> None:
    machine = leader(end=100)
    fetch(machine, B, 100)
    machine.on_append(110)
    assert not machine.on_same_fetch(FollowerFetch(B, 100, 21, 21), 5)
    fetch(machine, B, 110)
    machine.on_state(state(ME, C, partition_epoch=8), 6)
    assert not machine.on_same_fetch(FollowerFetch(B, 110, 21, 21), 7)


def test_a_shrink_commits_only_when_the_controller_has_written_it() -> None:
    machine = leader(end=100, high_watermark=0)
    fetch(machine, B, 100, now_ms=LAG_MS)
    machine.check_shrink(LAG_MS + 1)
    assert machine.high_watermark == 0
    effects = machine.on_isr_answer(1, state(ME, B, partition_epoch=8), LAG_MS + 2)
    assert effects == (AdvanceHighWatermark(100),)
    assert machine.isr == Committed((ME, B))


def test_a_removed_follower_may_rejoin_the_isr() -> None:
    machine = leader(ME, B, end=100)
    machine.on_state(state(ME, partition_epoch=8), 1)
    assert proposed(fetch(machine, B, 100)) == (ME, B)


# Answers to a proposal


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_what_surely_was_not_written_is_taken_back(error: ErrorCode) -> None:
    machine = leader(ME, end=100)
    fetch(machine, B, 100)
    machine.on_append(150)
    assert machine.high_watermark == 100
    assert machine.on_isr_answer(1, error, 2) == (AdvanceHighWatermark(150),)
    assert machine.isr == Committed((ME,))


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_any_other_error_keeps_the_maximal_isr_and_tries_again(error: ErrorCode) -> None:
    machine = leader(ME, end=100)
    fetch(machine, B, 100)
    machine.on_append(150)
    assert machine.on_isr_answer(1, error, 2) == (RetryProposal(1, 100),)
    assert isinstance(machine.isr, PendingExpand)
    assert machine.high_watermark == 100
    again = only(machine.retry_proposal(1), ProposeIsr)
    assert [member.broker_id for member in again.members] == [ME, B]


@pytest.mark.parametrize("error", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_an_answer_from_newer_state_waits_for_it(error: ErrorCode) -> None:
    machine = leader(ME, end=100)
    fetch(machine, B, 100)
    assert AwaitNewState() in machine.on_isr_answer(1, error, 2)
    assert isinstance(machine.isr, PendingExpand)


def test_after_a_time_out_not_attempted_proves_nothing() -> None:
    """The attempt before may have been written."""
    machine = leader(ME, end=100)
    fetch(machine, B, 100)
    machine.on_isr_answer(1, ErrorCode.REQUEST_TIMED_OUT, 2)
    assert machine.on_isr_answer(1, ErrorCode.OPERATION_NOT_ATTEMPTED, 3) == (
        RetryProposal(1, 200),
    )
    assert isinstance(machine.isr, PendingExpand)


def test_after_a_time_out_a_refusal_counts_once_the_lag_time_is_over() -> None:
    machine = leader(ME, end=100)
    fetch(machine, B, 100, now_ms=1)
    machine.on_isr_answer(1, ErrorCode.REQUEST_TIMED_OUT, 2)
    assert machine.on_isr_answer(1, ErrorCode.INELIGIBLE_REPLICA, 3) == (RetryProposal(1, 200),)
    machine.on_isr_answer(1, ErrorCode.INELIGIBLE_REPLICA, LAG_MS + 2)
    assert machine.isr == Committed((ME,))


def test_the_pause_after_failed_proposals_doubles_up_to_a_bound_until_a_state_comes() -> None:
    machine = leader(ME, end=100)
    fetch(machine, B, 100)
    pauses = [
        only(machine.on_isr_answer(1, ErrorCode.NETWORK_EXCEPTION, 2), RetryProposal).delay_ms
        for _ in range(2_000)
    ]
    assert pauses[:5] == [100, 200, 400, 800, 1_000]
    assert set(pauses[5:]) == {1_000}
    machine.on_state(state(ME, partition_epoch=8), 3)
    fetch(machine, B, 100, now_ms=4)
    again = only(machine.on_isr_answer(2, ErrorCode.NETWORK_EXCEPTION, 5), RetryProposal)
    assert again.delay_ms == 100


def test_a_refused_follower_is_not_proposed_again_at_once() -> None:
    machine = leader(ME, end=100)
    fetch(machine, B, 100)
    machine.on_isr_answer(1, ErrorCode.INELIGIBLE_REPLICA, 2)
    assert fetch(machine, B, 100, now_ms=3) == ()
    assert proposed(fetch(machine, B, 100, now_ms=1000)) == (ME, B)


def test_state_that_came_by_a_push_ends_a_proposal_and_its_answer_is_late() -> None:
    """KAFKA-13254."""
    machine = leader(ME, end=100)
    fetch(machine, B, 100)
    machine.on_state(state(ME, B, partition_epoch=8), 2)
    assert machine.isr == Committed((ME, B))
    assert machine.on_isr_answer(1, ErrorCode.INELIGIBLE_REPLICA, 3) == ()
    assert machine.on_isr_answer(1, state(ME, B, partition_epoch=8), 3) == ()
    assert machine.retry_proposal(1) == ()
    assert machine.isr == Committed((ME, B))


def test_an_answer_that_comes_after_its_push_leaves_the_next_proposal_pending() -> None:
    """The controller may hold the second proposal by now: whom it adds is waited for."""
    machine = leader(ME, end=100)
    fetch(machine, B, 100)
    machine.on_state(state(ME, B, partition_epoch=8), 2)
    assert proposed(fetch(machine, C, 100)) == (ME, B, C)
    assert machine.on_isr_answer(1, state(ME, B, partition_epoch=8), 3) == ()
    assert isinstance(machine.isr, PendingExpand)
    assert (machine.isr.added, machine.isr.attempt) == (C, 2)
    assert C in machine.waited_for


def test_a_proposal_is_repeated_with_the_broker_epoch_that_had_caught_up() -> None:
    """Its next life may lack what it had: the controller would take it in by its newer epoch."""
    machine = leader(ME, end=100, high_watermark=100)
    (first,) = fetch(machine, B, 100, epoch=21, live=21)
    machine.on_isr_answer(1, ErrorCode.REQUEST_TIMED_OUT, 2)
    fetch(machine, B, 40, now_ms=3, epoch=22, live=22)
    assert machine.retry_proposal(1) == (first,)
    assert machine.progress[B].log_end_offset == 40


def test_already_so_is_success() -> None:
    machine = leader(ME, B, end=100)
    fetch(machine, C, 100)
    machine.on_isr_answer(1, replace(state(ME, B, C)), 2)
    assert machine.isr == Committed((ME, B, C))


def test_an_answer_of_another_leadership_changes_nothing() -> None:
    machine = leader(ME, end=100)
    fetch(machine, B, 100)
    answer = state(B, leader=B, leader_epoch=6, partition_epoch=9)
    assert machine.on_isr_answer(1, answer, 2) == (AwaitNewState(),)
    assert isinstance(machine.isr, PendingExpand)


def test_a_replica_that_was_reassigned_away_is_known_no_more() -> None:
    machine = leader(ME, B, end=100)
    fetch(machine, C, 90)
    machine.on_state(state(ME, B, replicas=(ME, B), partition_epoch=8), 2)
    assert list(machine.progress) == [B]
    with pytest.raises(KafkaError):
        fetch(machine, C, 95)


# Who could lead instead


def test_every_electable_replica_has_fetched_since() -> None:
    machine = leader()
    fetch(machine, B, 90, now_ms=10)
    assert not machine.was_followed_since(10, unclean=False), "C has not fetched"
    fetch(machine, C, 90, now_ms=12)
    assert machine.was_followed_since(10, unclean=False)
    assert not machine.was_followed_since(11, unclean=False)


def test_an_out_of_sync_replica_could_lead_by_an_unclean_election_only() -> None:
    machine = leader(ME)
    assert machine.was_followed_since(10, unclean=False)
    assert not machine.was_followed_since(10, unclean=True)


def test_an_eligible_leader_replica_could_lead() -> None:
    machine = leader(ME, min_isr=2)
    machine.on_state(replace(state(ME, partition_epoch=8), elr=(B,)), 5)
    assert not machine.was_followed_since(10, unclean=False)


def test_a_fetch_in_a_leadership_gone_by_says_nothing_of_this_one() -> None:
    machine = leader()
    for follower in (B, C):
        fetch(machine, follower, 100, now_ms=10)
    machine.on_state(state(ME, B, C, leader_epoch=6, partition_epoch=8), 11)
    assert not machine.was_followed_since(10, unclean=False)
