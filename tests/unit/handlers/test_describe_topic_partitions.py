"""DescribeTopicPartitions: pages over topics and partitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.errors import ErrorCode
from millstream.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

Page = list[tuple[str | None, list[int]]]


def ask(
    broker: AdminBroker,
    *names: str,
    limit: int = 2000,
    cursor: tuple[str, int] | None = None,
    listener: str = "PLAINTEXT",
) -> DescribeTopicPartitionsResponse:
    start = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=start,
    )
    return broker.call(request, 0, DescribeTopicPartitionsResponse, listener=listener)


def page(response: DescribeTopicPartitionsResponse) -> Page:
    return [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]


def following(response: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.fixture
def two_topics(broker: AdminBroker) -> AdminBroker:
    broker.create("b", 2)
    broker.create("a", 3)
    return broker


def test_topics_come_in_the_order_of_their_names(two_topics: AdminBroker) -> None:
    response = ask(two_topics, "b", "absent", "a", "b")
    assert page(response) == [("a", [0, 1, 2]), ("absent", []), ("b", [0, 1])]
    assert response.topics[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    assert all(topic.topic_authorized_operations == 3576 for topic in response.topics)
    assert following(response) is None
    first = response.topics[0].partitions[0]
    assert (first.error_code, first.leader_id, first.leader_epoch) == (0, 1, 0)
    assert (first.replica_nodes, first.isr_nodes, first.eligible_leader_replicas) == ([1], [1], [])


def test_no_names_mean_all(two_topics: AdminBroker) -> None:
    assert page(ask(two_topics)) == [("a", [0, 1, 2]), ("b", [0, 1])]


@pytest.mark.parametrize(
    ("limit", "expected", "next_cursor"),
    [
        (-1, [("a", [0])], ("a", 1)),
        (0, [("a", [0])], ("a", 1)),
        (2, [("a", [0, 1])], ("a", 2)),
        (3, [("a", [0, 1, 2])], ("b", 0)),
        (4, [("a", [0, 1, 2]), ("b", [0])], ("b", 1)),
        (5, [("a", [0, 1, 2]), ("b", [0, 1])], None),
    ],
)
def test_a_page_ends_at_the_limit(
    two_topics: AdminBroker, limit: int, expected: Page, next_cursor: tuple[str, int] | None
) -> None:
    response = ask(two_topics, "a", "b", limit=limit)
    assert page(response) == expected
    assert following(response) == next_cursor


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7])
def test_pages_follow_each_other_until_all_is_told(two_topics: AdminBroker, limit: int) -> None:
    told: list[tuple[str | None, int]] = []
    cursor = None
    for _ in range(10):
        response = ask(two_topics, "a", "b", limit=limit, cursor=cursor)
        told += [(name, index) for name, indexes in page(response) for index in indexes]
        cursor = following(response)
        if cursor is None:
            break
    assert told == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


def test_the_broker_has_a_limit_too(tmp_path: Path) -> None:
    broker = AdminBroker(tmp_path, {"max.request.partition.size.limit": "2"})
    broker.create("a", 3)
    assert page(ask(broker, limit=1000)) == [("a", [0, 1])]
    broker.close()


@pytest.mark.parametrize(
    ("cursor", "expected"),
    [
        (("a", 2), [("a", [2]), ("b", [0, 1])]),
        (("a", 3), [("a", []), ("b", [0, 1])]),
        (("b", 1), [("b", [1])]),
    ],
)
def test_a_cursor_is_where_to_begin(
    two_topics: AdminBroker, cursor: tuple[str, int], expected: Page
) -> None:
    assert page(ask(two_topics, "a", "b", cursor=cursor)) == expected


@pytest.mark.parametrize("cursor", [("a", -1), ("c", 0), ("aa", 0)])
def test_cursors_that_cannot_be(two_topics: AdminBroker, cursor: tuple[str, int]) -> None:
    response = ask(two_topics, "a", "b", cursor=cursor)
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("a", ErrorCode.INVALID_REQUEST.code),
        ("b", ErrorCode.INVALID_REQUEST.code),
    ]


@pytest.mark.parametrize(
    ("name", "code"),
    [("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION), ("", ErrorCode.UNKNOWN_SERVER_ERROR)],
)
def test_illegal_names(two_topics: AdminBroker, name: str, code: ErrorCode) -> None:
    (topic,) = ask(two_topics, name).topics
    assert topic.error_code == code.code


def test_a_leader_that_the_client_cannot_reach(broker: AdminBroker) -> None:
    """The answer has no error for it, as Kafka's has none."""
    image = broker.create("t")
    state = replace(image.partitions[0], leader=BrokerId(2), replicas=(BrokerId(1), BrokerId(2)))
    broker.metadata.update(replace(image, partitions=(state,)))

    def described(listener: str) -> tuple[int, int, list[int]]:
        (topic,) = ask(broker, "t", listener=listener).topics
        (partition,) = topic.partitions
        return partition.error_code, partition.leader_id, partition.offline_replicas

    assert described("PLAINTEXT") == (0, -1, [2])
    node = BrokerNode(BrokerId(2), (Endpoint("PLAINTEXT", "inside.example", 9092),))
    broker.metadata.brokers[node.broker_id] = node
    assert described("PLAINTEXT") == (0, 2, [])
    assert described("OTHER") == (0, -1, [2])
