"""Which tokens OAUTHBEARER accepts on a listener, from the broker's settings.

Signed ones, where a set of keys is named. Kafka takes unsecured tokens where nothing is configured;
here they are accepted only where its class for them is named.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from millstream.config.broker import BrokerConfig
from millstream.config.of_listener import prefixed_names, setting_of_listener
from millstream.config.value import Value
from millstream.model.clock import Clock
from millstream.model.errors import ConfigError
from millstream.runtime.authentication.jwks import Jwks, RefreshTimes
from millstream.runtime.offload import Offload
from millstream.security.jaas import parse_one_module
from millstream.security.sasl.jwt_validation import SignedTokens, TokenRules, UnsecuredTokens
from millstream.security.sasl.oauthbearer import OAUTHBEARER, Validate

log = logging.getLogger(__name__)

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
SIGNED_CLASSES: Final = frozenset(
    {
        f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
        f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",
    }
)
UNSECURED_CLASS: Final = (
    f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)


class BearerTokens:
    """The validators of all listeners; a set of keys is read once for those that share it."""

    def __init__(self, clock: Clock, offload: Offload) -> None:
        self._clock = clock
        self._offload = offload
        self._sets: dict[_KeySet, Jwks] = {}

    def close(self) -> None:
        """Read no more keys."""
        for each in self._sets.values():
            each.close()

    def validator(self, config: BrokerConfig, listener: str) -> Validate:
        """Return what validates the tokens of a listener; ConfigError when nothing does."""

        def setting(name: str) -> Value:
            return setting_of_listener(config, listener, name, mechanism=OAUTHBEARER)

        handler = setting("sasl.server.callback.handler.class")
        url = setting("sasl.oauthbearer.jwks.endpoint.url")
        if handler == UNSECURED_CLASS:
            return self._unsecured(config, listener)
        if handler is not None and handler not in SIGNED_CLASSES:
            raise ConfigError(f"sasl.server.callback.handler.class: Millstream has no {handler}")
        if not url:
            raise ConfigError(
                f"sasl.oauthbearer.jwks.endpoint.url is missing: it says which keys verify the "
                f"tokens of OAUTHBEARER on listener {listener}"
            )
        keys = self._keys(
            str(url),
            RefreshTimes(
                *(
                    cast("int", setting(f"sasl.oauthbearer.jwks.endpoint.{name}.ms"))
                    for name in ("refresh", "retry.backoff", "retry.backoff.max")
                )
            ),
            {
                name: value
                for name, value in login_options(config, listener).items()
                if name.startswith("ssl.")
            },
        )
        rules = TokenRules(
            audiences=cast("tuple[str, ...]", setting("sasl.oauthbearer.expected.audience")),
            issuer=cast("str", setting("sasl.oauthbearer.expected.issuer") or ""),
            scope_claim=cast("str", setting("sasl.oauthbearer.scope.claim.name")),
            sub_claim=cast("str", setting("sasl.oauthbearer.sub.claim.name")),
            clock_skew_ms=cast("int", setting("sasl.oauthbearer.clock.skew.seconds")) * 1000,
        )
        return SignedTokens(
            rules,
            keys=lambda: keys.keys,
            now_ms=self._clock.now_ms,
            on_unknown_key=keys.key_is_missing,
        ).validate

    def _keys(self, url: str, times: RefreshTimes, options: Mapping[str, str]) -> Jwks:
        of = _KeySet(url, times, tuple(sorted(options.items())))
        found = self._sets.get(of)
        if found is None:
            found = self._sets[of] = Jwks(url, times, self._clock, self._offload, options)
        return found

    def _unsecured(self, config: BrokerConfig, listener: str) -> Validate:
        setting = _jaas_setting(listener)
        options = login_options(config, listener)
        log.warning(
            "listener %s accepts unsigned OAUTHBEARER tokens: a client can claim to be any user",
            listener,
        )
        try:
            return UnsecuredTokens(options, self._clock.now_ms).validate
        except ValueError as error:
            raise ConfigError(
                f"{setting}: unsecuredValidatorAllowableClockSkewMs is no number"
            ) from error


@dataclass(frozen=True, slots=True)
class _KeySet:
    """What listeners have in common that share a set of keys."""

    url: str
    times: RefreshTimes
    options: tuple[tuple[str, str], ...] = field(repr=False)


def _jaas_setting(listener: str) -> str:
    return prefixed_names(listener, "sasl.jaas.config", mechanism=OAUTHBEARER)[0]


def login_options(config: BrokerConfig, listener: str) -> Mapping[str, str]:
    """Return the options of the login module of OAUTHBEARER on a listener; none without one."""
    setting = _jaas_setting(listener)
    text = config.overrides.get(setting)
    return {} if text is None else parse_one_module(setting, text).options
