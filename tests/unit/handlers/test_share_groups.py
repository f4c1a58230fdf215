"""Share groups from heartbeat to the state of their share partitions, over real logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.handlers.share_groups_broker import ShareBroker

from millstream.model.errors import ErrorCode
from millstream.model.features import FinalizedFeatures
from millstream.model.topic import GROUP_METADATA_TOPIC, TopicId
from millstream.protocol.message import Request
from millstream.protocol.messages import alter_share_group_offsets as altering
from millstream.protocol.messages import delete_share_group_offsets as deleting
from millstream.protocol.messages import describe_share_group_offsets as describing
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from millstream.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from millstream.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from millstream.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from millstream.share.state import SharePartitionKey, ShareStateUpdate

GROUP = "workers"


class Groups(ShareBroker):
    """What members and administrators of share groups ask."""

    def beat(
        self,
        member: str,
        epoch: int,
        topics: list[str] | None = None,
        *,
        group: str = GROUP,
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics
        )
        self.clock.advance(2_000)  # the interval between two target assignments
        answer = self.start(request, 1)
        self.clock.advance(500)
        response = answer.result()
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def assigned(self, response: ShareGroupHeartbeatResponse) -> dict[TopicId, list[int]]:
        assert response.assignment is not None
        return {each.topic_id: each.partitions for each in response.assignment.topic_partitions}

    def describe(self, group: str = GROUP) -> ShareGroupDescribeResponse:
        response = self.send(
            ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1
        )
        assert isinstance(response, ShareGroupDescribeResponse)
        return response

    def alter(self, offsets: dict[int, int], topic: str = "orders") -> list[int]:
        response = self.send(
            altering.AlterShareGroupOffsetsRequest(
                group_id=GROUP,
                topics=[
                    altering.AlterShareGroupOffsetsRequestTopic(
                        topic_name=topic,
                        partitions=[
                            altering.AlterShareGroupOffsetsRequestPartition(
                                partition_index=index, start_offset=offset
                            )
                            for index, offset in offsets.items()
                        ],
                    )
                ],
            ),
            0,
        )
        assert isinstance(response, altering.AlterShareGroupOffsetsResponse)
        if response.error_code:
            return [response.error_code]
        return [each.error_code for topic_ in response.responses for each in topic_.partitions]

    def offsets(
        self, topics: dict[str, list[int]] | None = None
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the start offset and lag of each share partition."""
        named = topics and [
            describing.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=parts)
            for name, parts in topics.items()
        ]
        request = describing.DescribeShareGroupOffsetsRequest(
            groups=[describing.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=named)]
        )
        response = self.send(request, 1)
        assert isinstance(response, describing.DescribeShareGroupOffsetsResponse)
        (group,) = response.groups
        assert group.error_code == 0
        return {
            (topic.topic_name, each.partition_index): (each.start_offset, each.lag)
            for topic in group.topics
            for each in topic.partitions
        }

    def delete_offsets(self, *topics: str) -> list[int]:
        response = self.send(
            deleting.DeleteShareGroupOffsetsRequest(
                group_id=GROUP,
                topics=[
                    deleting.DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in topics
                ],
            ),
            0,
        )
        assert isinstance(response, deleting.DeleteShareGroupOffsetsResponse)
        return [response.error_code, *(each.error_code for each in response.responses)]

    def delete_group(self) -> int:
        response = self.send(DeleteGroupsRequest(groups_names=[GROUP]), 2)
        assert isinstance(response, DeleteGroupsResponse)
        return response.results[0].error_code


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Groups]:
    broker = Groups(tmp_path, {"offsets.topic.num.partitions": "2"})
    broker.result(broker.services.ensure_topic(GROUP_METADATA_TOPIC))
    yield broker
    broker.end()


