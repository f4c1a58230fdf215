"""Certificates for tests: an authority of their own, and what it signs."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates into PEM files of one directory."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self.directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(self._name, self._key.public_key(), is_authority=True)
        self.path = directory / f"{name.replace(' ', '-')}.pem"
        self.path.write_bytes(certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = (),
        *,
        age: timedelta = timedelta(days=1),
        life: timedelta = timedelta(days=30),
        password: str | None = None,
    ) -> tuple[Path, Path]:
        """Return the files of a new certificate and its key, both also in ``NAME.both.pem``."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key.public_key(), hosts=hosts, age=age, life=life)
        protection: KeySerializationEncryption = NoEncryption()
        if password is not None:
            protection = BestAvailableEncryption(password.encode())
        pem = certificate.public_bytes(Encoding.PEM)
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)
        certificate_path = self.directory / f"{name}.crt.pem"
        key_path = self.directory / f"{name}.key.pem"
        certificate_path.write_bytes(pem)
        key_path.write_bytes(secret)
        (self.directory / f"{name}.both.pem").write_bytes(secret + pem)
        return certificate_path, key_path

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        hosts: Sequence[str] = (),
        age: timedelta = timedelta(days=1),
        life: timedelta = timedelta(days=30),
        is_authority: bool = False,
    ) -> x509.Certificate:
        begins = datetime.now(UTC) - age
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + life)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            # From Python 3.13 on, contexts that ssl makes by default ask for these.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if is_authority:
            builder = builder.add_extension(_SIGNS, critical=True)
        if hosts:
            names = [_general_name(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
