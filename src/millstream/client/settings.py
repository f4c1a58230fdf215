"""The addresses of the brokers and the time-outs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.client.core.security import PLAINTEXT, Security
from millstream.model.errors import ConfigError

DEFAULT_PORT: Final = 9092


@dataclass(frozen=True, slots=True)
class Address:
    """A host name or IP address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings that every connection of a client shares; times in milliseconds."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str = "millstream"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    """How long one request may take, and how long a refused one is retried."""
    retry_backoff_ms: int = 100
    security: Security = PLAINTEXT


def parse_bootstrap_servers(text: str) -> tuple[Address, ...]:
    """Read ``host:port,host:port``; without a port 9092. IPv6 addresses stand in brackets.

    ConfigError names the part that is not an address.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ConfigError("bootstrap.servers names no broker")
    return tuple(_parse_address(part) for part in parts)


def _parse_address(text: str) -> Address:
    if "://" in text:
        raise ConfigError(f"{text!r} is a URL: write HOST:PORT")
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"an IPv6 address is written in brackets, as [::1]:9092, not {text!r}")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) <= 65535:
        raise ConfigError(f"{text!r} is not of the form HOST:PORT")
    return Address(host, int(port))
