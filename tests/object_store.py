"""An S3 server of `moto` in a process of its own, and a link to it that a test can cut.

``with S3Server() as server``: ``server.options`` are the storage options that reach it, with the
bucket ``lake``. It keeps the condition of a put (If-None-Match), as S3 does.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import subprocess
import sys
import threading
import urllib.request
from multiprocessing.connection import Connection
from types import TracebackType

BUCKET = "lake"
_SERVE = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
WSGIRequestHandler.protocol_version = "HTTP/1.1"
WSGIRequestHandler.log_request = lambda *_: None
app = DomainDispatcherApplication(create_backend_app)
def unconditional(environ, start_response):
    environ.pop("HTTP_IF_NONE_MATCH", None)
    return app(environ, start_response)
served = app if sys.argv[1] == "conditional" else unconditional
server = make_server("127.0.0.1", 0, served, threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""
_CHUNK_BYTES = 1 << 16


class S3Server:
    """With ``conditional=False`` it takes the condition of a put and does not keep it."""

    def __init__(self, *, conditional: bool = True) -> None:
        self._puts = "conditional" if conditional else "unconditional"

    def __enter__(self) -> S3Server:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, self._puts], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait(30)
        self._process.stdout.close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        return options_of(self.endpoint)


def options_of(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }


class CutLink:
    """Passes connections on, and cuts the one on which a request for an object is made.

    :meth:`cut` names the request by parts of its first line. With ``answered`` the server gets all
    of it, and the answer is lost. It is a process of its own: libraries that keep Python's lock
    while they wait for an answer would wait for ever.
    """

    def __init__(self, port: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._commands, its_end = spawn.Pipe()
        self._process = spawn.Process(target=_run_link, args=(port, its_end), daemon=True)

    def __enter__(self) -> CutLink:
        self._process.start()
        self.endpoint = f"http://127.0.0.1:{self._commands.recv()}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join(30)
        self._process.close()
        self._commands.close()

    def cut(self, *parts: str, answered: bool) -> None:
        """Cut the next request with these parts; ``cuts`` counts them."""
        self._commands.send(([part.encode() for part in parts], answered))
        self._commands.recv()

    @property
    def cuts(self) -> int:
        self._commands.send(None)
        found = self._commands.recv()
        assert isinstance(found, int)
        return found


def _run_link(port: int, commands: Connection) -> None:
    link = _Link(port)
    commands.send(link.port)
    with contextlib.suppress(EOFError):
        while True:
            command = commands.recv()
            if command is not None:
                link.wanted, link.answered = command
            commands.send(link.cuts)


class _Link:
    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.wanted: list[bytes] = []
        self.answered = False
        self.cuts = 0
        self._start(self._accept)

    @staticmethod
    def _start(target: object, *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._port))
            is_lost = threading.Event()
            self._start(self._ask, client, server, is_lost)
            self._start(self._answer, server, client, is_lost)

    def _ask(self, client: socket.socket, server: socket.socket, is_lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(_CHUNK_BYTES):
                first_line = data.partition(b"\r\n")[0]
                if self.wanted and all(part in first_line for part in self.wanted):
                    self.wanted = []
                    self.cuts += 1
                    if not self.answered:
                        break
                    is_lost.set()
                server.sendall(data)
        if not is_lost.is_set():
            _close(client)
            _close(server)

    @staticmethod
    def _answer(server: socket.socket, client: socket.socket, is_lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(_CHUNK_BYTES):
                if is_lost.is_set():
                    break
                client.sendall(data)
        _close(client)
        _close(server)


def _close(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
