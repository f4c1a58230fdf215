"""TLS, authentication and rules of access towards ZooKeeper."""

from __future__ import annotations

from millstream.config.definition import Config, boolean, password, string, texts


class ZooKeeperSecuritySettings(Config):
    """How the brokers of a cluster protect what they keep in ZooKeeper. Names are those of Apache
    Kafka 3.
    """

    zookeeper_ssl_client_enable: bool = boolean(
        "zookeeper.ssl.client.enable",
        False,
        "Whether to connect to ZooKeeper over TLS.",
        internal=True,
    )
    zookeeper_ssl_keystore_location: str | None = string(
        "zookeeper.ssl.keystore.location",
        None,
        None,
        "The key store with this broker's certificate for ZooKeeper.",
        internal=True,
    )
    zookeeper_ssl_keystore_type: str | None = string(
        "zookeeper.ssl.keystore.type",
        None,
        None,
        "`PEM` or `PKCS12`; by default `PEM` for a file that ends with `.pem`, else `PKCS12`.",
        internal=True,
    )
    zookeeper_ssl_keystore_password: str | None = password(
        "zookeeper.ssl.keystore.password",
        "The password of the key store, or of its key in PEM.",
        internal=True,
    )
    zookeeper_ssl_truststore_location: str | None = string(
        "zookeeper.ssl.truststore.location",
        None,
        None,
        "The trust store with the authorities of ZooKeeper's certificates.",
        internal=True,
    )
    zookeeper_ssl_truststore_type: str | None = string(
        "zookeeper.ssl.truststore.type",
        None,
        None,
        "As `zookeeper.ssl.keystore.type`.",
        internal=True,
    )
    zookeeper_ssl_truststore_password: str | None = password(
        "zookeeper.ssl.truststore.password", "The password of the trust store.", internal=True
    )
    zookeeper_ssl_protocol: str = string(
        "zookeeper.ssl.protocol", "TLSv1.2", None, "As `ssl.protocol`.", internal=True
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = texts(
        "zookeeper.ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        None,
        "As `ssl.enabled.protocols`.",
        internal=True,
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] = texts(
        "zookeeper.ssl.cipher.suites", (), None, "As `ssl.cipher.suites`.", internal=True
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = string(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        None,
        "`HTTPS` checks that ZooKeeper's certificate is valid for its host; empty does not.",
        internal=True,
    )
    zookeeper_auth_digest: str | None = password(
        "zookeeper.auth.digest",
        "`user:password` for ZooKeeper's scheme `digest`.",
        kafka=False,
    )
    zookeeper_set_acl: bool = boolean(
        "zookeeper.set.acl",
        False,
        "Whether only the brokers of this cluster may change the nodes that they create, and read "
        "those with credentials. It needs `zookeeper.auth.digest`, or a certificate for "
        "ZooKeeper.",
        internal=True,
    )
