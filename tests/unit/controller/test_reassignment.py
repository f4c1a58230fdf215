"""Moves of partitions: grow, wait, shrink; cancel; and whatever is proposed in between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controller.states import EPOCH, brokers, electorate, ids, state

from millstream.controller import reassignment
from millstream.controller.reassignment import is_moving, origin_of, target_of
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import NO_LEADER, PartitionState

ALL = tuple(range(1, 7))
SETTLED = state((1, 2, 3), leader=1, isr=(1, 2, 3))


def start(before: PartitionState, *target: int) -> PartitionState:
    return reassignment.start(
        before,
        target,
        brokers(*ALL),
        electorate(*ALL),
        min_insync_replicas=2,
        controller_epoch=EPOCH,
    )


def settle(before: PartitionState) -> PartitionState | None:
    return reassignment.settle(
        before, electorate(*ALL), min_insync_replicas=2, controller_epoch=EPOCH
    )


def cancel(before: PartitionState) -> PartitionState:
    return reassignment.cancel(
        before, electorate(*ALL), min_insync_replicas=2, controller_epoch=EPOCH
    )


def test_a_move_grows_waits_and_shrinks() -> None:
    moving = start(SETTLED, 2, 4, 5)
    assert moving.replicas == (2, 4, 5, 1, 3)
    assert (moving.adding_replicas, moving.removing_replicas) == ((4, 5), (1, 3))
    assert (moving.leader, set(moving.isr)) == (1, {1, 2, 3})
    assert settle(moving) is None
    half = replace(moving, isr=ids(2, 4, 1, 3))
    assert settle(half) is None
    done = settle(replace(moving, isr=ids(2, 4, 5, 1, 3)))
    assert done is not None
    assert (done.replicas, done.isr, done.leader) == ((2, 4, 5), (2, 4, 5), 2)
    assert (done.adding_replicas, done.removing_replicas) == ((), ())


def test_every_step_raises_the_leader_epoch() -> None:
    moving = start(SETTLED, 1, 2, 4)
    assert (moving.leader_epoch, moving.partition_epoch, moving.controller_epoch) == (8, 21, EPOCH)
    done = settle(replace(moving, isr=ids(1, 2, 4, 3)))
    assert done is not None
    assert (done.leader_epoch, done.partition_epoch) == (9, 22)
    assert cancel(moving).leader_epoch == 9


def test_a_leader_that_stays_leads_on() -> None:
    moving = start(SETTLED, 4, 1, 5)
    done = settle(replace(moving, isr=moving.replicas))
    assert done is not None
    assert done.leader == 1


def test_what_needs_no_copy_is_done_at_once() -> None:
    assert start(SETTLED, 1, 2, 3) is SETTLED
    turned = start(SETTLED, 3, 2, 1)
    assert (turned.replicas, turned.leader, is_moving(turned)) == ((3, 2, 1), 1, False)
    fewer = start(SETTLED, 2, 3)
    assert (fewer.replicas, fewer.isr, fewer.leader) == ((2, 3), (2, 3), 2)


def test_a_new_target_replaces_the_old_one() -> None:
    first = start(SETTLED, 1, 2, 4)
    second = start(replace(first, isr=ids(1, 2, 4, 3)), 1, 2, 5)
    assert (second.adding_replicas, second.removing_replicas) == ((5,), (3,))
    assert 4 not in (*second.replicas, *second.isr)


def test_a_move_back_to_the_origin_is_a_cancel() -> None:
    back = start(start(SETTLED, 4, 5, 6), 1, 2, 3)
    assert (set(back.replicas), is_moving(back)) == ({1, 2, 3}, False)


def test_a_cancel_leaves_the_origin() -> None:
    moving = start(SETTLED, 3, 4, 5)
    caught_up = replace(moving, isr=ids(3, 4, 1, 2))
    after = cancel(caught_up)
    assert (set(after.replicas), set(after.isr), after.leader) == ({1, 2, 3}, {1, 2, 3}, 1)
    with pytest.raises(KafkaError, match="NO_REASSIGNMENT_IN_PROGRESS"):
        cancel(after)


def test_a_cancel_that_would_empty_the_isr_is_refused() -> None:
    moving = replace(start(SETTLED, 4, 5, 6), isr=ids(4), leader=ids(4)[0])
    with pytest.raises(KafkaError) as raised:
        cancel(moving)
    assert raised.value.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_no_complete_replica_is_removed_while_there_is_no_leader() -> None:
    """Broker 1 is away and eligible; of the others nobody may have everything. A move that takes
    it away at once would have the longest of the other logs lead, and lose what 1 alone has.
    """
    before = state((1, 2, 3), leader=-1, isr=(), elr=(1,))
    moving = start(before, 2, 3)
    assert settle(moving) is None
    assert (moving.replicas, moving.elr, moving.removing_replicas) == ((2, 3, 1), (1,), (1,))
    led = replace(moving, leader=ids(1)[0], isr=ids(1, 2, 3), elr=())
    done = settle(led)
    assert done is not None
    assert (done.replicas, done.leader) == ((2, 3), 2)


def test_a_cancel_does_not_remove_the_only_complete_replica() -> None:
    """Broker 4 came in, was the last in sync, and is away."""
    before = replace(
        state((4, 1, 2), leader=-1, isr=(), elr=(4,)),
        adding_replicas=ids(4),
    )
    with pytest.raises(KafkaError) as refused:
        cancel(before)
    assert refused.value.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cancel(replace(before, elr=ids(1, 4))).elr == ids(1)


def test_another_target_does_not_take_the_leader_away_without_another_one() -> None:
    """Broker 4 leads, all that were there before it are out of sync, 5 is still to come."""
    before = replace(
        state((4, 5, 1), leader=4, isr=(4,)), adding_replicas=ids(4, 5), removing_replicas=ids(1)
    )
    with pytest.raises(KafkaError) as refused:
        start(before, 6)
    assert refused.value.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_move_never_shrinks_below_what_acknowledges() -> None:
    """Only one of the replicas that stay is in sync, and the one that is to go makes up for it."""
    moving = replace(
        start(SETTLED, 1, 2), isr=ids(1, 3), adding_replicas=(), removing_replicas=ids(3)
    )
    again = replace(moving, replicas=ids(1, 2, 3))
    assert settle(again) is None


@pytest.mark.parametrize("target", [(), (1, 1), (1, 9)])
def test_a_target_that_cannot_be_is_refused(target: tuple[int, ...]) -> None:
    with pytest.raises(KafkaError, match="INVALID_REPLICA_ASSIGNMENT"):
        start(SETTLED, *target)


def test_a_replica_whose_broker_is_down_may_stay() -> None:
    down = reassignment.start(
        SETTLED,
        (1, 2, 3, 4),
        brokers(1, 2, 4),
        electorate(1, 2, 4),
        min_insync_replicas=2,
        controller_epoch=EPOCH,
    )
    assert down.adding_replicas == (4,)


TARGETS = st.lists(st.sampled_from(ALL), min_size=1, max_size=4, unique=True)
STEPS = st.lists(
    st.one_of(TARGETS, st.sampled_from(["cancel"]), st.sets(st.sampled_from(ALL))), max_size=12
)


@given(STEPS)
def test_any_story_of_moves_keeps_a_leader_in_sync_and_ends_at_its_target(
    steps: list[list[int] | str | set[int]],
) -> None:
    """Targets, cancels, and replicas that catch up, in any order."""
    now = SETTLED
    for step in steps:
        before = now
        try:
            if isinstance(step, list):
                now = start(now, *step)
            elif step == "cancel":
                now = cancel(now)
            else:
                isr = [each for each in now.replicas if each in step or each in now.isr]
                now = settle(replace(now, isr=tuple(isr))) or replace(now, isr=tuple(isr))
        except KafkaError:
            now = before
        assert now.leader in now.isr
        assert set(now.isr) <= set(now.replicas)
        assert len(set(now.replicas)) == len(now.replicas)
        assert set(now.adding_replicas) | set(now.removing_replicas) <= set(now.replicas)
        assert not set(now.adding_replicas) & set(now.removing_replicas)
        assert now.leader_epoch >= before.leader_epoch
        assert target_of(now)
        assert origin_of(now)
    target = target_of(now)
    done = settle(replace(now, isr=now.replicas))
    if done is not None:
        assert done.replicas == target
        assert done.leader in target
    else:
        assert not is_moving(now)
    assert now.leader != NO_LEADER
