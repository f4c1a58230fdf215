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
from millstream.model.errors import ConfigError

PROTECTING_NAMES: Final = frozenset(
    (
        "allow.everyone.if.no.acl.found",
        "alter.config.policy.class.name",
        "authorizer.class.name",
        "client.quota.callback.class",
        "connections.max.reauth.ms",
        "create.topic.policy.class.name",
        "delegation.token.master.key",
        "delegation.token.secret.key",
        "early.start.listeners",
        "password.encoder.old.secret",
        "password.encoder.secret",
        "principal.builder.class",
        "quota.consumer.default",
        "quota.producer.default",
        "security.providers",
        "super.users",
        "zookeeper.set.acl",
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

_NO_LIMIT: Final = str((1 << 63) - 1)
_ASKS_FOR_NOTHING: Final[Mapping[str, str]] = {
    "allow.everyone.if.no.acl.found": "true",
    "quota.consumer.default": _NO_LIMIT,
    "quota.producer.default": _NO_LIMIT,
    "zookeeper.set.acl": "false",
    "zookeeper.ssl.client.enable": "false",
    "zookeeper.ssl.crl.enable": "false",
    "zookeeper.ssl.endpoint.identification.algorithm": "https",
    "zookeeper.ssl.ocsp.enable": "false",
    "zookeeper.ssl.protocol": "tlsv1.2",
}
"""Texts in small letters that ask for no protection, of settings that are not in Kafka 4.3."""


def protects(name: str) -> bool:
    """Tell whether a setting protects a broker of Apache Kafka."""
    return (
        name in PROTECTING_NAMES
        or name.startswith(PROTECTING_PREFIXES)
        or _OF_LISTENER.fullmatch(name) is not None
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
        )


def _asks(name: str, text: str) -> bool:
    """Tell whether a protecting setting asks for something with this text."""
    text = text.strip()
    if not text or text.lower() == _ASKS_FOR_NOTHING.get(name):
        return False
    listener = _OF_LISTENER.fullmatch(name)
    if listener is not None:
        name = listener["base"] or listener["of_mechanism"] or name
    key = accepted_keys().get(name)
    return key is None or key.parse(text) != key.default
