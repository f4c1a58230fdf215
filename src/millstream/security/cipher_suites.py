"""Names of cipher suites: IANA's, which Kafka's settings have, and those of OpenSSL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import ConfigError

SUITES_OF_1_3: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""Those that OpenSSL offers in TLS 1.3."""

_OLDER: Final = re.compile(
    r"TLS_(?P<exchange>ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?:(?P<mode>GCM|CCM)_?|CBC_)(?P<hash>SHA256|SHA384|SHA|8)?"
    r"|(?P<chacha>CHACHA20_POLY1305)_SHA256)\Z"
)


@dataclass(frozen=True, slots=True)
class CipherSuites:
    """The suites of `ssl.cipher.suites` by the versions of TLS that have them."""

    of_1_2: tuple[str, ...]
    """Names of OpenSSL, in the order given."""
    of_1_3: frozenset[str]


def cipher_suites(setting: str, names: Iterable[str]) -> CipherSuites:
    """Read suites; ConfigError names the one that is not known. ``setting`` is what they stand
    in.
    """
    older: list[str] = []
    newer = set()
    for name in names:
        if name in SUITES_OF_1_3:
            newer.add(name)
        else:
            older.append(_openssl_name(setting, name))
    return CipherSuites(tuple(older), frozenset(newer))


def _openssl_name(setting: str, name: str) -> str:
    match = _OLDER.match(name)
    if match is None:
        raise ConfigError(f"{setting}: {name!r} is no cipher suite that is known here")
    exchange = "" if match["exchange"] == "RSA" else match["exchange"].replace("_", "-") + "-"
    if match["chacha"]:
        return f"{exchange}CHACHA20-POLY1305"
    parts = (f"AES{match['bits']}", match["mode"], match["hash"])
    return exchange + "-".join(part for part in parts if part).replace("CCM-8", "CCM8")
