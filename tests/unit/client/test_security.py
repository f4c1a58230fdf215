"""What the settings of TLS and SASL come to, and what is said of wrong ones."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate
from tests.tls_authority import Authority
from tests.tls_peer import TlsPeer, server_context

from millstream.client import Producer
from millstream.client.core.security import PLAINTEXT, Security
from millstream.client.core.settings import ClientSettings, read_settings
from millstream.client.core.tls import TlsSession
from millstream.client.security import open_security
from millstream.model.errors import ConfigError

PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def opened(given: dict[str, object]) -> Security:
    return open_security(read_settings(ClientSettings, {"bootstrap.servers": "h:1", **given}))


def first_message(given: dict[str, object]) -> bytes:
    sasl = opened(given).sasl
    assert sasl is not None
    return sasl.client().evaluate(None)


def test_plaintext_is_the_default() -> None:
    assert opened({}) is PLAINTEXT


@pytest.mark.parametrize(
    "given",
    [
        {"sasl.username": "ann", "sasl.password": "secret"},
        {"sasl.plain.username": "ann", "sasl.plain.password": "secret"},
        {"sasl.jaas.config": f'{MODULE} username="ann" password="secret";'},
    ],
)
def test_a_name_and_a_password_are_written_in_several_ways(given: dict[str, object]) -> None:
    assert first_message({**PLAIN, **given}) == b"\0ann\0secret"


def test_librdkafkas_name_of_the_mechanism_is_known() -> None:
    given = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "scram-sha-256",
        "sasl.username": "ann",
        "sasl.password": "secret",
    }
    assert first_message(given).startswith(b"n,,n=ann,r=")


def test_each_exchange_has_a_nonce_of_its_own() -> None:
    given = {**PLAIN, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "a", "sasl.password": "b"}
    assert first_message(given) != first_message(given)


def test_a_delegation_token_is_a_scram_credential() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    text = f'{module} username="id" password="hmac" tokenauth="true";'
    given = {**PLAIN, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": text}
    assert b"tokenauth=true" in first_message(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ssl.truststore.location": "ca.pem"}, r"ssl\.truststore\.location has no effect"),
        ({"sasl.password": "hush"}, r"sasl\.password has no effect with .*PLAINTEXT"),
        (
            {"security.protocol": "SSL", "sasl.username": "ann"},
            r"sasl\.username has no effect .*=SSL",
        ),
        ({"security.protocol": "SASL_PLAINTEXT"}, r"sasl\.mechanism is missing"),
        ({**PLAIN, "sasl.mechanism": "GSSAPI"}, r"GSSAPI \(Kerberos\) is not supported"),
        ({**PLAIN, "sasl.mechanism": "MAGIC"}, r"'MAGIC' is unknown: it takes PLAIN, SCRAM-SHA"),
        ({**PLAIN, "sasl.username": "ann"}, r"sasl\.password is missing"),
        ({**PLAIN, "sasl.password": "hush"}, r"sasl\.username is missing"),
        (
            {**PLAIN, "sasl.jaas.config": f"{MODULE} username=ann;"},
            r"option password of sasl\.jaas",
        ),
        ({**PLAIN, "sasl.jaas.config": f"{MODULE} password=hush"}, r"not terminated"),
        ({**PLAIN, "sasl.jaas.config": "com.acme.Login required;"}, r"not supported"),
        (
            {**PLAIN, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": f"{MODULE};"},
            r"PlainLoginModule, which is not for sasl\.mechanism=SCRAM-SHA-256",
        ),
        (
            {**PLAIN, "sasl.jaas.config": f"{MODULE} password=hush;", "sasl.password": "hush"},
            r"only one of sasl\.jaas\.config and sasl\.password",
        ),
        ({**PLAIN, "sasl.username": "ann", "sasl.password": "hush\0"}, r"without NUL"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/nowhere/ca.pem"},
            r"ssl\.truststore\.location.*/nowhere/ca\.pem.*[Nn]o such file",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.location": "/nowhere/my.pem"},
            r"ssl\.keystore\.location.*/nowhere/my\.pem.*[Nn]o such file",
        ),
        ({"security.protocol": "SSL", "ssl.context": "x"}, r"takes an ssl\.SSLContext"),
        ({**PLAIN, "sasl.mechanism": "OAUTHBEARER"}, r"needs a source of tokens"),
        (
            {**PLAIN, "sasl.mechanism": "OAUTHBEARER", "sasl.username": "ann"},
            r"sasl\.username has no effect with sasl\.mechanism=OAUTHBEARER",
        ),
        ({"sasl.login.callback.handler.class": "com.acme.Mine"}, r"runs no Java"),
        ({"ssl.endpoint.identification.algorithm": "LDAPS"}, r"https, or an empty value"),
        ({"sasl.password": 17}, r"sasl\.password = …: it takes text"),
    ],
)
def test_a_wrong_setting_is_named_and_its_secret_is_not(
    given: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        opened(given)
    assert "hush" not in str(caught.value)
    assert "17" not in str(caught.value)


def test_no_secret_is_in_a_text_of_the_settings() -> None:
    given = {
        **PLAIN,
        "sasl.username": "ann",
        "sasl.password": "hush",
        "ssl.key.password": "hush",
        "ssl.keystore.password": "hush",
        "ssl.truststore.password": "hush",
        "ssl.keystore.key": "hush",
    }
    settings = read_settings(ClientSettings, {"bootstrap.servers": "h:1", **given})
    assert "hush" not in repr(settings)
    assert "ann" in repr(settings)
    assert "hush" not in repr(opened({**PLAIN, "sasl.username": "a", "sasl.password": "hush"}))


def test_wrong_settings_are_errors_before_anything_is_connected() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.mechanism is missing"):
        Producer(bootstrap_servers="127.0.0.1:1", security_protocol="SASL_SSL")


def test_a_context_of_the_program_is_used_as_it_is() -> None:
    context = ssl.create_default_context()
    given: dict[str, object] = {"security.protocol": "SSL", "ssl.context": context}
    assert opened(given).tls is context


def test_the_systems_authorities_and_the_host_name_are_checked_by_default(tmp_path: Path) -> None:
    plain = opened({"security.protocol": "SSL"}).tls
    assert plain is not None
    assert plain.check_hostname
    assert plain.verify_mode is ssl.CERT_REQUIRED
    assert plain.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert (
        opened(
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
        ).tls.check_hostname
        is False
    )  # type: ignore[union-attr]
    authority = Authority(tmp_path)
    own = opened({"security.protocol": "SSL", "ssl.ca.location": str(authority.path)}).tls
    assert own is not None
    assert len(own.get_ca_certs()) == 1


# --- files of keys -------------------------------------------------------------------------------


def with_tls(authority: Authority, **more: object) -> dict[str, object]:
    given = {"security.protocol": "SSL", "ssl.truststore.location": str(authority.path)}
    return {**given, **{name.replace("_", "."): value for name, value in more.items()}}


def accepts_client(authority: Authority, given: dict[str, object]) -> bool:
    """Tell whether a listener that wants a certificate takes the client's."""
    context = opened(given).tls
    assert context is not None
    certificate, key = authority.issue("listener", ["broker.example"])
    peer = TlsPeer(server_context(certificate, key, authority=authority.path))
    session = TlsSession(context, "broker.example")
    complete = False
    while not complete:
        complete = session.handshake()
        session.feed(peer.feed(session.to_send()))
    return peer.is_established and peer.error is None


