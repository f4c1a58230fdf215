"""Settings of TLS for one listener, while the broker runs."""

from __future__ import annotations

import pytest

from millstream.config.broker import BrokerConfig
from millstream.config.describe import describe_broker
from millstream.config.dynamic import DynamicConfig
from millstream.model.errors import ConfigError

NAME = "listener.name.external.ssl.keystore.location"


def test_a_broker_is_given_other_certificates_for_a_listener() -> None:
    config = DynamicConfig(BrokerConfig({NAME: "a.pem"}))
    config.check({NAME: "b.pem"}, for_all_brokers=False)
    config.update(of_all_brokers={}, of_this_broker={NAME: "b.pem"})
    assert config.current.overrides[NAME] == "b.pem"


@pytest.mark.parametrize(
    ("name", "for_all", "message"),
    [
        ("ssl.keystore.location", False, "only per-listener using the listener prefix"),
        (NAME, True, "broker id must be specified"),
        ("listener.name.external.ssl.principal.mapping.rules", False, "Cannot update these"),
        ("listener.name.external.ssl.client.auth", False, "String must be one of: none"),
    ],
)
def test_what_cannot_be_changed_so(name: str, for_all: bool, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DynamicConfig(BrokerConfig()).check({name: "x"}, for_all_brokers=for_all)


def test_whoever_has_to_take_a_change_is_asked_first() -> None:
    config = DynamicConfig(BrokerConfig())

    def refuse(after: BrokerConfig) -> None:
        raise ConfigError(f"not {after.overrides[NAME]}")

    config.on_check(refuse)
    with pytest.raises(ConfigError, match=r"not b\.pem"):
        config.check({NAME: "b.pem"}, for_all_brokers=False)


def test_no_password_is_described() -> None:
    secrets = {
        "ssl.keystore.password": "hidden-1",
        "ssl.keystore.key": "hidden-2",
        "listener.name.external.ssl.key.password": "hidden-3",
        "listener.name.external.ssl.truststore.certificates": "hidden-4",
    }
    config = DynamicConfig(BrokerConfig(secrets))
    entries = {entry.name: entry for entry in describe_broker(config)}
    for name in secrets:
        assert entries[name].sensitive
        assert entries[name].value is None
    assert "hidden" not in repr(entries)
    assert "hidden" not in repr(config.current)
