"""The settings of TLS and SASL, under the Java client's names.

Where the Java client has no name, or everybody knows another one, librdkafka's and kafka-python's
are taken too: see :data:`ALIASES`. Secrets are in no text of the settings and in no error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from millstream.client.core.setting_types import (
    function,
    milliseconds,
    optional_text,
    setting,
    text,
)
from millstream.model.errors import ConfigError

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)

ALIASES: Final[Mapping[str, str]] = {
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "ssl_ca_location": "ssl_truststore_location",
    "ssl_cafile": "ssl_truststore_location",
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_certificate_location": "ssl_keystore_location",
    "ssl_certfile": "ssl_keystore_location",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_keyfile": "ssl_key_location",
    "ssl_key_pem": "ssl_keystore_key",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
}
"""Names of librdkafka, kafka-python and aiokafka, and the settings that they are."""

_TOKEN_HANDLERS: Final = frozenset(
    {"OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler"}
)


def _protocol(value: object) -> str:
    name = text(value).strip().upper()
    if name not in PROTOCOLS:
        raise ValueError(f"it takes {', '.join(PROTOCOLS)}")
    return name


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, Sequence) and all(isinstance(each, str) for each in value):
        return tuple(cast("Sequence[str]", value))
    raise ConfigError("it takes names separated by commas")


def _share(value: object) -> float:
    number = float(value.strip()) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ConfigError("it takes a number")
    if not 0.5 <= number <= 1.0:
        raise ValueError("it takes 0.5 to 1")
    return number


def _token_handler(value: object) -> str | None:
    """Read the name of a class that only tells where tokens come from, which other settings say."""
    name = optional_text(value)
    if name is not None and name.rpartition(".")[2] not in _TOKEN_HANDLERS:
        raise ConfigError(
            "this client runs no Java: it takes "
            f"{' or '.join(sorted(_TOKEN_HANDLERS))}, or sasl.oauth.token as a function"
        )
    return name


def _identification(value: object) -> str:
    name = text(value).strip().lower()
    if name not in ("https", "", "none"):
        raise ValueError("it takes https, or an empty value to skip the check of the host name")
    return "" if name == "none" else name


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """How connections are protected. ``ssl_context``, an ``ssl.SSLContext``, replaces all other
    settings of TLS; ``sasl_oauth_token`` is called, without arguments, for each new token of
    OAUTHBEARER.
    """

    security_protocol: str = setting(_protocol, PLAINTEXT)

    ssl_context: object = setting(lambda value: value, None)
    ssl_truststore_location: str | None = setting(optional_text, None)
    ssl_truststore_type: str | None = setting(optional_text, None)
    ssl_truststore_password: str | None = setting(optional_text, None, is_secret=True)
    ssl_truststore_certificates: str | None = setting(optional_text, None)
    ssl_keystore_location: str | None = setting(optional_text, None)
    ssl_keystore_type: str | None = setting(optional_text, None)
    ssl_keystore_password: str | None = setting(optional_text, None, is_secret=True)
    ssl_keystore_certificate_chain: str | None = setting(optional_text, None)
    ssl_keystore_key: str | None = setting(optional_text, None, is_secret=True)
    ssl_key_location: str | None = setting(optional_text, None)
    """The private key, where it is in a file of its own."""
    ssl_key_password: str | None = setting(optional_text, None, is_secret=True)
    ssl_enabled_protocols: tuple[str, ...] = setting(_words, ())
    ssl_protocol: str | None = setting(optional_text, None)
    ssl_cipher_suites: tuple[str, ...] = setting(_words, ())
    ssl_endpoint_identification_algorithm: str = setting(_identification, "https")

    sasl_mechanism: str | None = setting(optional_text, None)
    sasl_jaas_config: str | None = setting(optional_text, None, is_secret=True)
    sasl_username: str | None = setting(optional_text, None)
    sasl_password: str | None = setting(optional_text, None, is_secret=True)
    sasl_oauth_token: object = setting(function, None)
    sasl_oauthbearer_token_endpoint_url: str | None = setting(optional_text, None)
    """Where a token is had for the client's credentials; ``file:`` names a file that holds one."""
    sasl_oauthbearer_client_credentials_client_id: str | None = setting(optional_text, None)
    sasl_oauthbearer_client_credentials_client_secret: str | None = setting(
        optional_text, None, is_secret=True
    )
    sasl_oauthbearer_scope: str | None = setting(optional_text, None)
    sasl_oauthbearer_extensions: tuple[str, ...] = setting(_words, ())
    sasl_login_callback_handler_class: str | None = setting(_token_handler, None)
    sasl_login_connect_timeout_ms: float = setting(milliseconds(1), 10_000)
    sasl_login_read_timeout_ms: float = setting(milliseconds(1), 10_000)
    sasl_login_refresh_window_factor: float = setting(_share, 0.8)
    https_ca_location: str | None = setting(optional_text, None)
    """Who signs the certificate of the token endpoint; without it, whom the system trusts."""

    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """The names of the settings that were given; the others have their defaults."""