def test_members_share_partitions_once_their_state_is_initialized(broker: Groups) -> None:
    topic_id = broker.topic("orders", 3)
    first = broker.beat("m1", 0, ["orders"])
    assert (first.error_code, first.member_epoch, broker.assigned(first)) == (0, 2, {})
    second = broker.beat("m1", 2)
    assert (second.member_epoch, broker.assigned(second)) == (3, {topic_id: [0, 1, 2]})
    assert broker.beat("m1", 3).assignment is None, "nothing new to tell"
    joined = broker.beat("m2", 0, ["orders"])
    moved = broker.beat("m1", 3)
    parts = [*broker.assigned(joined)[topic_id], *broker.assigned(moved)[topic_id]]
    assert sorted(parts) == [0, 1, 2]
    key = SharePartitionKey(GROUP, topic_id, 2)
    assert broker.result(broker.persister.read(key, leader_epoch=0)).state_epoch == 2


def test_a_member_whose_answer_was_lost_is_told_its_partitions_again(broker: Groups) -> None:
    topic_id = broker.topic("orders", 1)
    broker.beat("m1", 0, ["orders"])
    broker.beat("m1", 2)
    again = broker.beat("m1", 2)
    assert (again.member_epoch, broker.assigned(again)) == (3, {topic_id: [0]})


def test_more_members_than_partitions_have_a_partition_each(broker: Groups) -> None:
    topic_id = broker.topic("orders", 2)
    for index in range(5):
        broker.beat(f"m{index}", 0, ["orders"])
    epoch = broker.describe().groups[0].group_epoch
    counts = []
    for index in range(5):
        member = broker.beat(f"m{index}", 0, ["orders"])
        assert member.member_epoch == epoch
        counts.append(len(broker.assigned(member)[topic_id]))
    assert sum(counts) == 6, "each of two partitions has three members"
    assert set(counts) <= {1, 2}


def test_a_group_is_kept_over_a_new_start(broker: Groups) -> None:
    broker.topic("orders", 2)
    broker.beat("m1", 0, ["orders"])
    broker.beat("m1", 2)
    before = broker.describe().groups[0]
    assert (before.group_state, len(before.members)) == ("Stable", 1)
    broker.start_again()
    broker.describe()
    assert broker.describe().groups[0] == before
    assert broker.beat("m1", 3).error_code == 0


