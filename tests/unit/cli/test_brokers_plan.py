"""What several brokers of one machine are started with."""

from __future__ import annotations

import pytest

from millstream.cli.brokers_plan import PASSWORD_VARIABLE, plan_brokers, step_of
from millstream.config.broker import BrokerConfig
from millstream.config.listeners import parse_listeners, parse_protocol_map
from millstream.config.references import resolve
from millstream.model.errors import ConfigError

SOCKET = "/data/keeper.sock"
SASL = {
    "listeners": "SASL_PLAINTEXT://h:9092",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def plans(
    settings: dict[str, str], count: int = 2, ports: tuple[int, ...] = ()
) -> list[BrokerConfig]:
    """Return the settings that each broker reads, as `serve` merges them."""
    found = plan_brokers(BrokerConfig(settings), count, ports=ports, socket=SOCKET)
    environment = {PASSWORD_VARIABLE: "secret"}
    return [
        BrokerConfig(resolve(settings | dict(plan.settings("")), environment)) for plan in found
    ]


def test_ids_ports_and_directories_count_up() -> None:
    one, two, three = plans(
        {"node.id": "5", "log.dirs": "/a,/b", "listeners": "PLAINTEXT://h:9092"}, 3
    )
    assert [each.broker for each in (one, two, three)] == [5, 6, 7]
    assert [each.listeners for each in (one, two)] == [
        ("PLAINTEXT://h:9092",),
        ("PLAINTEXT://h:9093",),
    ]
    assert one.log_directories == ("/a", "/b")
    assert three.log_directories == ("/a/broker.7", "/b/broker.7")
    assert {each.metadata_keeper_socket for each in (one, two, three)} == {SOCKET}
    assert one.log_flush_policy == "ack", "brokers of one machine lose their page cache together"


def test_internal_topics_have_two_replicas_unless_it_is_said_otherwise() -> None:
    one = plans({})[0]
    assert one.offsets_topic_replication_factor == 2
    assert one.transaction_state_log_replication_factor == 2
    assert one.transaction_state_log_min_isr == 1
    assert one.audit_log_topic_replication_factor == 2, "with three it would wait for ever"
    assert one.default_replication_factor == 1
    assert plans({}, 1)[0].offsets_topic_replication_factor == 1
    assert plans({"offsets.topic.replication.factor": "3"})[0].offsets_topic_replication_factor == 3


@pytest.mark.parametrize(
    ("texts", "count", "step"),
    [
        (["A://:9092"], 9, 1),
        (["A://:9092", "B://:9093"], 2, 2),
        (["A://:9092", "B://:9094"], 2, 1),
        (["A://:9092", "B://:9094"], 3, 3),
        (["A://:0", "B://:0"], 5, 1),
    ],
)
def test_no_two_listeners_get_one_port(texts: list[str], count: int, step: int) -> None:
    protocols = parse_protocol_map("A:PLAINTEXT,B:SSL")
    assert step_of(parse_listeners("listeners", texts, protocols), count) == step


def test_what_is_advertised_moves_with_the_listeners() -> None:
    two = plans(
        {
            "listeners": "PLAINTEXT://:9092,EXTERNAL://:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:SSL",
            "advertised.listeners": "PLAINTEXT://in:9092,EXTERNAL://out:19093",
        }
    )[1]
    assert two.listeners == ("PLAINTEXT://:9094", "EXTERNAL://:9095")
    assert two.advertised_listeners == ("PLAINTEXT://in:9094", "EXTERNAL://out:19095")
    assert two.inter_broker_listener() == "PLAINTEXT"


def test_ports_that_are_named_are_taken() -> None:
    one, two = plans({"listeners": "PLAINTEXT://h:1"}, 2, (70, 0))
    assert (one.listeners, two.listeners) == (("PLAINTEXT://h:70",), ("PLAINTEXT://h:0",))
    with pytest.raises(ConfigError, match="each of the 3 brokers, not 2"):
        plans({}, 3, (70, 71))


def test_a_port_that_the_system_picked_is_kept_at_the_next_start() -> None:
    plan = plan_brokers(BrokerConfig({"listeners": "PLAINTEXT://h:0"}), 1, ports=(), socket=SOCKET)[
        0
    ]
    assert plan.settings("")["listeners"] == "PLAINTEXT://h:0"
    assert plan.settings("h:7000")["listeners"] == "PLAINTEXT://h:7000"


def test_brokers_behind_protected_listeners_get_one_of_their_own() -> None:
    one, two = plans(SASL)
    for each in (one, two):
        assert each.inter_broker_listener() == "BROKERS"
        listener = each.listening()[-1]
        assert (listener.protocol, listener.host, listener.port) == (
            "SASL_PLAINTEXT",
            "127.0.0.1",
            0,
        )
        assert each.super_users == "User:admin;User:millstream-broker"
        assert 'password="secret"' in str(each.overrides)
    found = plan_brokers(BrokerConfig(SASL), 1, ports=(), socket=SOCKET)[0]
    assert "secret" not in str(found.overrides), "other users may read command lines"


def test_a_listener_between_brokers_that_the_settings_name_is_used() -> None:
    one = plans(
        {
            **SASL,
            "listeners": "SASL_PLAINTEXT://h:9092,IN://127.0.0.1:9093",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,IN:PLAINTEXT",
            "inter.broker.listener.name": "IN",
        }
    )[0]
    assert one.inter_broker_listener() == "IN"
    assert len(one.listening()) == 2
    assert one.super_users == "User:admin"


def test_a_cluster_of_several_machines_keeps_its_zookeeper() -> None:
    with pytest.raises(ConfigError, match="leave one of them out"):
        plans({"zookeeper.connect": "zk:2181"})


def test_a_port_beyond_the_last_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="65536"):
        plans({"listeners": "PLAINTEXT://h:65535"})


def test_directories_that_take_no_logs_are_so_for_each_broker() -> None:
    one, two = plans({"log.dirs": "/a,/b", "cordoned.log.dirs": "/b"})
    assert (one.cordoned_directories, two.cordoned_directories) == (("/b",), ("/b/broker.2",))
    assert plans({"log.dirs": "/a", "cordoned.log.dirs": "*"})[1].cordoned_directories == (
        "/a/broker.2",
    )


def test_a_listener_on_which_brokers_cannot_authenticate_is_for_clients() -> None:
    """As a broker on its own has it (docs/security.md), and started with --brokers later."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:1",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    one, _ = plans(settings, 2)
    assert one.inter_broker_listener() == "BROKERS"
    assert one.sasl_mechanism_inter_broker_protocol == "PLAIN"
    one, _ = plans(settings | {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"}, 2)
    assert one.inter_broker_listener() == "SASL_PLAINTEXT"
