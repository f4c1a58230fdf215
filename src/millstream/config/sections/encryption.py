"""TLS: certificates, whom they are asked of, and protocols."""

from __future__ import annotations

from millstream.config.definition import (
    PER_BROKER,
    Config,
    boolean,
    int32,
    int64,
    password,
    string,
    texts,
)
from millstream.config.validators import at_least, one_of


class EncryptionSettings(Config):
    """TLS on listeners of the protocols SSL and SASL_SSL, and on connections to other brokers. Each
    setting may be given for one listener (`listener.name.NAME.`), and changed so while the broker
    runs; key stores are read again when a setting of their listener changes, or by SIGHUP.
    """

    ssl_keystore_type: str = string(
        "ssl.keystore.type",
        "JKS",
        None,
        "`PEM` or `PKCS12`. A PKCS12 file is also taken where the type is `JKS`, which is Apache "
        "Kafka's default; a JKS file is refused with the command that converts it.",
        mode=PER_BROKER,
    )
    ssl_keystore_location: str | None = string(
        "ssl.keystore.location",
        None,
        None,
        "The file with the private key of the broker and its certificates.",
        mode=PER_BROKER,
    )
    ssl_keystore_password: str | None = password(
        "ssl.keystore.password",
        "The password of a PKCS12 key store.",
        mode=PER_BROKER,
    )
    ssl_key_password: str | None = password(
        "ssl.key.password", "The password of a private key in PEM.", mode=PER_BROKER
    )
    ssl_keystore_key: str | None = password(
        "ssl.keystore.key",
        "The private key itself, in PEM (PKCS#8), instead of a file.",
        mode=PER_BROKER,
    )
    ssl_keystore_certificate_chain: str | None = password(
        "ssl.keystore.certificate.chain",
        "The certificates of `ssl.keystore.key`, in PEM.",
        mode=PER_BROKER,
    )
    ssl_truststore_type: str = string(
        "ssl.truststore.type",
        "JKS",
        None,
        "`PEM` or `PKCS12`, as `ssl.keystore.type`.",
        mode=PER_BROKER,
    )
    ssl_truststore_location: str | None = string(
        "ssl.truststore.location",
        None,
        None,
        "The file with the certificates of the authorities that sign for clients and brokers; "
        "without one those of the system are trusted.",
        mode=PER_BROKER,
    )
    ssl_truststore_password: str | None = password(
        "ssl.truststore.password", "The password of a PKCS12 trust store.", mode=PER_BROKER
    )
    ssl_truststore_certificates: str | None = password(
        "ssl.truststore.certificates",
        "Trusted certificates in PEM, instead of a file.",
        mode=PER_BROKER,
    )
    ssl_client_auth: str = string(
        "ssl.client.auth",
        "none",
        one_of("none", "requested", "required"),
        "Whether clients of an SSL listener must present a certificate, which then determines the "
        "user. A SASL_SSL listener uses only a value that is set for that listener.",
        mode=PER_BROKER,
    )
    ssl_principal_mapping_rules: str = string(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        None,
        "How the subject of a certificate becomes the name of a user: rules of the form "
        "`RULE:pattern/replacement/` (then `L` or `U`), separated by commas; the first that "
        "matches is used.",
    )
    ssl_enabled_protocols: tuple[str, ...] = texts(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        None,
        "`TLSv1.2`, `TLSv1.3`; older ones are not served.",
        mode=PER_BROKER,
    )
    ssl_protocol: str = string(
        "ssl.protocol",
        "TLSv1.3",
        None,
        "All of `ssl.enabled.protocols` are served, whichever is named here.",
        mode=PER_BROKER,
    )
    ssl_cipher_suites: tuple[str, ...] = texts(
        "ssl.cipher.suites",
        (),
        None,
        "Cipher suites by IANA's names; empty leaves the choice to OpenSSL. Those of TLS 1.3 can "
        "only be chosen all together.",
        mode=PER_BROKER,
    )
    ssl_endpoint_identification_algorithm: str = string(
        "ssl.endpoint.identification.algorithm",
        "https",
        None,
        "`https`: a broker that connects to another one checks that its certificate is valid for "
        "that host. Empty turns this off.",
        mode=PER_BROKER,
    )
    ssl_allow_dn_changes: bool = boolean(
        "ssl.allow.dn.changes",
        False,
        "Whether a new certificate may have a different subject than the previous one.",
    )
    ssl_allow_san_changes: bool = boolean(
        "ssl.allow.san.changes",
        False,
        "Whether a new certificate may lack host names of the previous one.",
    )
    connections_authentication_timeout_ms: int = int64(
        "connections.authentication.timeout.ms",
        10_000,
        at_least(1),
        "Time in milliseconds that a client has for its TLS handshake and SASL exchange together.",
        kafka=False,
    )
    max_connections_unauthenticated: int = int32(
        "max.connections.unauthenticated",
        1_000,
        at_least(1),
        "Connections that may be in their TLS handshake or SASL exchange at once; a further one "
        "closes the oldest.",
        kafka=False,
    )
    max_connections_unauthenticated_per_ip: int = int32(
        "max.connections.unauthenticated.per.ip",
        500,
        at_least(1),
        "The same for each address.",
        kafka=False,
    )
