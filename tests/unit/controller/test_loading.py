"""What stands in the store: Kafka's JSON, there and back, and damaged."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from millstream.controller import paths, payloads
from millstream.controller.loading import deleted_topics, load_context
from millstream.controller.payloads import PayloadError
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.leadership import UNKNOWN_STATE, PartitionState
from millstream.model.metadata_store import Node
from millstream.model.topic import TopicId

TOPIC_ID = TopicId(bytes(range(16)))
ONE = (BrokerId(1),)
ONLY_ONE = replace(UNKNOWN_STATE, replicas=ONE)


def test_a_topic_is_written_as_kafka_writes_it() -> None:
    two = (BrokerId(1), BrokerId(2))
    data = payloads.topic(TOPIC_ID, [replace(UNKNOWN_STATE, replicas=two), ONLY_ONE])
    assert json.loads(data) == {
        "version": 3,
        "topic_id": "AAECAwQFBgcICQoLDA0ODw",
        "partitions": {"0": [1, 2], "1": [1]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert payloads.read_topic("/t", data) == (TOPIC_ID, [(1, 2), (1,)], {}, {})


def test_a_state_is_written_as_kafka_writes_it() -> None:
    state = PartitionState(ONE, BrokerId(1), 4, ONE, partition_epoch=6, controller_epoch=2)
    data = payloads.state(state)
    assert json.loads(data) == {
        "controller_epoch": 2,
        "leader": 1,
        "version": 1,
        "leader_epoch": 4,
        "isr": [1],
    }
    again = payloads.read_state("/s", data, replicas=ONE, version=6)
    assert again == state
    assert again.isr is again.replicas


def test_a_broker_tells_where_it_listens() -> None:
    node = BrokerNode(BrokerId(1), (Endpoint("A", "h", 1), Endpoint("B", "i", 2)), "rack")
    told = json.loads(payloads.broker(node, 77))
    assert told["endpoints"] == ["A://h:1", "B://i:2"]
    assert (told["host"], told["port"], told["rack"], told["timestamp"]) == ("h", 1, "rack", "77")


def test_other_payloads_come_back() -> None:
    assert payloads.read_cluster_id("/c", payloads.cluster_id("abc")) == "abc"
    texts = {"a.b": "1", "c": "ä"}
    assert payloads.read_config("/c", payloads.config(texts)) == texts
    block = payloads.producer_id_block(broker_id=BrokerId(1), first=1000, last=1999)
    assert payloads.read_producer_id_block("/p", block) == 1999
    assert json.loads(payloads.controller(BrokerId(3), 5))["brokerid"] == 3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no json",
        b"[1]",
        b"7",
        b"{}",
        b"\xff",
        b'{"topic_id":"short","partitions":{}}',
        b'{"topic_id":7,"partitions":{}}',
        b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":[]}',
        b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"1":[1]}}',
        b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"0":7}}',
    ],
)
def test_a_damaged_topic_is_named(data: bytes) -> None:
    with pytest.raises(PayloadError, match=r"^/brokers/topics/t: "):
        payloads.read_topic("/brokers/topics/t", data)


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b'{"leader":"1","leader_epoch":0,"isr":[1],"controller_epoch":1}',
        b'{"leader":1,"leader_epoch":null,"isr":[1],"controller_epoch":1}',
        b'{"leader":1,"leader_epoch":0,"isr":1,"controller_epoch":1}',
        b'{"leader":1,"leader_epoch":0,"isr":["x"],"controller_epoch":1}',
    ],
)
def test_a_damaged_state_is_named(data: bytes) -> None:
    with pytest.raises(PayloadError, match=r"^/s: "):
        payloads.read_state("/s", data, replicas=ONE, version=0)


@pytest.mark.parametrize("data", [b"{}", b'{"config":7}', b'{"config":{"a":1}}'])
def test_damaged_settings_are_named(data: bytes) -> None:
    with pytest.raises(PayloadError, match=r"^/c: no settings"):
        payloads.read_config("/c", data)


@pytest.mark.parametrize("data", [b"{}", b'{"block_end":null}', b'{"block_end":"x"}'])
def test_a_damaged_block_is_named(data: bytes) -> None:
    with pytest.raises(PayloadError, match=r"^/p: no block of producer ids"):
        payloads.read_producer_id_block("/p", data)


# --- the tree ------------------------------------------------------------------------------


def node(data: bytes = b"", *, version: int = 0, creation_id: int = 1) -> Node:
    return Node(data, version, creation_id)


def tree(*topics: tuple[str, int]) -> dict[str, Node]:
    """A tree of topics with one partition: (name, creation id)."""
    nodes = {paths.CONTROLLER_EPOCH: node(b"4", version=3)}
    for name, creation_id in topics:
        topic_id = TopicId(creation_id.to_bytes(16, "big"))
        state = PartitionState(ONE, BrokerId(1), 0, ONE)
        nodes[paths.topic(name)] = node(payloads.topic(topic_id, [state]), creation_id=creation_id)
        nodes[paths.partitions(name)] = node()
        nodes[paths.partition(name, 0)] = node()
        nodes[paths.state(name, 0)] = node(payloads.state(state), version=5)
    return nodes


def test_a_tree_is_read_in_the_order_of_creation() -> None:
    nodes = tree(("ant", 9), ("bee", 3))
    nodes[paths.topic_config("bee")] = node(payloads.config({"retention.ms": "5"}))
    nodes[paths.broker_config("")] = node(payloads.config({"max.connections": "7"}))
    nodes[paths.broker_config("1")] = node(payloads.config({}))
    context = load_context(nodes)
    assert list(context.topics) == ["bee", "ant"]
    assert context.topics["bee"].overrides == {"retention.ms": "5"}
    assert context.topics["ant"].partitions[0].partition_epoch == 5
    assert (context.controller_epoch, context.epoch_version) == (4, 3)
    assert context.broker_configs == {"": {"max.connections": "7"}, "1": {}}
    assert context.topic_by_id(TopicId((3).to_bytes(16, "big"))) is context.topics["bee"]


def test_a_partition_without_a_state_is_damage() -> None:
    nodes = tree(("t", 1))
    del nodes[paths.state("t", 0)]
    with pytest.raises(PayloadError, match="partitions/0/state: missing"):
        load_context(nodes)


def test_a_damaged_epoch_is_named() -> None:
    with pytest.raises(PayloadError, match=r"^/controller_epoch: "):
        load_context({paths.CONTROLLER_EPOCH: node(b"many")})


def test_an_empty_tree_is_a_new_cluster() -> None:
    context = load_context({"/": node()})
    assert (context.topics, context.controller_epoch) == ({}, 0)


def test_deleted_topics_are_remembered_by_id() -> None:
    path = paths.deleted_topic("AAECAwQFBgcICQoLDA0ODw")
    assert deleted_topics({path: node(payloads.deleted_topic("t"))}) == {TOPIC_ID: path}


# --- names ---------------------------------------------------------------------------------


def test_names_that_collide() -> None:
    context = load_context(tree(("a.b", 1), ("plain", 2), ("c_d_e", 3)))
    assert context.colliding_topic("a_b") == "a.b"
    assert context.colliding_topic("a.b") == "a.b"
    assert context.colliding_topic("c.d_e") == "c_d_e"
    assert context.colliding_topic("plain") is None
    assert context.colliding_topic("a-b") is None
    context.remove_topic("a.b")
    assert context.colliding_topic("a_b") is None
