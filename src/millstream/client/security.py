"""From the settings of a client to what protects its connections: a TLS context, credentials.

:func:`open_security` reads files and checks everything that can be wrong before a connection is
made; its ConfigErrors name the setting and never a secret.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.client.core.security import PLAINTEXT as NO_SECURITY
from millstream.client.core.security import SaslClients, Security
from millstream.client.core.security_settings import (
    PLAINTEXT,
    SASL_PLAINTEXT,
    SASL_SSL,
    SSL,
    SecuritySettings,
)
from millstream.client.errors import AuthenticationError
from millstream.model.errors import ConfigError
from millstream.security.sasl.mechanism import SaslAuthenticationError, SaslClient

if TYPE_CHECKING:
    import ssl

    from millstream.client.tokens import TokenSource
    from millstream.security.jaas import LoginModule
    from millstream.security.sasl.scram_credential import ScramMechanism

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (PLAIN, *_SCRAM, OAUTHBEARER)

_NONCE_BYTES: Final = 24
_OF_TLS: Final = "ssl_"
_OF_SASL: Final = "sasl_"
_NAME_AND_PASSWORD: Final = ("sasl_username", "sasl_password")
_MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": _SCRAM,
    "OAuthBearerLoginModule": (OAUTHBEARER,),
}

Resolve = Callable[[object], object]
"""Waits for what a function of the user returned, if it has to be waited for."""


def open_security(settings: SecuritySettings) -> Security:
    """Return what the settings come to; ConfigError names the one that is wrong."""
    protocol = settings.security_protocol
    uses_tls, uses_sasl = protocol in (SSL, SASL_SSL), protocol in (SASL_PLAINTEXT, SASL_SSL)
    _refuse_unused(settings, uses_tls=uses_tls, uses_sasl=uses_sasl)
    if protocol == PLAINTEXT:
        return NO_SECURITY
    return Security(
        tls_source=_tls_source(settings) if uses_tls else None,
        sasl=_credentials(settings) if uses_sasl else None,
    )


def _refuse_unused(settings: SecuritySettings, *, uses_tls: bool, uses_sasl: bool) -> None:
    """Raise ConfigError for a setting without effect: it would be believed to protect."""
    for name in sorted(settings.given):
        unused = (name.startswith(_OF_TLS) and not uses_tls) or (
            name.startswith(_OF_SASL) and not uses_sasl
        )
        if unused and getattr(settings, name) not in (None, "", ()):
            wanted = f"{SSL} or {SASL_SSL}" if name.startswith(_OF_TLS) else "SASL_…"
            raise ConfigError(
                f"{_dotted(name)} has no effect with security.protocol="
                f"{settings.security_protocol}: it takes {wanted}"
            )


def _dotted(name: str) -> str:
    return name.replace("_", ".")


# --- TLS -----------------------------------------------------------------------------------------


def _tls_source(settings: SecuritySettings) -> Callable[[], ssl.SSLContext]:
    import ssl

    context = settings.ssl_context
    if context is not None:
        if not isinstance(context, ssl.SSLContext):
            raise ConfigError("ssl.context takes an ssl.SSLContext")
        return lambda: context
    from millstream.client.tls_context import RenewedContext

    return RenewedContext(settings).context


# --- SASL ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlainCredentials:
    """A name and a password for PLAIN."""

    username: str
    password: str = field(repr=False)

    may_block = False
    source = "a password"

    def client(self) -> SaslClient:
        """Return a new machine."""
        from millstream.security.sasl.plain import PlainClient

        return PlainClient(self.username, self.password)

    def awaiting(self, _: Resolve) -> SaslClients:
        """Nothing here is a function of the user."""
        return self


@dataclass(frozen=True, slots=True)
class ScramCredentials:
    """A name and a password for SCRAM, or a delegation token (KIP-48)."""

    mechanism: ScramMechanism
    username: str
    password: str = field(repr=False)
    by_token: bool = False

    may_block = False
    source = "a password"

    def client(self) -> SaslClient:
        """Return a new machine with a nonce of its own."""
        from millstream.security.sasl.scram import ScramClient

        return ScramClient(
            self.mechanism,
            username=self.username,
            password=self.password,
            nonce=secrets.token_urlsafe(_NONCE_BYTES),
            by_token=self.by_token,
        )

    def awaiting(self, _: Resolve) -> SaslClients:
        """Nothing here is a function of the user."""
        return self


@dataclass(frozen=True, slots=True)
class TokenCredentials:
    """Bearer tokens from a source, for OAUTHBEARER."""

    tokens: TokenSource
    extensions: Mapping[str, str]
    resolve: Resolve | None = None

    may_block = True

    @property
    def source(self) -> str:
        """Where tokens come from."""
        return f"a token ({self.tokens.setting})"

    def client(self) -> SaslClient:
        """Return a new machine with a token that has not expired."""
        from millstream.security.sasl.oauthbearer import OAuthBearerClient

        token = self.tokens.token(self.resolve)
        try:
            return OAuthBearerClient(token, self.extensions)
        except SaslAuthenticationError as error:
            raise AuthenticationError(f"{OAUTHBEARER}: {error}") from None

    def awaiting(self, resolve: Resolve) -> SaslClients:
        """Return the same for a loop that waits for what a function returned."""
        return TokenCredentials(self.tokens, self.extensions, resolve)


def _credentials(settings: SecuritySettings) -> SaslClients:
    mechanism = _mechanism(settings)
    module = _login_module(settings, mechanism)
    options: Mapping[str, str] = {} if module is None else module.options
    if mechanism == OAUTHBEARER:
        return _token_credentials(settings, options)
    username, password = _name_and_password(settings, options, mechanism, given=module is not None)
    try:
        if mechanism == PLAIN:
            plain = PlainCredentials(username, password)
            plain.client()
            return plain
        from millstream.security.sasl.scram_credential import SCRAM_MECHANISMS

        by_token = options.get("tokenauth", "false").lower() == "true"
        scram = ScramCredentials(SCRAM_MECHANISMS[mechanism], username, password, by_token)
        scram.client()
    except SaslAuthenticationError as error:
        raise ConfigError(f"sasl.username, sasl.password: {error}") from None
    return scram


def _mechanism(settings: SecuritySettings) -> str:
    name = settings.sasl_mechanism
    if name is None:
        raise ConfigError(
            f"sasl.mechanism is missing: security.protocol={settings.security_protocol} takes "
            f"{', '.join(MECHANISMS)}"
        )
    name = name.strip().upper()
    if name == GSSAPI:
        raise ConfigError(
            f"sasl.mechanism=GSSAPI (Kerberos) is not supported: it takes {', '.join(MECHANISMS)}"
        )
    if name not in MECHANISMS:
        raise ConfigError(
            f"sasl.mechanism={settings.sasl_mechanism!r:.60} is unknown: it takes "
            f"{', '.join(MECHANISMS)}"
        )
    return name


def _login_module(settings: SecuritySettings, mechanism: str) -> LoginModule | None:
    if settings.sasl_jaas_config is None:
        return None
    from millstream.security.jaas import parse_one_module

    module = parse_one_module("sasl.jaas.config", settings.sasl_jaas_config)
    known = _MODULES.get(module.name.rpartition(".")[2])
    if known is None:
        raise ConfigError(
            "sasl.jaas.config names a login module that is not supported: it takes "
            f"{', '.join(_MODULES)}"
        )
    if mechanism not in known:
        raise ConfigError(
            f"sasl.jaas.config has {module.name.rpartition('.')[2]}, which is not for "
            f"sasl.mechanism={mechanism}"
        )
    return module


def _name_and_password(
    settings: SecuritySettings, options: Mapping[str, str], mechanism: str, *, given: bool
) -> tuple[str, str]:
    own = [name for name in _NAME_AND_PASSWORD if getattr(settings, name) is not None]
    if given and own:
        raise ConfigError(f"only one of sasl.jaas.config and {_dotted(own[0])} can be given")
    username = options.get("username", "") if given else settings.sasl_username
    password = options.get("password", "") if given else settings.sasl_password
    for name, value in (("username", username), ("password", password)):
        if not value:
            place = f"the option {name} of sasl.jaas.config" if given else f"sasl.{name}"
            raise ConfigError(f"{place} is missing: sasl.mechanism={mechanism} needs it")
    assert username is not None
    assert password is not None
    return username, password


def _token_credentials(settings: SecuritySettings, options: Mapping[str, str]) -> SaslClients:
    from millstream.client.tokens import extensions_of, open_source

    for name in _NAME_AND_PASSWORD:
        if getattr(settings, name) is not None:
            raise ConfigError(f"{_dotted(name)} has no effect with sasl.mechanism={OAUTHBEARER}")
    return TokenCredentials(open_source(settings, options), extensions_of(settings, options))
