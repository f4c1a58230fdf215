"""The token with which this broker connects to others by OAUTHBEARER.

It is fetched at the start and again before it ends, off the loop; connections that are opened and
sessions that are renewed take the one that is there. While none can be had, the one of before is
used to its end; after that a connection waits for the next attempt (Kafka:
``OAuthBearerRefreshingLogin``, ``ExpiringCredentialRefreshingLogin``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from millstream.client.core.security_settings import SASL_PLAINTEXT, SecuritySettings
from millstream.client.tokens import Token, TokenSource, extensions_of, open_source
from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.config.of_listener import setting_of_listener
from millstream.config.value import Value
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import ConfigError
from millstream.runtime.authentication.bearer_tokens import login_options
from millstream.runtime.offload import Offload
from millstream.security.sasl.mechanism import SaslAuthenticationError, SaslClient
from millstream.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerClient

log = logging.getLogger(__name__)

LANE: Final = "broker-token"

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_SIGNED_LOGINS: Final = frozenset(
    {
        f"{_PACKAGE}OAuthBearerLoginCallbackHandler",
        f"{_PACKAGE}secured.OAuthBearerLoginCallbackHandler",
    }
)
_UNSECURED_LOGIN: Final = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
_RETRIEVERS: Final = frozenset(
    f"{_PACKAGE}{name}"
    for name in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
)
_UNSECURED_OPTION: Final = "unsecuredLogin"


@dataclass(frozen=True, slots=True)
class RefreshRules:
    """When a token is replaced, and how soon a failed attempt is repeated."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_ms: int = 60_000
    buffer_ms: int = 300_000
    retry_ms: int = 100
    max_retry_ms: int = 10_000

    def refresh_after_ms(self, lifetime_ms: float, chance: float) -> float:
        """Return the time from the fetch of a token that holds for ``lifetime_ms`` to the next
        fetch; ``chance`` is from 0 to 1.

        Kafka: ``ExpiringCredentialRefreshingLogin.refreshMs``.
        """
        wanted = lifetime_ms * min(1.0, self.window_factor + self.window_jitter * chance)
        if self.min_period_ms + self.buffer_ms > lifetime_ms:
            return wanted
        return max(self.min_period_ms, min(wanted, lifetime_ms - self.buffer_ms))

    def retry_after_ms(self, failures: int) -> float:
        """Return the time to the next attempt after so many failures before."""
        return min(self.max_retry_ms, self.retry_ms << min(failures, 20))


