"""A small proxy for one TCP service: it can go silent, or cut every connection."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class Proxy:
    """Forwards connections to ``port``, on a thread of its own."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._servers: set[socket.socket] = set()
        self.is_silent = False
        """True: bytes are swallowed in both directions, connections stay."""
        self.drop_answers = False
        """True: requests go through, answers are swallowed."""
        self._closed = False
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Close every connection; new ones are taken."""
        for connection in tuple(self._peers):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        self.cut()
        self._thread.join()
        self._listener.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._forward(key.fileobj)
        for connection in tuple(self._peers):
            self._drop(connection)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=2)
        except OSError:
            client.close()
            return
        self._peers[client], self._peers[server] = server, client
        self._servers.add(server)
        for each in (client, server):
            self._selector.register(each, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        target = self._peers.get(source)
        if target is None:
            return
        try:
            data = source.recv(65_536)
            if not data:
                self._drop(source)
            elif not (self.is_silent or (self.drop_answers and source in self._servers)):
                target.sendall(data)
        except OSError:
            self._drop(source)

    def _drop(self, connection: socket.socket) -> None:
        for each in (connection, self._peers.pop(connection, None)):
            if each is None:
                continue
            self._peers.pop(each, None)
            self._servers.discard(each)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(each)
            each.close()
