"""Settings of protection that, beside the others, protect less than they seem to.

Some are refused, for whoever wrote them believes something to be protected (decision 0070); for the
others a broker warns when it starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.model.errors import ConfigError

if TYPE_CHECKING:
    from millstream.config.broker import BrokerConfig


def refuse_unguarded(config: BrokerConfig) -> None:
    """Raise ConfigError for a protection of what is not there."""
    if not config.zookeeper_connect:
        for name, is_asked in (
            ("zookeeper.set.acl", config.zookeeper_set_acl),
            ("zookeeper.ssl.client.enable", config.zookeeper_ssl_client_enable),
            ("zookeeper.auth.digest", bool(config.zookeeper_auth_digest)),
        ):
            if is_asked:
                raise ConfigError(
                    f"{name}: it protects data in ZooKeeper, but zookeeper.connect is not set"
                )


def unguarded(config: BrokerConfig) -> Iterator[str]:
    """Yield a sentence for each setting that protects less than it seems to."""
    if config.authorizer_class_name:
        return
    if config.super_users.strip():
        yield (
            "super.users has no effect: authorizer.class.name is not set, so everybody may do "
            "everything"
        )
    listening = config.listening()
    if config.zookeeper_connect:
        name = config.inter_broker_listener()
        protocol = next((each.protocol for each in listening if each.name == name), "PLAINTEXT")
        if protocol != "PLAINTEXT" and len(listening) == 1:
            yield (
                f"listener {name} serves clients and brokers, and authorizer.class.name is not "
                "set: every authenticated client may do what brokers do"
            )
