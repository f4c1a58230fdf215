"""A broker process whose only listener has TLS, with certificates of the tests' own authority."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path

from tests import certificates
from tests.broker_process import BrokerProcess

from millstream.security.certificates import Certificate


class TlsBroker(BrokerProcess):
    """``protocol`` is SSL or SASL_SSL; the host that certificates are made out for is localhost."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str] | None = None, *, protocol: str = "SSL"
    ) -> None:
        super().__init__(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self.protocol = protocol
        self.trust = certificates.write_trust(directory)
        self.keystore = certificates.write_pem(directory, "server", certificates.server())
        self.settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "log.flush.policy": "os",
            **(settings or {}),
        }

    @property
    def bootstrap(self) -> str:
        """Where clients connect, by the name in the certificate."""
        return f"localhost:{self.port}"

    def command(self) -> list[str]:
        """Return the command line that starts this broker."""
        listeners = f"{self.protocol}://127.0.0.1:{self.port}"
        advertised = f"{self.protocol}://localhost:{self.port}"
        settings = {"listeners": listeners, "advertised.listeners": advertised, **self.settings}
        overrides = [
            part for name, value in settings.items() for part in ("--override", f"{name}={value}")
        ]
        return [
            *(sys.executable, "-m", "millstream.cli.main", "serve"),
            *("--data-dir", str(self.data_directory), *overrides),
        ]

    def replace_certificate(self, certificate: Certificate) -> None:
        """Write another certificate into the file of the key store, in one step."""
        temporary = self.keystore.with_suffix(".new")
        temporary.write_bytes(certificate.key_pem() + certificate.chain_pem)
        temporary.replace(self.keystore)

    def raw(self) -> socket.socket:
        """Connect without TLS."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def connect(
        self, context: ssl.SSLContext | None = None, *, host: str = "localhost"
    ) -> ssl.SSLSocket:
        """Connect and shake hands."""
        context = context or certificates.client_side()
        return context.wrap_socket(self.raw(), server_hostname=host)
