"""Key stores and trust stores as Kafka's settings name them: PEM, inline or in a file, and PKCS#12.

Whatever cannot be read is a ConfigError that names the setting, and never what stands in it. Java's
own format, JKS, cannot be read here: it is told by its first bytes, whatever the type says, and
refused with the command that converts it (Java itself reads PKCS#12 where the type says JKS).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.model.errors import ConfigError
from millstream.security.tls_settings import StoreSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

ReadFile = Callable[[str], bytes]

_JKS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM: Final = b"-----BEGIN "
_DER_SEQUENCE: Final = b"\x30"
_PRIVATE_KEY: Final = re.compile(
    rb"-----BEGIN (?P<kind>(?:ENCRYPTED |RSA |EC )?PRIVATE KEY)-----.*?-----END (?P=kind)-----",
    re.DOTALL,
)
_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key, not encrypted, and the certificates from its own to the authority's, in
    PEM.
    """

    key_pem: bytes = field(repr=False)
    chain_pem: bytes


def read_file(path: str) -> bytes:
    """Return what a file has in it; OSError when it cannot be read."""
    return Path(path).read_bytes()


def key_material(store: StoreSettings, read: ReadFile = read_file) -> KeyMaterial:
    """Read a key store (Kafka: ``DefaultSslEngineFactory.createKeystore``)."""
    type_ = store.type.upper()
    if store.key is not None or store.certificates is not None:
        _check_inline(store, type_)
        assert store.key is not None
        assert store.certificates is not None
        return _from_pem(
            store,
            key=(_inline(store.key), f"{store.prefix}key"),
            chain=(_inline(store.certificates), f"{store.prefix}certificate.chain"),
        )
    data = _load(store, type_, read)
    where = f"{store.prefix}location"
    if type_ == "PEM":
        _refuse_password(store)
        return _from_pem(store, key=(data, where), chain=(data, where))
    return _from_pkcs12(store, data)


def trusted_pem(store: StoreSettings, read: ReadFile = read_file) -> str:
    """Return the certificates of a trust store in PEM (Kafka: ``createTruststore``)."""
    type_ = store.type.upper()
    if store.certificates is not None:
        where = f"{store.prefix}certificates"
        if type_ != "PEM":
            raise ConfigError(f"{where} needs {store.prefix}type=PEM, which is {store.type}")
        if store.location is not None:
            raise ConfigError(f"{where} and {store.prefix}location cannot both be set")
        _refuse_password(store)
        return _certificates(_inline(store.certificates), where).decode()
    data = _load(store, type_, read)
    if type_ == "PEM":
        _refuse_password(store)
        return _certificates(data, f"{store.prefix}location").decode()
    return _trusted_of_pkcs12(store, data)


def _inline(text: str) -> bytes:
    """Return PEM that stands in a setting: on one line, a file may have spaces for line ends."""
    encoded = text.strip().encode()
    if b"\n" in encoded:
        return encoded

    def lines(match: re.Match[bytes]) -> bytes:
        return match[1] + b"\n" + b"\n".join(match[2].split()) + b"\n" + match[3] + b"\n"

    return re.sub(rb"(-----BEGIN [A-Z ]+-----)(.*?)(-----END [A-Z ]+-----)", lines, encoded)


def _check_inline(store: StoreSettings, type_: str) -> None:
    key, chain = f"{store.prefix}key", f"{store.prefix}certificate.chain"
    if store.key is None or store.certificates is None:
        given, absent = (chain, key) if store.key is None else (key, chain)
        raise ConfigError(f"{given} is set, but {absent} is not")
    if type_ != "PEM":
        raise ConfigError(f"{key} needs {store.prefix}type=PEM, which is {store.type}")
    if store.location is not None:
        raise ConfigError(f"{key} and {store.prefix}location cannot both be set")
    _refuse_password(store)


def _refuse_password(store: StoreSettings) -> None:
    if store.password is not None:
        instead = ", only ssl.key.password may be" if store.prefix.endswith("keystore.") else ""
        raise ConfigError(f"{store.prefix}password cannot be set with the type PEM{instead}")


