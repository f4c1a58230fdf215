"""Makes private certificate authorities, and certificates of servers and clients.

For trying out TLS, for tests and for clusters that no other authority serves. Keys are those of the
curve P-256, which every TLS library of the last ten years takes and which cost little.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from millstream.model.errors import ConfigError

_CLOCK_SKEW: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key; ``issuers`` lead from it to the authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    issuers: Sequence[x509.Certificate] = ()

    @property
    def chain_pem(self) -> bytes:
        """The certificate, then its issuers without the authority at the root."""
        pem = self.certificate.public_bytes(Encoding.PEM)
        roots = (each.subject == each.issuer for each in self.issuers)
        return pem + b"".join(
            each.public_bytes(Encoding.PEM)
            for each, root in zip(self.issuers, roots, strict=True)
            if not root
        )

    def key_pem(self, password: str | None = None) -> bytes:
        """Return the private key in PKCS#8, encrypted where a password is given."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, _encryption(password))

    def pkcs12(self, name: str, password: str) -> bytes:
        """Return a key store that Java, OpenSSL and Millstream read."""
        return pkcs12.serialize_key_and_certificates(
            name.encode(), self.key, self.certificate, self.issuers, _encryption(password)
        )


class Authority:
    """A certificate authority that signs for servers and clients."""

    def __init__(self, own: Certificate) -> None:
        self.own = own

    @classmethod
    def make(cls, name: str, *, now: datetime, days: int) -> Authority:
        """Make a new authority, valid for ``days`` from ``now`` on."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = _key_usage(for_authority=True)
        certificate = (
            _unsigned(subject, subject, key.public_key(), now=now, days=days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(Certificate(certificate, key))

    @classmethod
    def read(cls, certificate_pem: bytes, key_pem: bytes, password: str | None) -> Authority:
        """Read an authority that was made before; ConfigError when that is not one."""
        try:
            certificate = x509.load_pem_x509_certificate(certificate_pem)
            key = load_pem_private_key(key_pem, password.encode() if password else None)
        except (TypeError, ValueError):
            raise ConfigError("the authority's certificate or key cannot be read") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError("the authority's key is not one of an elliptic curve")
        return cls(Certificate(certificate, key))

    @property
    def trust_pem(self) -> bytes:
        """What those who trust this authority are given."""
        return self.own.certificate.public_bytes(Encoding.PEM)

    def trust_pkcs12(self, password: str) -> bytes:
        """Return a trust store. Java's `keytool` marks trusted certificates in a way of its own,
        which this one has too.
        """
        trusted = pkcs12.PKCS12Certificate(self.own.certificate, b"authority")
        return pkcs12.serialize_java_truststore([trusted], _encryption(password))

    def server(self, hosts: Sequence[str], *, now: datetime, days: int) -> Certificate:
        """Sign for a broker at ``hosts``, names and addresses, the first of which is its name. It
        may also be a client: brokers connect to each other.
        """
        names = [_general_name(host) for host in hosts]
        usages = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        return self._sign(subject, usages, names, now=now, days=days)

    def client(self, subject: x509.Name | str, *, now: datetime, days: int) -> Certificate:
        """Sign for a client; of a text the subject is its common name."""
        if isinstance(subject, str):
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
        return self._sign(subject, (ExtendedKeyUsageOID.CLIENT_AUTH,), (), now=now, days=days)

    def _sign(
        self,
        subject: x509.Name,
        usages: Iterable[x509.ObjectIdentifier],
        names: Sequence[x509.GeneralName],
        *,
        now: datetime,
        days: int,
    ) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        authority = self.own.certificate
        builder = (
            _unsigned(subject, authority.subject, key.public_key(), now=now, days=days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(for_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.own.key.public_key()),
                critical=False,
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Certificate(builder.sign(self.own.key, hashes.SHA256()), key, (authority,))


def _unsigned(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    *,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + timedelta(days=days)) - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _key_usage(*, for_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not for_authority,
        key_cert_sign=for_authority,
        crl_sign=for_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _encryption(password: str | None) -> KeySerializationEncryption:
    return BestAvailableEncryption(password.encode()) if password else NoEncryption()
