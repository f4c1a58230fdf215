"""Settings that protect a broker of Apache Kafka are refused until they act here."""

from __future__ import annotations

import pytest

from millstream.config.accepted import accepted_keys
from millstream.config.broker import BrokerConfig, without_effect
from millstream.config.dynamic import DynamicConfig
from millstream.config.protection import protects
from millstream.model.errors import ConfigError

ASKED_FOR = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "false",
    "principal.builder.class": "example.Builder",
    "early.start.listeners": "CONTROLLER",
    "security.providers": "example.Fips",
    "create.topic.policy.class.name": "example.Policy",
    "alter.config.policy.class.name": "example.Policy",
    "client.quota.callback.class": "example.Quotas",
    "quota.producer.default": "1048576",
    "quota.consumer.default": "1048576",
    "connections.max.reauth.ms": "3600000",
    "delegation.token.secret.key": "secret",
    "delegation.token.master.key": "secret",
    "password.encoder.secret": "secret",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "ssl.client.auth": "required",
    "ssl.keystore.location": "/etc/kafka/keystore.jks",
    "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
    "ssl.something.of.a.plug-in": "x",
    "listener.name.external.ssl.client.auth": "required",
    "listener.name.external.principal.builder.class": "example.Builder",
    "listener.name.external.scram-sha-256.sasl.jaas.config": "x;",
    "listener.name.external.plain.connections.max.reauth.ms": "1",
    "listener.name.external.max.connections": "100",
    "zookeeper.set.acl": "true",
    "zookeeper.ssl.client.enable": "true",
    "zookeeper.ssl.keystore.location": "/etc/kafka/zookeeper.jks",
    "confluent.authorizer.access.rule.providers": "ZK_ACL",
}

ASKS_FOR_NOTHING = {
    "authorizer.class.name": "",
    "allow.everyone.if.no.acl.found": "true",
    "connections.max.reauth.ms": "0",
    "quota.producer.default": "9223372036854775807",
    "sasl.enabled.mechanisms": " GSSAPI ",
    "ssl.client.auth": "none",
    "ssl.endpoint.identification.algorithm": "",
    "ssl.key.password": "",
    "listener.name.external.ssl.protocol": "TLSv1.3",
    "zookeeper.set.acl": "False",
    "zookeeper.ssl.client.enable": "false",
}

PROTECTS_NOTHING = {
    "connection.failed.authentication.delay.ms": "50",
    "delegation.token.max.lifetime.ms": "1000",
    "listener.name.external.num.network.threads": "2",
    "metric.reporters": "example.Reporter",
    "password.encoder.iterations": "4096",
    "quota.window.num": "20",
    "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
    "confluent.metrics.enable": "true",
}


@pytest.mark.parametrize(("name", "text"), ASKED_FOR.items())
def test_a_setting_that_asks_for_protection_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({name: text})
    assert str(caught.value) == (
        f"{name}: Millstream does not act on this setting yet, which protects a broker of Apache "
        "Kafka: every client could do everything. Leave it out to go without that protection"
    )


def test_all_of_them_are_named_at_once() -> None:
    with pytest.raises(ConfigError, match=r"^authorizer\.class\.name, super\.users: .* these sett"):
        BrokerConfig({"super.users": "User:a", "authorizer.class.name": "A", "node.id": "1"})


@pytest.mark.parametrize("settings", [ASKS_FOR_NOTHING, PROTECTS_NOTHING])
def test_other_settings_are_accepted_and_told_to_be_without_effect(
    settings: dict[str, str],
) -> None:
    assert without_effect(BrokerConfig(settings).overrides) == sorted(settings)


def test_a_text_that_kafka_would_refuse_is_refused_for_that() -> None:
    with pytest.raises(ConfigError, match="Not a number of type LONG"):
        BrokerConfig({"connections.max.reauth.ms": "soon"})


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_brokers_talk_to_each_other_as_they_are_told_or_not_at_all(protocol: str) -> None:
    with pytest.raises(ConfigError, match=f"security.inter.broker.protocol asks for {protocol}"):
        BrokerConfig({"security.inter.broker.protocol": protocol})


@pytest.mark.parametrize("for_all", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("principal.builder.class", "example.Builder"),
        ("listener.name.external.ssl.client.auth", "required"),
        ("super.users", "User:admin"),
    ],
)
def test_none_of_them_is_taken_while_the_broker_runs(name: str, text: str, for_all: bool) -> None:
    with pytest.raises(ConfigError, match=name):
        DynamicConfig(BrokerConfig()).check({name: text}, for_all_brokers=for_all)


def test_one_that_was_stored_before_is_refused_and_the_rest_counts() -> None:
    config, refused = DynamicConfig(BrokerConfig()), list[str]()
    config.update_as_far_as_can_be(
        of_all_brokers={"message.max.bytes": "5"},
        of_this_broker={"listener.name.external.ssl.client.auth": "required"},
        on_refused=lambda error: refused.append(str(error)),
    )
    assert config.current.message_max_bytes == 5
    assert config.of_this_broker == {}
    (told,) = refused
    assert told.startswith("listener.name.external.ssl.client.auth: Millstream does not act")


def test_every_accepted_setting_was_looked_at() -> None:
    """A new row of the table that sounds like protection has to be put on one of the two sides."""
    words = ("acl", "auth", "principal", "policy", "quota", "secur", "ssl", "sasl", "token")
    sounding = {name for name in accepted_keys() if any(word in name for word in words)}
    assert {name for name in sounding if not protects(name)} == {
        # How fast, how long, how finely: nothing is open to anybody because of them.
        "alter.log.dirs.replication.quota.window.num",
        "alter.log.dirs.replication.quota.window.size.seconds",
        "connection.failed.authentication.delay.ms",
        "controller.quota.window.num",
        "controller.quota.window.size.seconds",
        "delegation.token.expiry.check.interval.ms",
        "delegation.token.expiry.time.ms",
        "delegation.token.max.lifetime.ms",
        "quota.window.num",
        "quota.window.size.seconds",
        "remote.log.manager.copy.quota.window.num",
        "remote.log.manager.copy.quota.window.size.seconds",
        "remote.log.manager.fetch.quota.window.num",
        "remote.log.manager.fetch.quota.window.size.seconds",
    }


def test_another_broker_is_not_given_one_either() -> None:
    """Of that one nothing else is known here."""
    config = DynamicConfig(BrokerConfig({}))
    name = "listener.name.external.ssl.client.auth"
    with pytest.raises(ConfigError, match="every client could do"):
        config.check_each({name: "required"}, for_all_brokers=False)
