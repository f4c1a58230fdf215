"""Two founding faults where packets are really lost: brokers in network namespaces (needs root)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.system.cluster.faulty_site import IDS, State, problems
from tests.system.cluster.namespaces import NamespacedSite, Networks
from tests.system.cluster.test_founding_faults import (
    ALL,
    LEADER_ALONE,
    TIMED_OUT,
    become,
    error_of,
    solo,
    told,
)
from tests.system.cluster.watched import Sender, read_all

from millstream.history.checker import History
from millstream.model.errors import ErrorCode

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespacedSite]:
    settings = {"replica.lag.time.max.ms": "1500", "auto.leader.rebalance.enable": "false"}
    directory = tmp_path_factory.mktemp("namespaces")
    with Networks(IDS) as networks, NamespacedSite(directory, networks, settings) as started:
        yield started


def test_a_leader_cut_from_the_brokers_and_not_from_zookeeper(site: NamespacedSite) -> None:
    leader = site.controller_id()
    topic = "cut-from-brokers"
    site.create(topic, (leader, *site.others(leader)))
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.networks.cut("brokers", leader)
        become(site, topic, State(leader, before.epoch, frozenset({leader})))
        refused = solo(history, topic)
        assert error_of(site, leader, topic, refused, ALL) is ErrorCode.NOT_ENOUGH_REPLICAS
        site.networks.mend("brokers", leader)
        become(site, topic, before)
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []
    assert refused not in read_all(site.bootstrap, topic, history, "last")[topic, 0].values()


@pytest.mark.long
def test_a_leader_cut_from_zookeeper_and_not_from_the_brokers(site: NamespacedSite) -> None:
    topic = "cut-from-store"
    site.create(topic, (1, 2, 3))
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.networks.cut("store", 1)
        become(site, topic, State(2, before.epoch + 1, frozenset({2, 3})))
        told(site, topic, 2, {2, 3})
        lost, kept = solo(history, topic, "lost"), solo(history, topic, "kept")
        assert error_of(site, 1, topic, lost, LEADER_ALONE) is ErrorCode.NONE
        assert error_of(site, 1, topic, solo(history, topic, "open"), ALL) in TIMED_OUT
        assert error_of(site, 2, topic, kept, ALL) is ErrorCode.NONE
        site.networks.mend("store", 1)
        become(site, topic, State(2, before.epoch + 1, frozenset(IDS)))
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []
    values = read_all(site.bootstrap, topic, history, "last")[topic, 0].values()
    assert lost not in values
    assert kept in values


def test_a_follower_cut_from_the_brokers(site: NamespacedSite) -> None:
    controller = site.controller_id()
    leader, cut = site.others(controller)
    topic = "cut-follower"
    site.create(topic, (leader, controller, cut))
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.networks.cut("brokers", cut)
        become(site, topic, State(leader, before.epoch, frozenset({leader, controller})))
        load.wait_for_more()
        site.networks.mend("brokers", cut)
        become(site, topic, before)
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []
