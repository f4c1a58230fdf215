"""Which rules allow what: denials, prefixes, wildcards, hosts, what one operation implies."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.session import (
    ALL,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    CREATE_TOKENS,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOKENS,
    GROUP,
    IDEMPOTENT_WRITE,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    SecuredPeer,
    SecuredSession,
    rule,
)

CLUSTER_NAME = "kafka-cluster"


def describe(peer: SecuredPeer, *topics: str) -> None:
    """Ask for topics, which needs Describe; operations are told too."""
    peer.call(
        "DescribeTopicPartitions",
        0,
        topics=[{"name": each} for each in topics],
        response_partition_limit=10,
    )


def produce(s: SecuredSession, peer: SecuredPeer, topic: str, version: int = 9) -> None:
    fields = s.produce_fields([(topic, 0, batch("a"))], version=version)
    peer.call("Produce", version, **fields)


def fetch(peer: SecuredPeer, topic: str) -> None:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    peer.call(
        "Fetch",
        11,
        replica_id=-1,
        max_wait_ms=0,
        max_bytes=1000,
        topics=[{"topic": topic, "partitions": [part]}],
    )


def retention(peer: SecuredPeer, topic: str) -> None:
    resource = {
        "resource_type": 2,
        "resource_name": topic,
        "configuration_keys": ["retention.ms"],
    }
    peer.call("DescribeConfigs", 4, resources=[resource])


def everything_of(s: SecuredSession, topic: str, peer: SecuredPeer) -> None:
    """Ask for what each operation on a topic allows."""
    describe(peer, topic)
    produce(s, peer, topic)
    fetch(peer, topic)
    retention(peer, topic)
    config = {"name": "retention.ms", "config_operation": 0, "value": "1000000"}
    altered = {"resource_type": 2, "resource_name": topic, "configs": [config]}
    peer.call("IncrementalAlterConfigs", 1, resources=[altered], validate_only=True)
    partitions = [{"name": topic, "count": 2, "assignments": None}]
    peer.call("CreatePartitions", 3, topics=partitions, timeout_ms=1000, validate_only=True)
    cut = [{"partition_index": 0, "offset": 0}]
    peer.call("DeleteRecords", 2, topics=[{"name": topic, "partitions": cut}], timeout_ms=1000)


OPERATIONS = {
    "all": ALL,
    "read": READ,
    "write": WRITE,
    "create": CREATE,
    "delete": DELETE,
    "alter": ALTER,
    "describe": DESCRIBE,
    "describe_configs": DESCRIBE_CONFIGS,
    "alter_configs": ALTER_CONFIGS,
    "cluster_action": CLUSTER_ACTION,
    "idempotent_write": IDEMPOTENT_WRITE,
    "create_tokens": CREATE_TOKENS,
    "describe_tokens": DESCRIBE_TOKENS,
}


@scenario(cases=OPERATIONS)
def implied_by(s: SecuredSession, operation: int) -> None:
    topic = s.topic()
    s.allow(rule(operation, TOPIC, topic))
    everything_of(s, topic, s.user())


@scenario(cases=OPERATIONS)
def denied(s: SecuredSession, operation: int) -> None:
    """Everything is allowed, and one operation denied: what else goes with it."""
    topic = s.topic()
    s.allow(rule(ALL, TOPIC, topic), rule(operation, TOPIC, topic, permission=DENY))
    everything_of(s, topic, s.user())


@scenario(cases=OPERATIONS)
def cluster_operations(s: SecuredSession, operation: int) -> None:
    s.allow(rule(operation, CLUSTER, CLUSTER_NAME))
    peer = s.user()
    peer.call("DescribeCluster", 2, include_cluster_authorized_operations=True)
    peer.call("DescribeClientQuotas", 1, components=[], strict=False)
    peer.call("ListPartitionReassignments", 0, timeout_ms=1000, topics=None)
    peer.call("DescribeUserScramCredentials", 0, users=[{"name": "nobody"}])
    peer.call("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000)
    wanted = {"name": s.name("new"), "num_partitions": 1, "replication_factor": 1}
    fields = {"assignments": [], "configs": []}
    peer.call("CreateTopics", 7, topics=[wanted | fields], timeout_ms=1000, validate_only=True)


@scenario(cases=OPERATIONS)
def group_operations(s: SecuredSession, operation: int) -> None:
    group, topic = s.name("g"), s.topic()
    s.allow(rule(operation, GROUP, group), rule(READ, TOPIC, topic))
    offsets(s.user(), group, topic)


@scenario(cases=OPERATIONS)
def transactional_id_operations(s: SecuredSession, operation: int) -> None:
    name = s.name("tx")
    s.allow(rule(operation, TRANSACTIONAL_ID, name))
    peer = s.user()
    peer.call("FindCoordinator", 3, key=name, key_type=1)
    peer.call("InitProducerId", 4, transactional_id=name, transaction_timeout_ms=1000)
    peer.call("DescribeTransactions", 0, transactional_ids=[name])


def offsets(peer: SecuredPeer, group: str, topic: str) -> None:
    """Commit, fetch and delete an offset, and describe the group."""
    part = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    peer.call(
        "OffsetCommit",
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": topic, "partitions": [part]}],
    )
    asked = {"name": topic, "partition_indexes": [0]}
    for wanted in ([asked], None):
        peer.call("OffsetFetch", 8, groups=[{"group_id": group, "topics": wanted}])
    peer.call("DescribeGroups", 5, groups=[group], include_authorized_operations=True)
    peer.call("FindCoordinator", 3, key=group, key_type=0)
    peer.call(
        "OffsetDelete",
        0,
        group_id=group,
        topics=[{"name": topic, "partitions": [{"partition_index": 0}]}],
    )
    peer.call("DeleteGroups", 2, groups_names=[group])


RIGHTS: dict[str, tuple[int | None, int | None]] = {
    "nothing": (None, None),
    "read_group": (READ, None),
    "read_topic": (None, READ),
    "both": (READ, READ),
    "describe_both": (DESCRIBE, DESCRIBE),
    "read_group_describe_topic": (READ, DESCRIBE),
    "describe_group_read_topic": (DESCRIBE, READ),
    "delete_group_describe_topic": (DELETE, DESCRIBE),
    "delete_group_read_topic": (DELETE, READ),
    "all_of_group": (ALL, None),
    "all_of_topic": (None, ALL),
}


@scenario(cases=RIGHTS)
def offsets_of_group_and_topic(s: SecuredSession, rights: tuple[int | None, int | None]) -> None:
    group, topic, other = s.name("g"), s.topic("t"), s.topic("other")
    s.quiet(
        "OffsetCommit",
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            {
                "name": name,
                "partitions": [
                    {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
                ],
            }
            for name in (topic, other)
        ],
    )
    wanted = zip(rights, ((GROUP, group), (TOPIC, topic)), strict=True)
    rules = [rule(operation, *place) for operation, place in wanted if operation is not None]
    if rules:
        s.allow(*rules)
    offsets(s.user(), group, topic)


def with_topics(s: SecuredSession, *rules: tuple[Any, ...], **more: Any) -> None:
    """Make three topics (orders, orders-2, other), give rules, and ask for all three."""
    names = {label: s.topic(label) for label in ("orders", "orders-2", "other")}
    given = []
    for operation, label, *rest in rules:
        changed = dict(rest[0]) if rest else {}
        name = changed.pop("name", None) or names[label]
        given.append(rule(operation, TOPIC, name, **changed))
    s.allow(*given)
    describe(s.user(), *names.values())
    for name in names.values():
        fetch(s.user(), name)


PATTERNS: dict[str, list[tuple[Any, ...]]] = {
    "literal": [(READ, "orders")],
    "prefix_of_two": [(READ, "", {"name": "orders", "pattern": PREFIXED})],
    "prefix_of_one_letter": [(READ, "", {"name": "o", "pattern": PREFIXED})],
    "prefix_is_the_name": [(READ, "orders", {"pattern": PREFIXED})],
    "prefix_longer_than_the_name": [(READ, "", {"name": "orders-2-and-more", "pattern": PREFIXED})],
    "prefix_in_another_case": [(READ, "", {"name": "Orders", "pattern": PREFIXED})],
    "prefix_asterisk": [(READ, "", {"name": "*", "pattern": PREFIXED})],
    "wildcard": [(READ, "", {"name": "*"})],
    "wildcard_and_denied_one": [(READ, "", {"name": "*"}), (READ, "orders", {"permission": DENY})],
    "wildcard_and_denied_prefix": [
        (READ, "", {"name": "*"}),
        (READ, "", {"name": "orders", "pattern": PREFIXED, "permission": DENY}),
    ],
    "denied_wildcard": [(READ, "orders"), (READ, "", {"name": "*", "permission": DENY})],
    "denied_prefix_allowed_literal": [
        (READ, "orders"),
        (READ, "", {"name": "ord", "pattern": PREFIXED, "permission": DENY}),
    ],
    "allowed_prefix_denied_longer_prefix": [
        (READ, "", {"name": "ord", "pattern": PREFIXED}),
        (READ, "orders-2", {"pattern": PREFIXED, "permission": DENY}),
    ],
    "denied_describe_allowed_read": [(READ, "orders"), (DESCRIBE, "orders", {"permission": DENY})],
    "denied_read_allowed_describe": [(DESCRIBE, "orders"), (READ, "orders", {"permission": DENY})],
    "denied_all_allowed_read": [(READ, "orders"), (ALL, "orders", {"permission": DENY})],
    "everybody": [(READ, "orders", {"principal": "User:*"})],
    "everybody_and_denied_ann": [
        (READ, "orders", {"principal": "User:*"}),
        (READ, "orders", {"permission": DENY}),
    ],
    "ann_and_denied_everybody": [
        (READ, "orders"),
        (READ, "orders", {"principal": "User:*", "permission": DENY}),
    ],
    "another_user": [(READ, "orders", {"principal": "User:bob"})],
    "another_type": [(READ, "orders", {"principal": "Group:ann"})],
    "everybody_of_another_type": [(READ, "orders", {"principal": "Group:*"})],
    "another_case": [(READ, "orders", {"principal": "User:Ann"})],
    "lower_case_type": [(READ, "orders", {"principal": "user:ann"})],
    "host_right": [(READ, "orders", {"host": "127.0.0.1"})],
    "host_wrong": [(READ, "orders", {"host": "127.0.0.2"})],
    "host_by_name": [(READ, "orders", {"host": "localhost"})],
    "host_network": [(READ, "orders", {"host": "127.0.0.0/8"})],
    "host_denied": [(READ, "orders"), (READ, "orders", {"host": "127.0.0.1", "permission": DENY})],
    "another_host_denied": [
        (READ, "orders"),
        (READ, "orders", {"host": "127.0.0.2", "permission": DENY}),
    ],
    "host_allowed_everybody": [(READ, "orders", {"host": "127.0.0.1", "principal": "User:*"})],
}


@scenario(cases=PATTERNS)
def patterns(s: SecuredSession, rules: list[tuple[Any, ...]]) -> None:
    with_topics(s, *rules)


@scenario(cases=["root", "admin"])
def a_super_user_is_not_denied(s: SecuredSession, name: str) -> None:
    topic = s.topic()
    s.allow(
        rule(ALL, TOPIC, topic, f"User:{name}", permission=DENY),
        rule(ALL, TOPIC, "*", "User:*", permission=DENY),
    )
    describe(s.user(name), topic)
    produce(s, s.user(name), topic)


@scenario
def a_change_of_rules_is_gone_by(s: SecuredSession) -> None:
    """A connection that has been allowed and refused goes by what holds now."""
    topic = s.topic()
    peer = s.user()
    for _ in range(2):
        produce(s, peer, topic)
        s.allow(rule(WRITE, TOPIC, topic), rule(READ, TOPIC, topic))
        produce(s, peer, topic)
        fetch(peer, topic)
        s.allow(rule(WRITE, TOPIC, topic, permission=DENY))
        produce(s, peer, topic)
        fetch(peer, topic)
        s.forget_rules()
        fetch(peer, topic)


IDEMPOTENCE: dict[str, list[tuple[Any, ...]]] = {
    "nothing": [],
    "idempotent_write": [(IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME)],
    "write_on_a_topic": [(WRITE, TOPIC, "any-topic")],
    "write_on_a_prefix": [(WRITE, TOPIC, "any", {"pattern": PREFIXED})],
    "write_on_all": [(WRITE, TOPIC, "*")],
    "all_on_a_topic": [(ALL, TOPIC, "any-topic")],
    "read_on_a_topic": [(READ, TOPIC, "any-topic")],
    "write_on_a_group": [(WRITE, GROUP, "any-group")],
    "write_on_a_transactional_id": [(WRITE, TRANSACTIONAL_ID, "tx")],
    "write_on_the_cluster": [(WRITE, CLUSTER, CLUSTER_NAME)],
    "everybody": [(WRITE, TOPIC, "any-topic", {"principal": "User:*"})],
    "another_user": [(WRITE, TOPIC, "any-topic", {"principal": "User:bob"})],
    "another_host": [(WRITE, TOPIC, "any-topic", {"host": "10.0.0.1"})],
    "this_host": [(WRITE, TOPIC, "any-topic", {"host": "127.0.0.1"})],
    "denied_on_all": [(WRITE, TOPIC, "any-topic"), (WRITE, TOPIC, "*", {"permission": DENY})],
    "all_denied_on_all": [(WRITE, TOPIC, "any-topic"), (ALL, TOPIC, "*", {"permission": DENY})],
    "denied_on_this_one": [
        (WRITE, TOPIC, "any-topic"),
        (WRITE, TOPIC, "any-topic", {"permission": DENY}),
    ],
    "denied_on_a_prefix_of_it": [
        (WRITE, TOPIC, "any-topic"),
        (WRITE, TOPIC, "any", {"pattern": PREFIXED, "permission": DENY}),
    ],
    "denied_on_a_longer_prefix": [
        (WRITE, TOPIC, "any", {"pattern": PREFIXED}),
        (WRITE, TOPIC, "any-topic", {"pattern": PREFIXED, "permission": DENY}),
    ],
    "denied_on_the_same_prefix": [
        (WRITE, TOPIC, "any", {"pattern": PREFIXED}),
        (WRITE, TOPIC, "any", {"pattern": PREFIXED, "permission": DENY}),
    ],
    "denied_idempotent_write": [
        (WRITE, TOPIC, "any-topic"),
        (IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME, {"permission": DENY}),
    ],
    "denied_elsewhere": [
        (WRITE, TOPIC, "any-topic"),
        (WRITE, TOPIC, "other", {"permission": DENY}),
    ],
    "two_and_one_denied": [
        (WRITE, TOPIC, "any-topic"),
        (WRITE, TOPIC, "second"),
        (WRITE, TOPIC, "any-topic", {"permission": DENY}),
    ],
}


@scenario(cases=IDEMPOTENCE)
def producer_ids(s: SecuredSession, rules: list[tuple[Any, ...]]) -> None:
    """Who may have a producer id (KIP-679)."""
    given = [rule(*each[:3], **(each[3] if len(each) > 3 else {})) for each in rules]
    if given:
        s.allow(*given)
    s.user().call("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000)


@scenario(versions="InitProducerId")
def producer_ids_in_each_version(s: SecuredSession, version: int) -> None:
    s.user().call("InitProducerId", version, transactional_id=None, transaction_timeout_ms=1000)
    s.allow(rule(WRITE, TOPIC, "any-topic"))
    s.user().call("InitProducerId", version, transactional_id=None, transaction_timeout_ms=1000)


@scenario
def idempotent_records(s: SecuredSession) -> None:
    """To write with a producer id takes Write on the topic and nothing else."""
    topic = s.topic()
    s.allow(rule(WRITE, TOPIC, topic))
    peer = s.user()
    answer = peer.call("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1000)
    records = batch("a", producer_id=answer["producer_id"], producer_epoch=0, base_sequence=0)
    peer.call("Produce", 9, **s.produce_fields([(topic, 0, records)], version=9))


@scenario(cases={"without": None, "with": WRITE, "describe": DESCRIBE})
def transactional_records(s: SecuredSession, operation: int | None) -> None:
    topic, name = s.topic(), s.name("tx")
    s.allow(rule(WRITE, TOPIC, topic))
    if operation is not None:
        s.allow(rule(operation, TRANSACTIONAL_ID, name))
    peer = s.user()
    answer = peer.call("InitProducerId", 4, transactional_id=name, transaction_timeout_ms=1000)
    producer_id = max(answer["producer_id"], 0)
    added = [{"name": topic, "partitions": [0]}]
    peer.call(
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=added,
    )
    records = batch("a", producer_id=producer_id, base_sequence=0, attributes=0x10)
    fields = s.produce_fields([(topic, 0, records)], version=9, transactional_id=name)
    peer.call("Produce", 9, **fields)
    peer.call(
        "EndTxn",
        3,
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=0,
        committed=True,
    )


CREATIONS: dict[str, list[tuple[Any, ...]]] = {
    "nothing": [],
    "create_on_the_cluster": [(CREATE, CLUSTER, CLUSTER_NAME)],
    "create_on_the_topic": [(CREATE, TOPIC, "$one")],
    "create_on_a_prefix": [(CREATE, TOPIC, "o", {"pattern": PREFIXED})],
    "create_on_all_topics": [(CREATE, TOPIC, "*")],
    "all_on_the_topic": [(ALL, TOPIC, "$one")],
    "describe_on_the_topic": [(DESCRIBE, TOPIC, "$one")],
    "create_and_describe_configs": [(CREATE, TOPIC, "$one"), (DESCRIBE_CONFIGS, TOPIC, "$one")],
    "cluster_and_denied_topic": [
        (CREATE, CLUSTER, CLUSTER_NAME),
        (CREATE, TOPIC, "$one", {"permission": DENY}),
    ],
    "topic_and_denied_cluster": [
        (CREATE, TOPIC, "$one"),
        (CREATE, CLUSTER, CLUSTER_NAME, {"permission": DENY}),
    ],
}


@scenario(cases=CREATIONS)
def creating_topics(s: SecuredSession, rules: list[tuple[Any, ...]]) -> None:
    one, two = s.name("one"), s.name("two")
    there = s.topic("there")
    given = []
    for operation, resource, name, *rest in rules:
        given.append(rule(operation, resource, name.replace("$one", one), **dict(*rest)))
    if given:
        s.allow(*given)
    fields = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    topics = [{"name": each, **fields} for each in (one, two, there)]
    s.user().call("CreateTopics", 7, topics=topics, timeout_ms=5000)


@scenario(cases={name: CREATIONS[name] for name in list(CREATIONS)[:6]})
def topics_created_on_use(s: SecuredSession, rules: list[tuple[Any, ...]]) -> None:
    """Metadata of a topic that is not there, by a client that may describe it."""
    one = s.name("one")
    given = [rule(DESCRIBE, TOPIC, one)]
    for operation, resource, name, *rest in rules:
        if (operation, resource, name) != (DESCRIBE, TOPIC, "$one"):
            given.append(rule(operation, resource, name.replace("$one", one), **dict(*rest)))
    s.allow(*given)
    s.user().call("Metadata", 9, topics=[{"name": one}], allow_auto_topic_creation=True)


DELETIONS: dict[str, list[tuple[Any, ...]]] = {
    "nothing": [],
    "describe": [(DESCRIBE, TOPIC, "$one")],
    "delete": [(DELETE, TOPIC, "$one")],
    "delete_but_not_describe": [
        (DELETE, TOPIC, "$one"),
        (DESCRIBE, TOPIC, "$one", {"permission": DENY}),
    ],
    "delete_on_the_cluster": [(DELETE, CLUSTER, CLUSTER_NAME)],
}


@scenario(cases=DELETIONS, versions=[5, 6])
def deleting_topics(s: SecuredSession, rules: list[tuple[Any, ...]], version: int) -> None:
    one, absent = s.topic("one"), s.name("absent")
    given = []
    for operation, resource, name, *rest in rules:
        given.append(rule(operation, resource, name.replace("$one", one), **dict(*rest)))
    if given:
        s.allow(*given)
    names = [one, absent]
    if version < 6:
        s.user().call("DeleteTopics", version, topic_names=names, timeout_ms=5000)
        return
    s.user().call(
        "DeleteTopics",
        version,
        topics=[
            {"name": absent, "topic_id": bytes(16)},
            {"name": None, "topic_id": s.topic_id(one)},
            {"name": None, "topic_id": "f" * 32},
        ],
        timeout_ms=5000,
    )


@scenario(cases=OPERATIONS)
def operations_that_are_told(s: SecuredSession, operation: int) -> None:
    """Authorized operations in Metadata, DescribeGroups and DescribeCluster (KIP-430)."""
    topic, group = s.topic(), s.name("g")
    given = [rule(operation, TOPIC, topic), rule(operation, GROUP, group)]
    s.allow(*given, rule(operation, CLUSTER, CLUSTER_NAME))
    tell_operations(s.user(), topic, group)


def tell_operations(peer: SecuredPeer, topic: str, group: str) -> None:
    peer.call(
        "Metadata",
        10,
        topics=[{"name": topic, "topic_id": bytes(16)}],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    peer.call("DescribeGroups", 5, groups=[group], include_authorized_operations=True)
    peer.call("DescribeCluster", 2, include_cluster_authorized_operations=True)


@scenario(cases=["ann", "root"])
def operations_that_are_told_of_everything(s: SecuredSession, name: str) -> None:
    topic, group = s.topic(), s.name("g")
    s.allow(
        rule(ALL, TOPIC, topic),
        rule(WRITE, TOPIC, topic, permission=DENY),
        rule(ALL, GROUP, group),
        rule(READ, GROUP, group, permission=DENY),
        rule(ALL, CLUSTER, CLUSTER_NAME),
        rule(CREATE, CLUSTER, CLUSTER_NAME, permission=DENY),
    )
    tell_operations(s.user(name), topic, group)


@scenario
def operations_that_are_told_by_prefix(s: SecuredSession) -> None:
    topic, group = s.topic(), s.name("g")
    s.allow(
        rule(READ, TOPIC, "t", pattern=PREFIXED),
        rule(ALTER_CONFIGS, TOPIC, "*"),
        rule(READ, GROUP, "g", pattern=PREFIXED),
        rule(DESCRIBE, CLUSTER, CLUSTER_NAME),
    )
    tell_operations(s.user(), topic, group)


@scenario(cases={"describe": DESCRIBE, "nothing": None})
def lists_show_what_may_be_seen(s: SecuredSession, operation: int | None) -> None:
    """Groups and topics of others are left out without a word."""
    for label in ("mine", "theirs"):
        topic = s.topic(label)
        s.quiet(
            "OffsetCommit",
            8,
            group_id=topic,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
                    ],
                }
            ],
        )
        if operation is not None and label == "mine":
            s.allow(rule(operation, TOPIC, topic), rule(operation, GROUP, topic))
    peer = s.user()
    peer.call("ListGroups", 4, states_filter=[])
    peer.call("Metadata", 9, topics=None)
    peer.call("ListTransactions", 1)
