"""A leader that its followers cannot reach gives its leaderships to one of them."""

from __future__ import annotations

import pytest
from tests.unit.controller.states import EPOCH, brokers, electorate, state

from millstream.controller.election import after_unreachable
from millstream.controller.reachability import (
    MAX_SUSPECTED_MS,
    SUSPECTED_MS,
    ReachabilityReports,
    Suspicions,
)
from millstream.model.broker import BrokerId
from millstream.model.leadership import PartitionState

LED_BY_ONE = state((1, 2, 3), leader=1, isr=(1, 2, 3))


def say(**unreachable: tuple[int, ...]) -> ReachabilityReports:
    """``b2=(1,)``: broker 2 says that it cannot fetch from broker 1."""
    return ReachabilityReports({BrokerId(int(k[1:])): brokers(*v) for k, v in unreachable.items()})


def decided(
    before: PartitionState,
    reports: ReachabilityReports,
    *live: int,
    suspected: tuple[int, ...] = (),
    lost: tuple[int, ...] = (),
) -> PartitionState:
    return after_unreachable(
        before,
        reports,
        electorate(*live, lost=lost),
        suspected=brokers(*suspected),
        controller_epoch=EPOCH,
    )


def test_the_first_follower_in_assignment_order_leads_and_the_isr_stays() -> None:
    after = decided(LED_BY_ONE, say(b1=(), b2=(1,), b3=(1,)), 1, 2, 3)
    assert (after.leader, after.isr) == (2, LED_BY_ONE.isr)
    assert after.leader_epoch == LED_BY_ONE.leader_epoch + 1
    assert after.partition_epoch == LED_BY_ONE.partition_epoch + 1
    assert after.controller_epoch == EPOCH


@pytest.mark.parametrize(
    "reports",
    [
        say(b2=(1,), b3=()),  # the second is ill: the third can fetch
        say(b2=(1,)),  # the third gave no answer: it is paused, or cut off itself
        say(),
        say(b1=(2, 3)),  # the leader's own troubles as a follower
        say(b2=(3,), b3=(2,)),
    ],
)
def test_nothing_changes_where_a_follower_does_not_confirm_it(reports: ReachabilityReports) -> None:
    assert decided(LED_BY_ONE, reports, 1, 2, 3) is LED_BY_ONE


def test_the_dead_are_not_asked() -> None:
    after = decided(LED_BY_ONE, say(b3=(1,)), 1, 3)
    assert after.leader == 3


def test_a_leader_alone_in_the_isr_leads_on() -> None:
    alone = state((1, 2, 3), leader=1, isr=(1,))
    assert decided(alone, say(b2=(1,), b3=(1,)), 1, 2, 3) is alone


def test_a_broker_that_another_member_cannot_reach_is_not_elected() -> None:
    assert decided(LED_BY_ONE, say(b1=(2,), b2=(1,), b3=(1,)), 1, 2, 3).leader == 3
    assert decided(LED_BY_ONE, say(b2=(1,), b3=(1, 2)), 1, 2, 3).leader == 3
    both_ways = say(b1=(2, 3), b2=(1,), b3=(1,))
    assert decided(LED_BY_ONE, both_ways, 1, 2, 3) is LED_BY_ONE, "it would be as bad there"


def test_a_suspected_broker_or_one_that_lost_data_is_not_elected() -> None:
    confirmed = say(b2=(1,), b3=(1,))
    assert decided(LED_BY_ONE, confirmed, 1, 2, 3, suspected=(2,)).leader == 3
    assert decided(LED_BY_ONE, confirmed, 1, 2, 3, lost=(2,)).leader == 3
    assert decided(LED_BY_ONE, confirmed, 1, 2, 3, suspected=(2, 3)) is LED_BY_ONE


def test_a_suspicion_ends_and_the_next_one_lasts_twice_as_long() -> None:
    suspicions, one = Suspicions(), BrokerId(1)
    assert not suspicions.is_suspected(one, 7, 0)
    assert suspicions.suspect(one, 7, 0) == SUSPECTED_MS
    assert suspicions.is_suspected(one, 7, SUSPECTED_MS - 1)
    assert not suspicions.is_suspected(one, 7, SUSPECTED_MS)
    assert suspicions.suspect(one, 7, SUSPECTED_MS) == 2 * SUSPECTED_MS
    for _ in range(10):
        longest_ms = suspicions.suspect(one, 7, 0)
    assert longest_ms == MAX_SUSPECTED_MS


def test_a_restarted_broker_is_not_suspected() -> None:
    suspicions, one = Suspicions(), BrokerId(1)
    suspicions.suspect(one, 7, 0)
    assert not suspicions.is_suspected(one, 8, 1)
    assert suspicions.suspect(one, 8, 1) == SUSPECTED_MS
    assert not suspicions.is_suspected(one, 7, 2), "of the life before nothing is kept"
    suspicions.clear()
    assert not suspicions.is_suspected(one, 8, 2)
