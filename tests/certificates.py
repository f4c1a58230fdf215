"""Certificates for tests: one authority, and what it signs."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from millstream.security.certificates import Authority, Certificate
from millstream.security.tls import client_context, server_context
from millstream.security.tls_settings import StoreSettings, TlsSettings

HOSTS = ("localhost", "127.0.0.1")


@cache
def authority(name: str = "test authority") -> Authority:
    return Authority.make(name, now=datetime.now(UTC), days=10)


def server(
    hosts: Sequence[str] = HOSTS, *, by: Authority | None = None, days: int = 5
) -> Certificate:
    return (by or authority()).server(hosts, now=datetime.now(UTC), days=days)


def client(name: str = "ann", *, by: Authority | None = None, days: int = 5) -> Certificate:
    return (by or authority()).client(name, now=datetime.now(UTC), days=days)


def key_store(certificate: Certificate) -> StoreSettings:
    return StoreSettings(
        "ssl.keystore.",
        type="PEM",
        key=certificate.key_pem().decode(),
        certificates=certificate.chain_pem.decode(),
    )


def trust_store(trusted: Authority | None = None) -> StoreSettings:
    pem = (trusted or authority()).trust_pem.decode()
    return StoreSettings("ssl.truststore.", type="PEM", certificates=pem)


def server_side(
    client_auth: str = "none", certificate: Certificate | None = None
) -> ssl.SSLContext:
    return server_context(
        TlsSettings(
            keystore=key_store(certificate or server()),
            truststore=trust_store(),
            client_auth=client_auth,
        )
    )


def client_side(
    certificate: Certificate | None = None, trusted: Authority | None = None
) -> ssl.SSLContext:
    keystore = StoreSettings("ssl.keystore.") if certificate is None else key_store(certificate)
    return client_context(TlsSettings(keystore=keystore, truststore=trust_store(trusted)))


def write_pem(directory: Path, name: str, certificate: Certificate) -> Path:
    """Write key and chain into one file, as `ssl.keystore.location` takes them."""
    path = directory / f"{name}.pem"
    path.write_bytes(certificate.key_pem() + certificate.chain_pem)
    return path


def write_trust(directory: Path, trusted: Authority | None = None) -> Path:
    path = directory / "trust.pem"
    path.write_bytes((trusted or authority()).trust_pem)
    return path
