"""Messages that overtake each other, and what a broker tells a controller that asks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.controller import paths, payloads
from millstream.controller.election import LogEnd
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.metadata_store import SessionEvent, SetData
from millstream.model.topic import TopicId, TopicPartition
from millstream.protocol.api import ApiKey
from millstream.sim.broker import BrokerLife
from millstream.sim.cluster import SimCluster
from millstream.sim.faults import Swarm
from millstream.sim.workload import TOPIC

WANTED = "wanted"


def whole(seed: int = 1) -> SimCluster:
    """Return a cluster in which all is well and nobody writes."""
    cluster = SimCluster(seed, swarm=Swarm.of("elect"))
    for number in cluster.numbers:
        cluster.start_broker(number)
    cluster.work.connect(cluster.network, cluster.numbers, cluster.ensemble)
    assert cluster.until(lambda: all(each.is_up for each in cluster.lives.values()), 30_000)
    creation = cluster.work.create_topic()
    assert cluster.until(lambda: creation.done, 30_000)
    assert cluster.until(lambda: everybody_knows(cluster, TOPIC), 30_000)
    return cluster


def everybody_knows(cluster: SimCluster, topic: str) -> bool:
    return all(each.core.metadata.topic(topic) for each in cluster.lives.values())


def a_follower(cluster: SimCluster) -> BrokerLife:
    """Return a broker that is not the controller."""
    return next(
        life for number, life in cluster.lives.items() if number != cluster.controller_number()
    )


def test_a_topic_that_was_asked_for_is_known_by_the_push_and_not_by_the_answer() -> None:
    """A push of everything that was made before the topic would take it away again."""
    cluster = whole()
    life, controller = a_follower(cluster), cluster.controller_number()
    assert controller is not None
    slow = cluster.network.weather.slow
    slow[controller, life.number, int(ApiKey.PUSH_METADATA)] = 1e9
    ensured = life.member.channel.ensure_topic(WANTED)
    assert cluster.until(lambda: paths.topic(WANTED) in cluster.ensemble.tree.nodes, 5_000)
    cluster.go_on(1_000)
    assert (ensured.done, life.core.metadata.topic(WANTED)) == (False, None)
    slow.clear()
    cluster.network.reset(controller, life.number)
    assert cluster.until(lambda: ensured.done, 10_000)
    assert ensured.result() is life.core.metadata.topic(WANTED)


def test_a_state_that_is_read_of_another_topic_of_that_name_is_not_taken() -> None:
    cluster = whole()
    life = a_follower(cluster)
    path = paths.topic(TOPIC)
    known = payloads.read_topic(path, cluster.ensemble.tree.nodes[path].data)
    image = life.core.metadata.topic(TOPIC)
    assert image is not None
    other = payloads.topic(TopicId(bytes(range(16))), image.partitions)
    cluster.ensemble.tree.multi([SetData(path, other)], 0)
    reading = life.member.stored_states.read_state(TopicPartition(TOPIC, 0))
    assert cluster.until(lambda: reading.done, 5_000)
    with pytest.raises(KafkaError) as refused:
        reading.result()
    assert refused.value.error is ErrorCode.INCONSISTENT_TOPIC_ID
    assert known.topic_id == image.topic_id


def test_nothing_is_taken_for_a_registration_that_ended_with_its_session() -> None:
    """Not even before the next one is made: ``leader.lease`` would begin anew by a late push."""
    cluster = whole()
    life = a_follower(cluster)
    local = life.member.metadata
    before, seen = local.broker_epoch, []
    life.store.watch_session(lambda event: seen.append((event, local.broker_epoch)))
    cluster.ensemble.end_session(life.store.session_id)
    assert cluster.until(lambda: local.broker_epoch not in (None, before), 10_000)
    assert seen[0] == (SessionEvent.EXPIRED, None)


def test_no_state_is_taken_from_the_store_without_a_registration() -> None:
    cluster = whole()
    life = a_follower(cluster)
    local = life.member.metadata
    reading = life.member.stored_states.read_state(TopicPartition(TOPIC, 0))
    assert cluster.until(lambda: reading.done, 5_000)
    state = reading.result()
    newer = replace(state, partition_epoch=state.partition_epoch + 1)
    epoch, local.broker_epoch = local.broker_epoch, None
    for expected in (state, newer):
        life.member.stored_states.take_over(TopicPartition(TOPIC, 0), newer)
        image = life.core.metadata.topic(TOPIC)
        assert image is not None
        assert image.partitions[0] == expected
        local.broker_epoch = epoch


def test_a_log_that_was_damaged_in_the_middle_reaches_nowhere_until_it_has_followed() -> None:
    """Its broker would refuse to lead; where logs are compared any other one is to be elected."""
    cluster = whole()
    life, place = a_follower(cluster), TopicPartition(TOPIC, 0)
    partition = life.partitions.replica(TOPIC, 0)
    assert partition is not None
    known = life.member.local_log_end(place)
    report = partition.log.recovery_report
    report.truncated_at, report.is_torn_tail, partition.has_followed = 5, False, False
    assert known is not None
    assert life.member.local_log_end(place) == LogEnd(-1, 0)
    partition.has_followed = True
    assert life.member.local_log_end(place) == known
