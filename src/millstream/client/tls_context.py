"""The TLS context of a client from its ``ssl.*`` settings, made anew when its files change."""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Final

from millstream.client.core.security_settings import SecuritySettings
from millstream.model.errors import ConfigError
from millstream.security.tls import client_context as make_context
from millstream.security.tls_settings import StoreSettings, TlsSettings

log = logging.getLogger("millstream.client")

_KEYSTORE: Final = "ssl.keystore."
_TRUSTSTORE: Final = "ssl.truststore."
_PEM: Final = b"-----BEGIN "


class RenewedContext:
    """The context for the next connection. Files are read when they are not what they were: before
    a connection their times and sizes are looked at, nothing more.
    """

    def __init__(self, settings: SecuritySettings) -> None:
        """ConfigError names the setting or the file that is wrong."""
        self._settings = settings
        self._paths = [
            each
            for each in (
                settings.ssl_truststore_location,
                settings.ssl_keystore_location,
                settings.ssl_key_location,
            )
            if each is not None
        ]
        self._seen = self._stamps()
        self._context = client_context(settings)

    def context(self) -> ssl.SSLContext:
        """Return it; what cannot be read, or does not fit together yet, changes nothing."""
        stamps = self._stamps()
        if stamps != self._seen:
            # Noted also where reading fails: a file that is being written changes once more.
            self._seen = stamps
            try:
                self._context = client_context(self._settings)
            except ConfigError as error:
                log.warning("the previous certificates stay in use: %s", error)
            else:
                log.info("certificates were reloaded: %s", ", ".join(self._paths))
        return self._context

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(each) for each in self._paths]


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def client_context(settings: SecuritySettings) -> ssl.SSLContext:
    """Return the context; ConfigError names the setting or the file that is wrong.

    Without a trust store the system's authorities are trusted. The type of a store is known by what
    is in it, unless it is given.
    """
    keystore = StoreSettings(
        _KEYSTORE,
        type=_type(_KEYSTORE, settings.ssl_keystore_type, settings.ssl_keystore_location),
        location=settings.ssl_keystore_location,
        password=settings.ssl_keystore_password,
        key_password=settings.ssl_key_password,
        key=settings.ssl_keystore_key,
        certificates=settings.ssl_keystore_certificate_chain,
    )
    truststore = StoreSettings(
        _TRUSTSTORE,
        type=_type(_TRUSTSTORE, settings.ssl_truststore_type, settings.ssl_truststore_location),
        location=settings.ssl_truststore_location,
        password=settings.ssl_truststore_password,
        certificates=settings.ssl_truststore_certificates,
    )
    if settings.ssl_key_location is not None:
        keystore = _with_separate_key(keystore, settings.ssl_key_location)
    defaults = TlsSettings()
    return make_context(
        TlsSettings(
            keystore=keystore,
            truststore=truststore,
            protocol=settings.ssl_protocol or defaults.protocol,
            enabled_protocols=settings.ssl_enabled_protocols or defaults.enabled_protocols,
            cipher_suites=settings.ssl_cipher_suites,
            endpoint_identification=settings.ssl_endpoint_identification_algorithm,
        )
    )


def _type(prefix: str, given: str | None, location: str | None) -> str:
    """Return the type of a store: Java takes JKS for granted, which says nothing here."""
    if given is not None:
        return given
    if location is None:
        return "PEM"
    return "PEM" if _PEM in _content(f"{prefix}location", location) else "PKCS12"


def _with_separate_key(store: StoreSettings, key_location: str) -> StoreSettings:
    """Return a store whose key is in a file of its own, as librdkafka wants it."""
    if store.key is not None:
        raise ConfigError("only one of ssl.key.location and ssl.keystore.key can be given")
    if store.location is None and store.certificates is None:
        raise ConfigError("ssl.key.location needs ssl.keystore.location: the certificate")
    chain = store.certificates or _text(f"{_KEYSTORE}location", store.location or "")
    key = _text("ssl.key.location", key_location)
    return replace(store, type="PEM", location=None, key=key, certificates=chain)


def _text(setting: str, location: str) -> str:
    try:
        return _content(setting, location).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{setting}: {location} is not a PEM file") from None


def _content(setting: str, location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting}: {location} cannot be read: {error.strerror}") from None
