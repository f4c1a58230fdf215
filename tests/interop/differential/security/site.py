"""A broker with the listeners of ``settings.LISTENERS``: where they are, and what clients need."""

from __future__ import annotations

import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.kafka import KafkaNode, find_kafka, free_port
from tests.broker_process import BrokerProcess
from tests.interop.differential.security.settings import AUDIENCE, LISTENERS
from tests.interop.kafka_cluster import SMALL_JVM
from tests.tls_authority import Authority
from tests.unit.security.sasl.tokens import jwks, key, signed

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Site:
    """A running broker."""

    addresses: Mapping[str, str]
    """By listener, as ``host:port``."""
    tls: ssl.SSLContext


class _Files:
    """Certificates, and the keys of tokens, in one directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        authority = Authority(directory)
        authority.issue("broker", [HOST])
        keys = directory / "keys.json"
        keys.write_bytes(jwks(key("RSA", "one"), key("EC", "two")))
        self.keys_url = keys.as_uri()
        self.settings = {
            "ssl.keystore.location": str(directory / "broker.both.pem"),
            "ssl.truststore.location": str(authority.path),
            "listener.name.secure.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.keys_url,
        }
        self.tls = ssl.create_default_context(cafile=str(authority.path))


def signed_token(signer: str = "one", **claims: object) -> str:
    """Return a token that listener SECURE takes, with these claims changed."""
    now_s = int(time.time())
    kind = "EC" if signer == "two" else "RSA"
    wanted = {"iat": now_s, "exp": now_s + 600, "aud": AUDIENCE, "sub": "ann", **claims}
    return signed(key(kind, signer), "ES256" if kind == "EC" else "RS256", **wanted)


class _Kafka(KafkaNode):
    def __init__(self, directory: Path, settings: Mapping[str, str], files: _Files) -> None:
        self.ports = {name: free_port() for name in LISTENERS}
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={files.keys_url}"
        super().__init__(
            find_kafka(),
            directory,
            settings={**settings, **files.settings},
            jvm_flags=(*SMALL_JVM, allowed),
        )

    def prepare(self) -> None:
        """Add the listeners to the one that a plain node has."""
        super().prepare()
        self.ports["PLAINTEXT"] = self.port
        more = {name: port for name, port in self.ports.items() if name != "PLAINTEXT"}
        added = "".join(f",{name}://{self.host}:{port}" for name, port in more.items())
        lines = self._properties.read_text(encoding="utf-8").splitlines()
        extended = [
            line + added if line.startswith(("listeners=", "advertised.listeners=")) else line
            for line in lines
        ]
        self._properties.write_text("\n".join(extended) + "\n", encoding="utf-8")


class _Millstream(BrokerProcess):
    def __init__(self, directory: Path, settings: Mapping[str, str], files: _Files) -> None:
        self.ports = {name: free_port() for name in LISTENERS}
        listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in self.ports.items())
        super().__init__(directory, {**settings, **files.settings, "listeners": listeners})

    def command(self) -> list[str]:
        """Return the command line that starts this broker, which names its listeners."""
        pairs = (f"{name}={value}" for name, value in self.settings.items())
        overrides = [part for pair in pairs for part in ("--override", pair)]
        return [
            *(sys.executable, "-m", "millstream.cli.main", "serve"),
            *("--data-dir", str(self.data_directory), *overrides),
        ]


def _site(ports: Mapping[str, int], files: _Files) -> Site:
    return Site({name: f"{HOST}:{port}" for name, port in ports.items()}, files.tls)


@contextmanager
def kafka_site(directory: Path, settings: Mapping[str, str]) -> Iterator[Site]:
    """Run Apache Kafka with those settings."""
    files = _Files(directory / "files")
    with _Kafka(directory / "kafka", settings, files) as node:
        yield _site(node.ports, files)


@contextmanager
def millstream_site(directory: Path, settings: Mapping[str, str]) -> Iterator[Site]:
    """Run Millstream with those settings."""
    files = _Files(directory / "files")
    with _Millstream(directory / "broker", settings, files) as broker:
        yield _site(broker.ports, files)