class BrokerTokens:
    """The present token; ``client`` makes this broker's side of an exchange with it."""

    def __init__(
        self,
        source: TokenSource,
        extensions: Mapping[str, str],
        *,
        rules: Callable[[], RefreshRules],
        clock: Clock,
        offload: Offload,
        chance: Callable[[], float],
    ) -> None:
        self._source = source
        self._extensions = extensions
        self._rules = rules
        self._clock = clock
        self._offload = offload
        self._chance = chance
        self._token: Token | None = None
        self._waiting: list[Deferred[SaslClient]] = []
        self._timer: TimerHandle | None = None
        self._fetching = False
        self._failures = 0
        self._closed = False
        self._fetch()

    def close(self) -> None:
        """Fetch no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def client(self) -> Deferred[SaslClient]:
        """Return this broker's side of an exchange, once there is a token that holds.

        It fails with AuthenticationError or ConnectionFailedError when the attempt that goes on, or
        the next one, fails.
        """
        outcome: Deferred[SaslClient] = Deferred()
        token = self._token
        if token is not None and self._holds(token):
            self._fill(outcome, token)
            return outcome
        self._waiting.append(outcome)
        if not self._failures:
            # A token that does not say when it ends is used for what waited, and then replaced.
            self._fetch()
        return outcome

    def _holds(self, token: Token) -> bool:
        return token.expires_at_s is not None and self._clock.now_ms() < token.expires_at_s * 1000

    def _fill(self, outcome: Deferred[SaslClient], token: Token) -> None:
        try:
            outcome.complete(OAuthBearerClient(token.text, self._extensions))
        except SaslAuthenticationError as error:
            from millstream.client.errors import AuthenticationError

            outcome.fail(AuthenticationError(f"{OAUTHBEARER}: {error}"))

    def _fetch(self) -> None:
        if self._fetching or self._closed:
            return
        self._fetching = True
        if self._timer is not None:
            self._timer.cancel()
        self._offload.run(LANE, self._source.renew).on_done(self._fetched)

    def _fetched(self, outcome: Deferred[Token]) -> None:
        self._fetching = False
        waiting, self._waiting = self._waiting, []
        try:
            token = self._token = outcome.result()
        except Exception as error:
            log.warning("no token with which to connect to other brokers: %s", error)
            self._schedule(self._rules().retry_after_ms(self._failures))
            self._failures += 1
            for each in waiting:
                each.fail(error)
            return
        self._failures = 0
        if token.expires_at_s is not None:
            lifetime_ms = (token.expires_at_s - token.fetched_at_s) * 1000
            self._schedule(self._rules().refresh_after_ms(lifetime_ms, self._chance()))
        for each in waiting:
            self._fill(each, token)

    def _schedule(self, delay_ms: float) -> None:
        if not self._closed:
            self._timer = self._clock.call_later(max(1.0, delay_ms), self._fetch)


def open_broker_tokens(
    config: DynamicConfig,
    listener: str,
    *,
    clock: Clock,
    offload: Offload,
    chance: Callable[[], float],
) -> BrokerTokens:
    """Return the tokens that the settings name for the listener of brokers.

    The first one is on its way. ConfigError where the settings do not say where it comes from.
    """
    current = config.current
    options = login_options(current, listener)
    settings = _source_settings(current, listener, options)
    return BrokerTokens(
        open_source(settings, options, clock=lambda: clock.now_ms() / 1000),
        extensions_of(settings, options),
        rules=lambda: _rules(config.current, listener),
        clock=clock,
        offload=offload,
        chance=chance,
    )


def _setting(config: BrokerConfig, listener: str, name: str) -> Value:
    return setting_of_listener(config, listener, name, mechanism=OAUTHBEARER)


def _source_settings(
    config: BrokerConfig, listener: str, options: Mapping[str, str]
) -> SecuritySettings:
    def text(name: str) -> str | None:
        return cast("str | None", _setting(config, listener, name)) or None

    handler = text("sasl.login.callback.handler.class")
    if handler is not None and handler not in (*_SIGNED_LOGINS, _UNSECURED_LOGIN):
        raise ConfigError(f"sasl.login.callback.handler.class: Millstream has no {handler}")
    retriever = text("sasl.oauthbearer.jwt.retriever.class")
    if retriever not in _RETRIEVERS:
        raise ConfigError(f"sasl.oauthbearer.jwt.retriever.class: Millstream has no {retriever}")
    is_unsecured = any(name.startswith(_UNSECURED_OPTION) for name in options)
    if is_unsecured and handler != _UNSECURED_LOGIN:
        # Kafka does so where nothing is configured, which would be a broker without credentials.
        raise ConfigError(
            f"sasl.login.callback.handler.class: unsecured tokens take {_UNSECURED_LOGIN}"
        )
    wait_ms = [
        cast("int | None", _setting(config, listener, f"sasl.login.{name}.timeout.ms"))
        for name in ("connect", "read")
    ]
    connect_ms, read_ms = (10_000 if each is None or each < 1 else each for each in wait_ms)
    return SecuritySettings(
        security_protocol=SASL_PLAINTEXT,
        sasl_mechanism=OAUTHBEARER,
        sasl_oauthbearer_token_endpoint_url=(
            None if handler == _UNSECURED_LOGIN else text("sasl.oauthbearer.token.endpoint.url")
        ),
        sasl_oauthbearer_client_credentials_client_id=text(
            "sasl.oauthbearer.client.credentials.client.id"
        ),
        sasl_oauthbearer_client_credentials_client_secret=text(
            "sasl.oauthbearer.client.credentials.client.secret"
        ),
        sasl_oauthbearer_scope=text("sasl.oauthbearer.scope"),
        sasl_login_connect_timeout_ms=connect_ms,
        sasl_login_read_timeout_ms=read_ms,
    )


def _rules(config: BrokerConfig, listener: str) -> RefreshRules:
    def number(name: str) -> float:
        return cast("float", _setting(config, listener, f"sasl.login.{name}"))

    return RefreshRules(
        window_factor=min(1.0, max(0.5, number("refresh.window.factor"))),
        window_jitter=min(0.25, max(0.0, number("refresh.window.jitter"))),
        min_period_ms=int(number("refresh.min.period.seconds")) * 1000,
        buffer_ms=int(number("refresh.buffer.seconds")) * 1000,
        retry_ms=max(1, int(number("retry.backoff.ms"))),
        max_retry_ms=max(1, int(number("retry.backoff.max.ms"))),
    )
