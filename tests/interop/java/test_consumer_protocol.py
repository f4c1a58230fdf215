"""Our consumer by the consumer protocol (KIP-848) on Apache Kafka, alone and beside others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.interop.clients.heartbeat_stories import BROKER_SETTINGS, STORIES
from tests.interop.clients.mixed_group import (
    Librdkafka,
    LibrdkafkaByHeartbeats,
    Member,
    Ours,
    OursByHeartbeats,
)
from tests.interop.clients.test_our_consumer import share_a_group
from tests.interop.kafka_cluster import KafkaNode, small_kafka_node

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    node = small_kafka_node(tmp_path_factory.mktemp("kafka"), BROKER_SETTINGS)
    node.start()
    yield node
    node.stop()


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story(
    kafka: KafkaNode, new_topic: Callable[[], str], story: Callable[[str, str], None]
) -> None:
    story(kafka.bootstrap, new_topic())


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_a_group_by_heartbeats(
    kafka: KafkaNode, new_topic: Callable[[], str], assignor: str
) -> None:
    kinds: list[type[Member]] = [OursByHeartbeats, LibrdkafkaByHeartbeats, OursByHeartbeats]
    share_a_group(kafka.bootstrap, new_topic(), assignor, kinds)


@pytest.mark.parametrize(
    "kinds",
    [
        [Ours, OursByHeartbeats, Ours],
        [OursByHeartbeats, Ours, OursByHeartbeats],
        [Librdkafka, OursByHeartbeats, LibrdkafkaByHeartbeats],
    ],
    ids=["upgrade", "downgrade", "librdkafka"],
)
def test_a_group_of_both_protocols(
    kafka: KafkaNode, new_topic: Callable[[], str], kinds: list[type[Member]]
) -> None:
    share_a_group(kafka.bootstrap, new_topic(), "range", kinds)
