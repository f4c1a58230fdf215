"""One TCP connection of a :class:`Cluster`, blocking, with a deadline on every wait."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar, cast

from millstream.client.conversation import Conversation
from millstream.client.errors import ConnectionFailedError, TimedOutError
from millstream.client.settings import Address, ClientSettings
from millstream.model.errors import ProtocolError
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Buffer

R = TypeVar("R", bound=Response)

MAX_RESPONSE_BYTES: Final = 1 << 30
"""A larger response is refused. Memory is only used as the bytes arrive: untouched pages cost
nothing.
"""

_LARGE_READ_BYTES: Final = 1 << 20
_MOST_KEPT_BYTES: Final = 64 << 20


class Connection:
    """A connection on which versions have been agreed.

    ``call`` sends one request and waits for its answer. ``send`` and ``receive`` are its halves,
    for callers that keep several requests in flight; answers come in the order of the requests.
    After an error the connection is closed and ``is_open`` is False. With ``overwrites`` every
    response is read into the memory of the previous one, which becomes invalid: this saves readers
    of large responses an allocation for each.
    """

    def __init__(
        self, address: Address, settings: ClientSettings, *, overwrites: bool = False
    ) -> None:
        self.address = address
        self.settings = settings
        self._memory: bytearray | None = bytearray() if overwrites else None
        self._conversation = Conversation(settings.client_id)
        self._socket = _connect(address, settings.connect_timeout_ms)
        self.is_open = True
        self._agree_on_versions()

    @property
    def outstanding(self) -> int:
        """Requests whose answers have not been received."""
        return self._conversation.outstanding

    def version_for(self, request: type[Request], highest: int | None = None) -> int:
        """See :meth:`Conversation.version_for`."""
        return self._conversation.version_for(request, highest)

    def call(
        self,
        request: Request,
        answer: type[R],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> R:
        """Send a request and return its answer; ``timeout_ms`` replaces the settings' own."""
        assert not self.outstanding, "a call on a connection with requests in flight"
        self.send(request, version=version)
        return self.receive(answer, timeout_ms=timeout_ms)

    def send(self, request: Request, *, version: int | None = None, answered: bool = True) -> None:
        """Send a request in the newest common version, or in ``version``."""
        chosen = self.version_for(type(request)) if version is None else version
        outgoing = self._conversation.ask(request, chosen, answered=answered)
        with self._closing_on_failure("send a request to"):
            self._socket.settimeout(self.settings.request_timeout_ms / 1000)
            count = self._socket.sendmsg(cast("list[Buffer]", outgoing.pieces))
            if count < outgoing.size:
                self._socket.sendall(memoryview(outgoing.join())[count:])

    def receive(self, answer: type[R], *, timeout_ms: int | None = None) -> R:
        """Return the response to the oldest outstanding request; it must be of type ``answer``."""
        frame = self._read_frame(
            self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        )
        with self._closing_on_failure("understand"):
            response = self._conversation.take(frame)
        assert isinstance(response, answer), "answers are received in the order of the requests"
        return response

    def close(self) -> None:
        """Close the socket; closing twice is harmless."""
        self.is_open = False
        self._socket.close()

    def _agree_on_versions(self) -> None:
        request = self._conversation.request_versions()
        while True:
            with self._closing_on_failure("negotiate versions with"):
                self._socket.sendall(request.join())
            frame = self._read_frame(self.settings.connect_timeout_ms)
            with self._closing_on_failure("agree on versions with"):
                version = self._conversation.take_versions(frame)
            if version is None:
                return
            request = self._conversation.request_versions(version)

    def _read_frame(self, timeout_ms: int) -> memoryview:
        deadline = time.monotonic() + timeout_ms / 1000
        with self._closing_on_failure("read from"):
            size = int.from_bytes(self._read(4, deadline), "big", signed=True)
            if not 0 < size <= MAX_RESPONSE_BYTES:
                raise ProtocolError(f"an answer of {size} bytes")
            return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> memoryview:
        view = self._space(size)
        position = 0
        while position < size:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            count = self._socket.recv_into(view[position : position + _LARGE_READ_BYTES])
            if count == 0:
                raise ConnectionResetError("it closed the connection")
            position += count
        return view

    def _space(self, size: int) -> memoryview:
        if self._memory is None or size > _MOST_KEPT_BYTES:
            return memoryview(bytearray(size))
        if len(self._memory) < size:
            self._memory = bytearray(size + size // 8)
        return memoryview(self._memory)[:size]

    @contextmanager
    def _closing_on_failure(self, doing: str) -> Iterator[None]:
        """Close the connection on an error and translate the error for the user."""
        place = f"could not {doing} the broker at {self.address}"
        try:
            yield
        except TimeoutError as error:
            self.close()
            raise TimedOutError(f"{place}: no answer in time") from error
        except ProtocolError as error:
            self.close()
            raise ConnectionFailedError(
                f"{place}: it does not speak the Kafka protocol ({error})"
            ) from error
        except OSError as error:
            self.close()
            raise ConnectionFailedError(f"{place}: {reason(error)}") from error


def _connect(address: Address, timeout_ms: int) -> socket.socket:
    try:
        opened = socket.create_connection((address.host, address.port), timeout_ms / 1000)
    except TimeoutError as error:
        raise TimedOutError(f"no connection to a broker at {address} in time") from error
    except OSError as error:
        raise ConnectionFailedError(f"no broker answers at {address}: {reason(error)}") from error
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def reason(error: OSError) -> str:
    """Return the system's words for an error, without its number."""
    return (error.strerror or str(error)).lower()
