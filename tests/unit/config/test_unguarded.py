"""Settings that protect less than they seem to are refused, or warned of."""

from __future__ import annotations

import pytest

from millstream.config.broker import BrokerConfig
from millstream.config.unguarded import unguarded
from millstream.model.errors import ConfigError

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
CLUSTER = {"zookeeper.connect": "localhost:2181"}
ONE = {
    "listeners": "ALL://localhost:9092",
    "listener.security.protocol.map": "ALL:SASL_PLAINTEXT",
    "inter.broker.listener.name": "ALL",
}
TWO = {
    "listeners": "CLIENTS://localhost:9092,BROKERS://localhost:9093",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:SSL",
    "inter.broker.listener.name": "BROKERS",
}


@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ({}, []),
        ({"super.users": "User:admin"}, ["super.users has no effect"]),
        ({"super.users": " "}, []),
        ({"super.users": "User:admin", **AUTHORIZER}, []),
        ({**CLUSTER, **ONE}, ["listener ALL serves clients and brokers"]),
        ({**CLUSTER, **ONE, **AUTHORIZER}, []),
        ({**CLUSTER, **TWO}, []),
        (ONE, []),
        (CLUSTER, []),
    ],
)
def test_a_start_warns(settings: dict[str, str], warnings: list[str]) -> None:
    found = list(unguarded(BrokerConfig(settings)))
    assert len(found) == len(warnings)
    for sentence, begin in zip(found, warnings, strict=True):
        assert sentence.startswith(begin)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("zookeeper.set.acl", "true"),
        ("zookeeper.ssl.client.enable", "true"),
        ("zookeeper.auth.digest", "broker:sesame"),
    ],
)
def test_a_protection_of_zookeeper_needs_one(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}: .* zookeeper.connect is not set") as caught:
        BrokerConfig({name: value})
    assert "sesame" not in str(caught.value)
    BrokerConfig({name: value, **CLUSTER})


def test_what_asks_for_nothing_is_accepted() -> None:
    BrokerConfig({"zookeeper.set.acl": "false", "zookeeper.ssl.client.enable": "false"})
