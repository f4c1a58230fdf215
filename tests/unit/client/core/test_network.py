"""Connections, back-off, timeouts, who is asked: on a scripted loop."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.client_twin import TwinBroker, TwinCluster, TwinLoop
from tests.client_twin.loop import Timer

from millstream.client.core.metadata import LeaderHint, MetadataView
from millstream.client.core.network import CoordinatorType, Network
from millstream.client.core.settings import ClientSettings, read_settings
from millstream.client.errors import (
    BrokerError,
    ClosedError,
    ConnectionFailedError,
    TimedOutError,
    UnsupportedVersionError,
)
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.api_versions import ApiVersionsRequest
from millstream.protocol.messages.describe_cluster import DescribeClusterRequest
from millstream.protocol.messages.find_coordinator import FindCoordinatorRequest
from millstream.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse


def settings(cluster: TwinCluster, **more: object) -> ClientSettings:
    return read_settings(ClientSettings, {"bootstrap.servers": cluster.bootstrap}, more)


def world(*brokers: int, **more: object) -> tuple[TwinLoop, TwinCluster, Network]:
    loop = TwinLoop()
    cluster = TwinCluster(loop, brokers or (1,))
    return loop, cluster, Network(loop, settings(cluster, **more))


def groups(broker: TwinBroker, request: Request) -> Response:
    return ListGroupsResponse(error_code=0, groups=[])


def test_a_request_connects_negotiates_and_is_answered() -> None:
    loop, cluster, network = world()
    answer = loop.run(network.send_any(MetadataRequest(topics=[])))
    assert isinstance(answer, MetadataResponse)
    assert answer.brokers[0].host == cluster.brokers[1].address.host
    assert len(loop.network.connections) == 1


def test_requests_of_one_connection_are_answered_in_order() -> None:
    loop, _cluster, network = world()
    answers = [network.send(-1, MetadataRequest(topics=[])) for _ in range(5)]
    order: list[int] = []
    for index, answer in enumerate(answers):
        answer.on_done(lambda _, index=index: order.append(index))
    loop.advance(100)
    assert order == [0, 1, 2, 3, 4]


def test_an_answer_that_does_not_come_closes_the_connection_and_fails_all() -> None:
    loop, cluster, network = world(request_timeout_ms=1000)
    cluster.after = lambda broker, connection, request: (
        0 if isinstance(request, ApiVersionsRequest) else None
    )
    cluster.handlers[ListGroupsRequest] = groups
    first = network.send(-1, ListGroupsRequest())
    second = network.send(-1, MetadataRequest(topics=[]), timeout_ms=50_000)
    with pytest.raises(TimedOutError, match="ListGroups"):
        loop.run(first)
    with pytest.raises(TimedOutError):
        second.result()
    assert not loop.network.connections


def test_reconnecting_backs_off_exponentially() -> None:
    loop, cluster, network = world(reconnect_backoff_ms=100, reconnect_backoff_max_ms=1000)
    cluster.brokers[1].stop()
    gaps = []
    for _ in range(8):
        begun = loop.now_ms()
        with pytest.raises(ConnectionFailedError):
            loop.run(network.send(-1, MetadataRequest(topics=[])))
        gaps.append(loop.now_ms() - begun)
    assert gaps[0] < 10
    assert 80 <= gaps[1] <= 122
    assert gaps[2] > 150
    assert gaps[3] > 300
    assert all(780 <= gap <= 1010 for gap in gaps[5:])
    cluster.brokers[1].start()
    loop.run(network.send(-1, MetadataRequest(topics=[])))


def test_a_version_that_is_not_served_is_said_so() -> None:
    loop, cluster, network = world()
    del cluster.brokers[1].versions[int(ApiKey.DESCRIBE_CLUSTER)]
    with pytest.raises(UnsupportedVersionError, match="does not serve"):
        loop.run(
            network.send(-1, DescribeClusterRequest(include_cluster_authorized_operations=False))
        )


def test_an_idle_connection_is_closed() -> None:
    loop, _cluster, network = world(connections_max_idle_ms=5000)
    loop.run(network.send(-1, MetadataRequest(topics=[])))
    loop.advance(4900)
    assert loop.network.connections
    loop.advance(200)
    assert not loop.network.connections
    loop.run(network.send(-1, MetadataRequest(topics=[])))


def test_the_broker_with_the_least_to_do_is_asked() -> None:
    loop, cluster, network = world(1, 2, 3)
    view = MetadataView(network)
    loop.run(view.request_update())
    loop.run(network.ready(2))
    loop.run(network.ready(3))
    cluster.after = lambda broker, *_: None if broker.node_id == 2 else 0.0
    network.send(2, MetadataRequest(topics=[]))
    assert network.least_loaded() == 3


def test_when_no_broker_known_answers_bootstrap_servers_are_tried_again() -> None:
    loop = TwinLoop()
    old = TwinCluster(loop, (1,))
    new = TwinCluster(loop, (2,))
    config = read_settings(
        ClientSettings, {"bootstrap.servers": f"{old.bootstrap},{new.bootstrap}"}
    )
    network = Network(loop, config)
    view = MetadataView(network)
    new.brokers[2].stop()
    loop.run(view.request_update())
    assert set(network.brokers) == {1}
    old.brokers[1].stop()
    new.brokers[2].start()
    loop.run(view.request_update())
    assert set(network.brokers) == {2}


def test_a_throttled_connection_waits() -> None:
    loop, cluster, network = world()

    def throttle(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, ListGroupsRequest):
            return None
        return ListGroupsResponse(throttle_time_ms=500, error_code=0, groups=[])

    cluster.hooks.append(throttle)
    loop.run(network.send(-1, ListGroupsRequest()))
    begun = loop.now_ms()
    loop.run(network.send(-1, MetadataRequest(topics=[])))
    assert loop.now_ms() - begun >= 490


def test_the_coordinator_is_looked_up_once_and_again_when_forgotten() -> None:
    loop, cluster, network = world(1, 2)
    cluster.handlers[ListGroupsRequest] = groups

    def ask() -> None:
        loop.run(network.send_to_coordinator("g", CoordinatorType.GROUP, ListGroupsRequest()))

    ask()
    ask()
    lookups = [
        each
        for broker in cluster.brokers.values()
        for each in broker.requests
        if isinstance(each, FindCoordinatorRequest)
    ]
    assert len(lookups) == 1
    cluster.controller_id = 2
    network.forget_coordinator("g", CoordinatorType.GROUP)
    ask()
    assert any(isinstance(each, ListGroupsRequest) for each in cluster.brokers[2].requests)


def test_an_error_over_an_answer_ends_the_connection_and_nothing_hangs() -> None:
    loop, _cluster, network = world()
    first = network.send(-1, MetadataRequest(topics=[]))
    second = network.send(-1, MetadataRequest(topics=[]))
    first.on_done(lambda _: 1 // 0 and None)
    with pytest.raises(ZeroDivisionError):
        loop.run(second)
    loop.advance(1)
    with pytest.raises(ConnectionFailedError):
        second.result()
    loop.run(network.send(-1, MetadataRequest(topics=[])))


def test_closing_fails_what_waits_and_hangs_up() -> None:
    loop, cluster, network = world()
    cluster.after = lambda *_: None
    waiting = network.send(-1, MetadataRequest(topics=[]))
    loop.advance(10)
    network.close()
    with pytest.raises(ClosedError):
        waiting.result()
    assert not loop.network.connections
    with pytest.raises(ClosedError):
        network.send(-1, MetadataRequest(topics=[])).result()


# --- metadata -------------------------------------------------------------------------------------


def test_a_topic_is_waited_for() -> None:
    loop, cluster, network = world()
    view = MetadataView(network)
    loop.call_at(loop.now_ms() + 700, lambda: cluster.create_topic("late", 2) and None)
    topic = loop.run(view.topic("late"))
    assert len(topic.partitions) == 2
    assert view.name_of(topic.topic_id) == "late"


def test_a_topic_that_never_comes_is_an_error_of_the_broker() -> None:
    loop, cluster, network = world()
    view = MetadataView(network)
    with pytest.raises(BrokerError) as caught:
        loop.run(view.topic("none", 2000))
    assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.create_topic("bad").error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(BrokerError) as caught:
        loop.run(view.topic("bad", 2000))
    assert caught.value.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster.brokers[1].stop()
    with pytest.raises(TimedOutError):
        loop.run(view.topic("other", 2000))


def test_leader_epochs_never_go_back_until_the_topic_is_another() -> None:
    loop, cluster, network = world(1, 2)
    view = MetadataView(network)
    place = TopicPartition("t", 0)
    row = cluster.create_topic("t").partitions[0]
    row.epoch, row.leader = 7, 2
    recreated: list[str] = []
    view.on_recreated(recreated.append)
    loop.run(view.topic("t"))
    row.epoch, row.leader = 6, 1
    loop.run(view.request_update())
    assert view.leader(place) == 2
    cluster.create_topic("t")
    loop.run(view.request_update())
    assert view.leader(place) == 1
    assert recreated == ["t"]


def test_hints_move_leaders_when_they_are_newer() -> None:
    loop, cluster, network = world(1, 2)
    view = MetadataView(network)
    place = TopicPartition("t", 0)
    cluster.create_topic("t").partitions[0].epoch = 3
    loop.run(view.topic("t"))
    assert not view.apply_hints([LeaderHint(place, 2, 3)])
    assert view.leader(place) == 1
    assert view.apply_hints([LeaderHint(place, 2, 4)])
    assert view.leader(place) == 2


def test_metadata_is_refreshed_at_its_age() -> None:
    loop, cluster, network = world(metadata_max_age_ms=10_000)
    view = MetadataView(network)
    cluster.create_topic("t")
    loop.run(view.topic("t"))
    before = view.version
    loop.advance(35_000)
    assert view.version == before + 3


def test_who_asks_anew_while_the_client_rebootstraps_is_not_told_that_it_is_closed() -> None:
    loop, cluster, network = world(1)
    loop.run(MetadataView(network).request_update())
    loop.run(network.ready(1))
    cluster.after = lambda *_: None
    outcomes: list[BaseException | None] = []

    def again(source: Deferred[Response]) -> None:
        network.send(1, MetadataRequest(topics=[])).on_done(
            lambda answer: outcomes.append(answer._exception)
        )

    network.send(1, MetadataRequest(topics=[])).on_done(again)
    loop.advance(10)
    network.rebootstrap()
    loop.advance(50)
    assert not any(isinstance(each, ClosedError) for each in outcomes)


def test_a_request_that_takes_longer_than_connections_may_be_idle_costs_nothing() -> None:
    loop, cluster, network = world(connections_max_idle_ms=100)
    cluster.handlers[ListGroupsRequest] = groups
    cluster.after = lambda *asked: 5_000.0 if isinstance(asked[2], ListGroupsRequest) else 0.0
    looks = 0
    plain = loop.call_at

    def counted(when_ms: float, callback: Callable[[], None]) -> Timer:
        nonlocal looks
        looks += 1
        return plain(when_ms, callback)

    answer = network.send(-1, ListGroupsRequest())
    loop.advance(50)
    loop.call_at = counted  # type: ignore[method-assign]
    loop.run(answer)
    assert looks < 100
    loop.advance(250)
    assert not loop.network.connections


def test_a_timer_that_is_early_leaves_no_request_behind() -> None:
    """Event loops may be early by the resolution of their clock."""
    loop, cluster, network = world()
    cluster.handlers[ListGroupsRequest] = lambda *_: ListGroupsResponse(
        error_code=0, groups=[], throttle_time_ms=500
    )
    loop.run(network.send(-1, ListGroupsRequest()))
    plain = loop.call_at

    def call_at(when_ms: float, callback: Callable[[], None]) -> Timer:
        is_end_of_throttle = 400 < when_ms - loop.now_ms() < 600
        return plain(when_ms - 0.25 if is_end_of_throttle else when_ms, callback)

    loop.call_at = call_at  # type: ignore[method-assign]
    loop.advance(600)
    loop.run(network.send(-1, ListGroupsRequest()))
    began = loop.now_ms()
    loop.run(network.send(-1, MetadataRequest(topics=[])))
    assert 490 < loop.now_ms() - began < 510
