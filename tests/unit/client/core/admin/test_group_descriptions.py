"""Groups of both protocols, described by brokers that know one or both."""

from __future__ import annotations

import pytest
from tests.client_twin import TwinBroker, TwinCluster, TwinLoop

from millstream.client.core.admin.core import AdminCore
from millstream.client.core.settings import AdminSettings, read_settings
from millstream.client.errors import BrokerError
from millstream.model.errors import ErrorCode
from millstream.model.topic import ZERO_TOPIC_ID, TopicPartition
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages import consumer_group_describe
from millstream.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from millstream.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


@pytest.fixture
def world() -> tuple[TwinLoop, TwinCluster, AdminCore]:
    loop = TwinLoop()
    cluster = TwinCluster(loop, (1, 2))
    given = {"default_api_timeout_ms": 5000, "request_timeout_ms": 1000}
    settings = read_settings(AdminSettings, {"bootstrap.servers": cluster.bootstrap}, given)
    cluster.handlers |= {
        ConsumerGroupDescribeRequest: describe_consumer,
        DescribeGroupsRequest: describe_classic,
    }
    return loop, cluster, AdminCore(loop, settings)


def describe_consumer(broker: TwinBroker, request: Request) -> Response:
    assert isinstance(request, ConsumerGroupDescribeRequest)
    module = consumer_group_describe
    (group,) = request.group_ids

    def assignment(*numbers: int) -> consumer_group_describe.Assignment:
        rows = [
            module.TopicPartitions(topic_id=ZERO_TOPIC_ID, topic_name="t", partitions=list(numbers))
        ]
        return module.Assignment(topic_partitions=rows)

    if group != "new":
        error = ErrorCode.GROUP_ID_NOT_FOUND
        if group == "forbidden":
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        row = module.DescribedGroup(
            error_code=error.code,
            group_id=group,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )
        return ConsumerGroupDescribeResponse(groups=[row])
    member = module.Member(
        member_id="m",
        instance_id="i",
        rack_id="r",
        member_epoch=6,
        client_id="c",
        client_host="/10.0.0.1",
        subscribed_topic_names=["u", "t"],
        subscribed_topic_regex="t.*",
        assignment=assignment(2, 0),
        target_assignment=assignment(0, 1),
        member_type=1,
    )
    row = module.DescribedGroup(
        error_code=0,
        group_id=group,
        group_state="Reconciling",
        group_epoch=7,
        assignment_epoch=6,
        assignor_name="uniform",
        members=[member],
    )
    return ConsumerGroupDescribeResponse(groups=[row])


def describe_classic(broker: TwinBroker, request: Request) -> Response:
    assert isinstance(request, DescribeGroupsRequest)
    (group,) = request.groups
    known = group == "old"
    old_broker = broker.versions[ApiKey.DESCRIBE_GROUPS][1] < 6
    missing = 0 if known or old_broker else ErrorCode.GROUP_ID_NOT_FOUND.code
    row = DescribedGroup(
        error_code=missing,
        group_id=group,
        group_state="Stable" if known else "Dead",
        protocol_type="consumer" if known else "",
        protocol_data="range" if known else "",
        members=[],
    )
    return DescribeGroupsResponse(groups=[row])


def test_both_kinds_are_described(world: tuple[TwinLoop, TwinCluster, AdminCore]) -> None:
    loop, _, admin = world
    found = loop.run(admin.describe_groups(["new", "old", "none", "forbidden"]))
    new = found["new"].get()
    assert (new.type, new.state, new.assignor) == ("consumer", "Reconciling", "uniform")
    assert (new.group_epoch, new.assignment_epoch) == (7, 6)
    (member,) = new.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
    assert (member.member_epoch, member.protocol, member.host) == (6, "consumer", "10.0.0.1")
    assert (member.topics, member.pattern) == (("t", "u"), "t.*")
    assert member.partitions == (TopicPartition("t", 0), TopicPartition("t", 2))
    assert member.target == (TopicPartition("t", 0), TopicPartition("t", 1))
    old = found["old"].get()
    assert (old.type, old.state, old.assignor, old.group_epoch) == (
        "classic",
        "Stable",
        "range",
        -1,
    )
    for name, error in (
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ("forbidden", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ):
        with pytest.raises(BrokerError) as raised:
            found[name].get()
        assert raised.value.error is error


def test_older_brokers_describe_what_they_know(
    world: tuple[TwinLoop, TwinCluster, AdminCore],
) -> None:
    loop, cluster, admin = world
    for broker in cluster.brokers.values():
        del broker.versions[ApiKey.CONSUMER_GROUP_DESCRIBE]
        broker.versions[ApiKey.DESCRIBE_GROUPS] = (0, 5)
    found = loop.run(admin.describe_groups(["new", "old"]))
    assert found["old"].get().type == "classic"
    assert found["new"].get().state == "Dead"