def test_a_session_that_expires_ends_a_membership(broker: Groups) -> None:
    broker.topic("orders", 2)
    broker.beat("m1", 0, ["orders"])
    broker.beat("m2", 0, ["orders"])
    broker.clock.advance(30_000)
    broker.beat("m2", 0, ["orders"])
    broker.clock.advance(20_000)
    assert [each.member_id for each in broker.describe().groups[0].members] == ["m2"]
    assert broker.beat("m1", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID.code


def test_new_partitions_are_initialized_and_assigned(broker: Groups) -> None:
    topic_id = broker.topic("orders", 1)
    broker.beat("m1", 0, ["orders", "later"])
    broker.beat("m1", 2)
    later = broker.topic("later", 1)
    image = broker.metadata.topic("later")
    assert image is not None
    broker.groups.topic_changed(image, created=True)
    broker.beat("m1", 3)
    assigned = broker.assigned(broker.beat("m1", 0, ["orders", "later"]))
    assert assigned == {topic_id: [0], later: [0]}


def test_sessions_go_on_after_a_new_start(broker: Groups) -> None:
    broker.topic("orders", 1)
    broker.beat("m1", 0, ["orders"])
    broker.beat("m2", 0, ["orders"])
    broker.start_again()
    broker.describe()
    broker.clock.advance(30_000)
    broker.beat("m2", 0, ["orders"])
    broker.clock.advance(20_000)
    assert [each.member_id for each in broker.describe().groups[0].members] == ["m2"]


def test_state_whose_initialization_was_lost_is_begun_again(broker: Groups) -> None:
    topic_id = broker.topic("orders", 2)
    broker.is_cut_off = True
    broker.beat("m1", 0, ["orders"])
    assert broker.assigned(broker.beat("m1", 0, ["orders"])) == {}
    broker.is_cut_off = False
    broker.start_again()
    for _ in range(30):
        broker.clock.advance(5_000)
        answer = broker.beat("m1", 0, ["orders"])
    assert broker.assigned(answer) == {topic_id: [0, 1]}


def test_partitions_added_to_a_topic_leave_the_state_of_the_others(broker: Groups) -> None:
    topic_id = broker.topic("orders", 2)
    broker.beat("m1", 0, ["orders"])
    broker.beat("m1", 2)
    key = SharePartitionKey(GROUP, topic_id, 0)
    broker.result(broker.persister.write(key, ShareStateUpdate(2, 0, 6, 3)))
    grow = CreatePartitionsTopic(name="orders", count=3, assignments=None)
    broker.send(CreatePartitionsRequest(topics=[grow], timeout_ms=1000, validate_only=False), 3)
    image = broker.metadata.topic("orders")
    assert image is not None
    broker.groups.topic_changed(image, created=False)
    broker.beat("m1", 3)
    assert broker.assigned(broker.beat("m1", 0, ["orders"])) == {topic_id: [0, 1, 2]}
    described = broker.offsets()
    assert described["orders", 0][0] == 6
    assert set(described) == {("orders", 0), ("orders", 1), ("orders", 2)}


def test_a_new_subscription_outlives_the_coordinator(broker: Groups) -> None:
    topic_id, more = broker.topic("orders", 1), broker.topic("more", 1)
    broker.beat("m1", 0, ["orders"])
    epoch = broker.beat("m1", 2).member_epoch
    epoch = broker.beat("m1", epoch, ["orders", "more"]).member_epoch
    broker.start_again()
    broker.describe()
    (member,) = broker.describe().groups[0].members
    assert sorted(member.subscribed_topic_names) == ["more", "orders"]
    for _ in range(3):
        answer = broker.beat("m1", 0, ["orders", "more"])
    assert broker.assigned(answer) == {topic_id: [0], more: [0]}


@pytest.mark.parametrize(
    ("member", "epoch", "topics", "code"),
    [
        ("", 0, ["orders"], ErrorCode.INVALID_REQUEST),
        ("m1", 0, [], ErrorCode.INVALID_REQUEST),
        ("m1", 0, None, ErrorCode.INVALID_REQUEST),
        ("m1", -2, ["orders"], ErrorCode.INVALID_REQUEST),
        ("m1", 7, None, ErrorCode.FENCED_MEMBER_EPOCH),
        ("m2", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m2", -1, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeats_that_are_refused(
    broker: Groups, member: str, epoch: int, topics: list[str] | None, code: ErrorCode
) -> None:
    broker.topic("orders", 1)
    broker.beat("m1", 0, ["orders"])
    assert broker.beat(member, epoch, topics).error_code == code.code


def test_a_group_that_is_not_there_or_of_another_kind(broker: Groups) -> None:
    assert broker.beat("m1", 2).error_code == ErrorCode.GROUP_ID_NOT_FOUND.code
    assert broker.describe().groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND.code
    broker.topic("orders", 1)
    commit = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=3, committed_metadata=""
                    )
                ],
            )
        ],
    )
    assert isinstance(broker.send(commit, 8), OffsetCommitResponse)
    refused = broker.beat("m1", 0, ["orders"])
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND.code


def test_a_share_group_has_no_committed_offsets(broker: Groups) -> None:
    broker.topic("orders", 1)
    broker.beat("m1", 0, ["orders"])
    broker.beat("m1", -1)
    commit = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=3, committed_metadata=""
                    )
                ],
            )
        ],
    )
    response = broker.send(commit, 8)
    assert isinstance(response, OffsetCommitResponse)
    codes = {each.error_code for topic in response.topics for each in topic.partitions}
    assert codes == {ErrorCode.GROUP_ID_NOT_FOUND.code}


