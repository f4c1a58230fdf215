"""Listeners with TLS and users for brokers under test, and what each client library needs to reach
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from millstream.testing.errors import TestBrokerError

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LIBRARIES: Final = ("millstream", "confluent", "kafka-python", "aiokafka", "java")
USER: Final = "test"
PASSWORD: Final = "test-secret"
_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class Security:
    """How clients reach the brokers: one of Kafka's protocols, and the users with passwords (SASL
    PLAIN).
    """

    protocol: str = "PLAINTEXT"
    users: Mapping[str, str] = field(default_factory=lambda: {USER: PASSWORD})

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            known = ", ".join(PROTOCOLS)
            raise TestBrokerError(f"security is one of {known}, not {self.protocol!r}")

    @property
    def has_tls(self) -> bool:
        """True where clients encrypt."""
        return self.protocol.endswith("SSL")

    @property
    def has_users(self) -> bool:
        """True where clients authenticate."""
        return self.protocol.startswith("SASL_")

    def broker_settings(self, directory: Path) -> dict[str, str]:
        """Return the settings of a broker; certificates are made in ``directory`` at first use."""
        settings: dict[str, str] = {}
        if self.has_tls:
            keys, trusted = _certificates(directory)
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(keys),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(trusted),
            }
        if self.has_users:
            users = " ".join(f'user_{name}="{word}"' for name, word in self.users.items())
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            settings |= {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.client.plain.sasl.jaas.config": f"{module} required {users};",
            }
        return settings

    def client_settings(
        self, library: str, bootstrap: str, directory: Path, user: str | None = None
    ) -> dict[str, Any]:
        """Return what a client of ``library`` is made with, as keywords or as a mapping."""
        if library not in LIBRARIES:
            known = ", ".join(LIBRARIES)
            raise TestBrokerError(f"settings are known for {known}, not for {library!r}")
        name = next(iter(self.users)) if user is None else user
        if self.has_users and name not in self.users:
            raise TestBrokerError(f"there is no user {name!r}: give users={{name: password}}")
        trusted = str(directory / "ca.pem")
        if library in ("kafka-python", "aiokafka"):
            return self._in_python(library, bootstrap, trusted, name)
        found: dict[str, Any] = {"bootstrap.servers": bootstrap}
        if self.protocol == "PLAINTEXT":
            return found
        found["security.protocol"] = self.protocol
        if self.has_tls and library == "confluent":
            found["ssl.ca.location"] = trusted
        elif self.has_tls:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": trusted}
        if self.has_users and library == "confluent":
            found |= {
                "sasl.mechanism": "PLAIN",
                "sasl.username": name,
                "sasl.password": self.users[name],
            }
        elif self.has_users:
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            found |= {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{module} required username="{name}" '
                f'password="{self.users[name]}";',
            }
        return found

    def _in_python(self, library: str, bootstrap: str, trusted: str, name: str) -> dict[str, Any]:
        """Return the keywords that kafka-python and aiokafka share, but for one."""
        found: dict[str, Any] = {"bootstrap_servers": bootstrap.split(",")}
        if self.protocol == "PLAINTEXT":
            return found
        found["security_protocol"] = self.protocol
        if self.has_tls and library == "aiokafka":
            import ssl

            found["ssl_context"] = ssl.create_default_context(cafile=trusted)
        elif self.has_tls:
            found["ssl_cafile"] = trusted
        if self.has_users:
            found |= {
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": name,
                "sasl_plain_password": self.users[name],
            }
        return found


def _certificates(directory: Path) -> tuple[Path, Path]:
    """Return the files of a broker's certificate and of its authority."""
    from millstream.security.certificates import Authority

    keys, trusted = directory / "broker.pem", directory / "ca.pem"
    if not keys.exists():
        now = datetime.now(UTC)
        authority = Authority.make("millstream.testing", now=now, days=_DAYS)
        signed = authority.server(("localhost", "127.0.0.1"), now=now, days=_DAYS)
        trusted.write_bytes(authority.trust_pem)
        keys.touch(0o600)
        keys.write_bytes(signed.key_pem() + signed.chain_pem)
    return keys, trusted
