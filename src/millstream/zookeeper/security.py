"""How a broker speaks to ZooKeeper securely: TLS, a digest, and rules on the nodes it makes.

kazoo makes a TLS context of its own for each connection, from PEM files alone. Here it is given one
from Kafka's settings, with checked host names and PKCS12.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token")
"""Nodes that the creator alone reads: they hold credentials (Kafka: ``ZkData.sensitivePath``)."""

_READABLE_ACL: Final = CREATOR_ALL_ACL + READ_ACL_UNSAFE


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """What a client of ZooKeeper needs beside an address."""

    context: ssl.SSLContext | None = None
    """For TLS."""
    digest: str | None = field(default=None, repr=False)
    """``user:password`` for ZooKeeper's own scheme."""
    sets_acl: bool = False
    """Whether nodes are made so that others may read most of them and change none."""

    def client_options(self) -> dict[str, Any]:
        """Return what kazoo's client is made with."""
        options: dict[str, Any] = {}
        if self.digest is not None:
            options["auth_data"] = [("digest", self.digest)]
        if self.sets_acl:
            options["default_acl"] = _READABLE_ACL
        if self.context is not None:
            options["handler"] = TlsHandler(self.context)
        return options

    def acl_of(self, path: str) -> Any:
        """Return the rules of a new node; ``path`` is without the chroot."""
        if not self.sets_acl:
            return OPEN_ACL_UNSAFE
        sensitive = any(path == root or path.startswith(f"{root}/") for root in SENSITIVE)
        return CREATOR_ALL_ACL if sensitive else _READABLE_ACL


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with connections over TLS."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **_: object,
    ) -> ssl.SSLSocket:
        """Connect and shake hands; OSError when either fails."""
        sock = socket.create_connection(address, timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._context.wrap_socket(sock, server_hostname=hostname or address[0])
        except BaseException:
            sock.close()
            raise

    def select(
        self,
        readable: list[Any],
        writable: list[Any],
        exceptional: list[Any],
        timeout: float | None = None,
    ) -> Any:
        """Wait for sockets, and not for one that has decrypted bytes already: kazoo would leave an
        answer lying that came in one record with another.
        """
        pending = [each for each in readable if isinstance(each, ssl.SSLSocket) and each.pending()]
        if pending:
            return pending, [], []
        return super().select(readable, writable, exceptional, timeout)