def _load(store: StoreSettings, type_: str, read: ReadFile) -> bytes:
    """Read the file of a store and check that it is what its type says."""
    where = f"{store.prefix}location"
    if not store.location:
        raise ConfigError(f"{where} is not set")
    if type_ not in ("PEM", "PKCS12", "JKS"):
        raise ConfigError(f"{store.prefix}type: {store.type!r} is not one of PEM, PKCS12")
    try:
        data = read(store.location)
    except OSError as error:
        raise ConfigError(f"{where}: {store.location} cannot be read: {error.strerror}") from None
    if data.startswith(_JKS):
        converted = re.sub(r"(\.jks)?$", ".p12", store.location, count=1)
        raise ConfigError(
            f"{where}: {store.location} is a JKS store, which only Java reads. Convert it with "
            f"keytool -importkeystore -srckeystore {store.location} -destkeystore {converted} "
            f"-deststoretype PKCS12, and set {store.prefix}type=PKCS12"
        )
    is_pem = _PEM in data
    if type_ == "PEM" and not is_pem:
        raise ConfigError(f"{where}: {store.location} is not a PEM file")
    if type_ != "PEM":
        if is_pem:
            raise ConfigError(
                f"{where}: {store.location} is a PEM file; set {store.prefix}type=PEM"
            )
        if not data.startswith(_DER_SEQUENCE):
            raise ConfigError(f"{where}: {store.location} is neither a PKCS12 store nor PEM")
    return data


def _from_pem(
    store: StoreSettings, *, key: tuple[bytes, str], chain: tuple[bytes, str]
) -> KeyMaterial:
    """``key`` and ``chain`` are each PEM, and the setting that it stands in."""
    data, where = key
    found = _PRIVATE_KEY.search(data)
    if found is None:
        raise ConfigError(f"{where} has no private key in PEM (PKCS#8)")
    return KeyMaterial(_open_key(store, found[0], where), _certificates(*chain))


def _open_key(store: StoreSettings, pem: bytes, where: str) -> bytes:
    """Return a private key without encryption."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    password = store.key_password.encode() if store.key_password else None
    encrypted = b"ENCRYPTED" in pem
    if encrypted and password is None:
        raise ConfigError(f"{where} is encrypted, and ssl.key.password is not set")
    try:
        key = load_pem_private_key(pem, password if encrypted else None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        wrong = " or ssl.key.password is wrong" if encrypted else ""
        raise ConfigError(f"{where}: the private key cannot be read{wrong}") from None
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _certificates(data: bytes, where: str) -> bytes:
    from cryptography import x509

    found = b"\n".join(_CERTIFICATE.findall(data)) + b"\n"
    if len(found) == 1:
        raise ConfigError(f"{where} has no certificate in PEM")
    try:
        x509.load_pem_x509_certificates(found)
    except ValueError:
        raise ConfigError(f"{where} has a certificate that cannot be read") from None
    return found


def _from_pkcs12(store: StoreSettings, data: bytes) -> KeyMaterial:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    opened = _open_pkcs12(store, data)
    where = f"{store.prefix}location"
    if opened.key is None or opened.cert is None:
        raise ConfigError(f"{where}: {store.location} has no private key with a certificate")
    chain = [opened.cert, *opened.additional_certs]
    return KeyMaterial(
        opened.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        b"".join(each.certificate.public_bytes(Encoding.PEM) for each in chain),
    )


def _trusted_of_pkcs12(store: StoreSettings, data: bytes) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    opened = _open_pkcs12(store, data)
    found = [*([opened.cert] if opened.cert else []), *opened.additional_certs]
    if not found:
        raise ConfigError(f"{store.prefix}location: {store.location} has no certificate")
    return "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in found)


def _open_pkcs12(store: StoreSettings, data: bytes) -> PKCS12KeyAndCertificates:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    password = store.password or store.key_password
    try:
        return load_pkcs12(data, password.encode() if password else None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        lacks = "is wrong" if store.password else "is not set"
        raise ConfigError(
            f"{store.prefix}location: {store.location} cannot be opened: it is damaged, or "
            f"{store.prefix}password {lacks}"
        ) from None
