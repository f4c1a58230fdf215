"""Settings of Apache Kafka that protect a broker and that Millstream does not act on yet.

A broker that ignored them would serve everybody, and its operator would believe it protected. So a
start is refused while one of them asks for something; an empty text, or the value that Kafka takes
by default, asks for nothing. Settings without effect that protect nothing are in ``accepted``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from millstream.config.accepted import accepted_keys
from millstream.config.sections.encryption import EncryptionSettings
from millstream.config.sections.zookeeper_security import ZooKeeperSecuritySettings
from millstream.model.errors import ConfigError

PROTECTING_NAMES: Final = frozenset(
    (
        "alter.config.policy.class.name",
        "client.quota.callback.class",
        "create.topic.policy.class.name",
        "delegation.token.master.key",
        "early.start.listeners",
        "password.encoder.old.secret",
        "password.encoder.secret",
        "principal.builder.class",
        "security.providers",
    )
)
"""Authorization, quotas, policies, and the protection of stored secrets."""

PROTECTING_PREFIXES: Final = (
    "confluent.authorizer.",
    "confluent.security.",
    "sasl.",
    "ssl.",
    "zookeeper.ssl.",
)
"""Encryption and authentication, whatever a setting of it is called."""

_OF_LISTENER: Final = re.compile(
    r"listener\.name\.[^.]+\.(?:(?P<limit>max\.connections|max\.connection\.creation\.rate)"
    r"|(?P<base>(?:ssl|sasl)\..*|principal\.builder\.class|connections\.max\.reauth\.ms)"
    r"|[^.]+\.(?P<of_mechanism>sasl\..*|connections\.max\.reauth\.ms))",
    re.DOTALL,
)
"""The same settings for one listener or one SASL mechanism of it, and a listener's own limits."""

ACTED_ON: Final = frozenset(
    (
        "connections.max.reauth.ms",
        "sasl.enabled.mechanisms",
        "sasl.login.callback.handler.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.server.callback.handler.class",
        "sasl.server.max.receive.size",
    )
) | frozenset(
    name
    for section in (EncryptionSettings, ZooKeeperSecuritySettings)
    for name in section.keys
    if name.startswith(("ssl.", "zookeeper."))
)
"""Those of them that Millstream acts on, for a listener and a mechanism of it too."""

_JAAS: Final = "sasl.jaas.config"
_ACTED_ON_OF_MECHANISM: Final = ACTED_ON | {_JAAS}
"""And those that mean something for a mechanism of a listener alone."""

_ASKS_FOR_NOTHING: Final[Mapping[str, str]] = {
    "zookeeper.ssl.crl.enable": "false",
    "zookeeper.ssl.ocsp.enable": "false",
}
"""Texts in small letters that ask for no protection, of settings that are not in Kafka 4.3."""


def protects(name: str) -> bool:
    """Tell whether a setting protects a broker of Apache Kafka."""
    return (
        name in PROTECTING_NAMES
        or name.startswith(PROTECTING_PREFIXES)
        or _OF_LISTENER.fullmatch(name) is not None
    )


def setting_of_any_listener(name: str) -> str | None:
    """Return the setting that a name sets for one listener; None for a name of another kind."""
    listener = _OF_LISTENER.fullmatch(name)
    return None if listener is None else listener["base"] or listener["of_mechanism"]


def acts(name: str) -> bool:
    """Tell whether Millstream acts on a protecting setting."""
    if name in ACTED_ON:
        return True
    listener = _OF_LISTENER.fullmatch(name)
    return listener is not None and (
        listener["base"] in ACTED_ON or listener["of_mechanism"] in _ACTED_ON_OF_MECHANISM
    )


def refuse_unprotected(settings: Mapping[str, str]) -> None:
    """Raise ConfigError, with all their names, where settings ask for a protection that Millstream
    does not give.
    """
    names = [name for name, text in settings.items() if protects(name) and _asks(name, text)]
    if names:
        one = len(names) == 1
        raise ConfigError(
            f"{', '.join(sorted(names))}: Millstream does not act on "
            f"{'this setting' if one else 'these settings'} yet, which "
            f"{'protects' if one else 'protect'} a broker of Apache Kafka: every client could do "
            f"everything. Leave {'it' if one else 'them'} out to go without that protection"
            f"{_meant(names[0]) if one else ''}"
        )


def _meant(name: str) -> str:
    """Return a sentence with the setting that a name was perhaps meant to be, if there is one."""
    if name == _JAAS:  # Kafka's clients have it so, and its brokers do not
        return f". Perhaps listener.name.NAME.MECHANISM.{_JAAS} is meant"
    if name in accepted_keys() or name in _ASKS_FOR_NOTHING:
        return ""
    from difflib import get_close_matches

    near = get_close_matches(name, ACTED_ON, n=1, cutoff=0.9)
    return f". Perhaps {near[0]} is meant" if near else ""


def _asks(name: str, text: str) -> bool:
    """Tell whether a protecting setting asks for something with this text."""
    text = text.strip()
    if not text or text.lower() == _ASKS_FOR_NOTHING.get(name) or acts(name):
        return False
    listener = _OF_LISTENER.fullmatch(name)
    if listener is not None:
        name = listener["base"] or listener["of_mechanism"] or name
    key = accepted_keys().get(name)
    return key is None or key.parse(text) != key.default
