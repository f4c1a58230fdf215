"""Share groups from the administrator's side, on a scripted coordinator."""

from __future__ import annotations

import pytest
from tests.client_twin import TwinBroker, TwinLoop
from tests.client_twin.readers import ReaderCluster

from millstream.client.core.admin.core import AdminCore
from millstream.client.core.admin.share_groups import ShareOffset
from millstream.client.core.settings import AdminSettings, read_settings
from millstream.client.errors import BrokerError, UnsupportedVersionError
from millstream.model.errors import ErrorCode
from millstream.model.topic import ZERO_TOPIC_ID, TopicPartition
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from millstream.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from millstream.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from millstream.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Site:
    """Two brokers; the second one coordinates the share group "s" and no other group."""

    def __init__(self) -> None:
        self.loop = TwinLoop()
        self.cluster = ReaderCluster(self.loop, (1, 2))
        self.cluster.create_topic("t", 2)
        self.cluster.coordinator_id = 2
        self.starts: dict[TopicPartition, int] = {T0: 5, T1: -1}
        self.has_members = True
        self.cluster.handlers |= {
            ShareGroupDescribeRequest: self.describe,
            DescribeShareGroupOffsetsRequest: self.offsets,
            AlterShareGroupOffsetsRequest: self.alter,
            DeleteShareGroupOffsetsRequest: self.delete,
        }
        settings = read_settings(
            AdminSettings,
            {"bootstrap.servers": self.cluster.bootstrap, "default.api.timeout.ms": 5_000},
        )
        self.admin = AdminCore(self.loop, settings)

    def describe(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, ShareGroupDescribeRequest)
        (name,) = request.group_ids
        error = ErrorCode.NONE if name == "s" else ErrorCode.GROUP_ID_NOT_FOUND
        if broker.node_id != self.cluster.coordinator_id:
            error = ErrorCode.NOT_COORDINATOR
        assigned = TopicPartitions(topic_id=ZERO_TOPIC_ID, topic_name="t", partitions=[0, 1])
        member = Member(
            member_id="m",
            rack_id="r",
            member_epoch=3,
            client_id="c",
            client_host="/10.0.0.1",
            subscribed_topic_names=["t"],
            assignment=Assignment(topic_partitions=[assigned]),
        )
        group = DescribedGroup(
            error_code=error.code,
            group_id=name,
            group_state="Stable",
            group_epoch=3,
            assignment_epoch=3,
            assignor_name="simple",
            members=[] if error.code else [member],
        )
        return ShareGroupDescribeResponse(groups=[group])

    def offsets(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, DescribeShareGroupOffsetsRequest)
        (asked,) = request.groups
        wanted = [T0, T1]
        if asked.topics is not None:
            wanted = [
                TopicPartition(topic.topic_name, index)
                for topic in asked.topics
                for index in topic.partitions
            ]
        rows = [
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=each.partition,
                start_offset=self.starts[each],
                leader_epoch=0,
                lag=2,
                error_code=0,
            )
            for each in wanted
        ]
        topic = DescribeShareGroupOffsetsResponseTopic(
            topic_name="t", topic_id=ZERO_TOPIC_ID, partitions=rows
        )
        group = DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, topics=[topic], error_code=0
        )
        return DescribeShareGroupOffsetsResponse(groups=[group])

    def alter(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, AlterShareGroupOffsetsRequest)
        if self.has_members:
            return AlterShareGroupOffsetsResponse(
                error_code=ErrorCode.NON_EMPTY_GROUP.code, responses=[]
            )
        rows = []
        for topic in request.topics:
            for row in topic.partitions:
                self.starts[TopicPartition("t", row.partition_index)] = row.start_offset
                rows.append(
                    AlterShareGroupOffsetsResponsePartition(
                        partition_index=row.partition_index, error_code=0
                    )
                )
        answer = AlterShareGroupOffsetsResponseTopic(
            topic_name="t", topic_id=ZERO_TOPIC_ID, partitions=rows
        )
        return AlterShareGroupOffsetsResponse(error_code=0, responses=[answer])

    def delete(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, DeleteShareGroupOffsetsRequest)
        return DeleteShareGroupOffsetsResponse(
            error_code=0,
            responses=[
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=topic.topic_name,
                    topic_id=ZERO_TOPIC_ID,
                    error_code=0
                    if topic.topic_name == "t"
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code,
                )
                for topic in request.topics
            ],
        )


def test_groups_are_described_by_their_coordinator() -> None:
    site = Site()
    found = site.loop.run(site.admin.describe_share_groups(["s", "other"]))
    group = found["s"].get()
    assert (group.state, group.group_epoch, group.assignor) == ("Stable", 3, "simple")
    assert group.coordinator == "broker-2:9092"
    (member,) = group.members
    assert (member.host, member.topics, member.partitions) == ("10.0.0.1", ("t",), (T0, T1))
    error = found["other"].error
    assert error is not None
    assert error.error is ErrorCode.GROUP_ID_NOT_FOUND


def test_partitions_that_were_not_begun_have_no_start() -> None:
    site = Site()
    found = site.loop.run(site.admin.list_share_group_offsets(["s"]))["s"].get()
    assert found == {T0: ShareOffset(5, 0, 2)}
    some = site.loop.run(site.admin.list_share_group_offsets({"s": [T0]}))["s"].get()
    assert list(some) == [T0]


def test_the_start_is_set_without_members_only() -> None:
    site = Site()
    with pytest.raises(BrokerError) as caught:
        site.loop.run(site.admin.alter_share_group_offsets("s", {T0: 7}))
    assert caught.value.error is ErrorCode.NON_EMPTY_GROUP
    site.has_members = False
    site.loop.run(site.admin.alter_share_group_offsets("s", {T0: 7, T1: 0})).get_all()
    assert site.starts == {T0: 7, T1: 0}
    with pytest.raises(ValueError, match="-2"):
        site.loop.run(site.admin.alter_share_group_offsets("s", {T0: -2}))


def test_each_topic_has_its_own_outcome_when_offsets_are_deleted() -> None:
    site = Site()
    found = site.loop.run(site.admin.delete_share_group_offsets("s", ["t", "none"]))
    assert found["t"].error is None
    assert [each.error for each in found.errors.values()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_brokers_without_share_groups_are_named() -> None:
    site = Site()
    for broker in site.cluster.brokers.values():
        del broker.versions[ApiKey.SHARE_GROUP_DESCRIBE]
    with pytest.raises(UnsupportedVersionError):
        site.loop.run(site.admin.describe_share_groups(["s"]))
