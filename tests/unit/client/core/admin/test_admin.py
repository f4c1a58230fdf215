"""Who is asked, what is asked again, and what fails on its own: on scripted brokers."""

from __future__ import annotations

import pytest
from tests.client_twin import TwinBroker, TwinCluster, TwinLoop

from millstream.client.core.admin.configs import Change, Resource, ResourceType
from millstream.client.core.admin.core import AdminCore
from millstream.client.core.admin.topics import NewTopic
from millstream.client.core.settings import AdminSettings, read_settings
from millstream.client.errors import (
    BrokerError,
    ConnectionFailedError,
    TimedOutError,
    UnsupportedVersionError,
)
from millstream.model.deferred import spawn
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from millstream.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from millstream.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from millstream.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


def world(*brokers: int, seed: int = 0, **more: object) -> tuple[TwinLoop, TwinCluster, AdminCore]:
    loop = TwinLoop(seed)
    cluster = TwinCluster(loop, brokers or (1,))
    given = {"default_api_timeout_ms": 5000, "request_timeout_ms": 1000, **more}
    settings = read_settings(AdminSettings, {"bootstrap.servers": cluster.bootstrap}, given)
    return loop, cluster, AdminCore(loop, settings)


def create(broker: TwinBroker, request: Request) -> Response:
    assert isinstance(request, CreateTopicsRequest)
    rows = []
    for topic in request.topics:
        error = ErrorCode.NONE
        if broker.node_id != broker.cluster.controller_id:
            error = ErrorCode.NOT_CONTROLLER
        elif topic.name in broker.cluster.topics:
            error = ErrorCode.TOPIC_ALREADY_EXISTS
        else:
            broker.cluster.create_topic(topic.name, topic.num_partitions)
        rows.append(
            CreatableTopicResult(name=topic.name, error_code=error.code, error_message=None)
        )
    return CreateTopicsResponse(topics=rows)


def offsets(broker: TwinBroker, request: Request) -> Response:
    assert isinstance(request, ListOffsetsRequest)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=row.partition_index,
                        error_code=0,
                        offset=100 * broker.node_id + row.partition_index,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_each_item_fails_on_its_own() -> None:
    loop, cluster, admin = world()
    cluster.handlers[CreateTopicsRequest] = create
    cluster.create_topic("there")
    outcomes = loop.run(admin.create_topics([NewTopic("there", 1), NewTopic("new", 2)]))
    assert outcomes["new"].error is None
    assert set(outcomes.errors) == {"there"}
    with pytest.raises(BrokerError) as caught:
        outcomes.get_all()
    assert caught.value.error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "topic that is there" in caught.value.advice


def test_the_controller_is_looked_up_anew() -> None:
    loop, cluster, admin = world(1, 2)
    cluster.handlers[CreateTopicsRequest] = create
    loop.run(admin.metadata())
    cluster.controller_id = 2
    assert loop.run(admin.create_topics([NewTopic("t", 1)]))["t"].error is None
    assert any(isinstance(each, CreateTopicsRequest) for each in cluster.brokers[2].requests)


def test_a_controller_that_is_gone_is_looked_up_anew() -> None:
    loop, cluster, admin = world(1, 2)
    cluster.handlers[CreateTopicsRequest] = create
    loop.run(admin.metadata())
    cluster.brokers[1].stop()
    cluster.controller_id = 2
    assert loop.run(admin.create_topics([NewTopic("t", 1)]))["t"].error is None


def answer(request: Request, codes: dict[str, ErrorCode]) -> Response:
    assert isinstance(request, CreateTopicsRequest)
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=each.name, error_code=codes[each.name].code, error_message="no"
            )
            for each in request.topics
        ]
    )


def test_what_is_known_is_returned_though_the_cluster_goes_away() -> None:
    loop, cluster, admin = world()
    codes = {"a": ErrorCode.NOT_CONTROLLER, "b": ErrorCode.NONE}
    cluster.handlers[CreateTopicsRequest] = lambda _, request: answer(request, codes)
    creating = spawn(admin.create_topics([NewTopic("a"), NewTopic("b")]))
    loop.advance(50)
    cluster.brokers[1].stop()
    outcomes = loop.run(creating)
    assert outcomes["b"].error is None
    assert outcomes.errors["a"].error is ErrorCode.NOT_CONTROLLER


def test_a_call_takes_no_longer_than_its_timeout() -> None:
    loop, cluster, admin = world(request_timeout_ms=30_000)
    cluster.after = lambda *asked: None if isinstance(asked[2], CreateTopicsRequest) else 0.0
    cluster.handlers[CreateTopicsRequest] = create
    creating = spawn(admin.create_topics([NewTopic("t")]))
    loop.advance(6_000)
    with pytest.raises(TimedOutError, match=r"default\.api\.timeout\.ms"):
        creating.result()


@pytest.mark.parametrize("timeout_ms", range(1_000, 3_000, 250))
def test_the_end_of_a_call_says_what_went_wrong(timeout_ms: int) -> None:
    loop, cluster, admin = world(default_api_timeout_ms=timeout_ms)
    cluster.brokers[1].stop()
    with pytest.raises(ConnectionFailedError, match="could not reach"):
        loop.run(admin.list_topics())


@pytest.mark.parametrize("seed", range(4))
def test_one_of_the_bootstrap_servers_is_enough(seed: int) -> None:
    loop, cluster, admin = world(1, 2, seed=seed)
    cluster.brokers[2].stop()
    cluster.handlers[ListGroupsRequest] = lambda *_: ListGroupsResponse(error_code=0, groups=[])
    assert loop.run(admin.list_groups()) == []


