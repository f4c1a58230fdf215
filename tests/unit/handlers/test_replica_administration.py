"""Elections, moves and unregistration, asked of a broker on its own."""

from __future__ import annotations

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.errors import ErrorCode
from millstream.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from millstream.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from millstream.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from millstream.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


@pytest.mark.parametrize("version", range(3))
def test_a_leader_that_leads_needs_no_election(broker: AdminBroker, version: int) -> None:
    broker.create("t")
    request = ElectLeadersRequest(
        topic_partitions=[
            TopicPartitions(topic="t", partitions=[0, 1]),
            TopicPartitions(topic="absent", partitions=[0]),
        ]
    )
    answer = broker.call(request, version, ElectLeadersResponse)
    codes = {
        (each.topic, row.partition_id): ErrorCode.of(row.error_code)
        for each in answer.replica_election_results
        for row in each.partition_result
    }
    assert codes == {
        ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    everywhere = broker.call(
        ElectLeadersRequest(topic_partitions=None), version, ElectLeadersResponse
    )
    (of_t,) = everywhere.replica_election_results
    assert (of_t.topic, of_t.partition_result) == ("t", [])


def test_every_partition_is_answered_as_often_as_it_was_named(broker: AdminBroker) -> None:
    broker.create("t")
    asked = [
        TopicPartitions(topic="t", partitions=[0, 0]),
        TopicPartitions(topic="t", partitions=[]),
    ]
    answer = broker.call(ElectLeadersRequest(topic_partitions=asked), 2, ElectLeadersResponse)
    assert [
        (each.topic, len(each.partition_result)) for each in answer.replica_election_results
    ] == [
        ("t", 2),
        ("t", 0),
    ]


def test_no_time_left_is_timed_out(broker: AdminBroker) -> None:
    broker.create("t")
    asked = [TopicPartitions(topic="t", partitions=[0])]
    elected = broker.call(
        ElectLeadersRequest(topic_partitions=asked, timeout_ms=0), 2, ElectLeadersResponse
    )
    assert ErrorCode.of(elected.error_code) is ErrorCode.REQUEST_TIMED_OUT
    (of_t,) = elected.replica_election_results
    assert [row.error_code for row in of_t.partition_result] == [elected.error_code]
    topics = [
        ReassignableTopic(
            name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[1])]
        )
    ]
    moved = broker.call(
        AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=-1),
        1,
        AlterPartitionReassignmentsResponse,
    )
    assert ErrorCode.of(moved.error_code) is ErrorCode.REQUEST_TIMED_OUT
    (told,) = moved.responses
    assert [row.error_code for row in told.partitions] == [moved.error_code]


def test_no_move_at_all_is_answered_with_an_empty_message(broker: AdminBroker) -> None:
    request = AlterPartitionReassignmentsRequest(
        topics=[], allow_replication_factor_change=False, timeout_ms=0
    )
    answer = broker.call(request, 1, AlterPartitionReassignmentsResponse)
    assert (answer.error_code, answer.error_message, answer.responses) == (0, "", [])
    assert answer.allow_replication_factor_change


def test_an_election_of_no_known_kind_is_refused_as_a_whole(broker: AdminBroker) -> None:
    request = ElectLeadersRequest(election_type=7, topic_partitions=[])
    answer = broker.call(request, 2, ElectLeadersResponse)
    assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_REQUEST


def move(
    broker: AdminBroker, index: int, replicas: list[int] | None, *, version: int = 1, **more: bool
) -> ErrorCode:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name="t",
                partitions=[ReassignablePartition(partition_index=index, replicas=replicas)],
            )
        ],
        **more,
    )
    answer = broker.call(request, version, AlterPartitionReassignmentsResponse)
    assert answer.error_code == 0
    return ErrorCode.of(answer.responses[0].partitions[0].error_code)


@pytest.mark.parametrize("version", range(2))
def test_moves(broker: AdminBroker, version: int) -> None:
    broker.create("t")
    assert move(broker, 0, [1], version=version) is ErrorCode.NONE
    assert move(broker, 0, [2], version=version) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(broker, 0, [], version=version) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(broker, 0, None, version=version) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert move(broker, 7, [1], version=version) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_replicas_that_cannot_be_are_no_question_of_their_number(broker: AdminBroker) -> None:
    broker.create("t")
    kept = {"allow_replication_factor_change": False}
    assert move(broker, 0, [1, 2], **kept) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(broker, 0, [1, 1], **kept) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(broker, 0, [], **kept) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(broker, 0, [1], **kept) is ErrorCode.NONE


def test_a_partition_below_zero_is_none(broker: AdminBroker) -> None:
    kept = {"allow_replication_factor_change": False}
    broker.create("t")
    assert move(broker, -1, [1, 2], version=1, **kept) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_nothing_is_on_its_way(broker: AdminBroker) -> None:
    broker.create("t")
    some = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 5])]
    for topics in (None, some, []):
        request = ListPartitionReassignmentsRequest(topics=topics)
        answer = broker.call(request, 0, ListPartitionReassignmentsResponse)
        assert (answer.error_code, answer.topics) == (0, [])


def test_a_broker_that_lives_stays_registered(broker: AdminBroker) -> None:
    for broker_id, expected in (
        (1, ErrorCode.INVALID_REQUEST),
        (2, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ):
        request = UnregisterBrokerRequest(broker_id=broker_id)
        answer = broker.call(request, 0, UnregisterBrokerResponse)
        assert ErrorCode.of(answer.error_code) is expected