def test_a_full_group_takes_no_more_members(tmp_path: Path) -> None:
    broker = Groups(tmp_path, {"group.share.max.size": "2", "offsets.topic.num.partitions": "1"})
    broker.result(broker.services.ensure_topic(GROUP_METADATA_TOPIC))
    broker.topic("orders", 1)
    codes = [broker.beat(f"m{index}", 0, ["orders"]).error_code for index in range(3)]
    assert codes == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED.code]
    broker.end()


def test_share_groups_are_off_while_the_feature_is(broker: Groups) -> None:
    broker.metadata.features = FinalizedFeatures({"share.version": 0})
    unsupported = ErrorCode.UNSUPPORTED_VERSION.code
    assert broker.beat("m1", 0, ["orders"]).error_code == unsupported
    assert broker.describe().groups[0].error_code == unsupported
    assert broker.alter({0: 1}) == [unsupported]
    assert broker.delete_offsets("orders") == [unsupported]


def test_offsets_are_altered_described_and_deleted(broker: Groups) -> None:
    broker.topic("orders", 2)
    broker.fill("orders", *[b"x"] * 10)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    assert broker.alter({0: 4, 1: 0, 5: 1}) == [0, 0, unknown]
    assert broker.offsets() == {("orders", 0): (4, 6), ("orders", 1): (0, 0)}
    topic = broker.metadata.topic("orders")
    assert topic is not None
    update = ShareStateUpdate(1, 0, 6, 3)
    broker.result(broker.persister.write(SharePartitionKey(GROUP, topic.topic_id, 0), update))
    described = broker.offsets({"orders": [0, 9], "nothing": [0]})
    assert described == {("orders", 0): (6, 1), ("orders", 9): (-1, -1), ("nothing", 0): (-1, -1)}
    assert broker.delete_offsets("orders", "nothing") == [0, unknown, 0]
    assert broker.offsets() == {}
    assert broker.delete_offsets("orders") == [0, unknown], "there is nothing to delete any more"


def test_offsets_of_a_group_with_members_stay(broker: Groups) -> None:
    broker.topic("orders", 1)
    broker.beat("m1", 0, ["orders"])
    not_empty = ErrorCode.NON_EMPTY_GROUP.code
    assert broker.alter({0: 4}) == [not_empty]
    assert broker.delete_offsets("orders") == [not_empty]
    assert broker.delete_group() == not_empty
    broker.beat("m1", -1)
    assert broker.alter({0: 4}) == [0]


def test_an_altered_group_begins_where_it_was_told(broker: Groups) -> None:
    topic_id = broker.topic("orders", 1)
    broker.beat("m1", 0, ["orders"])
    broker.beat("m1", 2)
    broker.beat("m1", -1)
    assert broker.alter({0: 7}) == [0]
    state = broker.result(
        broker.persister.read(SharePartitionKey(GROUP, topic_id, 0), leader_epoch=0)
    )
    assert (state.start_offset, state.state_batches) == (7, ())
    broker.beat("m1", 0, ["orders"])
    assert broker.assigned(broker.beat("m1", 0, ["orders"])) == {topic_id: [0]}


def test_a_deleted_group_takes_its_state_along(broker: Groups) -> None:
    topic_id = broker.topic("orders", 2)
    broker.beat("m1", 0, ["orders"])
    broker.beat("m1", 2)
    broker.beat("m1", -1)
    assert listed(broker) == [(GROUP, "share", "Empty", "share")]
    assert broker.delete_group() == 0
    assert listed(broker) == []
    read = broker.persister.read(SharePartitionKey(GROUP, topic_id, 0), leader_epoch=0)
    assert broker.refusal(read) is ErrorCode.INVALID_REQUEST
    broker.start_again()
    assert broker.delete_group() == ErrorCode.GROUP_ID_NOT_FOUND.code


def listed(broker: Groups) -> list[tuple[str, str, str, str]]:
    request: Request = ListGroupsRequest(states_filter=[], types_filter=["share"])
    response = broker.send(request, 5)
    assert isinstance(response, ListGroupsResponse)
    return [
        (each.group_id, each.protocol_type, each.group_state, each.group_type)
        for each in response.groups
    ]
