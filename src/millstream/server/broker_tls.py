"""TLS of one broker: a context for each listener that has it, and one to connect to other brokers.

Contexts are made from Kafka's settings, those of the listener before the others, and made anew when
the settings of a listener or its files have changed: at a change of settings, or by SIGHUP. What is
wrong then is refused, or logged where the files changed by themselves, and the context before stays
in force. Connections that are open keep the one they began with.

Kafka: ``SslFactory``, ``SslChannelBuilder``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from ssl import SSLContext, SSLObject
from typing import Final, cast

from cryptography import x509

from millstream.config.broker import BrokerConfig
from millstream.config.listeners import TLS_PROTOCOLS, Listener
from millstream.config.of_listener import prefixed_names, setting_of_listener
from millstream.model.errors import ConfigError
from millstream.model.principal import ANONYMOUS, USER, KafkaPrincipal
from millstream.net.peer_authentication import AuthenticationError
from millstream.security.distinguished_name import BadCertificateError, subject_of
from millstream.security.key_stores import key_material
from millstream.security.principal_mapping import NoMatchingRuleError, PrincipalMapping
from millstream.security.tls import check_handshake, client_context, server_context
from millstream.security.tls_settings import StoreSettings, TlsSettings

log = logging.getLogger(__name__)

_EXPIRES_SOON: Final = timedelta(days=30)


class ListenerTls:
    """The TLS of one listener (``net.peer_authentication.ServerTls``). ConfigError when it cannot
    be made.
    """

    def __init__(self, listener: Listener, config: BrokerConfig, *, between_brokers: bool) -> None:
        self._listener = listener
        self._between_brokers = between_brokers
        self._mapping = PrincipalMapping(
            str(setting_of_listener(config, listener.name, "ssl.principal.mapping.rules"))
        )
        self._made = _Made(tls_settings(config, listener), between_brokers=between_brokers)
        self._made.log_expiry(listener.name)

    @property
    def context(self) -> SSLContext:
        """The context of the listener's next connection."""
        return self._made.server

    @property
    def client_context(self) -> SSLContext:
        """The context of the next connection to this listener of another broker."""
        assert self._made.client is not None, "the listener is not the one between brokers"
        return self._made.client

    @property
    def not_after_s(self) -> float:
        """When the certificate expires, in seconds since 1970."""
        return self._made.certificate.not_valid_after_utc.timestamp()

    def principal(self, tls: SSLObject) -> KafkaPrincipal:
        """Return who the certificate of a peer speaks for (Kafka: ``DefaultKafkaPrincipalBuilder``
        and ``SslPrincipalMapper``).
        """
        certificate = tls.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        try:
            return KafkaPrincipal(USER, self._mapping.name_of(subject_of(certificate)))
        except (BadCertificateError, NoMatchingRuleError) as error:
            raise AuthenticationError(str(error)) from error

    def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError unless the listener may have these settings, and its files as they
        are now.
        """
        self._remade(config)

    def update(self, config: BrokerConfig) -> None:
        """Put settings and files as they are now in force; what cannot be is logged."""
        try:
            made = self._remade(config)
        except ConfigError as error:
            log.error("listener %s keeps its certificates: %s", self._listener.name, error)
            return
        if made is not self._made:
            self._made = made
            log.info("listener %s has new certificates or TLS settings", self._listener.name)
            made.log_expiry(self._listener.name)

    def _remade(self, config: BrokerConfig) -> _Made:
        settings = tls_settings(config, self._listener)
        before = self._made
        if settings == before.settings and _state_of_files(settings) == before.files:
            return before
        made = _Made(settings, between_brokers=self._between_brokers)
        _check_same_identity(
            before.certificate,
            made.certificate,
            dn_may_change=config.ssl_allow_dn_changes,
            san_may_change=config.ssl_allow_san_changes,
        )
        return made


class BrokerTls:
    """The TLS of all listeners of a broker that have it."""

    def __init__(self, config: BrokerConfig, between_brokers: str | None) -> None:
        """``between_brokers`` is the name of the listener that other brokers connect to; None for a
        broker on its own.
        """
        self._config = config
        self._listeners: Mapping[str, ListenerTls] = {
            listener.name: ListenerTls(
                listener, config, between_brokers=listener.name == between_brokers
            )
            for listener in config.listening()
            if listener.protocol in TLS_PROTOCOLS
        }

    def of(self, listener: str) -> ListenerTls | None:
        """Return the TLS of a listener; None where it has none."""
        return self._listeners.get(listener)

    def check(self, config: BrokerConfig) -> None:
        """Raise ConfigError unless the listeners may have these settings."""
        for listener in self._listeners.values():
            listener.check(config)

    def update(self, config: BrokerConfig) -> None:
        """Put other settings in force."""
        self._config = config
        self.reload()

    def reload(self) -> None:
        """Read the files again that have changed."""
        for listener in self._listeners.values():
            listener.update(self._config)


class _Made:
    """The contexts of one listener, and what they were made from."""

    def __init__(self, settings: TlsSettings, *, between_brokers: bool) -> None:
        self.settings = settings
        self.files = _state_of_files(settings)
        self.server = server_context(settings)
        self.client: SSLContext | None = None
        chain = key_material(settings.keystore).chain_pem
        self.certificate = x509.load_pem_x509_certificates(chain)[0]
        if between_brokers:
            self.client = client_context(settings)
            _check_that_brokers_connect(settings, self.server)

    def log_expiry(self, listener: str) -> None:
        """Warn of a certificate that is not valid any more, or not for long."""
        now, end = datetime.now(UTC), self.certificate.not_valid_after_utc
        if end < now:
            log.error("the certificate of listener %s has expired on %s", listener, end)
        elif end < now + _EXPIRES_SOON:
            log.warning("the certificate of listener %s expires on %s", listener, end)


def tls_settings(config: BrokerConfig, listener: Listener) -> TlsSettings:
    """Return the settings of a listener with TLS."""

    def value(name: str) -> object:
        return setting_of_listener(config, listener.name, name)

    def text(name: str) -> str | None:
        return cast("str | None", value(name)) or None

    def is_own(name: str) -> bool:
        return prefixed_names(listener.name, name)[0] in config.overrides

    def prefix(base: str, names: tuple[str, ...]) -> str:
        own = any(is_own(f"{base}{name}") for name in names)
        return prefixed_names(listener.name, base)[0] if own else base

    client_auth = str(value("ssl.client.auth"))
    if listener.protocol != "SSL" and not is_own("ssl.client.auth"):
        client_auth = "none"  # KIP-684
    return TlsSettings(
        keystore=StoreSettings(
            prefix("ssl.keystore.", ("type", "location", "key", "certificate.chain")),
            type=str(value("ssl.keystore.type")),
            location=text("ssl.keystore.location"),
            password=text("ssl.keystore.password"),
            key_password=text("ssl.key.password"),
            key=text("ssl.keystore.key"),
            certificates=text("ssl.keystore.certificate.chain"),
        ),
        truststore=StoreSettings(
            prefix("ssl.truststore.", ("type", "location", "certificates")),
            type=str(value("ssl.truststore.type")),
            location=text("ssl.truststore.location"),
            password=text("ssl.truststore.password"),
            certificates=text("ssl.truststore.certificates"),
        ),
        prefix=prefix("ssl.", ("protocol", "enabled.protocols", "cipher.suites", "client.auth")),
        protocol=str(value("ssl.protocol")),
        enabled_protocols=cast("tuple[str, ...]", value("ssl.enabled.protocols")),
        cipher_suites=cast("tuple[str, ...]", value("ssl.cipher.suites")),
        client_auth=client_auth,
        endpoint_identification=str(value("ssl.endpoint.identification.algorithm") or ""),
    )


def _state_of_files(settings: TlsSettings) -> tuple[object, ...]:
    """Return what changes when the files of a listener do."""
    return tuple(_state_of(store.location) for store in (settings.keystore, settings.truststore))


def _state_of(location: str | None) -> object:
    if location is None:
        return None
    try:
        found = Path(location).stat()
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_size, found.st_ino


def _check_that_brokers_connect(settings: TlsSettings, server: SSLContext) -> None:
    """Raise ConfigError where a broker with these settings would refuse another one that has the
    same (Kafka: ``SslFactory.SslEngineValidator``). Host names are not looked at.
    """
    from dataclasses import replace

    client = client_context(replace(settings, endpoint_identification=""))
    reason = check_handshake(server, client)
    if reason is not None:
        raise ConfigError(
            f"{settings.truststore.prefix}location and {settings.keystore.prefix}location: a "
            f"broker with these settings could not connect to one that has the same: {reason}"
        )


def _check_same_identity(
    before: x509.Certificate,
    after: x509.Certificate,
    *,
    dn_may_change: bool,
    san_may_change: bool,
) -> None:
    """Raise ConfigError for a new certificate that is made out for somebody else (Kafka:
    ``SslFactory.CertificateEntries.ensureCompatible``).
    """
    if not dn_may_change and before.subject != after.subject:
        raise ConfigError(
            f"the new certificate is made out for {after.subject.rfc4514_string()}, the present "
            f"one for {before.subject.rfc4514_string()} (ssl.allow.dn.changes)"
        )
    missing = _names_in(before) - _names_in(after)
    if missing and not san_may_change:
        names = ", ".join(sorted(str(name.value) for name in missing))
        raise ConfigError(
            f"the new certificate is not valid for {names}, as the present one is "
            "(ssl.allow.san.changes)"
        )


def _names_in(certificate: x509.Certificate) -> frozenset[x509.GeneralName]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(found.value)
