"""The metadata store of a cluster in a ZooKeeper ensemble, by a broker's settings."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from ssl import SSLContext

from millstream.config.broker import BrokerConfig
from millstream.model.clock import Clock
from millstream.model.errors import ConfigError
from millstream.zookeeper.metadata_store import ZooKeeperMetadataStore
from millstream.zookeeper.security import ZooKeeperSecurity


def zookeeper_store(
    config: BrokerConfig, clock: Clock, loop: AbstractEventLoop
) -> ZooKeeperMetadataStore:
    """Return the store that `zookeeper.connect` names, not connected yet; ConfigError names the
    setting that is wrong.
    """
    assert config.zookeeper_connect is not None
    return ZooKeeperMetadataStore(
        config.zookeeper_connect,
        clock=clock,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        call_on_loop=loop.call_soon_threadsafe,
        security=zookeeper_security(config),
    )


def zookeeper_security(config: BrokerConfig) -> ZooKeeperSecurity:
    """Return how to speak to ZooKeeper; ConfigError names the setting that is wrong."""
    digest = config.zookeeper_auth_digest or None
    if digest is not None and ":" not in digest:
        raise ConfigError("zookeeper.auth.digest: it has to be of the form user:password")
    has_key = config.zookeeper_ssl_client_enable and config.zookeeper_ssl_keystore_location
    if config.zookeeper_set_acl and digest is None and not has_key:
        raise ConfigError(
            "zookeeper.set.acl needs zookeeper.auth.digest or, with zookeeper.ssl.client.enable, "
            "zookeeper.ssl.keystore.location: rules need an authenticated creator of nodes"
        )
    context = _context(config) if config.zookeeper_ssl_client_enable else None
    return ZooKeeperSecurity(context, digest, config.zookeeper_set_acl)


def _context(config: BrokerConfig) -> SSLContext:
    from millstream.security.tls import client_context
    from millstream.security.tls_settings import StoreSettings, TlsSettings

    def store(
        prefix: str, location: str | None, type_: str | None, secret: str | None
    ) -> StoreSettings:
        found = type_ or ("PEM" if (location or "").endswith(".pem") else "PKCS12")
        if found.upper() == "PEM":
            return StoreSettings(prefix, found, location or None, key_password=secret or None)
        return StoreSettings(prefix, found, location or None, password=secret or None)

    return client_context(
        TlsSettings(
            keystore=store(
                "zookeeper.ssl.keystore.",
                config.zookeeper_ssl_keystore_location,
                config.zookeeper_ssl_keystore_type,
                config.zookeeper_ssl_keystore_password,
            ),
            truststore=store(
                "zookeeper.ssl.truststore.",
                config.zookeeper_ssl_truststore_location,
                config.zookeeper_ssl_truststore_type,
                config.zookeeper_ssl_truststore_password,
            ),
            prefix="zookeeper.ssl.",
            protocol=config.zookeeper_ssl_protocol,
            enabled_protocols=config.zookeeper_ssl_enabled_protocols,
            cipher_suites=config.zookeeper_ssl_cipher_suites,
            endpoint_identification=config.zookeeper_ssl_endpoint_identification_algorithm,
        )
    )
