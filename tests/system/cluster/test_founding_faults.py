"""The six founding faults, with real processes and a real ZooKeeper: who leads, what is in sync,
what is answered, what is lost (acks=1 on a leader that nobody knows any more, and nothing else).
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message, Producer
from tests.link_proxy import ZOOKEEPER
from tests.system.cluster.faulty_site import IDS, FaultySite, Load, problems

from millstream.sim.history import History, Send

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultySite]:
    started = FaultySite(tmp_path_factory.mktemp("faults"), {"replica.lag.time.max.ms": "1500"})
    with started:
        yield started


@pytest.fixture(autouse=True)
def whole_again(site: FaultySite) -> Iterator[None]:
    yield
    site.links.heal()
    for broker in site.brokers.values():
        if not broker.is_running:
            broker.start()


def solo(history: History, topic: str, name: str = "1") -> str:
    """Return a value that is sent beside the load, for the history to know."""
    value = f"solo-{name}"
    history.send(Send((topic, 0), value, value, durable=False, once=False))
    return value


def produce_once(
    site: FaultySite, broker: int, topic: str, value: str, acks: str, timeout_ms: int = 4_000
) -> KafkaError | None:
    """Send one record to the broker named and to no other; return what went wrong."""
    told: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": site.brokers[broker].bootstrap,
            "acks": acks,
            "retries": 0,
            "request.timeout.ms": timeout_ms,
            "message.timeout.ms": 2 * timeout_ms,
            "log_level": 0,
        }
    )

    def tell(error: KafkaError | None, message: Message) -> None:
        told.append(error)

    producer.produce(topic, value, partition=0, on_delivery=tell)
    producer.flush(30)
    (error,) = told
    return error


def test_a_follower_cut_from_the_brokers_leaves_the_isr_and_comes_back(site: FaultySite) -> None:
    site.create("cut-follower")
    history = History()
    with Load(site.bootstrap, "cut-follower", history, "p") as load:
        load.wait_for_more()
        site.links.cut_off(3, 1, 2)
        site.wait_for("cut-follower", {1, 2}, leader=1)
        load.wait_for_more()
        site.links.heal()
        site.wait_for("cut-follower", {1, 2, 3})
        load.wait_for_more()
    assert problems(site, "cut-follower", history) == []


def test_a_leader_cut_from_the_brokers_commits_nothing_alone(site: FaultySite) -> None:
    site.create("cut-leader")
    history = History()
    with Load(site.bootstrap, "cut-leader", history, "p") as load:
        load.wait_for_more()
        site.links.cut_off(1, 2, 3)
        time.sleep(4)  # the lag time is 1.5 s: by then it has proposed to be alone
        error = produce_once(site, 1, "cut-leader", solo(history, "cut-leader"), "all")
        assert error is not None
        site.links.heal()
        site.wait_for("cut-leader", {1, 2, 3})
        load.wait_for_more()
    assert problems(site, "cut-leader", history) == []


def test_a_leader_cut_from_zookeeper_is_followed_and_loses_acks_1_alone(site: FaultySite) -> None:
    site.create("cut-store")
    history = History()
    with Load(site.bootstrap, "cut-store", history, "p") as load:
        load.wait_for_more()
        site.links.cut_off(1, ZOOKEEPER)
        site.wait_for("cut-store", {2, 3}, leader=2, ask=2)
        lost = solo(history, "cut-store")
        assert produce_once(site, 1, "cut-store", lost, "1") is None
        open_ended = solo(history, "cut-store", "all")
        assert produce_once(site, 1, "cut-store", open_ended, "all") is not None
        site.links.heal()
        site.wait_for("cut-store", {1, 2, 3}, ask=2)
        load.wait_for_more()
    assert problems(site, "cut-store", history) == []
    assert lost not in site.read("cut-store", history, "another reader").values()


def test_a_controller_cut_from_a_broker_loses_nothing(site: FaultySite) -> None:
    site.create("cut-controller")
    controller = site.controller_id()
    other = site.others(controller)[0]
    history = History()
    with Load(site.bootstrap, "cut-controller", history, "p") as load:
        load.wait_for_more()
        site.links.freeze((controller, other))
        time.sleep(3)
        site.links.heal()
        site.wait_for("cut-controller", set(IDS))
        load.wait_for_more()
    assert problems(site, "cut-controller", history) == []


def test_a_controller_cut_from_zookeeper_is_followed(site: FaultySite) -> None:
    site.create("cut-seat")
    controller = site.controller_id()
    history = History()
    with Load(site.bootstrap, "cut-seat", history, "p") as load:
        load.wait_for_more()
        site.links.cut_off(controller, ZOOKEEPER)
        others = set(site.others(controller))
        site.until(lambda client: client.metadata([]).controller_id in others, "another controller")
        load.wait_for_more()
        site.links.heal()
        site.wait_for("cut-seat", set(IDS))
        load.wait_for_more()
    assert problems(site, "cut-seat", history) == []


def test_a_killed_follower_and_a_killed_leader(site: FaultySite) -> None:
    site.create("killed")
    history = History()
    with Load(site.bootstrap, "killed", history, "p") as load:
        load.wait_for_more()
        site.brokers[3].kill()
        site.wait_for("killed", {1, 2}, leader=1)
        load.wait_for_more()
        site.brokers[3].start()
        site.wait_for("killed", {1, 2, 3})
        site.brokers[1].kill()
        site.wait_for("killed", {2, 3}, leader=2)
        load.wait_for_more()
        site.brokers[1].start()
        site.wait_for("killed", {1, 2, 3})
        load.wait_for_more()
    assert problems(site, "killed", history) == []


def test_a_leader_that_slept_past_its_session_is_fenced(site: FaultySite) -> None:
    site.create("asleep")
    history = History()
    with Load(site.bootstrap, "asleep", history, "p") as load:
        load.wait_for_more()
        site.pause(1)
        site.wait_for("asleep", {2, 3}, leader=2, ask=2)
        load.wait_for_more()
        site.resume(1)
        site.wait_for("asleep", {1, 2, 3})
        load.wait_for_more()
    assert problems(site, "asleep", history) == []
