"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, through the shard and its log."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.handlers.group_calls import Calls

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.model.errors import ErrorCode
from millstream.model.features import GROUP_VERSION, FinalizedFeatures
from millstream.model.topic import TopicId
from millstream.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from millstream.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    made = Calls(tmp_path)
    made.site.create("t", 3)
    return made


def join(calls: Calls, *, version: int = 1, **fields: object) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="one",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return calls.call(request, version, ConsumerGroupHeartbeatResponse)


def describe(calls: Calls, *group_ids: str, operations: bool = False) -> list[DescribedGroup]:
    request = ConsumerGroupDescribeRequest(
        group_ids=list(group_ids), include_authorized_operations=operations
    )
    return calls.call(request, 1, ConsumerGroupDescribeResponse).groups


def test_a_member_joins_and_is_described(calls: Calls) -> None:
    response = join(calls, rack_id="r1")
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "one", 2)
    assert response.heartbeat_interval_ms == 5_000
    assert response.assignment is not None
    (assigned,) = response.assignment.topic_partitions
    assert assigned.partitions == [0, 1, 2]
    (group,) = describe(calls, "g", operations=True)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert group.authorized_operations == 3400
    (member,) = group.members
    assert (member.client_id, member.client_host) == ("web", "/10.0.0.7")
    assert (member.rack_id, member.member_type) == ("r1", 1)
    assert member.assignment.topic_partitions[0].topic_name == "t"


def test_in_version_0_the_broker_makes_the_member_id(calls: Calls) -> None:
    assert join(calls, version=0, member_id="").member_id


def test_errors_come_with_their_message(calls: Calls) -> None:
    response = join(calls, server_assignor="mine")
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR.code
    assert "mine is not supported" in (response.error_message or "")


def test_groups_that_are_no_consumer_groups_are_not_found(calls: Calls) -> None:
    absent, unnamed = describe(calls, "absent", "")
    assert absent.error_code == ErrorCode.GROUP_ID_NOT_FOUND.code
    assert absent.error_message == "Group absent not found."
    assert unnamed.error_code == ErrorCode.INVALID_GROUP_ID.code


def test_the_group_is_listed_with_its_type(calls: Calls) -> None:
    join(calls)
    request = ListGroupsRequest(states_filter=[], types_filter=["Consumer"])
    (listed,) = calls.call(request, 5, ListGroupsResponse).groups
    assert (listed.group_id, listed.group_type, listed.group_state) == ("g", "consumer", "Stable")


def test_without_the_feature_the_protocol_is_unsupported(calls: Calls) -> None:
    calls.services.metadata.features = FinalizedFeatures({GROUP_VERSION: 0})
    assert join(calls).error_code == ErrorCode.UNSUPPORTED_VERSION.code
    (group,) = describe(calls, "g")
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION.code


def test_the_protocol_may_be_left_out(calls: Calls) -> None:
    settings = {"group.coordinator.rebalance.protocols": "classic"}
    calls.services.config = DynamicConfig(BrokerConfig(settings))
    assert join(calls).error_code == ErrorCode.UNSUPPORTED_VERSION.code


def test_new_partitions_reach_the_member(calls: Calls) -> None:
    join(calls)
    calls.site.create("u", 1, TopicId(b"u" * 16))
    again = join(calls, subscribed_topic_names=None, subscribed_topic_regex="u|t")
    assert again.error_code == 0
    calls.site.clock.advance(1_000)
    beat = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="one", member_epoch=again.member_epoch, topic_partitions=[]
    )
    response = calls.call(beat, 1, ConsumerGroupHeartbeatResponse)
    assert response.error_code == 0
    assert response.assignment is not None
    assert sum(len(each.partitions) for each in response.assignment.topic_partitions) == 4
