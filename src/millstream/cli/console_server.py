"""The server behind `millstream console`: its socket, its certificate, its end."""

from __future__ import annotations

import signal
import socket
import ssl
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn
from starlette.applications import Starlette

from millstream.cli.failures import CommandFailedError
from millstream.security.tls import server_context
from millstream.security.tls_settings import StoreSettings, TlsSettings

_GRACE_S: Final = 2
_BACKLOG: Final = 128


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. CommandFailedError says why it cannot be."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CommandFailedError(f"cannot listen on {host}: {error.strerror}") from error
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        # Who reads the address may connect at once, and waits for the server to be ready.
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise CommandFailedError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another --port"
        ) from error
    return listening


def tls_context(keystore: Path) -> ssl.SSLContext:
    """Return the context for a PEM file with a certificate and its key. ConfigError."""
    store = StoreSettings("--tls-keystore ", type="PEM", location=str(keystore))
    return server_context(TlsSettings(keystore=store))


def serve_app(app: Starlette, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
    """Serve until SIGTERM or Ctrl-C: this is the way to stop it, so nothing is raised."""
    # Who asks is the other end of the connection: a header of a proxy could say anything.
    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=_GRACE_S, proxy_headers=False
    )
    config.load()
    config.ssl = tls
    server = uvicorn.Server(config)
    leave = server.handle_exit

    def end(signal_number: int, frame: FrameType | None) -> None:
        # Live views wait for records: they end first, or the server would have to break them.
        app.state.ended.set()
        leave(signal_number, frame)

    server.handle_exit = end  # type: ignore[method-assign, assignment]  # uvicorn has no hook
    # The server takes the signals once its coroutine runs; one that comes before must not leave
    # the coroutine behind.
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
