"""In a broker under test: requests that a test has asked for are shown to it before they are
handled.

The broker decides nothing. It shows a request of an API that is watched, and waits for one of::

    serve       handle it, as without a test
    fail        answer with an error, in the place where this API has one
    answer      answer with a response that the test made
    delay       handle it, and keep the answer back
    silence     never answer; the connection stays open
    disconnect  close the connection in place of handling it
    lose        handle it, and close the connection in place of answering

While one request of a connection is shown, those that follow on it are shown too: their order
stays. What is recorded is told and not waited for.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from millstream.handlers.request import Answer, Handle, Reply, RequestContext
from millstream.handlers.routes import Route
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConnectionClosedError, ErrorCode, KafkaError
from millstream.protocol.api import FIRST_INTERNAL_KEY, ApiKey, response_class
from millstream.protocol.encoding import MessageError
from millstream.protocol.message import Request, Response
from millstream.runtime.services import Services
from millstream.server.machine import Decode
from millstream.testing.frames import BETWEEN_BROKERS, Frame

_WITH_FILES: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH})
"""Answers whose records lie in files: they are not recorded."""


@dataclass(slots=True)
class _Shown:
    """A request that waits for the test to decide."""

    route: Route
    services: Services
    context: RequestContext
    request: Request
    handle: Handle
    outcome: Deferred[Answer]


class Interception:
    """Shows requests by ``tell``, which sends a frame to the test; ``decided`` takes its word."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        tell: Callable[[Frame], None],
        keys: list[int],
        *,
        records: bool,
    ) -> None:
        """``keys`` and ``records`` as in :meth:`watch`."""
        self._loop = loop
        self._tell = tell
        self._watched = frozenset(keys)
        self._is_recording = records
        self._next = 0
        self._shown: dict[int, _Shown] = {}
        self._of_connection: dict[int, int] = {}
        self._body: bytearray | None = None

    def watch(self, keys: list[int], *, records: bool) -> None:
        """Show requests of these APIs from now on; tell of all requests while recording."""
        self._watched = frozenset(keys)
        self._is_recording = records

    def around(
        self, route: Route, version: int, decode: Decode, handle: Handle
    ) -> tuple[Decode, Handle]:
        """Return a decoder that keeps the body, and a handler that shows it first
        (``server.machine.Around``).
        """
        key = int(route.key)
        if key >= FIRST_INTERNAL_KEY:
            return decode, handle

        def decode_and_keep(frame: memoryview, position: int) -> Request:
            if not (self._watched or self._is_recording or self._of_connection):
                self._body = None
                return decode(frame, position)
            # The connection's buffer is written over before a request that waits is handled.
            copy = bytearray(frame)
            self._body = copy[position:]
            return decode(memoryview(copy), position)

        def shown_first(services: Services, context: RequestContext, request: Any) -> Reply:
            body, self._body = self._body, None
            connection = context.connection
            if body is None or connection.is_own or connection.listener == BETWEEN_BROKERS:
                return handle(services, context, request)
            self._next += 1
            number = self._next
            if self._is_recording:
                self._tell({"event": "request", "number": number, **_envelope(context, body)})
            if key not in self._watched and connection.connection_id not in self._of_connection:
                return self._recorded(number, version, handle(services, context, request))
            outcome: Deferred[Answer] = Deferred()
            self._shown[number] = _Shown(route, services, context, request, handle, outcome)
            self._shows(connection.connection_id, 1)
            self._tell({"event": "shown", "number": number, **_envelope(context, body)})
            return self._recorded(number, version, outcome)

        return decode_and_keep, shown_first

    def _shows(self, connection_id: int, change: int) -> None:
        count = self._of_connection.get(connection_id, 0) + change
        if count:
            self._of_connection[connection_id] = count
        else:
            del self._of_connection[connection_id]

    def decided(self, number: int, verdict: Frame) -> None:
        """Do with a request what the test has decided."""
        shown = self._shown.pop(number)
        self._shows(shown.context.connection.connection_id, -1)
        outcome = shown.outcome
        try:
            reply = self._reply(shown, verdict)
        except Exception as error:
            outcome.fail(error)
            return
        if reply is not None:
            reply.on_done(lambda settled: _fill(outcome, settled))

    def _reply(self, shown: _Shown, verdict: Frame) -> Deferred[Answer] | None:
        """Return the answer, or None where there will be none."""
        match verdict["action"]:
            case "fail":
                error = KafkaError(ErrorCode.of(verdict["code"]), verdict.get("message"))
                return Deferred.of(shown.route.failed()(shown.context, shown.request, error))
            case "answer":
                kind = response_class(shown.context.api_key)
                return Deferred.of(kind.decode_body(shown.context.version, verdict["body"]))
            case "silence":
                return None
            case "disconnect":
                raise ConnectionClosedError("the test closes the connection")
        served = _as_deferred(shown.handle(shown.services, shown.context, shown.request))
        match verdict["action"]:
            case "delay":
                return self._later(served, verdict["delay_s"])
            case "lose":
                return _lost(served)
        return served

    def _later(self, served: Deferred[Answer], delay_s: float) -> Deferred[Answer]:
        kept: Deferred[Answer] = Deferred()

        def wait(served: Deferred[Answer]) -> None:
            self._loop.call_later(delay_s, _fill, kept, served)

        served.on_done(wait)
        return kept

    def _recorded(self, number: int, version: int, reply: Reply) -> Reply:
        """Tell of the answer when there is one, and hand it on."""
        if not self._is_recording:
            return reply
        if isinstance(reply, Coroutine):
            reply = spawn(reply)
        if isinstance(reply, Deferred):
            reply.on_done(lambda settled: self._tell_answer(number, version, settled))
        else:
            self._tell_answer(number, version, Deferred.of(reply))
        return reply

    def _tell_answer(self, number: int, version: int, settled: Deferred[Answer]) -> None:
        frame: Frame = {"event": "answer", "number": number, "body": None, "error": None}
        try:
            answer = settled.result()
        except KafkaError as error:
            frame["error"] = error.error.name
        except Exception as error:
            frame["error"] = str(error) or type(error).__name__
        else:
            if answer is not None and answer.API_KEY not in _WITH_FILES:
                frame["body"] = _encoded(answer, version)
        self._tell(frame)


def _envelope(context: RequestContext, body: bytearray) -> Frame:
    connection = context.connection
    return {
        "key": context.api_key,
        "version": context.version,
        "client_id": context.client_id,
        "connection": connection.connection_id,
        "principal": str(connection.principal),
        "body": bytes(body),
    }


def _encoded(answer: Response, version: int) -> bytes | None:
    try:
        return answer.encode_body(version)
    except MessageError:  # the broker fails in the same way, and says so
        return None


def _as_deferred(reply: Reply) -> Deferred[Answer]:
    if isinstance(reply, Deferred):
        return reply
    if reply is None or isinstance(reply, Response):
        return Deferred.of(reply)
    return spawn(reply)


def _fill(outcome: Deferred[Answer], settled: Deferred[Answer]) -> None:
    try:
        answer = settled.result()
    except Exception as error:
        outcome.fail(error)
    else:
        outcome.complete(answer)


def _lost(served: Deferred[Answer]) -> Deferred[Answer]:
    lost: Deferred[Answer] = Deferred()
    served.on_done(
        lambda _: lost.fail(ConnectionClosedError("the test closes the connection unanswered"))
    )
    return lost
