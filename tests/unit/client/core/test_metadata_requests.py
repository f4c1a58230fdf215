"""How often a client asks for metadata: soon for what is new, never again and again for nothing."""

from __future__ import annotations

import pytest
from tests.client_twin import TwinCluster, TwinLoop
from tests.client_twin.share_member import TwinShareMember
from tests.client_twin.sharing import ShareCluster
from tests.unit.client.core.producer.test_sender import TOPIC, World

from millstream.client.core.metadata import MetadataView
from millstream.client.core.network import Network
from millstream.client.core.settings import ClientSettings, read_settings
from millstream.model.errors import ErrorCode
from millstream.protocol.messages.metadata import MetadataRequest

SECONDS = 5
MOST = SECONDS * 10 + 2
"""With ``retry.backoff.ms`` of 100."""


def asked(cluster: TwinCluster) -> int:
    return sum(
        isinstance(each, MetadataRequest)
        for broker in cluster.brokers.values()
        for each in broker.requests
    )


def test_records_for_a_partition_that_is_gone_do_not_flood_the_brokers() -> None:
    world = World(partitions=3)
    world.send(b"0", 2)
    world.flush()
    world.topic = world.cluster.create_topic(TOPIC, 1)
    world.send(b"1", 2)
    before = asked(world.cluster)
    world.loop.advance(SECONDS * 1000)
    assert 1 < asked(world.cluster) - before <= MOST


def test_records_for_a_topic_that_is_forbidden_now_do_not_flood_the_brokers() -> None:
    world = World()
    world.topic.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    world.loop.run(world.core.metadata.request_update())
    delivery = world.send(b"1")
    before = asked(world.cluster)
    world.loop.advance(SECONDS * 1000)
    assert 1 < asked(world.cluster) - before <= MOST
    world.topic.error = ErrorCode.NONE
    world.loop.advance(200)
    assert delivery.done()
    assert world.values() == [b"1"]


def test_a_share_consumer_of_a_forbidden_topic_does_not_flood_the_brokers() -> None:
    cluster = ShareCluster(TwinLoop(), (1,))
    topic = cluster.create_topic("t", 1)
    member = TwinShareMember(cluster)
    member.core.subscribe(["t"])
    cluster.loop.run(member.poll(1_000))
    topic.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster.loop.run(member.core.metadata.request_update())
    before = asked(cluster)
    cluster.loop.run(member.poll(SECONDS * 1000))
    assert 1 < asked(cluster) - before <= MOST


@pytest.mark.parametrize("other", ["settled", "unsettled"])
def test_a_new_topic_is_asked_for_at_once(other: str) -> None:
    loop = TwinLoop()
    cluster = TwinCluster(loop)
    given = {"bootstrap.servers": cluster.bootstrap, "retry.backoff.ms": 10_000}
    view = MetadataView(Network(loop, read_settings(ClientSettings, given)))
    for name in ("a", "b", "c"):
        cluster.create_topic(name)
    if other == "unsettled":
        cluster.topics["a"].partitions[0].leader = -1
    loop.run(view.topic("a"))
    for name in ("b", "c"):
        began = loop.now_ms()
        loop.run(view.topic(name))
        assert loop.now_ms() - began < 10
