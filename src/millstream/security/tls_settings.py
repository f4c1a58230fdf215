"""The `ssl.*` settings of one listener, or of one client, with their names for error messages."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A key store or a trust store. ``prefix`` is the beginning of its settings' names as they were
    given, ``listener.name.external.ssl.keystore.`` perhaps.
    """

    prefix: str
    type: str = "JKS"
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    """`ssl.key.password`, of a key store."""
    key: str | None = field(default=None, repr=False)
    """`ssl.keystore.key`, PEM."""
    certificates: str | None = field(default=None, repr=False)
    """`ssl.keystore.certificate.chain` or `ssl.truststore.certificates`, PEM."""

    @property
    def is_set(self) -> bool:
        """True when it has anything in it."""
        return bool(self.location or self.key or self.certificates)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What a TLS context is made of. Empty ``endpoint_identification`` leaves host names unchecked
    on the client's side.
    """

    keystore: StoreSettings = field(default_factory=lambda: StoreSettings("ssl.keystore."))
    truststore: StoreSettings = field(default_factory=lambda: StoreSettings("ssl.truststore."))
    prefix: str = "ssl."
    protocol: str = "TLSv1.3"
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    client_auth: str = "none"
    endpoint_identification: str = "https"
