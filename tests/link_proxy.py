"""Links of a real cluster that a test can cut, freeze, delay and reset, each direction by itself.

::

    broker 1 ──▶ proxy of broker 2 ──▶ broker 2        every broker advertises its proxy to brokers
    broker 1 ──▶ proxy to ZooKeeper of broker 1 ──▶ ZooKeeper

Who opened a connection is found by its port among the sockets of the brokers' processes, so nothing
has to be told to them and no root is needed. A frozen link passes nothing on and loses nothing, as
a network that drops packets does to TCP for a while.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from millstream.net.local_socket import reachable

ZOOKEEPER: Final = 0
"""The number of ZooKeeper among the brokers'."""
CHUNK_BYTES: Final = 65_536
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)

Link = tuple[int, int]


class Links:
    """The state of every directed link, (from, to)."""

    def __init__(self) -> None:
        self._frozen: set[Link] = set()
        self._unreachable: dict[Link, bool] = {}
        """Connections by (who opened them, to whom) that carry nothing; True where they are reset.
        """
        self._delay_s: dict[Link, float] = {}
        self._changed = threading.Condition()
        self._pairs: dict[tuple[socket.socket, socket.socket], Link] = {}
        self._pid_of: dict[int, Callable[[], int | None]] = {}
        self.closed = False

    def owner(self, number: int, pid: Callable[[], int | None]) -> None:
        """Tell which process a broker runs as now."""
        self._pid_of[number] = pid

    def number_of(self, port: int) -> int:
        """Return the broker whose process has a connection from this local port, −1 for nobody."""
        for number, pid in tuple(self._pid_of.items()):
            running = pid()
            if running is None:
                continue
            with contextlib.suppress(psutil.Error):
                for each in psutil.Process(running).net_connections("tcp"):
                    if each.laddr and each.laddr.port == port:
                        return number
        return -1

    def freeze(self, *links: Link) -> None:
        """Pass nothing on in these directions, until they are thawed."""
        with self._changed:
            self._frozen.update(links)

    def cut_off(self, number: int, *others: int) -> None:
        """Freeze both directions between one and some others."""
        for other in others:
            self.freeze((number, other), (other, number))

    def make_unreachable(self, target: int, *openers: int, resets: bool) -> None:
        """Swallow or reset what some open to one; what that one opens to them goes on."""
        with self._changed:
            self._unreachable.update({(each, target): resets for each in openers})
        if resets:
            for pair, link in tuple(self._pairs.items()):
                if link in self._unreachable:
                    self._break(pair)

    def resets(self, opened: Link) -> bool:
        """Tell whether such a connection is reset as soon as it is opened."""
        return self._unreachable.get(opened, False)

    def delay(self, link: Link, seconds: float) -> None:
        """Make everything in one direction later."""
        with self._changed:
            self._delay_s[link] = seconds

    def heal(self) -> None:
        """Pass on again, in every direction, what was held back."""
        with self._changed:
            self._frozen.clear()
            self._unreachable.clear()
            self._delay_s.clear()
            self._changed.notify_all()

    def reset(self, one: int, other: int) -> None:
        """Break the connections between two."""
        for pair, (source, target) in tuple(self._pairs.items()):
            if {source, target} == {one, other}:
                self._break(pair)

    def _break(self, pair: tuple[socket.socket, socket.socket]) -> None:
        for each in pair:
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                each.shutdown(socket.SHUT_RDWR)

    def pass_on(self, link: Link, opened: Link) -> None:
        """Wait until something may go in this direction of a connection."""
        delay_s = self._delay_s.get(link, 0.0)
        if delay_s:
            time.sleep(delay_s)
        with self._changed:
            self._changed.wait_for(
                lambda: self.closed or not (link in self._frozen or opened in self._unreachable)
            )

    def joined(self, client: socket.socket, server: socket.socket, link: Link) -> None:
        """Remember a connection."""
        self._pairs[client, server] = link

    def parted(self, client: socket.socket, server: socket.socket) -> None:
        """Forget a connection."""
        self._pairs.pop((client, server), None)

    def close(self) -> None:
        """Let every thread go."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        for client, server in tuple(self._pairs):
            for each in (client, server):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


class LinkProxy:
    """Stands before one listener. ``source`` is who connects, None to find out each time."""

    def __init__(
        self, links: Links, upstream: tuple[str, int], *, target: int, source: int | None = None
    ) -> None:
        self._links = links
        self.upstream = upstream
        self._target = target
        self._source = source
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                client, (_, port) = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, port), daemon=True).start()

    def _connect(self) -> socket.socket:
        return socket.create_connection(self.upstream, 10)

    def _serve(self, client: socket.socket, port: int) -> None:
        source = self._links.number_of(port) if self._source is None else self._source
        link = (source, self._target)
        with client:
            if self._links.resets(link):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                return
            self._links.pass_on(link, link)
            try:
                server = self._connect()
            except OSError:
                with contextlib.suppress(OSError):
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                return
            with server:
                for each in (client, server):
                    each.settimeout(None)
                    with contextlib.suppress(OSError):  # it may be gone already
                        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._links.joined(client, server, link)
                back = (self._target, source)
                answers = threading.Thread(
                    target=self._pump, args=(server, client, back, link), daemon=True
                )
                answers.start()
                self._pump(client, server, link, link)
                answers.join()
                self._links.parted(client, server)

    def _pump(self, source: socket.socket, target: socket.socket, link: Link, opened: Link) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                self._links.pass_on(link, opened)
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class LocalLinkProxy(LinkProxy):
    """Stands before a socket of this machine, for one that connects. Paths may be longer than the
    kernel takes."""

    def __init__(self, links: Links, upstream: Path, path: Path, *, source: int) -> None:
        self._links = links
        self._target = ZOOKEEPER
        self._source = source
        self._path = upstream
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        with reachable(path) as address:
            self._listener.bind(address)
        self._listener.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, 0), daemon=True).start()

    def _connect(self) -> socket.socket:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with reachable(self._path) as address:
                server.connect(address)
        except OSError:
            server.close()
            raise
        return server
