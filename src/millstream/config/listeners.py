"""What the texts of `listeners` and `advertised.listeners` mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.model.errors import ConfigError

SERVED_PROTOCOLS: Final = frozenset({"PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL"})

PROTECTED_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL", "SSL"})
"""Those with encryption or authentication."""

TLS_PROTOCOLS: Final = frozenset({"SASL_SSL", "SSL"})
"""Those that are encrypted."""

SASL_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
"""Those where a client authenticates with SASL."""

_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[0-9a-fA-F:.%]+\]|[^:/\[\]]*):(?P<port>\d+)\Z"
)


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to listen on or to advertise. An empty host is every address; with port 0 the
    system chooses one.
    """

    name: str
    protocol: str
    host: str
    port: int


def parse_protocol_map(text: str) -> Mapping[str, str]:
    """Read `listener.security.protocol.map`: protocol by listener name, names in capitals."""
    protocols = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = pair.partition(":")
        if not colon or not name or not protocol:
            raise ConfigError(
                f"listener.security.protocol.map: {pair!r} is not of the form NAME:PROTOCOL"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_listeners(
    setting: str, items: Iterable[str], protocols: Mapping[str, str]
) -> tuple[Listener, ...]:
    """Read a list of ``NAME://host:port``; ConfigError names the item that is wrong.

    ``setting`` is the name under which the list was given. Names are compared in capitals and may
    not repeat.
    """
    listeners: list[Listener] = []
    for item in items:
        match = _LISTENER.match(item)
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(f"{setting}: {item!r} is not of the form NAME://host:port")
        name = match["name"].upper()
        if any(other.name == name for other in listeners):
            raise ConfigError(
                f"{setting}: each listener must have a different name, {name} has two"
            )
        if name not in protocols:
            raise ConfigError(
                f"{setting}: no security protocol is defined for listener {name} "
                "(listener.security.protocol.map)"
            )
        host = match["host"].strip("[]")
        listeners.append(Listener(name, protocols[name], host, int(match["port"])))
    return tuple(listeners)


def refuse_replaced(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise ConfigError when options of the command line replace `listeners` where one of them is
    encrypted or authenticated: whoever asked for that would be served without it. What else may be
    wrong with them does not matter then.
    """
    if before.get("listeners") == after.get("listeners"):
        return
    protocols = parse_protocol_map(before.get("listener.security.protocol.map", ""))
    for item in before.get("listeners", "").split(","):
        name = item.partition("://")[0].strip().upper()
        protocol = protocols.get(name, name)
        if protocol in PROTECTED_PROTOCOLS:
            raise ConfigError(
                f"listener {name} asks for {protocol}; --host and --port would replace it by one "
                "that is open to everybody. Leave them out"
            )


def refuse_unserved(listeners: Iterable[Listener]) -> None:
    """Raise ConfigError for a listener whose protocol Millstream cannot serve."""
    for listener in listeners:
        if listener.protocol not in SERVED_PROTOCOLS:
            raise ConfigError(
                f"listener {listener.name} asks for {listener.protocol}; "
                f"Millstream serves {', '.join(sorted(SERVED_PROTOCOLS))}"
            )
