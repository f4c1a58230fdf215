"""The SASL mechanisms of each listener, put together from the broker's settings at its start.

A setting that asks for what is not served (GSSAPI, a callback handler of one's own) is refused
here, and so is a mechanism that nobody could authenticate with.
"""

from __future__ import annotations

import base64
import hmac
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.config.listeners import SASL_PROTOCOLS
from millstream.config.of_listener import prefixed_names, setting_of_listener
from millstream.model.clock import Clock
from millstream.model.entities import EntitiesView
from millstream.model.errors import ConfigError
from millstream.runtime.authentication.bearer_tokens import BearerTokens
from millstream.runtime.authentication.delegation_tokens import DelegationTokens
from millstream.runtime.authentication.scram_users import ScramUsers
from millstream.runtime.offload import Offload
from millstream.security.jaas import PLAIN_MODULE, parse_one_module
from millstream.security.sasl.connection import ConnectionAuthentication
from millstream.security.sasl.mechanism import SaslServer
from millstream.security.sasl.oauthbearer import MAX_MESSAGE_BYTES, OAUTHBEARER, OAuthBearerServer
from millstream.security.sasl.plain import PLAIN, PlainServer, PlainUsers
from millstream.security.sasl.scram import ScramServer
from millstream.security.sasl.scram_credential import SCRAM_MECHANISMS, ScramDecoys, ScramMechanism

NewServer = Callable[[], SaslServer]
"""Makes the broker's side of one exchange."""

log = logging.getLogger(__name__)

_NONCE_BYTES: Final = 18
_MAX_FRAME_BYTES: Final = MAX_MESSAGE_BYTES + 4 * 1024
"""The largest message of any mechanism, and what is around it: a larger request, which
`sasl.server.max.receive.size` may allow, could only fail, and take memory from strangers.
"""


@dataclass(slots=True)
class AuthenticationCounts:
    """What became of authentications since the start (Kafka: the metrics of ``Selector``)."""

    successful: int = 0
    failed: int = 0
    failed_again: int = 0
    expired_sessions: int = 0


class ListenerMechanisms:
    """The mechanisms of one listener (``security.sasl.connection.SaslMechanisms``)."""

    def __init__(
        self, config: DynamicConfig, listener: str, servers: Mapping[str, NewServer]
    ) -> None:
        self._config = config
        self._listener = listener
        self._servers = servers
        self.names = tuple(servers)
        allowed = setting_of_listener(config.current, listener, "sasl.server.max.receive.size")
        self.max_receive_bytes = min(cast("int", allowed), _MAX_FRAME_BYTES)
        """Size of the largest request of a client that is not authenticated."""

    def new_server(self, mechanism: str) -> SaslServer:
        """Return the broker's side of one exchange."""
        return self._servers[mechanism]()

    def max_session_ms(self, mechanism: str) -> int:
        """Return after how long a client has to authenticate again; 0 for never."""
        name = "connections.max.reauth.ms"
        value = setting_of_listener(self._config.current, self._listener, name, mechanism=mechanism)
        return max(0, cast("int", value))


