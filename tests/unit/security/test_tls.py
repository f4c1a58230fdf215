"""Contexts of TLS from Kafka's settings, and every way in which the settings can be wrong."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests import certificates

from millstream.model.errors import ConfigError
from millstream.security.tls import check_handshake, client_context, server_context
from millstream.security.tls_settings import StoreSettings, TlsSettings

PASSWORD = "open-sesame"
KEYSTORE = StoreSettings("ssl.keystore.")


def with_key(store: StoreSettings) -> TlsSettings:
    return TlsSettings(keystore=store, truststore=certificates.trust_store())


def shakes(server: ssl.SSLContext, client: ssl.SSLContext | None = None) -> str | None:
    settings = TlsSettings(truststore=certificates.trust_store(), endpoint_identification="")
    return check_handshake(server, client or client_context(settings))


def stores(tmp_path: Path) -> dict[str, StoreSettings]:
    certificate = certificates.server()
    pem = certificates.write_pem(tmp_path, "server", certificate)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(certificate.chain_pem + certificate.key_pem(PASSWORD))
    p12 = tmp_path / "server.p12"
    p12.write_bytes(certificate.pkcs12("server", PASSWORD))
    inline = certificates.key_store(certificate)
    assert inline.key is not None
    assert inline.certificates is not None
    return {
        "PEM file": replace(KEYSTORE, type="PEM", location=str(pem)),
        "encrypted PEM file": replace(
            KEYSTORE, type="PEM", location=str(locked), key_password=PASSWORD
        ),
        "PKCS12": replace(KEYSTORE, type="PKCS12", location=str(p12), password=PASSWORD),
        "PKCS12 called JKS": replace(KEYSTORE, location=str(p12), password=PASSWORD),
        "inline": inline,
        "inline on one line": replace(
            inline,
            key=inline.key.replace("\n", " "),
            certificates=inline.certificates.replace("\n", " "),
        ),
        "inline, encrypted": replace(
            inline, key=certificate.key_pem(PASSWORD).decode(), key_password=PASSWORD
        ),
    }


def test_every_kind_of_key_store_serves(tmp_path: Path) -> None:
    for kind, store in stores(tmp_path).items():
        assert shakes(server_context(with_key(store))) is None, kind


def test_trust_stores_of_both_kinds(tmp_path: Path) -> None:
    pem = certificates.write_trust(tmp_path)
    p12 = tmp_path / "trust.p12"
    p12.write_bytes(certificates.authority().trust_pkcs12(PASSWORD))
    store = StoreSettings("ssl.truststore.")
    for trust in (
        replace(store, type="PEM", location=str(pem)),
        replace(store, type="PKCS12", location=str(p12), password=PASSWORD),
    ):
        settings = TlsSettings(truststore=trust, endpoint_identification="")
        assert shakes(certificates.server_side(), client_context(settings)) is None


@pytest.mark.slow
def test_javas_own_stores_are_read_or_told_apart(tmp_path: Path) -> None:
    """A store of `keytool`: PKCS12 is read, JKS refused with the command that converts it."""
    made = {}
    for type_ in ("PKCS12", "JKS"):
        path = made[type_] = tmp_path / f"store.{type_.lower()}"
        command = (
            f"keytool -genkeypair -keystore {path} -storetype {type_} -storepass {PASSWORD} "
            f"-keypass {PASSWORD} -alias a -keyalg EC -dname CN=localhost -validity 2"
        )
        try:
            subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
        except FileNotFoundError:
            pytest.skip("needs keytool, which a JDK has")
    store = replace(KEYSTORE, type="JKS", password=PASSWORD)
    server_context(with_key(replace(store, location=str(made["PKCS12"]))))
    with pytest.raises(ConfigError) as caught:
        server_context(with_key(replace(store, location=str(made["JKS"]))))
    told = str(caught.value)
    assert told.startswith(f"ssl.keystore.location: {made['JKS']} is a JKS store")
    command = told.partition("Convert it with ")[2].partition(", and set")[0]
    assert command.endswith("-deststoretype PKCS12")
    passwords = ["-srcstorepass", PASSWORD, "-deststorepass", PASSWORD]
    subprocess.run([*command.split(), *passwords], check=True, capture_output=True, timeout=60)
    converted = command.partition("-destkeystore ")[2].split()[0]
    server_context(with_key(replace(store, type="PKCS12", location=converted)))


def wrong_stores(tmp_path: Path) -> list[tuple[StoreSettings, str]]:
    good = stores(tmp_path)
    other_key = certificates.server().key_pem().decode()
    other = certificates.server()
    garbled = tmp_path / "garbled.pem"
    garbled.write_bytes(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    no_key = tmp_path / "no_key.pem"
    no_key.write_bytes(other.chain_pem)
    no_chain = tmp_path / "no_chain.pem"
    no_chain.write_bytes(other.key_pem())
    text = tmp_path / "text"
    text.write_text("hello")
    damaged = tmp_path / "damaged.p12"
    damaged.write_bytes((tmp_path / "server.p12").read_bytes()[:300])
    pem, p12, inline = good["PEM file"], good["PKCS12"], good["inline"]
    return [
        (replace(pem, location="/nowhere.pem"), "location: /nowhere.pem cannot be read: No such"),
        (replace(pem, location=str(tmp_path)), "cannot be read: Is a directory"),
        (replace(pem, location=str(text)), "is not a PEM file"),
        (replace(pem, type="JKS"), "is a PEM file; set ssl.keystore.type=PEM"),
        (replace(pem, type="BKS"), "ssl.keystore.type: 'BKS' is not one of PEM, PKCS12"),
        (replace(pem, password="x"), "ssl.keystore.password cannot be set with the type PEM"),
        (replace(pem, location=str(garbled)), "the private key cannot be read"),
        (replace(pem, location=str(no_key)), "ssl.keystore.location has no private key"),
        (replace(pem, location=str(no_chain)), "ssl.keystore.location has no certificate"),
        (replace(good["encrypted PEM file"], key_password=None), "ssl.key.password is not set"),
        (replace(good["encrypted PEM file"], key_password="no"), "or ssl.key.password is wrong"),
        (replace(p12, password="no"), "or ssl.keystore.password is wrong"),
        (replace(p12, password=None), "or ssl.keystore.password is not set"),
        (replace(p12, location=str(damaged)), "cannot be opened: it is damaged"),
        (replace(p12, location=str(text)), "is neither a PKCS12 store nor PEM"),
        (replace(inline, certificates=None), "but ssl.keystore.certificate.chain is not"),
        (replace(inline, key=None), "chain is set, but ssl.keystore.key is not"),
        (replace(inline, type="PKCS12"), "needs ssl.keystore.type=PEM, which is PKCS12"),
        (replace(inline, location="x"), "cannot both be set"),
        (replace(inline, certificates="AAAA"), "certificate.chain has no certificate"),
        (replace(inline, key=other_key), "ssl.keystore.key: the private key is not the one of"),
        (KEYSTORE, "ssl.keystore.location: a listener with TLS needs a certificate"),
    ]  # fmt: skip


def test_a_wrong_key_store_is_refused_by_the_name_of_its_setting(tmp_path: Path) -> None:
    for store, message in wrong_stores(tmp_path):
        with pytest.raises(ConfigError) as caught:
            server_context(with_key(store))
        told = str(caught.value)
        assert message in told
        for secret in (PASSWORD, store.password, store.key_password):
            assert secret is None or len(secret) < 3 or secret not in told
        assert "PRIVATE" not in told
        assert PASSWORD not in repr(store)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"enabled_protocols": ("TLSv1.1",)}, "ssl.enabled.protocols: 'TLSv1.1' is not served"),
        ({"protocol": "SSLv3"}, "ssl.protocol: 'SSLv3' is not served"),
        ({"client_auth": "maybe"}, "ssl.client.auth: 'maybe' is not one of none, requested"),
        ({"cipher_suites": ("NONSENSE",)}, "ssl.cipher.suites: 'NONSENSE' is no cipher suite"),
        ({"cipher_suites": ("TLS_AES_128_GCM_SHA256",)}, "of TLSv1.3 all suites or none"),
        (
            {
                "enabled_protocols": ("TLSv1.3",),
                "cipher_suites": ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",),
            },
            "has no suite of the enabled protocols",
        ),
    ],
)
def test_settings_that_cannot_be(changed: dict[str, object], message: str) -> None:
    settings = with_key(certificates.key_store(certificates.server()))
    with pytest.raises(ConfigError) as caught:
        server_context(replace(settings, **changed))  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_cipher_suites_and_versions_are_those_that_were_asked_for() -> None:
    settings = with_key(certificates.key_store(certificates.server()))
    suites = ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",)
    context = server_context(replace(settings, cipher_suites=suites))
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    assert shakes(context) is None
    client = certificates.client_side()
    client.check_hostname = False
    client.minimum_version = ssl.TLSVersion.TLSv1_3
    assert shakes(context, client) is not None


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "ECDHE-ECDSA-AES256-SHA"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CCM", "ECDHE-ECDSA-AES128-CCM"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8", "ECDHE-ECDSA-AES256-CCM8"),
    ],
)
def test_ianas_names_are_those_of_openssl(iana: str, openssl: str) -> None:
    settings = with_key(certificates.key_store(certificates.server()))
    context = server_context(replace(settings, cipher_suites=(iana,)))
    assert openssl in {cipher["name"] for cipher in context.get_ciphers()}


def test_client_certificates_are_asked_for_as_the_setting_says() -> None:
    nobody = certificates.client_side()
    ann = certificates.client_side(certificates.client("ann"))
    stranger = certificates.client_side(
        certificates.client("ann", by=certificates.authority("stranger"))
    )
    expired = certificates.client_side(certificates.client("ann", days=-1))
    for context in (nobody, ann, stranger, expired):
        context.check_hostname = False
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # the client hears of the refusal
    none, requested, required = map(certificates.server_side, ("none", "requested", "required"))
    assert [shakes(context, nobody) is None for context in (none, requested, required)] == [
        True, True, False,
    ]  # fmt: skip
    assert [shakes(context, ann) for context in (none, requested, required)] == [None] * 3
    for wrong in (stranger, expired):
        assert [shakes(context, wrong) is None for context in (none, requested, required)] == [
            True, False, False,
        ]  # fmt: skip


def test_a_host_name_is_checked_unless_that_is_switched_off() -> None:
    checking = certificates.client_side()
    assert checking.check_hostname
    assert checking.verify_mode is ssl.CERT_REQUIRED
    settings = TlsSettings(truststore=certificates.trust_store(), endpoint_identification="")
    trusting = client_context(settings)
    assert not trusting.check_hostname
    assert trusting.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ConfigError, match="is neither https nor empty"):
        client_context(replace(settings, endpoint_identification="ldaps"))


def test_nobody_may_renegotiate_or_compress() -> None:
    for context in (certificates.server_side(), certificates.client_side()):
        assert context.options & ssl.OP_NO_RENEGOTIATION
        assert context.options & ssl.OP_NO_COMPRESSION
