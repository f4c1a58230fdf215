"""Who came and went, racks, deletions that wait, and logs of a broker that joins."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controller.states import EPOCH, ids, members, state

from millstream.controller import payloads, topic_deletion
from millstream.controller.adoption import FoundLog, plan_arrival
from millstream.controller.assignment import assign_replicas, spread_over_racks
from millstream.controller.broker_changes import broker_changes
from millstream.controller.context import ControllerContext, Deletion, LiveBroker, TopicState
from millstream.controller.payloads import PayloadError, Registration
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.leadership import LeaderRecoveryState, PartitionState
from millstream.model.topic import TopicId, TopicPartition

TOPIC = TopicId(bytes(range(16)))
GONE = TopicId(bytes(range(1, 17)))


def broker(number: int, epoch: int) -> LiveBroker:
    return LiveBroker(BrokerNode(BrokerId(number), (Endpoint("A", "h", 1),), None, epoch))


def test_a_bounce_is_a_leave_and_a_join() -> None:
    known = {each.node.broker_id: each for each in (broker(1, 10), broker(2, 11), broker(3, 12))}
    changes = broker_changes(known, [broker(1, 10), broker(2, 20), broker(4, 21)])
    assert changes.left == {2, 3}
    assert changes.joined_ids == {2, 4}
    assert not broker_changes(known, known.values())


def test_a_stopping_broker_is_not_elected() -> None:
    context = ControllerContext()
    for number in (1, 2):
        context.put_broker(broker(number, number))
    context.shutting_down.add(BrokerId(2))
    assert context.electorate().live == {1}
    assert context.live_brokers == [1, 2]
    context.remove_broker(BrokerId(2))
    context.put_broker(broker(2, 9))
    assert context.electorate().live == {1, 2}, "it has come again"


def test_a_registration_comes_back() -> None:
    endpoints = (Endpoint("A", "::1", 1), Endpoint("B", "h", 2))
    node = BrokerNode(BrokerId(3), endpoints, "r", 77)
    said = Registration("directory", None)
    data = payloads.broker(node, 5, said)
    assert payloads.read_broker("/b", data, broker_id=BrokerId(3), epoch=77) == (node, said)
    of_kafka = payloads.broker(node, 5)
    assert payloads.read_broker("/b", of_kafka, broker_id=BrokerId(3), epoch=77) == (
        node,
        Registration(),
    )


@pytest.mark.parametrize("data", [b"{}", b'{"endpoints":[]}', b'{"endpoints":["x"]}', b"7"])
def test_a_damaged_registration_is_named(data: bytes) -> None:
    with pytest.raises(PayloadError, match=r"^/b: "):
        payloads.read_broker("/b", data, broker_id=BrokerId(1), epoch=1)


def test_what_kafka_has_no_name_for_comes_back() -> None:
    before = PartitionState(
        ids(1, 2, 3),
        BrokerId(1),
        7,
        ids(1),
        9,
        EPOCH,
        adding_replicas=ids(3),
        removing_replicas=ids(2),
        elr=ids(2),
        last_known_elr=ids(3),
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
        isr_broker_epochs=members(1, 2),
    )
    topic = payloads.read_topic("/t", payloads.topic(TOPIC, [before]))
    assert (topic.adding[0], topic.removing[0]) == ((3,), (2,))
    again = payloads.read_state(
        "/s",
        payloads.state(before),
        replicas=topic.replicas[0],
        version=9,
        adding=topic.adding[0],
        removing=topic.removing[0],
    )
    assert again == before


# --- racks -----------------------------------------------------------------------------------


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=2, max_size=9),
    partitions=st.integers(1, 30),
    factor=st.integers(1, 4),
    start=st.integers(0, 20),
    shift=st.integers(0, 20),
)
def test_replicas_are_spread_over_racks_and_brokers(
    racks: list[str], partitions: int, factor: int, start: int, shift: int
) -> None:
    named = {BrokerId(number): rack for number, rack in enumerate(racks)}
    factor = min(factor, len(named))
    placed = assign_replicas(
        spread_over_racks(list(named), named),
        partition_count=partitions,
        replication_factor=factor,
        start_index=start,
        shift=shift,
        racks=named,
    )
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({named[each] for each in replicas}) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(each, 0) for each in named) <= 1


def test_neighbours_stand_in_different_racks() -> None:
    racks = dict(zip(ids(0, 1, 2, 3, 4, 5), "abcabc", strict=True))
    assert spread_over_racks(ids(5, 4, 3, 2, 1, 0), racks) == [0, 1, 2, 3, 4, 5]
    assert spread_over_racks(ids(2, 1), {}) == (2, 1)


# --- deletions -------------------------------------------------------------------------------


def test_a_deletion_is_remembered_until_every_broker_has_acknowledged() -> None:
    context = ControllerContext()
    topic = TopicState("t", TOPIC, (state((1, 2)), state((2, 3))), {})
    topic_deletion.remember(context, topic)
    assert context.deletions[TOPIC] == Deletion("t", frozenset(ids(1, 2, 3)))
    assert not topic_deletion.acknowledge(context, TOPIC, BrokerId(1))
    assert not topic_deletion.acknowledge(context, TOPIC, BrokerId(1))
    assert not topic_deletion.acknowledge(context, GONE, BrokerId(1))
    assert not topic_deletion.acknowledge(context, TOPIC, BrokerId(3))
    assert topic_deletion.acknowledge(context, TOPIC, BrokerId(2))


def test_logs_of_a_broker_that_joins() -> None:
    context = ControllerContext()
    context.put_topic(TopicState("kept", TOPIC, (state((1, 2)), state((2, 3))), {}))
    context.deletions[GONE] = Deletion("gone", frozenset(ids(1)))
    other = TopicId(b"other topic's id")
    found = {
        TopicPartition("kept", 0): FoundLog(TOPIC),
        TopicPartition("kept", 1): FoundLog(TOPIC),  # moved to others meanwhile
        TopicPartition("kept", 7): FoundLog(TOPIC),
        TopicPartition("gone", 0): FoundLog(GONE),
        TopicPartition("never-heard-of", 0): FoundLog(other),
        TopicPartition("__cluster_metadata", 0): FoundLog(None),
    }
    adoption = plan_arrival(context, found, broker_id=BrokerId(1))
    assert adoption.topics == []
    assert adoption.deleted == [TopicPartition("gone", 0), TopicPartition("kept", 1)]
    assert adoption.strays == [TopicPartition("kept", 7), TopicPartition("never-heard-of", 0)]
    namesake = {TopicPartition("kept", 0): FoundLog(other)}
    assert plan_arrival(context, namesake, broker_id=BrokerId(1)).strays == list(namesake)
