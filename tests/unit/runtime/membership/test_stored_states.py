"""States read from the store: many of one moment are one read and one change of their topic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.runtime.cluster_site import Member, three

from millstream.controller import paths, payloads
from millstream.controller.topic_changes import NewTopic
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import PartitionState
from millstream.model.metadata_store import MetadataStoreError, SetData
from millstream.model.topic import TopicPartition
from millstream.runtime.membership.stored_states import MOST_AT_ONCE, StoredStates

COUNT = MOST_AT_ONCE + 100


class Deposed:
    """A broker that led every partition of a topic, and that was not told who leads now."""

    def __init__(self, count: int = COUNT) -> None:
        site = self.site = three()
        site.wait(
            site.controller.decisions.topics.create_topics(
                [NewTopic("t", assignments=[(i, (3, 1, 2)) for i in range(count)], configs={})]
            )
        )
        site.settle(3_000)
        self.member: Member = site.members[3]
        self.states = StoredStates(self.member.store, self.member.local, site.clock)
        self.count = count
        for index in range(count):
            state = replace(
                self.member.state("t", index),
                leader=BrokerId(1),
                leader_epoch=1,
                partition_epoch=1,
            )
            site.tree.multi([SetData(paths.state("t", index), payloads.state(state))], 0)
        self.member.heard.changed.clear()

    def read(self, index: int) -> list[PartitionState | KafkaError | MetadataStoreError]:
        """Read a state and take it over as ``ReplicationContext.read_state`` does."""
        found: list[PartitionState | KafkaError | MetadataStoreError] = []
        topic_partition = TopicPartition("t", index)
        reading = self.states.read_state(topic_partition)

        def take(_: object) -> None:
            try:
                state = reading.result()
            except (KafkaError, MetadataStoreError) as error:
                found.append(error)
            else:
                found.append(state)
                self.states.take_over(topic_partition, state)

        reading.on_done(take)
        return found


@pytest.mark.slow
def test_states_of_many_partitions_are_few_changes_of_their_topic() -> None:
    deposed = Deposed()
    found = [deposed.read(index) for index in range(deposed.count)]
    deposed.site.settle()
    assert all(len(each) == 1 for each in found)
    leaders = {deposed.member.state("t", index).leader for index in range(deposed.count)}
    assert leaders == {1}
    assert len(deposed.member.heard.changed) == 2, "each costs something for all its partitions"


def test_what_is_read_twice_in_a_moment_is_answered_twice() -> None:
    deposed = Deposed(count=1)
    both = [deposed.read(0), deposed.read(0)]
    deposed.site.settle()
    assert [len(each) for each in both] == [1, 1]
    assert len(deposed.member.heard.changed) == 1


def test_a_partition_that_is_not_there_fails_alone() -> None:
    deposed = Deposed(count=1)
    found = [deposed.read(0), deposed.read(1)]
    deposed.site.settle()
    assert isinstance(found[0][0], PartitionState)
    (error,) = found[1]
    assert isinstance(error, KafkaError)
    assert error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_store_that_is_away_fails_all_of_them_and_is_asked_again() -> None:
    deposed = Deposed(count=2)
    deposed.member.store.silence()
    found = [deposed.read(0), deposed.read(1)]
    deposed.site.settle()
    assert [isinstance(each, MetadataStoreError) for (each,) in found] == [True, True]
    deposed.member.store.reconnect()
    deposed.site.settle()
    again = deposed.read(0)
    deposed.site.settle()
    assert isinstance(again[0], PartitionState)


def test_without_a_registration_nothing_is_taken_over() -> None:
    deposed = Deposed(count=1)
    deposed.member.local.broker_epoch = None
    deposed.read(0)
    deposed.site.settle()
    assert deposed.member.heard.changed == []
