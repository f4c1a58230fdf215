"""As whom this broker connects to the others, by `sasl.mechanism.inter.broker.protocol`: the user
name and password of its login module on the listener of brokers, as in Apache Kafka; for
OAUTHBEARER see ``broker_tokens``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from millstream.config.broker import BrokerConfig
from millstream.config.of_listener import prefixed_names
from millstream.model.deferred import Deferred
from millstream.model.errors import ConfigError
from millstream.runtime.broker_channels import NewSaslClient
from millstream.security.jaas import LoginModule, parse_one_module
from millstream.security.sasl.mechanism import SaslClient
from millstream.security.sasl.oauthbearer import OAUTHBEARER
from millstream.security.sasl.plain import PLAIN, PlainClient
from millstream.security.sasl.scram import ScramClient
from millstream.security.sasl.scram_credential import SCRAM_MECHANISMS

_NONCE_BYTES: Final = 18


def broker_credentials(
    config: BrokerConfig, listener: str, random_bytes: Callable[[int], bytes]
) -> NewSaslClient:
    """Return what makes this broker's side of an exchange by a name and a password; ConfigError
    where the settings say not who it is.
    """
    mechanism = config.sasl_mechanism_inter_broker_protocol
    if mechanism != PLAIN and mechanism not in SCRAM_MECHANISMS:
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol: brokers of Millstream do not authenticate with "
            f"{mechanism}; there are PLAIN, {', '.join(SCRAM_MECHANISMS)}, {OAUTHBEARER}"
        )
    setting = prefixed_names(listener, "sasl.jaas.config", mechanism=mechanism)[0]
    text = config.overrides.get(setting)
    if text is None:
        raise ConfigError(f"{setting} is missing: it says as whom this broker connects to others")
    module = parse_one_module(setting, text)
    username, password = (_option(setting, module, name) for name in ("username", "password"))

    def new_client() -> Deferred[SaslClient]:
        if mechanism == PLAIN:
            return Deferred.of(PlainClient(username, password))
        nonce = base64.b64encode(random_bytes(_NONCE_BYTES)).decode()
        return Deferred.of(
            ScramClient(
                SCRAM_MECHANISMS[mechanism], username=username, password=password, nonce=nonce
            )
        )

    return new_client


def _option(setting: str, module: LoginModule, name: str) -> str:
    value = module.options.get(name, "")
    if not value:
        raise ConfigError(f"{setting}: the login module has no {name} with which to connect")
    return value
