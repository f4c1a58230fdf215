"""Settings of a broker: a Kafka server.properties as it is, and what is wrong in one."""

from __future__ import annotations

from typing import Final

import pytest

from millstream.config.accepted import accepted_keys
from millstream.config.broker import (
    BrokerConfig,
    all_broker_keys,
    unknown_setting,
    without_effect,
)
from millstream.config.definition import CLUSTER_WIDE, PER_BROKER, READ_ONLY
from millstream.config.listeners import Listener
from millstream.config.properties import parse_properties
from millstream.config.sections.audit import AuditSettings
from millstream.model.errors import ConfigError

KRAFT_FILE = """
# The file that Apache Kafka 4 ships for a single node, without its comments.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,\\
  SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""

ZOOKEEPER_FILE = """
broker.id=3
num.network.threads=3
num.io.threads=8
log.dirs=/tmp/kafka-logs
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
inter.broker.protocol.version=3.6
log.message.format.version=2.8
"""


def test_kafkas_own_file_is_accepted() -> None:
    config = BrokerConfig(parse_properties(KRAFT_FILE))
    assert config.broker == 1
    assert config.listening() == (Listener("PLAINTEXT", "PLAINTEXT", "", 9092),)
    assert config.advertised() == (Listener("PLAINTEXT", "PLAINTEXT", "localhost", 9092),)
    assert config.log_directories == ("/tmp/kraft-combined-logs",)
    assert config.offsets_topic_replication_factor == 1
    assert without_effect(config.overrides) == [
        "controller.quorum.bootstrap.servers",
        "num.io.threads",
        "num.network.threads",
    ]


def test_the_file_of_an_older_kafka_is_accepted() -> None:
    config = BrokerConfig(parse_properties(ZOOKEEPER_FILE))
    assert (config.broker, config.node_id, config.broker_id) == (3, 3, 3)
    assert config.zookeeper_connect == "localhost:2181"
    assert config.group_initial_rebalance_delay_ms == 0


def test_defaults() -> None:
    config = BrokerConfig()
    assert config.broker == 1
    assert config.log_directories == ("/tmp/kafka-logs",)
    assert config.listening() == config.advertised()
    for key in BrokerConfig.keys.values():
        if key.name not in ("node.id", "broker.id"):
            assert getattr(config, key.attribute) == key.default


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num.partitons": "3"}, "unknown setting num.partitons; the nearest is num.partitions"),
        ({"xyzzy": "3"}, "unknown setting xyzzy$"),
        ({"num.partitions": "0"}, "num.partitions: Value must be at least 1"),
        ({"num.io.threads": "many"}, "num.io.threads: Not a number of type INT"),
        ({"num.io.threads": "0"}, "num.io.threads: Value must be at least 1"),
        ({"node.id": "1", "broker.id": "2"}, "`node.id` to the same value as `broker.id`"),
        ({"node.id": "-1"}, "Value must be at least 0"),
        ({"broker.id": "-2"}, "Value must be at least 0"),
        ({"process.roles": "controller"}, "add broker"),
        ({"process.roles": "broker,clown"}, "must be one of"),
        ({"compression.type": "none"}, "must be one of: uncompressed"),
        ({"offsets.topic.compression.codec": "5"}, "no more than 4"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited"),
        ({"log.retention.minutes": "0"}, "log.retention.ms must be unlimited"),
        ({"log.retention.hours": "0"}, "log.retention.ms must be unlimited"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "must be `host:count`"),
        ({"max.connections.per.ip.overrides": "a:1,b:many"}, "must be `host:count`"),
        ({"max.connections.per.ip.overrides": "a:2147483648"}, "must be `host:count`"),
        ({"max.connections.per.ip": "0"}, "can be set to zero only if"),
        ({"queued.max.request.bytes": "1000"}, "larger or equal to socket.request.max.bytes"),
        ({"connections.max.idle.ms": "100"}, "less than connections.max.idle.ms=100"),
        ({"replica.fetch.wait.max.ms": "30001"}, "replica.socket.timeout.ms should always"),
        ({"replica.lag.time.max.ms": "499"}, "equal to replica.lag.time.max.ms"),
        ({"log.dirs": ""}, "'log.dirs' must not be empty"),
        ({"log.dirs": "/a,"}, "'log.dirs' values must not be empty"),
        ({"log.dir": ""}, "'log.dir' must not be empty"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:5"},
        {"queued.max.request.bytes": "0"},
        {"queued.max.request.bytes": "104857600"},
        {"connections.max.idle.ms": "-1"},
        {"connections.max.idle.ms": "50", "connection.failed.authentication.delay.ms": "10"},
        {"replica.lag.time.max.ms": "500"},
    ],
)
def test_what_only_looks_wrong_is_accepted(settings: dict[str, str]) -> None:
    BrokerConfig(settings)


def test_names_of_plug_ins_are_let_through() -> None:
    settings = {
        "rsm.config.something.new": "x",
        "listener.name.internal.num.network.threads": "4",
        "confluent.metrics.enable": "true",
    }
    assert without_effect(BrokerConfig(settings).overrides) == sorted(settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "PLAINTEXT:9092"}, "not of the form"),
        ({"listeners": "PLAINTEXT://host"}, "not of the form"),
        ({"listeners": "PLAINTEXT://host:99999"}, "not of the form"),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "must have a different name"),
        ({"listeners": "INTERNAL://:1"}, "no security protocol is defined for listener INTERNAL"),
        (
            {"listeners": "X://:1", "listener.security.protocol.map": "X:TLS"},
            "listener X asks for TLS; Millstream serves PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL",
        ),
        ({"listeners": ""}, "must not be empty"),
        ({"listeners": "PLAINTEXT://:1,"}, "must not be empty"),
        ({"advertised.listeners": ""}, "must not be empty"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable.*set advertised.listeners as well"),
        (
            {"listeners": "CONTROLLER://:1", "controller.listener.names": "CONTROLLER"},
            "must listen somewhere",
        ),
        ({"listener.security.protocol.map": "X"}, "not of the form NAME:PROTOCOL"),
        ({"advertised.listeners": "SSL://host:1"}, "names SSL, which listeners does not have"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nonroutable"),
    ],
)
def test_listeners_that_cannot_be(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig(settings).advertised()


def test_listeners_have_names_and_addresses_of_their_own() -> None:
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://[::1]:0, internal://127.0.0.1:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "advertised.listeners": "INTERNAL://example.org:19093",
        }
    )
    assert config.listening() == (
        Listener("PLAINTEXT", "PLAINTEXT", "::1", 0),
        Listener("INTERNAL", "PLAINTEXT", "127.0.0.1", 9093),
    )
    assert config.advertised() == (
        Listener("PLAINTEXT", "PLAINTEXT", "::1", 0),
        Listener("INTERNAL", "PLAINTEXT", "example.org", 19093),
    )


TWO: Final = {
    "listeners": "PLAINTEXT://0.0.0.0:9092,INTERNAL://0.0.0.0:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
}


def test_brokers_use_a_listener_that_others_are_told_of() -> None:
    one = {**TWO, "advertised.listeners": "PLAINTEXT://example.org:9092"}
    config = BrokerConfig(one)
    assert config.inter_broker_listener() == "PLAINTEXT"
    # Nobody is told to connect to 0.0.0.0; an empty host is the machine's name.
    assert config.advertised()[1] == Listener("INTERNAL", "PLAINTEXT", "", 9093)
    for settings, message in (
        ({**one, "inter.broker.listener.name": "INTERNAL"}, "defined in advertised.listeners"),
        ({**one, "inter.broker.listener.name": "OTHER"}, "there is no listener OTHER"),
        ({**one, "security.inter.broker.protocol": "SSL"}, "no listener speaks SSL"),
    ):
        with pytest.raises(ConfigError, match=message):
            BrokerConfig(settings).inter_broker_listener()
    both = "PLAINTEXT://example.org:9092,INTERNAL://10.0.0.1:9093"
    settings = {**TWO, "advertised.listeners": both, "inter.broker.listener.name": "internal"}
    assert BrokerConfig(settings).inter_broker_listener() == "INTERNAL"


def test_the_table_of_accepted_settings_is_read_whole() -> None:
    keys = accepted_keys()
    assert len(keys) == 142
    assert not set(keys) & set(BrokerConfig.keys)
    assert keys["num.io.threads"].default == 8
    assert keys["num.io.threads"].mode is CLUSTER_WIDE
    assert keys["config.providers"].default == ()
    assert keys["ssl.provider"].mode is PER_BROKER
    assert keys["early.start.listeners"].default is None
    assert keys["remote.log.manager.task.retry.jitter"].internal
    assert keys["sasl.oauthbearer.assertion.private.key.passphrase"].is_sensitive
    assert keys["controller.quorum.voters"].mode is READ_ONLY
    assert all(not key.effective for key in keys.values())


def test_an_id_of_minus_one_asks_for_any() -> None:
    assert BrokerConfig({"broker.id": "-1"}).broker == 1


def test_all_settings_of_kafka_4_3_are_known_and_no_others() -> None:
    keys = all_broker_keys().values()
    of_4_4 = {key.name for key in keys if key.name.startswith("errors.deadletterqueue.")}
    assert len(of_4_4) == 2
    assert sum(key.kafka and not key.internal for key in keys) == 340 + len(of_4_4)
    ours = {key.name for key in keys if not key.kafka} - AuditSettings.keys.keys()
    assert ours == {
        "auto.create.topics.max.count",
        "connections.authentication.timeout.ms",
        "leader.lease",
        "log.format",
        "log.level",
        "log.flush.policy",
        "log.record.validation",
        "max.connections.unauthenticated",
        "max.connections.unauthenticated.per.ip",
        "metadata.keeper.socket",
        "metrics.groups.enable",
        "metrics.host",
        "metrics.partitions.enable",
        "metrics.port",
        "slow.request.log.ms",
        "zookeeper.auth.digest",
        "quota.consumer.default",
        "quota.producer.default",
        "socket.request.read.timeout.ms",
        "socket.unsent.max.bytes",
    }


def test_the_nearest_name_is_found_among_all() -> None:
    assert unknown_setting("num.io.treads").endswith("num.io.threads")
    assert unknown_setting("log.message.format.versions").endswith("log.message.format.version")


def test_cordoned_directories_are_some_of_the_log_directories() -> None:
    directories = {"log.dirs": "/a,/b"}
    assert BrokerConfig(directories).cordoned_directories == ()
    assert BrokerConfig({**directories, "cordoned.log.dirs": "/b"}).cordoned_directories == ("/b",)
    assert BrokerConfig({**directories, "cordoned.log.dirs": "*"}).cordoned_directories == (
        "/a",
        "/b",
    )
    for wrong in ("/c", "*,/a"):
        with pytest.raises(ConfigError, match=r"cordoned\.log\.dirs"):
            BrokerConfig({**directories, "cordoned.log.dirs": wrong})


def test_in_a_cluster_the_replicas_keep_what_a_flush_keeps_alone() -> None:
    assert BrokerConfig({}).topic_defaults.flush_policy == "ack"
    cluster = BrokerConfig({"zookeeper.connect": "h:2181"})
    assert cluster.log_flush_policy == cluster.topic_defaults.flush_policy == "os"
    chosen = BrokerConfig({"zookeeper.connect": "h:2181", "log.flush.policy": "ack"})
    assert chosen.topic_defaults.flush_policy == "ack"


def test_one_selector_of_replicas_is_built_in() -> None:
    name = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    assert BrokerConfig({"replica.selector.class": name}).selects_replicas_by_rack
    assert not BrokerConfig({"replica.selector.class": "example.Other"}).selects_replicas_by_rack
    assert not BrokerConfig({}).selects_replicas_by_rack
