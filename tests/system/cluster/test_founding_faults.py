"""The six founding faults, with real processes and a real ZooKeeper, or a keeper in its place.

================================  ================================================================
a broker cut from the brokers     follower: leaves the ISR after the lag time, nobody is elected;
                                  leader: alone in the ISR it answers NOT_ENOUGH_REPLICAS; where its
                                  proposal reaches nobody, acks=all ends in a time-out
a broker cut from ZooKeeper       the next in the order of replicas leads in the next epoch; what
                                  the zombie takes with acks=1 is lost, and nothing else
the controller cut from a broker  the broker reads the stored state itself
the controller cut from the       another claims the seat in the next epoch; the old one changes
ZooKeeper                         nothing any more
a follower fails                  leaves, comes back, has the same bytes
the leader fails                  the next in the order leads in the next epoch
================================  ================================================================

What ZooKeeper has is the truth about leader, epoch and ISR. In every story an idempotent producer
writes with acks=all from the beginning to the end: nothing of it is lost, nothing is there twice,
its order is kept, and in the end the logs of the three replicas are equal byte for byte.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster_store import stores_for
from tests.link_proxy import ZOOKEEPER
from tests.system.cluster.faulty_site import IDS, FaultySite, State, problems
from tests.system.cluster.watched import Sender, read_all
from tests.system.wire import PRODUCE_VERSION, Wire, fetch, produce_request
from tests.waiting import wait_until

from millstream.history.checker import History, Send
from millstream.model.errors import ErrorCode
from millstream.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from millstream.records.builder import BatchBuilder

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

LEASED = 3
"""The broker with ``leader.lease=true``."""
TIMED_OUT = {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
ALL, LEADER_ALONE = -1, 1
"""What a producer may ask for as acks."""


TELLING: Final = {
    "test_a_leader_cut_from_zookeeper_is_followed_and_loses_acks_1_alone",
    "test_a_leader_that_slept_past_its_session_is_fenced",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Say over which stores a test runs."""
    if "site" in metafunc.fixturenames:
        stores = stores_for(metafunc.function.__name__, TELLING)
        metafunc.parametrize("store", stores, scope="module")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, store: str) -> Iterator[FaultySite]:
    settings = {"replica.lag.time.max.ms": "1500", "auto.leader.rebalance.enable": "false"}
    started = FaultySite(tmp_path_factory.mktemp("faults"), settings, store=store)
    started.brokers[LEASED].settings["leader.lease"] = "true"
    with started:
        yield started


@pytest.fixture(autouse=True)
def whole_again(site: FaultySite) -> Iterator[None]:
    yield
    site.links.heal()
    for number, broker in site.brokers.items():
        if broker.is_running:
            site.resume(number)
        else:
            broker.start()
    for number in IDS:
        wait_until(
            lambda number=number: set(site.known_to(number).brokers) == set(IDS),  # type: ignore[misc]
            f"broker {number} knows of all",
        )


def solo(history: History, topic: str, name: str = "1") -> str:
    """Return a value that is sent beside the load, for the history to know."""
    value = f"solo-{name}"
    history.send(Send((topic, 0), value, value, durable=False, once=False))
    return value


