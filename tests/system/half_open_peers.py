"""Opens thousands of connections that stay in the handshake, and holds them until it is told.

``python -m tests.system.half_open_peers KIND PORT COUNT``: KIND is ``tls`` or ``sasl``. Peers come
from twenty addresses of this machine (127.0.0.2 to 127.0.0.21). A third says nothing, a third stops
in the middle of its first message, a third stops once it was answered. Prints ``open`` when all of
them are connected, and ends with its standard input.
"""

from __future__ import annotations

import resource
import socket
import ssl
import sys
from contextlib import suppress
from typing import Final

from millstream.protocol.codec import encode_request
from millstream.protocol.messages.sasl_handshake import SaslHandshakeRequest

ADDRESSES: Final = 20


def hello() -> bytes:
    """Return what a client of TLS says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def sasl() -> bytes:
    """Return what a client of SASL says first."""
    return encode_request(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1, 1, "t").join()


def main(kind: str, port: str, count: str) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    first = hello() if kind == "tls" else sasl()
    opened: list[socket.socket] = []
    for number in range(int(count)):
        sock = socket.socket()
        sock.bind((f"127.0.0.{2 + number % ADDRESSES}", 0))
        sock.settimeout(60)
        sock.connect(("127.0.0.1", int(port)))
        opened.append(sock)
        with suppress(OSError):  # it had to give way already
            if number % 3 == 1:
                sock.send(first[: len(first) // 2])
            elif number % 3 == 2:
                sock.send(first)
    print("open", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