def test_a_broker_that_is_gone_fails_its_own_items() -> None:
    loop, cluster, admin = world(1, 2, 3)
    cluster.create_topic("t", 3)
    cluster.handlers[ListOffsetsRequest] = offsets
    cluster.handlers[DescribeLogDirsRequest] = lambda *_: DescribeLogDirsResponse(results=[])
    cluster.brokers[2].stop()
    places = [TopicPartition("t", index) for index in range(3)]
    found = loop.run(admin.list_offsets(dict.fromkeys(places, -1)))
    assert set(found.errors) == {places[1]}
    assert "broker 2" in str(found.errors[places[1]])
    directories = loop.run(admin.describe_log_dirs([1, 9]))
    assert directories[1].value == []
    assert directories.errors[9].error is ErrorCode.BROKER_NOT_AVAILABLE


def test_only_what_passes_is_asked_again_until_time_is_up() -> None:
    loop, cluster, admin = world()
    asked: list[list[str]] = []

    def refuse(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, CreateTopicsRequest):
            return None
        asked.append([each.name for each in request.topics])
        codes = {"a": ErrorCode.NOT_CONTROLLER, "b": ErrorCode.POLICY_VIOLATION}
        return answer(request, codes)

    cluster.hooks.append(refuse)
    outcomes = loop.run(admin.create_topics([NewTopic("a"), NewTopic("b")]))
    assert asked[0] == ["a", "b"]
    assert len(asked) > 3
    assert all(each == ["a"] for each in asked[1:])
    assert {name: error.error.name for name, error in outcomes.errors.items()} == {
        "a": "NOT_CONTROLLER",
        "b": "POLICY_VIOLATION",
    }


def test_leaders_are_asked_each_for_its_own() -> None:
    loop, cluster, admin = world(1, 2)
    cluster.create_topic("t", 3)

    cluster.handlers[ListOffsetsRequest] = offsets
    places = [TopicPartition("t", index) for index in range(4)] + [TopicPartition("no", 0)]
    outcomes = loop.run(admin.list_offsets(dict.fromkeys(places, -1)))
    found = {place: each.value.offset for place, each in outcomes.items() if each.value}
    assert found == {places[0]: 100, places[1]: 201, places[2]: 102}
    assert outcomes.errors[places[3]].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcomes.errors[places[4]].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_s_settings_go_to_that_broker() -> None:
    loop, cluster, admin = world(1, 2)

    def alter(broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, IncrementalAlterConfigsRequest)
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=0,
                    error_message=None,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                )
                for each in request.resources
            ]
        )

    cluster.handlers[IncrementalAlterConfigsRequest] = alter
    broker, topic = Resource(ResourceType.BROKER, "2"), Resource(ResourceType.TOPIC, "t")
    changes = {broker: [Change("a", "1")], topic: [Change("b", "2")]}
    assert not loop.run(admin.incremental_alter_configs(changes)).errors
    mine = [
        each.resources[0].resource_name
        for each in cluster.brokers[2].requests
        if isinstance(each, IncrementalAlterConfigsRequest)
    ]
    assert "2" in mine
    unknown = Resource(ResourceType.BROKER, "9")
    outcomes = loop.run(admin.incremental_alter_configs({**changes, unknown: [Change("a", "1")]}))
    assert set(outcomes.errors) == {unknown}
    with pytest.raises(BrokerError, match="no live broker 9"):
        outcomes.get_all()


def test_a_coordinator_that_moved_is_found() -> None:
    loop, cluster, admin = world(1, 2)

    def delete(broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, DeleteGroupsRequest)
        moved = broker.node_id != broker.cluster.controller_id
        error = ErrorCode.NOT_COORDINATOR if moved else ErrorCode.NONE
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=request.groups_names[0], error_code=error.code)]
        )

    cluster.handlers[DeleteGroupsRequest] = delete
    assert not loop.run(admin.delete_groups(["g"])).errors
    cluster.controller_id = 2
    assert not loop.run(admin.delete_groups(["g", "h"])).errors


def test_what_concerns_all_items_is_raised() -> None:
    loop, cluster, admin = world()
    del cluster.brokers[1].versions[int(ApiKey.ELECT_LEADERS)]
    with pytest.raises(UnsupportedVersionError, match="does not serve"):
        loop.run(admin.elect_leaders())
    cluster.brokers[1].stop()
    with pytest.raises(ConnectionFailedError):
        loop.run(admin.list_topics())


def test_one_name_is_not_taken_for_its_letters() -> None:
    loop, cluster, admin = world()
    cluster.create_topic("a")
    cluster.create_topic("ab")
    asked = len(cluster.brokers[1].requests)
    with pytest.raises(TypeError, match=r"\['ab'\]"):
        loop.run(admin.delete_topics("ab"))
    with pytest.raises(TypeError):
        loop.run(admin.delete_groups("ab"))
    assert len(cluster.brokers[1].requests) == asked


def test_an_offset_below_zero_is_not_committed() -> None:
    loop, _, admin = world()
    with pytest.raises(ValueError, match="-5"):
        loop.run(admin.alter_group_offsets("g", {TopicPartition("t", 0): -5}))


def test_salts_are_made_of_what_nobody_can_guess() -> None:
    loop, cluster, admin = world()
    salts: list[bytes] = []

    def alter(broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, AlterUserScramCredentialsRequest)
        salts.extend(bytes(each.salt) for each in request.upsertions)
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user=each.name, error_code=0, error_message=None)
                for each in request.upsertions
            ]
        )

    cluster.handlers[AlterUserScramCredentialsRequest] = alter
    expected = TwinLoop()
    for _ in range(2):
        # The other source of chance may be known; nothing of it is in a salt.
        loop.chance.seed(1)
        loop.run(admin.alter_user_scram_credentials({"ann": "secret"}, iterations=4096)).get_all()
    assert salts == [expected.random_bytes(16), expected.random_bytes(16)]