def produce_once(
    site: FaultySite, broker: int, topic: str, value: str, acks: int, timeout_ms: int = 3_000
) -> PartitionProduceResponse:
    """Send one request to the broker named and to no other; return its answer."""
    builder = BatchBuilder()
    builder.append(time.time_ns() // 1_000_000, None, value.encode())
    request = produce_request(topic, {0: builder.build()}, acks=acks, timeout_ms=timeout_ms)
    with Wire(site.brokers[broker].host, site.brokers[broker].port) as wire:
        response = wire.call(request, PRODUCE_VERSION, ProduceResponse)
    return response.responses[0].partition_responses[0]


def error_of(site: FaultySite, broker: int, topic: str, value: str, acks: int) -> ErrorCode:
    """Send one request to the broker named; return the error that it answers."""
    return ErrorCode.of(produce_once(site, broker, topic, value, acks).error_code)


def become(site: FaultySite, topic: str, wanted: State) -> None:
    """Wait until ZooKeeper has this state."""
    seen: list[State] = []

    def so() -> bool:
        seen[:] = [site.state(topic)]
        return seen[0] == wanted

    try:
        wait_until(so, "the state")
    except AssertionError:
        raise AssertionError(f"{topic} is {seen}, not {wanted}") from None


def told(site: FaultySite, topic: str, leader: int, isr: set[int]) -> None:
    """Wait until those in sync know who leads: until then they follow the leader before."""
    for each in isr:
        site.wait_for(topic, isr, leader=leader, ask=each)


def rejoined(site: FaultySite, topic: str, leader: int | None = None) -> None:
    """Wait until all are in sync again, under this leader or any."""
    site.wait_for(topic, set(IDS), leader=leader)


def test_a_follower_cut_from_the_brokers_leaves_the_isr_and_comes_back(site: FaultySite) -> None:
    controller = site.controller_id()
    leader, cut = site.others(controller)
    topic = "cut-follower"
    site.create(topic, (leader, controller, cut))
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.links.cut_off(cut, leader, controller)
        site.wait_for(topic, {leader, controller}, leader=leader, ask=leader)
        load.wait_for_more()
        during = site.state(topic)
        assert (during.leader, during.isr) == (leader, {leader, controller})
        assert during.epoch == before.epoch, "the leader shrinks the ISR, nobody is elected"
        assert site.controller_id() == controller
        site.links.heal()
        become(site, topic, before)
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []


def test_a_leader_that_has_the_isr_to_itself_refuses_acks_all(site: FaultySite) -> None:
    """It is the controller too, so that its proposal is written."""
    leader = site.controller_id()
    topic = "cut-leader"
    site.create(topic, (leader, *site.others(leader)))
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.links.cut_off(leader, *site.others(leader))
        become(site, topic, State(leader, before.epoch, frozenset({leader})))
        refused = solo(history, topic, "refused")
        error = error_of(site, leader, topic, refused, ALL)
        assert error is ErrorCode.NOT_ENOUGH_REPLICAS
        kept = solo(history, topic, "kept")
        assert error_of(site, leader, topic, kept, LEADER_ALONE) is ErrorCode.NONE
        site.links.heal()
        become(site, topic, before)
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []
    values = read_all(site.bootstrap, topic, history, "afterwards")[topic, 0].values()
    assert refused not in values, "NOT_ENOUGH_REPLICAS is answered before anything is written"
    assert kept in values, "it led all the time, so what it took with acks=1 is there"


def test_a_leader_whose_proposal_reaches_nobody_waits_for_the_isr(site: FaultySite) -> None:
    controller = site.controller_id()
    leader, follower = site.others(controller)
    topic = "cut-off-leader"
    site.create(topic, (leader, controller, follower))
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.links.cut_off(leader, controller, follower)
        error = error_of(site, leader, topic, solo(history, topic), ALL)
        assert error in TIMED_OUT, error
        assert site.state(topic) == before, "its session lives, so it leads and nobody left"
        site.links.heal()
        rejoined(site, topic, leader)
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []


def test_a_leader_cut_from_zookeeper_is_followed_and_loses_acks_1_alone(site: FaultySite) -> None:
    topic = "cut-store"
    site.create(topic, (1, 2, 3))
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.links.cut_off(1, ZOOKEEPER)
        become(site, topic, State(2, before.epoch + 1, frozenset({2, 3})))
        told(site, topic, 2, {2, 3})
        lost = solo(history, topic)
        taken = produce_once(site, 1, topic, lost, LEADER_ALONE)
        assert taken.error_code == ErrorCode.NONE.code, "the zombie takes it"
        open_ended = solo(history, topic, "all")
        assert error_of(site, 1, topic, open_ended, ALL) in TIMED_OUT
        with Wire("127.0.0.1", site.brokers[1].port) as wire:
            assert fetch(wire, topic, 0, 0).high_watermark <= taken.base_offset
        kept = solo(history, topic, "kept")
        assert error_of(site, 2, topic, kept, ALL) is ErrorCode.NONE, "the others have moved on"
        site.links.heal()
        become(site, topic, State(2, before.epoch + 1, frozenset(IDS)))
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []
    values = read_all(site.bootstrap, topic, history, "afterwards")[topic, 0].values()
    assert kept in values
    assert lost not in values
    assert open_ended not in values


def test_a_leader_with_a_lease_refuses_once_its_session_may_have_ended(site: FaultySite) -> None:
    topic = "leased"
    site.create(topic, (LEASED, 1, 2))
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.links.cut_off(LEASED, ZOOKEEPER)
        become(site, topic, State(1, before.epoch + 1, frozenset({1, 2})))
        for acks in (LEADER_ALONE, ALL):
            value = solo(history, topic, f"refused with acks={acks}")
            error = error_of(site, LEASED, topic, value, acks)
            assert error is ErrorCode.NOT_LEADER_OR_FOLLOWER, acks
        site.links.heal()
        become(site, topic, State(1, before.epoch + 1, frozenset(IDS)))
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []
    values = read_all(site.bootstrap, topic, history, "afterwards")[topic, 0].values()
    assert not [each for each in values if each.startswith("solo")]


def test_a_follower_cut_from_zookeeper_is_left_out_until_it_is_back(site: FaultySite) -> None:
    controller = site.controller_id()
    leader, cut = site.others(controller)
    topic = "cut-follower-store"
    site.create(topic, (leader, controller, cut))
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.links.cut_off(cut, ZOOKEEPER)
        site.wait_for(topic, {leader, controller}, leader=leader, ask=leader)
        load.wait_for_more()
        site.links.heal()
        rejoined(site, topic, leader)
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []


def test_a_broker_that_hears_no_controller_reads_the_state_itself(site: FaultySite) -> None:
    """It is the next in the order when the leader dies, and is told by nobody."""
    controller = site.controller_id()
    leader, deaf = site.others(controller)
    topic = "deaf"
    site.create(topic, (leader, deaf, controller))
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.links.cut_off(controller, deaf)
        site.brokers[leader].kill()
        become(site, topic, State(deaf, before.epoch + 1, frozenset({deaf, controller})))
        site.wait_for(topic, {deaf, controller}, leader=deaf, ask=deaf)
        site.links.heal()
        load.wait_for_more()
        site.brokers[leader].start()
        # On a busy machine the cut may last longer than the lag time, and a leader that its
        # follower cannot reach is followed by it (decision 0072).
        rejoined(site, topic)
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []


def test_a_controller_cut_from_a_broker_tells_it_later(site: FaultySite) -> None:
    """What was pushed in vain is pushed again: the broker knows of a topic in the end."""
    controller = site.controller_id()
    other = site.others(controller)[0]
    topic = "cut-controller"
    site.create(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.links.freeze((controller, other))
        admin = AdminClient({"bootstrap.servers": site.brokers[controller].bootstrap})
        wanted = NewTopic("made-meanwhile", 1, replica_assignment=[[controller, other]])
        admin.create_topics([wanted], operation_timeout=5)["made-meanwhile"].result(30)
        site.links.heal()
        site.wait_for("made-meanwhile", {controller, other}, leader=controller, ask=other)
        rejoined(site, topic)
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []


def test_a_controller_cut_from_zookeeper_is_followed_and_changes_nothing(site: FaultySite) -> None:
    old = site.controller_id()
    epoch = site.controller_epoch()
    others = site.others(old)
    topic = "cut-seat"
    site.create(topic, (*others, old))
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.links.cut_off(old, ZOOKEEPER)
        wait_until(lambda: site.controller_epoch() > epoch, "the next controller epoch")
        for each in others:
            wait_until(
                lambda each=each: site.known_to(each).controller_id in others,  # type: ignore[misc]
                f"broker {each} hears of another controller",
            )
        state = site.state(topic)
        assert (state.leader, state.isr) == (others[0], set(others))
        stale = AdminClient({"bootstrap.servers": site.brokers[old].bootstrap, "log_level": 0})
        wanted = NewTopic("by-the-old", 1, 1)
        with pytest.raises(KafkaException):
            stale.create_topics([wanted], operation_timeout=2, request_timeout=5)[
                "by-the-old"
            ].result(20)
        load.wait_for_more()
        site.links.heal()
        rejoined(site, topic, others[0])
        load.wait_for_more()
    # A busy machine may cost the next controller its session as well.
    assert site.controller_epoch() > epoch
    for each in IDS:
        assert site.known_to(each).controller_id in others
        assert "by-the-old" not in site.known_to(each).topics
    assert load.failures == []
    assert problems(site, topic, history) == []


def test_a_killed_follower_comes_back_with_the_same_bytes(site: FaultySite) -> None:
    topic = "killed-follower"
    site.create(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.brokers[3].kill()
        site.wait_for(topic, {1, 2}, leader=1)
        load.wait_for_more()
        assert site.state(topic).leader == 1
        site.brokers[3].start()
        rejoined(site, topic, 1)
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []


def test_a_killed_leader_is_followed_in_the_order_of_replicas(site: FaultySite) -> None:
    topic = "killed-leader"
    site.create(topic, (1, 3, 2))
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.brokers[1].kill()
        become(site, topic, State(3, before.epoch + 1, frozenset({2, 3})))
        load.wait_for_more()
        site.brokers[1].start()
        become(site, topic, State(3, before.epoch + 1, frozenset(IDS)))
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []


def test_a_leader_that_slept_past_its_session_is_fenced(site: FaultySite) -> None:
    topic = "asleep"
    site.create(topic)
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.pause(1)
        become(site, topic, State(2, before.epoch + 1, frozenset({2, 3})))
        load.wait_for_more()
        site.resume(1)
        become(site, topic, State(2, before.epoch + 1, frozenset(IDS)))
        load.wait_for_more()
    assert load.failures == []
    assert problems(site, topic, history) == []


def test_a_leader_that_sleeps_less_than_its_session_goes_on_leading(site: FaultySite) -> None:
    topic = "dozing"
    site.create(topic)
    before = site.state(topic)
    history = History()
    with Sender(site.bootstrap, topic, history, "p") as load:
        load.wait_for_more()
        site.pause(1)
        time.sleep(1)
        site.resume(1)
        load.wait_for_more()
        rejoined(site, topic, 1)
    assert site.state(topic) == before, "nobody is elected because somebody pauses"
    assert load.failures == []
    assert problems(site, topic, history) == []
