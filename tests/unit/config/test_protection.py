"""Settings that protect a broker of Apache Kafka are refused until they act here."""

from __future__ import annotations

import pytest

from millstream.config.accepted import accepted_keys
from millstream.config.broker import BrokerConfig, without_effect
from millstream.config.dynamic import DynamicConfig
from millstream.config.protection import protects
from millstream.model.errors import ConfigError

ASKED_FOR = {
    "principal.builder.class": "example.Builder",
    "early.start.listeners": "CONTROLLER",
    "security.providers": "example.Fips",
    "create.topic.policy.class.name": "example.Policy",
    "alter.config.policy.class.name": "example.Policy",
    "client.quota.callback.class": "example.Quotas",
    "delegation.token.master.key": "secret",
    "password.encoder.secret": "secret",
    "sasl.jaas.config": "x required;",
    "sasl.kerberos.service.name": "kafka",
    "listener.name.external.sasl.jaas.config": "x required;",
    "ssl.engine.factory.class": "example.Engines",
    "ssl.provider": "example",
    "ssl.trustmanager.algorithm": "example",
    "ssl.something.of.a.plug-in": "x",
    "listener.name.external.ssl.provider": "example",
    "listener.name.external.principal.builder.class": "example.Builder",
    "listener.name.external.max.connections": "100",
    "zookeeper.ssl.crl.enable": "true",
    "zookeeper.ssl.ocsp.enable": "true",
    "confluent.authorizer.access.rule.providers": "ZK_ACL",
}

ASKS_FOR_NOTHING = {
    "ssl.keymanager.algorithm": "SunX509",
    "ssl.provider": "",
    "listener.name.external.ssl.trustmanager.algorithm": "PKIX",
    "zookeeper.ssl.crl.enable": "False",
}

PROTECTS_NOTHING = {
    "listener.name.external.num.network.threads": "2",
    "metric.reporters": "example.Reporter",
    "password.encoder.iterations": "4096",
    "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
    "confluent.metrics.enable": "true",
}


@pytest.mark.parametrize(("name", "text"), ASKED_FOR.items())
def test_a_setting_that_asks_for_protection_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({name: text})
    told, _, hint = str(caught.value).partition(". Perhaps ")
    assert told == (
        f"{name}: Millstream does not act on this setting yet, which protects a broker of Apache "
        "Kafka: every client could do everything. Leave it out to go without that protection"
    )
    assert bool(hint) == (name == "sasl.jaas.config")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ssl.keystore.locaton", "ssl.keystore.location"),
        ("sasl.enabled.mechanism", "sasl.enabled.mechanisms"),
        ("sasl.jaas.config", "listener.name.NAME.MECHANISM.sasl.jaas.config"),
    ],
)
def test_a_name_that_is_nearly_right_is_told_the_right_one(name: str, near: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({name: "x"})
    assert f"{name}: Millstream does not act on this setting yet" in str(caught.value)
    assert str(caught.value).endswith(f" Perhaps {near} is meant")


def test_all_of_them_are_named_at_once() -> None:
    with pytest.raises(
        ConfigError, match=r"^principal\.builder\.class, security\.providers: .* these"
    ):
        BrokerConfig({"security.providers": "x", "principal.builder.class": "A", "node.id": "1"})


@pytest.mark.parametrize("settings", [ASKS_FOR_NOTHING, PROTECTS_NOTHING])
def test_other_settings_are_accepted_and_told_to_be_without_effect(
    settings: dict[str, str],
) -> None:
    assert without_effect(BrokerConfig(settings).overrides) == sorted(settings)


def test_a_text_that_kafka_would_refuse_is_refused_for_that() -> None:
    with pytest.raises(ConfigError, match="Not a number of type LONG"):
        BrokerConfig({"connections.max.reauth.ms": "soon"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("connections.max.reauth.ms", "3600000"),
        ("ssl.client.auth", "required"),
        ("listener.name.external.ssl.keystore.location", "/etc/kafka/keystore.p12"),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-256"),
        ("sasl.server.max.receive.size", "1000"),
        ("listener.name.external.sasl.enabled.mechanisms", "PLAIN"),
        ("listener.name.external.scram-sha-256.sasl.jaas.config", "x required;"),
        ("listener.name.external.plain.connections.max.reauth.ms", "1"),
    ],
)
def test_what_millstream_acts_on_is_taken(name: str, text: str) -> None:
    assert without_effect(BrokerConfig({name: text}).overrides) == []


@pytest.mark.parametrize("for_all", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("principal.builder.class", "example.Builder"),
        ("listener.name.external.ssl.provider", "example"),
    ],
)
def test_none_of_them_is_taken_while_the_broker_runs(name: str, text: str, for_all: bool) -> None:
    with pytest.raises(ConfigError, match=name):
        DynamicConfig(BrokerConfig()).check({name: text}, for_all_brokers=for_all)


def test_one_that_was_stored_before_is_refused_and_the_rest_counts() -> None:
    config, refused = DynamicConfig(BrokerConfig()), list[str]()
    config.update_as_far_as_can_be(
        of_all_brokers={"message.max.bytes": "5"},
        of_this_broker={"listener.name.external.ssl.provider": "example"},
        on_refused=lambda error: refused.append(str(error)),
    )
    assert config.current.message_max_bytes == 5
    assert config.of_this_broker == {}
    (told,) = refused
    assert told.startswith("listener.name.external.ssl.provider: Millstream does not act")


def test_every_accepted_setting_was_looked_at() -> None:
    """A new row of the table that sounds like protection has to be put on one of the two sides."""
    words = ("acl", "auth", "principal", "policy", "quota", "secur", "ssl", "sasl", "token")
    sounding = {name for name in accepted_keys() if any(word in name for word in words)}
    assert {name for name in sounding if not protects(name)} == {
        # How fast, how long, how finely: nothing is open to anybody because of them.
        "alter.log.dirs.replication.quota.window.num",
        "alter.log.dirs.replication.quota.window.size.seconds",
        "remote.log.manager.copy.quota.window.num",
        "remote.log.manager.copy.quota.window.size.seconds",
        "remote.log.manager.fetch.quota.window.num",
        "remote.log.manager.fetch.quota.window.size.seconds",
    }


def test_another_broker_is_not_given_one_either() -> None:
    """Of that one nothing else is known here."""
    config = DynamicConfig(BrokerConfig({}))
    name = "listener.name.external.ssl.provider"
    with pytest.raises(ConfigError, match="every client could do"):
        config.check_each({name: "example"}, for_all_brokers=False)


@pytest.mark.parametrize(
    "name",
    [
        "standard",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.security.authorizer.AclAuthorizer",
    ],
)
def test_the_authorizer_is_named_as_kafka_names_it(name: str) -> None:
    settings = {
        "authorizer.class.name": name,
        "super.users": "User:CN=admin,O=x; User:ops",
        "allow.everyone.if.no.acl.found": "true",
    }
    config = BrokerConfig(settings)
    assert config.authorizer_class_name == name
    assert config.super_users == "User:CN=admin,O=x; User:ops"
    assert config.allow_everyone_if_no_acl_found
    assert without_effect(config.overrides) == []


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("authorizer.class.name", "example.Ranger", "Millstream cannot load example.Ranger"),
        ("super.users", "User:a;admin", "principalType:principalName but got admin"),
        ("super.users", "User:a,User:b", "'User:a,User:b' has a comma where ';' separates"),
    ],
)
def test_what_cannot_authorize_is_refused(name: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: .*{reason}"):
        BrokerConfig({name: text})