def test_a_certificate_and_its_key_are_given_in_several_ways(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("ann")
    both = str(tmp_path / "ann.both.pem")
    assert accepts_client(authority, with_tls(authority, ssl_keystore_location=both))
    assert accepts_client(
        authority,
        with_tls(authority, ssl_certificate_location=str(certificate), ssl_key_location=str(key)),
    )
    assert accepts_client(
        authority,
        with_tls(
            authority,
            ssl_keystore_type="PEM",
            ssl_keystore_certificate_chain=certificate.read_text(),
            ssl_keystore_key=key.read_text(),
        ),
    )
    certificate, key = authority.issue("bob", password="hush")
    apart = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
    assert accepts_client(authority, with_tls(authority, ssl_key_password="hush", **apart))
    with pytest.raises(ConfigError, match=r"ssl\.key\.password"):
        opened(with_tls(authority, ssl_key_password="rush", **apart))


def test_a_pkcs12_store_is_known_by_its_content(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("ann")
    loaded = load_pem_x509_certificate(certificate.read_bytes())
    secret = load_pem_private_key(key.read_bytes(), None)
    assert isinstance(secret, EllipticCurvePrivateKey)
    store = tmp_path / "ann.p12"
    protection = BestAvailableEncryption(b"hush")
    store.write_bytes(serialize_key_and_certificates(b"ann", secret, loaded, None, protection))
    given = {"ssl_keystore_location": str(store), "ssl_keystore_password": "hush"}
    assert accepts_client(authority, with_tls(authority, **given))


def test_a_key_without_its_certificate_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with pytest.raises(ConfigError, match=r"ssl\.key\.location needs ssl\.keystore\.location"):
        opened(with_tls(authority, ssl_key_location="x.pem"))
