"""TLS contexts from Kafka's `ssl.*` settings, for a broker's listeners and for clients.

Kafka: ``DefaultSslEngineFactory``. TLS 1.2 and 1.3 alone; no renegotiation, no compression. Keys
are handed to OpenSSL through a file in memory, because ``ssl`` takes names of files only.
"""

from __future__ import annotations

import ssl
from typing import Final

from millstream.model.errors import ConfigError
from millstream.platform import private_file
from millstream.security.cipher_suites import SUITES_OF_1_3, CipherSuites, cipher_suites
from millstream.security.key_stores import (
    ReadFile,
    key_material,
    read_file,
    trusted_pem,
)
from millstream.security.tls_settings import TlsSettings

_VERSIONS: Final = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_MAX_FLIGHTS: Final = 10
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(settings: TlsSettings, read: ReadFile = read_file) -> ssl.SSLContext:
    """Return the context of a listener; ConfigError names the setting that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions_and_ciphers(context, settings)
    if not settings.keystore.is_set:
        raise ConfigError(
            f"{settings.keystore.prefix}location: a listener with TLS needs a certificate and its "
            "key"
        )
    _load_key(context, settings, read)
    wanted = settings.client_auth.lower()
    if wanted not in _CLIENT_AUTH:
        raise ConfigError(
            f"{settings.prefix}client.auth: {settings.client_auth!r} is not one of none, "
            "requested, required"
        )
    context.verify_mode = _CLIENT_AUTH[wanted]
    if wanted != "none":
        # A resumed session would not look at the certificate again: one that has expired, or whose
        # authority is trusted no more, has to be refused.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        _load_trust(context, settings, read)
    return context


def client_context(settings: TlsSettings, read: ReadFile = read_file) -> ssl.SSLContext:
    """Return the context of a client; ConfigError names the setting that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _set_versions_and_ciphers(context, settings)
    algorithm = settings.endpoint_identification.lower()
    if algorithm not in ("", "https"):
        raise ConfigError(
            f"{settings.prefix}endpoint.identification.algorithm: "
            f"{settings.endpoint_identification!r} is neither https nor empty"
        )
    context.check_hostname = algorithm == "https"
    if settings.keystore.is_set:
        _load_key(context, settings, read)
    _load_trust(context, settings, read)
    return context


def _set_versions_and_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    enabled = _enabled(settings)
    setting = f"{settings.prefix}cipher.suites"
    suites = cipher_suites(setting, settings.cipher_suites)
    if settings.cipher_suites:
        enabled = [name for name in enabled if _suites_of(suites, name)]
        if not enabled:
            raise ConfigError(f"{setting} has no suite of the enabled protocols")
        if "TLSv1.3" in enabled and suites.of_1_3 != SUITES_OF_1_3:
            # Python's ssl cannot choose among them, and OpenSSL would take one that is not named.
            missing = ", ".join(sorted(SUITES_OF_1_3 - suites.of_1_3))
            raise ConfigError(
                f"{setting}: of TLSv1.3 all suites or none can be chosen; name {missing} too, or "
                f"leave TLSv1.3 out of {settings.prefix}enabled.protocols"
            )
        if suites.of_1_2:
            try:
                context.set_ciphers(":".join(suites.of_1_2))
            except ssl.SSLError:
                raise ConfigError(f"{setting}: OpenSSL has none of these suites") from None
    versions = sorted(_VERSIONS[name] for name in enabled)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _suites_of(suites: CipherSuites, protocol: str) -> bool:
    return bool(suites.of_1_3 if protocol == "TLSv1.3" else suites.of_1_2)


def _enabled(settings: TlsSettings) -> list[str]:
    for setting, names in (
        ("enabled.protocols", settings.enabled_protocols),
        ("protocol", (settings.protocol,)),
    ):
        for name in names:
            if name not in _VERSIONS and (setting, name) != ("protocol", "TLS"):
                raise ConfigError(
                    f"{settings.prefix}{setting}: {name!r} is not served, only TLSv1.2 and TLSv1.3"
                )
    return list(settings.enabled_protocols or _VERSIONS)


def _load_key(context: ssl.SSLContext, settings: TlsSettings, read: ReadFile) -> None:
    material = key_material(settings.keystore, read)
    try:
        with private_file(material.key_pem + material.chain_pem) as name:
            context.load_cert_chain(name)
    except ssl.SSLError as error:
        prefix = settings.keystore.prefix
        where = f"{prefix}key" if settings.keystore.key is not None else f"{prefix}location"
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                f"{where}: the private key is not the one of the certificate"
            ) from None
        reason = str(error.reason or "unknown").replace("_", " ").lower()
        raise ConfigError(f"{where}: OpenSSL refuses the certificate: {reason}") from None


def _load_trust(context: ssl.SSLContext, settings: TlsSettings, read: ReadFile) -> None:
    if settings.truststore.is_set:
        try:
            context.load_verify_locations(cadata=trusted_pem(settings.truststore, read))
        except ssl.SSLError as error:
            reason = str(error.reason or "unknown").replace("_", " ").lower()
            raise ConfigError(
                f"{settings.truststore.prefix}location: OpenSSL refuses a certificate: {reason}"
            ) from None
    else:
        is_client = context.protocol == ssl.PROTOCOL_TLS_CLIENT
        context.load_default_certs(
            ssl.Purpose.SERVER_AUTH if is_client else ssl.Purpose.CLIENT_AUTH
        )


def check_handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Let a client and a server shake hands in memory; return why they do not, None when they
    do.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = list(sides)
    for _ in range(_MAX_FLIGHTS):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return f"the certificate is refused: {error.verify_message}"
            except ssl.SSLError as error:
                return str(error.reason or error).replace("_", " ").lower()
        if not waiting:
            return None
    return "the handshake does not end"
