"""Certificates that are replaced while a client runs."""

from __future__ import annotations

import shutil
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate
from tests.tls_authority import Authority
from tests.tls_peer import TlsPeer, server_context

from millstream.client import tls_context
from millstream.client.core.security_settings import SecuritySettings
from millstream.client.core.settings import read_settings
from millstream.client.core.tls import TlsSession
from millstream.client.errors import TlsError
from millstream.client.tls_context import RenewedContext


class Site:
    """Two authorities; a client with files that are replaced, and a broker of each."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.kind = kind
        self.directory = directory
        self.trust = directory / "trust.pem"
        self.own = directory / ("own.p12" if kind == "PKCS12" else "own.pem")
        self.authorities = {}
        for name in ("old", "new"):
            place = directory / name
            place.mkdir()
            self.authorities[name] = Authority(place, name)
        self.put("old")

    def put(self, name: str) -> None:
        authority = self.authorities[name]
        certificate, key = authority.issue(f"client-{name}")
        shutil.copy(authority.path, self.trust)
        if self.kind == "PKCS12":
            store = pkcs12.serialize_key_and_certificates(
                b"own",
                load_pem_private_key(key.read_bytes(), None),  # type: ignore[arg-type]
                load_pem_x509_certificate(certificate.read_bytes()),
                None,
                BestAvailableEncryption(b"secret"),
            )
            self.own.write_bytes(store)
        else:
            self.own.write_bytes(key.read_bytes() + certificate.read_bytes())

    def settings(self) -> SecuritySettings:
        given: dict[str, object] = {
            "ssl.truststore.location": str(self.trust),
            "ssl.keystore.location": str(self.own),
        }
        if self.kind == "PKCS12":
            given["ssl.keystore.password"] = "secret"
        return read_settings(SecuritySettings, given)

    def lets_in(self, name: str, client: RenewedContext) -> bool:
        authority = self.authorities[name]
        files = authority.issue("broker", ["there"])
        peer = TlsPeer(server_context(*files, authority=authority.path))
        session = TlsSession(client.context(), "there")
        try:
            for _ in range(4):
                session.handshake()
                session.feed(peer.feed(session.to_send()))
        except TlsError:
            return False
        return peer.is_established and peer.error is None


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_replaced_files_count_for_the_next_connection(tmp_path: Path, kind: str) -> None:
    site = Site(tmp_path, kind)
    client = RenewedContext(site.settings())
    assert site.lets_in("old", client)
    assert not site.lets_in("new", client)
    site.put("new")
    assert site.lets_in("new", client)
    assert not site.lets_in("old", client)


def test_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, "PEM")
    reads = []
    made = tls_context.client_context

    def counted(settings: SecuritySettings) -> object:
        reads.append(settings)
        return made(settings)

    monkeypatch.setattr(tls_context, "client_context", counted)
    client = RenewedContext(site.settings())
    assert client.context() is client.context()
    assert len(reads) == 1
    site.put("new")
    client.context()
    client.context()
    assert len(reads) == 2


def test_files_that_do_not_fit_together_yet_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "PEM")
    client = RenewedContext(site.settings())
    site.own.write_text("half a fi")
    assert site.lets_in("old", client)
    assert "the previous certificates stay in use" in caplog.text
    site.own.unlink()
    assert site.lets_in("old", client)
    site.put("new")
    assert site.lets_in("new", client)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("host", "age_days", "message"),
    [
        ("another", 1, r"is not for another .*; it is for there, 127\.0\.0\.1"),
        ("there", 9, r"has expired \(\w{3} \d+ .* GMT\)"),
        ("there", -2, r"is not valid yet \(\w{3} \d+ .* GMT\)"),
    ],
)
def test_what_is_wrong_with_the_certificate_of_a_broker(
    tmp_path: Path, version: ssl.TLSVersion, host: str, age_days: int, message: str
) -> None:
    authority = Authority(tmp_path)
    files = authority.issue(
        "broker", ["there", "127.0.0.1"], age=timedelta(days=age_days), life=timedelta(days=3)
    )
    peer = TlsPeer(server_context(*files))
    context = ssl.create_default_context(cafile=str(authority.path))
    context.maximum_version = version
    session = TlsSession(context, host)

    def shake_hands() -> None:
        for _ in range(4):
            session.handshake()
            session.feed(peer.feed(session.to_send()))

    with pytest.raises(TlsError, match=message):
        shake_hands()
