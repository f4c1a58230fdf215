"""A TCP proxy that delays, cuts and resets connections, by seeded chance.

``with FaultProxy(seed) as proxy`` listens on a port that the system picked; ``proxy.upstream`` says
where bytes go. ``proxy.trouble`` is the chance of trouble for each chunk that passes; 0 is calm.
A request that was forwarded before its connection was cut has an outcome that the client cannot
know: that is what it is for.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter

CHUNK_BYTES = 16_384
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class FaultProxy:
    def __init__(self, seed: int = 0) -> None:
        self.upstream = ("127.0.0.1", 0)
        self.trouble = 0.0
        self.happened: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._start(self._accept)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for each in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self.upstream, 10)
            except OSError:
                client.close()
                continue
            for each in (client, broker):
                each.settimeout(None)
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(each)
            self._start(self._pass_on, client, broker, client)
            self._start(self._pass_on, broker, client, client)

    def _pass_on(self, source: socket.socket, to: socket.socket, client: socket.socket) -> None:
        """Forward one direction until it ends, or until trouble ends it."""
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if self._chance.random() < self.trouble:
                    what = self._chance.choice(("delay", "delay", "cut", "cut later", "reset"))
                    self.happened[what] += 1
                    if what == "delay":
                        time.sleep(self._chance.choice((0.005, 0.05)))
                    elif what == "reset":
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                        break
                    elif what == "cut later":
                        to.sendall(data)
                        break
                    else:
                        break
                to.sendall(data)
        for each in (source, to):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