class ListenerAuthentication:
    """Who authenticates on which listener. ConfigError where the settings do not make sense."""

    def __init__(
        self,
        config: DynamicConfig,
        *,
        entities: EntitiesView,
        cluster_id: str,
        random_bytes: Callable[[int], bytes],
        clock: Clock,
        offload: Offload,
        tokens: DelegationTokens,
    ) -> None:
        self.counts = AuthenticationCounts()
        self._config = config
        self._random_bytes = random_bytes
        self._bearer_tokens = BearerTokens(clock, offload)
        self._delegation_tokens = tokens
        self._scram_users = ScramUsers(entities)
        # The same on every broker and after every start: a salt that changes tells that there is
        # no such user. Clients may know the id of the cluster: a secret of the brokers is better.
        secret = config.current.delegation_token_secret_key or ""
        self._decoys = ScramDecoys(
            hmac.digest(secret.encode(), f"decoys {cluster_id}".encode(), "sha256"),
            self._scram_users.shape,
        )
        self._mechanisms = self._of_listeners(config.current)
        for each in config.current.listening():
            if each.protocol == "SASL_PLAINTEXT" and PLAIN in self._mechanisms[each.name].names:
                log.warning(
                    "listener %s takes passwords in the clear (PLAIN without TLS): everybody on "
                    "the network between can read them",
                    each.name,
                )
        config.on_check(self._check)
        config.on_change(self._settings_changed)

    def _of_listeners(self, config: BrokerConfig) -> dict[str, ListenerMechanisms]:
        return {
            each.name: ListenerMechanisms(self._config, each.name, self._servers(config, each.name))
            for each in config.listening()
            if each.protocol in SASL_PROTOCOLS
        }

    def _check(self, config: BrokerConfig) -> None:
        """Raise ConfigError for settings that make no sense, before they are changed."""
        if _texts(config) != _texts(self._config.current):
            self._of_listeners(config)

    def _settings_changed(self, before: BrokerConfig, after: BrokerConfig) -> None:
        """Let new connections authenticate by the new settings: another password of PLAIN."""
        if _texts(before) != _texts(after):
            self._mechanisms = self._of_listeners(after)

    def mechanisms(self, listener: str) -> ListenerMechanisms | None:
        """Return the mechanisms of a listener; None for one without SASL."""
        return self._mechanisms.get(listener)

    def open(self, listener: str) -> ConnectionAuthentication:
        """Begin the authentication of a connection."""
        return ConnectionAuthentication(self._mechanisms[listener])

    def close(self) -> None:
        """End what runs in the background."""
        self._bearer_tokens.close()

    def _servers(self, config: BrokerConfig, listener: str) -> dict[str, NewServer]:
        setting = "sasl.enabled.mechanisms"
        names = cast("tuple[str, ...]", setting_of_listener(config, listener, setting))
        if not names:
            raise ConfigError(f"{setting}: listener {listener} has no SASL mechanism")
        return {name: self._server(config, listener, name) for name in names}

    def _server(self, config: BrokerConfig, listener: str, mechanism: str) -> NewServer:
        if mechanism == PLAIN:
            _refuse_handler(config, listener, mechanism)
            users = PlainUsers(_plain_users(config, listener))
            return lambda: PlainServer(users)
        if mechanism in SCRAM_MECHANISMS:
            _refuse_handler(config, listener, mechanism)
            return self._scram(SCRAM_MECHANISMS[mechanism])
        if mechanism == OAUTHBEARER:
            validate = self._bearer_tokens.validator(config, listener)
            return lambda: OAuthBearerServer(validate, _log_refused)
        if mechanism == "GSSAPI":
            raise ConfigError(
                f"sasl.enabled.mechanisms: listener {listener} asks for GSSAPI (Kerberos), which "
                "Millstream does not serve; there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and "
                "OAUTHBEARER"
            )
        raise ConfigError(
            f"sasl.enabled.mechanisms: listener {listener} asks for {mechanism}, which "
            "Millstream does not serve"
        )

    def _scram(self, mechanism: ScramMechanism) -> NewServer:
        find = self._scram_users.of(mechanism)
        find_token = self._delegation_tokens.of(mechanism)

        def new_server() -> SaslServer:
            nonce = base64.b64encode(self._random_bytes(_NONCE_BYTES)).decode()
            return ScramServer(
                mechanism, find=find, find_token=find_token, decoys=self._decoys, nonce=nonce
            )

        return new_server


def _texts(config: BrokerConfig) -> dict[str, str]:
    """Return the settings that have to do with SASL."""
    return {name: text for name, text in config.overrides.items() if "sasl" in name}


def _log_refused(reason: str) -> None:
    log.info("a token was refused: %s", reason)


def _plain_users(config: BrokerConfig, listener: str) -> Mapping[str, str]:
    setting = prefixed_names(listener, "sasl.jaas.config", mechanism=PLAIN)[0]
    text = config.overrides.get(setting)
    if text is None:
        raise ConfigError(
            f"{setting} is missing: it says who may authenticate with PLAIN on listener "
            f'{listener}, as {PLAIN_MODULE} required user_NAME="password";'
        )
    module = parse_one_module(setting, text)
    if module.name != PLAIN_MODULE:
        raise ConfigError(f"{setting}: the login module of PLAIN is {PLAIN_MODULE}")
    return module.users


def _refuse_handler(config: BrokerConfig, listener: str, mechanism: str) -> None:
    """Refuse a callback handler, which would decide who may authenticate."""
    name = "sasl.server.callback.handler.class"
    own = prefixed_names(listener, name, mechanism=mechanism)[0]
    if config.overrides.get(own, "").strip():
        raise ConfigError(f"{own}: Millstream runs no callback handlers of its operator")
