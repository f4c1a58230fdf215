"""One connection of a :class:`Cluster`, blocking, with a deadline on every wait.

It is ``core.connection`` on a loop that the caller turns while it waits; what is added is that an
answer is waited for, and that a connection that has failed stays closed.
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeVar

from millstream.client.blocking_loop import BlockingLoop
from millstream.client.core.connection import Asked, NodeConnection
from millstream.client.core.connection_attempt import State
from millstream.client.core.frames import FrameMemory
from millstream.client.core.settings import ClientSettings as CoreSettings
from millstream.client.errors import ConnectionFailedError, UnsupportedVersionError
from millstream.client.settings import Address, ClientSettings
from millstream.model.deferred import Deferred
from millstream.protocol.message import Request, Response

R = TypeVar("R", bound=Response)

_NEVER: Final = float("inf")


class Connection:
    """A connection on which versions have been agreed, and the client is authenticated.

    ``call`` sends one request and waits for its answer. ``send`` and ``receive`` are its halves,
    for callers that keep several requests in flight; answers come in the order of the requests.
    After an error the connection is closed and ``is_open`` is False. With ``overwrites`` every
    large response is read into the memory of the previous one, which becomes invalid: this saves
    readers of large responses an allocation for each.
    """

    def __init__(
        self,
        address: Address,
        settings: ClientSettings,
        loop: BlockingLoop,
        *,
        overwrites: bool = False,
    ) -> None:
        """Connect. Other connections on the loop are served while this one waits.

        ConnectionFailedError, TimedOutError, TlsError and AuthenticationError.
        """
        self.address = address
        self.settings = settings
        self.is_open = True
        self._loop = loop
        self._answers: deque[Deferred[Response]] = deque()
        self._node = NodeConnection(
            self._loop,
            address,
            _core_settings(settings),
            self._failed,
            memory=FrameMemory() if overwrites else None,
        )
        try:
            self._loop.wait_for(self._node.ready(), _NEVER, "")
        except BaseException:
            self.close()
            raise

    @property
    def outstanding(self) -> int:
        """Requests whose answers have not been received."""
        return len(self._answers)

    def version_for(self, request: type[Request], highest: int | None = None) -> int:
        """See :meth:`Conversation.version_for`."""
        return self._node.conversation.version_for(request, highest)

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

    def send(self, request: Request, *, version: int | None = None) -> None:
        """Send a request in the newest common version, or in ``version``. What the system does not
        take at once follows while the answer is waited for.
        """
        if not self.is_open:
            raise ConnectionFailedError(f"the connection to the broker at {self.address} is closed")
        self._loop.run_due()
        if self._node.state is State.READY and version is None:
            self.version_for(type(request))
        answer: Deferred[Response] = Deferred()
        self._node.ask(Asked(request, answer, _NEVER, version, None, answered=True))
        self._answers.append(answer)

    def receive(self, answer: type[R], *, timeout_ms: int | None = None) -> R:
        """Return the response to the oldest outstanding request; it must be of type ``answer``."""
        wait_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            response = self._loop.wait_for(
                self._answers.popleft(),
                wait_ms,
                f"the broker at {self.address} did not answer in time",
            )
        except UnsupportedVersionError:
            raise
        except BaseException:  # a callback that failed, and an interrupt, leave the answer unread
            self.close()
            raise
        assert isinstance(response, answer), "answers are received in the order of the requests"
        return response

    def close(self) -> None:
        """Close the socket; closing twice is harmless."""
        self.is_open = False
        self._node.close()

    def _failed(self) -> None:
        self.is_open = False


def _core_settings(settings: ClientSettings) -> CoreSettings:
    return CoreSettings(
        bootstrap_servers=settings.bootstrap_servers,
        client_id=settings.client_id,
        request_timeout_ms=settings.request_timeout_ms,
        socket_connection_setup_timeout_ms=settings.connect_timeout_ms,
        socket_connection_setup_timeout_max_ms=settings.connect_timeout_ms,
        connections_max_idle_ms=_NEVER,
    )
