"""A leader whose listener for brokers is ill, with real processes.

What other brokers open to the leader is swallowed or reset; the leader's own connections to them,
its clients and ZooKeeper go on, so its session does too. A follower leads instead long before the
leader would shrink the ISR, and the old leader stays in sync.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.system.cluster.faulty_site import IDS, FaultySite, State, problems
from tests.system.cluster.watched import Sender
from tests.waiting import wait_until

from millstream.history.checker import History

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

NO_REBALANCE = {"auto.leader.rebalance.enable": "false"}
LONG_LAG = {"replica.lag.time.max.ms": "120000", "replica.socket.timeout.ms": "120000"}
"""Longer than a test: an ISR that shrinks would be of no help."""


@pytest.mark.parametrize(
    ("leads_cluster", "resets"),
    [(False, False), (True, True)],
    ids=["a broker whose listener swallows", "the controller, whose listener resets"],
)
def test_a_follower_leads_where_no_broker_reaches_the_leader(
    tmp_path: Path, leads_cluster: bool, resets: bool
) -> None:
    with FaultySite(tmp_path, NO_REBALANCE | LONG_LAG) as site:
        _lose_touch_with_a_leader(site, leads_cluster=leads_cluster, resets=resets)


def _lose_touch_with_a_leader(site: FaultySite, *, leads_cluster: bool, resets: bool) -> None:
    controller = site.controller_id()
    leader = controller if leads_cluster else site.others(controller)[0]
    others = site.others(leader)
    topic = "unreachable"
    site.create(topic, (leader, *others))
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.links.make_unreachable(leader, *others, resets=resets)
        wait_until(lambda: site.state(topic).leader != leader, "another leader")
        assert site.state(topic) == State(others[0], before.epoch + 1, before.isr)
        load.wait_for_more()
        site.links.heal()
        load.wait_for_more()
        after = site.state(topic)
    assert after == State(others[0], before.epoch + 1, frozenset(IDS)), "nothing goes back or forth"
    assert load.failures == []
    assert problems(site, topic, history) == []


@pytest.mark.long
def test_a_follower_that_reaches_no_leader_moves_no_leadership(tmp_path: Path) -> None:
    with FaultySite(tmp_path, NO_REBALANCE) as site:
        controller = site.controller_id()
        leader, ill = site.others(controller)
        topic = "ill-follower"
        site.create(topic, (leader, controller, ill))
        before = site.state(topic)
        history = History()
        with Sender(site.bootstrap, topic, history, "p") as load:
            load.wait_for_more()
            for each in (leader, controller):
                site.links.make_unreachable(each, ill, resets=False)
            site.wait_for(topic, {leader, controller}, leader=leader, ask=leader)
            load.wait_for_more()
            during = site.state(topic)
            assert during == State(leader, before.epoch, frozenset((leader, controller)))
            site.links.heal()
            site.wait_for(topic, set(IDS), leader=leader)
            load.wait_for_more()
        assert site.state(topic).epoch == before.epoch
        assert load.failures == []
        assert problems(site, topic, history) == []
