"""Metadata: who is there, by name, by id, and made on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicId
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from millstream.runtime.metadata.metadata_cache import TopicImage

NONE = ErrorCode.NONE.code
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
ILLEGAL = ErrorCode.INVALID_TOPIC_EXCEPTION.code


def ask(
    broker: AdminBroker,
    *names: str | None,
    version: int = 12,
    create: bool = False,
    listener: str = "PLAINTEXT",
    **more: bool,
) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=create, **more)
    return broker.call(request, version, MetadataResponse, listener=listener)


def by_id(broker: AdminBroker, *ids: TopicId) -> list[MetadataResponseTopic]:
    topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
    return broker.call(MetadataRequest(topics=topics), 12, MetadataResponse).topics


@pytest.mark.parametrize("version", range(4, 14))
def test_a_topic(broker: AdminBroker, version: int) -> None:
    image = broker.create("t", 3)
    response = ask(broker, "t", version=version)
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (NONE, "t", False)
    assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
    first = topic.partitions[0]
    assert (first.error_code, first.leader_id) == (NONE, 1)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ([1], [1], [])
    if version >= 7:
        assert first.leader_epoch == 0
    if version >= 10:
        assert topic.topic_id == image.topic_id
    (node,) = response.brokers
    assert (node.node_id, node.host, node.port, node.rack) == (1, "broker.example", 9092, "r1")
    assert (response.cluster_id, response.controller_id) == ("the-cluster", 1)


def test_the_listener_decides_the_address(broker: AdminBroker) -> None:
    assert ask(broker, listener="OTHER").brokers[0].host == "inner"


@pytest.mark.parametrize(
    ("version", "topics", "expected"),
    [
        (0, [], ["a", "b"]),
        (1, None, ["a", "b"]),
        (1, [], []),
        (12, None, ["a", "b"]),
        (12, [], []),
    ],
)
def test_all_or_none(
    broker: AdminBroker,
    version: int,
    topics: list[MetadataRequestTopic] | None,
    expected: list[str],
) -> None:
    for name in ("a", "b"):
        broker.create(name)
    response = broker.call(MetadataRequest(topics=topics), version, MetadataResponse)
    assert [topic.name for topic in response.topics] == expected


def test_a_name_is_answered_once(broker: AdminBroker) -> None:
    broker.create("t")
    assert [topic.name for topic in ask(broker, "t", "absent", "t", "absent").topics] == [
        "t",
        "absent",
    ]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "ä", "x" * 250])
@pytest.mark.parametrize("create", [False, True])
def test_an_illegal_name(broker: AdminBroker, name: str, create: bool) -> None:
    (topic,) = ask(broker, name, create=create).topics
    assert (topic.error_code, topic.name, topic.partitions) == (ILLEGAL, name, [])


def test_an_unknown_topic_is_left_alone_when_the_client_says_so(broker: AdminBroker) -> None:
    (topic,) = ask(broker, "t").topics
    assert topic.error_code == UNKNOWN
    assert broker.metadata.topic("t") is None


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_an_unknown_topic_is_there_when_the_answer_leaves(
    broker: AdminBroker, version: int
) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    (topic,) = broker.call(request, version, MetadataResponse).topics
    assert topic.error_code == NONE
    assert len(topic.partitions) == 4
    assert broker.partitions.get("t", 3) is not None


def test_good_and_bad_names_together(broker: AdminBroker) -> None:
    broker.create("a_b")
    answers = {t.name: t.error_code for t in ask(broker, "new", "a.b", "..", create=True).topics}
    assert answers == {"new": NONE, "a.b": ILLEGAL, "..": ILLEGAL}


def test_topics_that_are_there_do_not_wait_long_for_those_that_cannot_be_made(
    broker: AdminBroker,
) -> None:
    """As while nobody is the controller: a client gives up on an answer after half a minute."""
    broker.create("t")
    asked: list[str] = []

    def nobody_answers(name: str) -> Deferred[TopicImage]:
        asked.append(name)
        return Deferred()

    broker.services.ensure_topic = nobody_answers
    topics = [MetadataRequestTopic(name=name) for name in ("x", "t", "y", "z")]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    answer = broker.start(request, 12)
    assert not answer.done
    broker.clock.advance(5_000)
    response = answer.result()
    assert isinstance(response, MetadataResponse)
    assert {topic.name: topic.error_code for topic in response.topics} == {
        "x": UNKNOWN,
        "t": NONE,
        "y": UNKNOWN,
        "z": UNKNOWN,
    }
    assert asked == ["x"]


def test_a_broker_may_refuse_to_create(tmp_path: Path) -> None:
    broker = AdminBroker(tmp_path, {"auto.create.topics.enable": "false"})
    (topic,) = ask(broker, "t", create=True).topics
    assert topic.error_code == UNKNOWN
    broker.close()


def test_the_coordinators_topic_gets_its_own_settings(broker: AdminBroker) -> None:
    (topic,) = ask(broker, "__consumer_offsets", create=True).topics
    assert topic.is_internal
    assert len(topic.partitions) == 50


def test_by_id(broker: AdminBroker) -> None:
    image, unknown = broker.create("t"), TopicId(bytes(15) + b"x")
    known, absent = by_id(broker, image.topic_id, unknown)
    if known.name is None:
        known, absent = absent, known
    assert (known.name, known.error_code) == ("t", NONE)
    assert (absent.name, absent.topic_id) == (None, unknown)
    assert absent.error_code == ErrorCode.UNKNOWN_TOPIC_ID.code


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_where_the_field_is_there_already(
    broker: AdminBroker, version: int
) -> None:
    image = broker.create("t")
    topics = [MetadataRequestTopic(topic_id=image.topic_id, name="t")]
    response = broker.call(MetadataRequest(topics=topics), version, MetadataResponse)
    assert response.topics[0].error_code == ErrorCode.INVALID_REQUEST.code
    assert (response.brokers, response.controller_id) == ([], -1)


def test_neither_a_name_nor_an_id(broker: AdminBroker) -> None:
    (topic,) = ask(broker, None).topics
    assert (topic.error_code, topic.name) == (ErrorCode.UNKNOWN_SERVER_ERROR.code, "")


@pytest.mark.parametrize("version", [8, 10])
def test_authorized_operations(broker: AdminBroker, version: int) -> None:
    broker.create("t")
    plain = ask(broker, "t", version=version)
    assert plain.cluster_authorized_operations == -(2**31)
    assert plain.topics[0].topic_authorized_operations == -(2**31)
    told = ask(
        broker,
        "t",
        version=version,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert told.cluster_authorized_operations == 0b1_1111_1010_0000
    assert told.topics[0].topic_authorized_operations == 0b1101_1111_1000


def test_a_leader_that_is_not_there(broker: AdminBroker) -> None:
    broker.create("t")
    broker.metadata.missing.add(BrokerId(1))
    (partition,) = ask(broker, "t").topics[0].partitions
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE.code
    assert (partition.leader_id, partition.offline_replicas) == (-1, [])
    del broker.metadata.brokers[BrokerId(1)]
    (partition,) = ask(broker, "t").topics[0].partitions
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE.code
    assert (partition.leader_id, partition.offline_replicas) == (-1, [1])
    (partition,) = ask(broker, "t", version=0, create=True).topics[0].partitions
    assert (partition.replica_nodes, partition.isr_nodes) == ([], [])


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.LEADER_NOT_AVAILABLE)]
    + [(version, ErrorCode.LISTENER_NOT_FOUND) for version in (6, 13)],
)
def test_a_broker_without_the_clients_listener_is_not_told_of(
    broker: AdminBroker, version: int, code: ErrorCode
) -> None:
    """Its addresses are meant for others: a client from outside would try to reach them."""
    other = BrokerNode(BrokerId(2), (Endpoint("PLAINTEXT", "inside.example", 9092),))
    image = broker.create("t")
    state = replace(image.partitions[0], leader=BrokerId(2), replicas=(BrokerId(1), BrokerId(2)))
    broker.metadata.brokers[BrokerId(2)] = other
    broker.metadata.update(replace(image, partitions=(state,)))
    inside = ask(broker, "t", version=version, create=version == 0)
    assert [node.node_id for node in inside.brokers] == [1, 2]
    assert inside.topics[0].partitions[0].leader_id == 2
    outside = ask(broker, "t", version=version, create=version == 0, listener="OTHER")
    assert [node.host for node in outside.brokers] == ["inner"]
    (partition,) = outside.topics[0].partitions
    assert (partition.leader_id, partition.error_code) == (-1, code.code)
    assert partition.replica_nodes == ([1] if version == 0 else [1, 2])
    if version > 5:
        assert partition.offline_replicas == [2]
