"""The value of `zookeeper.connect`: servers, and the chroot of the cluster's nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import ConfigError

DEFAULT_PORT: Final = 2181

_SERVER = re.compile(r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^:/\[\],\s]+)(?::(?P<port>\d{1,5}))?\Z")


@dataclass(frozen=True, slots=True)
class ConnectString:
    """``host:port,host:port/chroot``. The chroot is empty or begins with a slash."""

    servers: tuple[str, ...]
    chroot: str = ""

    def __str__(self) -> str:
        return ",".join(self.servers) + self.chroot


def parse_connect_string(text: str) -> ConnectString:
    """Read `zookeeper.connect`; ConfigError says what is wrong with it."""
    hosts, slash, below = text.strip().partition("/")
    servers = []
    for item in filter(None, (part.strip() for part in hosts.split(","))):
        match = _SERVER.match(item)
        if match is None or int(match["port"] or DEFAULT_PORT) > 65535:
            raise ConfigError(f"zookeeper.connect: {item!r} is not of the form host:port")
        servers.append(f"{match['host']}:{match['port'] or DEFAULT_PORT}")
    if not servers:
        raise ConfigError("zookeeper.connect: no server is named")
    chroot = f"/{below.strip('/')}" if slash and below.strip("/") else ""
    if "//" in chroot or any(part in (".", "..") for part in chroot.split("/")):
        raise ConfigError(f"zookeeper.connect: {chroot!r} is not a ZooKeeper path")
    return ConnectString(tuple(servers), chroot)
