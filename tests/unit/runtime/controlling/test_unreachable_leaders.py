"""Followers that a leader does not hear are asked by the controller, which moves leaderships."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.runtime.cluster_site import Site, three

from millstream.controller.reachability import SUSPECTED_MS
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.runtime.controlling.broker_reports import REPORT_VALID_MS
from millstream.runtime.controlling.leader_elections import ElectionType


class Grey:
    """Three brokers; 3 leads "t" and "u", and its followers may not reach it."""

    def __init__(self) -> None:
        self.site = three()
        self.site.create("t", (3, 1, 2))
        self.site.create("u", (3, 2, 1))
        self.site.create("v", (2, 3, 1))

    def cannot_reach(self, leader: int, *followers: int) -> None:
        for number, member in self.site.members.items():
            member.unreachable_leaders = {BrokerId(leader)} if number in followers else set()

    def report(
        self, *silent: int, sender: int = 3, unreachable: tuple[int, ...] = ()
    ) -> Deferred[bool]:
        done = self.site.controller.decisions.reports.silent_followers(
            BrokerId(sender),
            self.site.members[sender].local.broker_epoch or 0,
            [BrokerId(each) for each in silent],
            [BrokerId(each) for each in unreachable],
        )
        self.site.settle()
        return done

    def leaders(self) -> tuple[int, ...]:
        """Who leads t, u and v, as every broker knows."""
        found = {
            tuple(int(member.state(topic).leader) for topic in "tuv")
            for member in self.site.members.values()
        }
        assert len(found) == 1
        return found.pop()


@pytest.fixture
def grey() -> Grey:
    return Grey()


def test_followers_that_confirm_it_lead_instead_and_stay_in_the_isr(grey: Grey) -> None:
    before = grey.site.members[1].state("t")
    grey.cannot_reach(3, 1, 2)
    grey.report(1, 2).result()
    assert grey.leaders() == (1, 2, 2)
    after = grey.site.members[1].state("t")
    assert (after.isr, after.leader_epoch) == (before.isr, before.leader_epoch + 1)


def test_a_follower_that_is_ill_changes_nothing(grey: Grey) -> None:
    grey.cannot_reach(3, 1)
    grey.report(1).result()
    assert grey.leaders() == (3, 3, 2)


def test_a_report_moves_leaderships_of_its_sender_only(grey: Grey) -> None:
    """Of 2 nothing was heard that 2 itself has noticed."""
    grey.site.members[1].unreachable_leaders = {BrokerId(2), BrokerId(3)}
    grey.site.members[2].unreachable_leaders = {BrokerId(3)}
    grey.report(1, 2, unreachable=(2,)).result()
    assert grey.leaders() == (1, 1, 2)


def test_a_life_that_ends_while_its_followers_are_asked_is_not_judged(grey: Grey) -> None:
    grey.cannot_reach(3, 1, 2)
    context = grey.site.controller.controller_state.context
    before = context.brokers[BrokerId(3)]
    epoch = before.node.epoch
    reports = grey.site.controller.decisions.reports
    done = reports.silent_followers(BrokerId(3), epoch, [BrokerId(1), BrokerId(2)], [])
    assert not done.done
    context.brokers[BrokerId(3)] = replace(before, node=replace(before.node, epoch=epoch + 1))
    grey.site.settle()
    with pytest.raises(KafkaError) as refused:
        done.result()
    assert refused.value.error is ErrorCode.STALE_BROKER_EPOCH
    assert grey.leaders() == (3, 3, 2)


def test_a_follower_that_is_paused_changes_nothing(grey: Grey) -> None:
    grey.cannot_reach(3, 1, 2)
    grey.site.members[1].cut_from.add(2)  # it does not answer the controller either
    grey.report(1, 2).result()
    assert grey.leaders() == (3, 3, 2)


def test_silence_that_nobody_confirms_changes_nothing(grey: Grey) -> None:
    grey.report(1, 2).result()
    assert grey.leaders() == (3, 3, 2)


def test_a_link_that_is_cut_both_ways_changes_nothing(grey: Grey) -> None:
    grey.cannot_reach(3, 1, 2)
    grey.report(1, 2, unreachable=(1, 2)).result()
    assert grey.leaders() == (3, 3, 2)


def test_leaderships_are_not_given_back_while_the_broker_is_suspected(grey: Grey) -> None:
    control = grey.site.controller.decisions.replicas.elections
    grey.cannot_reach(3, 1, 2)
    grey.report(1, 2).result()
    grey.cannot_reach(3)
    grey.site.wait(control.rebalance(10))
    grey.site.settle()
    assert grey.leaders() == (1, 2, 2)
    grey.site.settle(int(SUSPECTED_MS))
    grey.site.wait(control.rebalance(10))
    grey.site.settle()
    assert grey.leaders() == (3, 3, 2)
    grey.cannot_reach(3, 1, 2)
    grey.report(1, 2).result()
    grey.site.settle(int(SUSPECTED_MS))
    grey.site.wait(control.rebalance(10))
    grey.site.settle()
    assert grey.leaders() == (1, 2, 2), "the second time it lasts longer"


def test_who_asks_for_a_preferred_election_is_obeyed(grey: Grey) -> None:
    grey.cannot_reach(3, 1, 2)
    grey.report(1, 2).result()
    control = grey.site.controller.decisions.replicas.elections
    grey.site.wait(control.elect(ElectionType.PREFERRED, [TopicPartition("t", 0)]))
    grey.site.settle()
    assert grey.leaders() == (3, 2, 2)


def test_a_leadership_does_not_come_back_to_a_suspected_broker(grey: Grey) -> None:
    grey.cannot_reach(3, 1, 2)
    grey.report(1, 2).result()
    grey.cannot_reach(1, 2, 3)
    grey.report(2, 3, sender=1).result()
    assert grey.leaders() == (2, 2, 2), "3 has been out of reach just now"


def test_a_controller_that_is_out_of_reach_itself_gives_its_leaderships_away() -> None:
    site: Site = three()
    assert site.controller.id == 1
    site.create("t", (1, 2, 3))
    for number in (2, 3):
        site.members[number].unreachable_leaders = {BrokerId(1)}
    epoch = site.members[1].local.broker_epoch or 0
    reports = site.controller.decisions.reports
    site.wait(reports.silent_followers(BrokerId(1), epoch, [BrokerId(2), BrokerId(3)], []))
    site.settle()
    assert site.members[3].state("t").leader == 2


def test_a_report_of_a_life_that_has_ended_is_refused(grey: Grey) -> None:
    grey.cannot_reach(3, 1, 2)
    reports = grey.site.controller.decisions.reports
    done = reports.silent_followers(BrokerId(3), 1, [BrokerId(1), BrokerId(2)], [])
    grey.site.settle()
    with pytest.raises(KafkaError) as refused:
        done.result()
    assert refused.value.error is ErrorCode.STALE_BROKER_EPOCH
    other = next(each for each in grey.site.members.values() if not each.is_controller)
    done = other.decisions.reports.silent_followers(BrokerId(3), 1, [BrokerId(1)], [])
    with pytest.raises(KafkaError) as refused:
        done.result()
    assert refused.value.error is ErrorCode.NOT_CONTROLLER
    assert grey.leaders() == (3, 3, 2)


def test_a_leader_that_was_not_told_hears_so_from_every_report(grey: Grey) -> None:
    """Also from a controller that knows nothing of the report that moved its leaderships."""
    site = grey.site
    assert grey.report(1, 2).result() is False, "nothing was decided"
    grey.cannot_reach(3, 1, 2)
    site.members[1].cut_from.add(3)
    site.members[2].cut_from.add(3)
    assert grey.report(1, 2).result() is True
    grey.cannot_reach(3)
    assert grey.report(1, 2).result() is True, "the answer before may have been lost"
    site.members[1].kill()
    site.until(lambda: site.members[2].is_controller)
    assert grey.report(2).result() is True
    site.members[2].cut_from.clear()
    site.settle(500)
    assert grey.report(2).result() is False


def test_what_followers_said_long_ago_moves_nothing(grey: Grey) -> None:
    """A controller may have much to do, or a slow store: the leader is in reach again by then."""
    blocked: Deferred[None] = Deferred()

    async def slow() -> None:
        await blocked

    grey.site.controller.events.submit(slow)
    grey.cannot_reach(3, 1, 2)
    done = grey.report(1, 2)
    grey.site.settle(int(REPORT_VALID_MS))
    assert not done.done
    blocked.complete(None)
    grey.site.settle()
    assert done.result() is False
    assert grey.leaders() == (3, 3, 2)
    grey.report(1, 2).result()
    assert grey.leaders() == (1, 2, 2)
