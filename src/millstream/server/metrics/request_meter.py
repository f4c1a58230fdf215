"""Counts and times requests, by API, and names the slow ones in the log.

``MonitoringSwitch`` puts it around handlers while metrics or the log of slow requests are wanted. A
Produce or a Fetch costs it about a fifth of a microsecond: every request is counted and its answer
looked at for errors, and every 16th is timed. All requests of the other APIs are timed, and while
slow requests are named each one is.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any, Final

from millstream.handlers.request import Answer, Reply, RequestContext
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Response
from millstream.protocol.messages.fetch import FetchResponse
from millstream.protocol.messages.produce import ProduceResponse
from millstream.runtime.services import Services
from millstream.server.metrics.answers import count_fetched, errors_of
from millstream.server.metrics.histogram import Histogram

log = logging.getLogger(__name__)

Handle = Callable[[Services, RequestContext, Any], Reply]

TIMED_OF_HOT: Final = 16
"""Of so many requests of Produce and Fetch one is timed."""
OFF: Final = float("inf")
_MAX_TEXT: Final = 250
"""So many characters of a name are logged: a topic has 249 at most."""


class ApiMeter:
    """What is known of the requests of one API. Times are in seconds."""

    __slots__ = ("_done", "errors", "handler", "key", "left", "name", "throttle_s", "waiting")

    def __init__(self, key: int) -> None:
        self.key = key
        self.name = _name_of(key)
        self._done = 0
        self.left = TIMED_OF_HOT
        """Of a hot API: how many requests are left until one is timed."""
        self.handler = Histogram()
        self.waiting = Histogram()
        self.errors: Counter[str] = Counter()
        self.throttle_s = 0.0

    @property
    def count(self) -> int:
        """How many requests there were."""
        if self.key in (ApiKey.PRODUCE, ApiKey.FETCH):
            return self._done + TIMED_OF_HOT - self.left
        return self._done

    def begun(self) -> None:
        """Count one request of an API that is not hot."""
        self._done += 1

    def round_is_over(self) -> None:
        """Count the requests of a hot API up to one that is timed."""
        self._done += TIMED_OF_HOT
        self.left = TIMED_OF_HOT

    def answered(self, answer: Answer) -> None:
        """Count the errors of an answer, and how long its client was told to wait."""
        if answer is None:
            return
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms:
            self.throttle_s += throttle_ms / 1_000
        for code in errors_of(answer):
            self.errors[_error_name(code)] += 1

    def failed(self, error: BaseException) -> None:
        """Count a request that an error refused as a whole."""
        code = error.error if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        self.errors[code.name] += 1


class RequestMeter:
    """The meters of all APIs, and the bytes that readers were given."""

    def __init__(self) -> None:
        self._meters: dict[int, ApiMeter] = {}
        self.bytes_out: dict[str, int] = {}
        """Bytes that consumers were given, by topic."""
        self.replication_bytes_out: dict[str, int] = {}
        self.slow_s = OFF
        """From how long on a request is named in the log."""

    def __iter__(self) -> Iterator[ApiMeter]:
        return iter(sorted(self._meters.values(), key=lambda meter: meter.name))

    def of(self, key: int) -> ApiMeter:
        """Return the meter of an API."""
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = ApiMeter(key)
        return meter

    def around(self, key: int, handle: Handle) -> Handle:
        """Return the handler of an API that is metered."""
        meter = self.of(key)
        timed = partial(self._timed, meter, handle)
        if self.slow_s != OFF or key not in (ApiKey.PRODUCE, ApiKey.FETCH):
            return partial(self._counted, meter, timed)
        return self._produce(meter, handle) if key == ApiKey.PRODUCE else self._fetch(meter, handle)

    def _counted(
        self,
        meter: ApiMeter,
        timed: Handle,
        services: Services,
        context: RequestContext,
        request: Any,
    ) -> Reply:
        if meter.key in (ApiKey.PRODUCE, ApiKey.FETCH):
            meter.left -= 1
            if not meter.left:
                meter.round_is_over()
        else:
            meter.begun()
        return timed(services, context, request)

    def _produce(self, meter: ApiMeter, handle: Handle) -> Handle:
        timed = partial(self._timed, meter, handle)

        def metered(services: Services, context: RequestContext, request: Any) -> Reply:
            meter.left -= 1
            if not meter.left:
                meter.round_is_over()
                return timed(services, context, request)
            try:
                reply = handle(services, context, request)
            except Exception as error:
                meter.failed(error)
                raise
            if reply.__class__ is ProduceResponse:  # quicker than isinstance
                for topic in reply.responses:
                    for partition in topic.partition_responses:
                        if partition.error_code:
                            meter.answered(reply)
                            return reply
            elif isinstance(reply, Deferred):
                reply.on_done(settled)
            return reply

        def settled(reply: Deferred[Answer]) -> None:
            self._settled(meter, reply)

        return metered

    def _fetch(self, meter: ApiMeter, handle: Handle) -> Handle:
        timed = partial(self._timed, meter, handle)

        def metered(services: Services, context: RequestContext, request: Any) -> Reply:
            meter.left -= 1
            if not meter.left:
                meter.round_is_over()
                return timed(services, context, request)
            try:
                reply = handle(services, context, request)
            except Exception as error:
                meter.failed(error)
                raise
            if reply.__class__ is FetchResponse:
                self._fetched(meter, request, reply)
                return reply
            if reply is None or isinstance(reply, Response):
                return reply
            later = reply if isinstance(reply, Deferred) else spawn(reply)
            later.on_done(partial(self._fetch_settled, meter, request))
            return later

        return metered

    def _fetch_settled(self, meter: ApiMeter, request: Any, reply: Deferred[Answer]) -> None:
        try:
            answer = reply.result()
        except Exception as error:
            meter.failed(error)
            return
        if answer is not None:
            self._fetched(meter, request, answer)

    def _fetched(self, meter: ApiMeter, request: Any, answer: Any) -> None:
        is_follower = request.replica_id >= 0 or request.replica_state.replica_id >= 0
        totals = self.replication_bytes_out if is_follower else self.bytes_out
        if count_fetched(answer, totals):
            meter.answered(answer)

    def _settled(self, meter: ApiMeter, reply: Deferred[Answer]) -> None:
        try:
            answer = reply.result()
        except Exception as error:
            meter.failed(error)
            return
        if answer is not None:
            meter.answered(answer)

    def _timed(
        self,
        meter: ApiMeter,
        handle: Handle,
        services: Services,
        context: RequestContext,
        request: Any,
    ) -> Reply:
        began_s = perf_counter()
        try:
            reply = handle(services, context, request)
            if not (isinstance(reply, Response) or reply is None or isinstance(reply, Deferred)):
                reply = spawn(reply)
        except Exception as error:
            meter.handler.add(perf_counter() - began_s)
            meter.failed(error)
            raise
        now_s = perf_counter()
        handler_s = now_s - began_s
        meter.handler.add(handler_s)
        if isinstance(reply, Deferred):
            reply.on_done(partial(self._waited, meter, context, request, handler_s, now_s))
        else:
            self._look_at(meter, request, reply)
            if handler_s >= self.slow_s:
                _name_slow(meter, context, request, handler_s, 0.0)
        return reply

    def _waited(
        self,
        meter: ApiMeter,
        context: RequestContext,
        request: Any,
        handler_s: float,
        since_s: float,
        reply: Deferred[Answer],
    ) -> None:
        waited_s = perf_counter() - since_s
        meter.waiting.add(waited_s)
        if self.slow_s != OFF:
            may_wait_s = 0.0
            if meter.key == ApiKey.FETCH:
                may_wait_s = min(request.max_wait_ms / 1_000, waited_s)
            if handler_s + waited_s - may_wait_s >= self.slow_s:
                _name_slow(meter, context, request, handler_s, waited_s)
        try:
            answer = reply.result()
        except Exception as error:
            meter.failed(error)
        else:
            self._look_at(meter, request, answer)

    def _look_at(self, meter: ApiMeter, request: Any, answer: Answer) -> None:
        if answer is None:
            return
        if meter.key == ApiKey.FETCH:
            self._fetched(meter, request, answer)
        else:
            meter.answered(answer)


def _name_slow(
    meter: ApiMeter, context: RequestContext, request: Any, handler_s: float, waited_s: float
) -> None:
    """Write one line about a request that took long, with what it asked for."""
    connection = context.connection
    log.warning(
        "slow request: %s v%d of client %r at %s:%d as %r took %.1f ms (handler %.1f ms, waiting "
        "%.1f ms)%s",
        meter.name,
        context.version,
        _shortened(context.client_id),
        connection.peer_host,
        connection.peer_port,
        _shortened(str(connection.principal)),
        (handler_s + waited_s) * 1_000,
        handler_s * 1_000,
        waited_s * 1_000,
        _topics_of(request),
    )


def _topics_of(request: Any) -> str:
    """Return the topics that a request names, a few of them."""
    topics = getattr(request, "topic_data", None) or getattr(request, "topics", None) or ()
    names = []
    for topic in topics:
        name = topic if isinstance(topic, str) else getattr(topic, "name", None)
        name = name or getattr(topic, "topic", None) or getattr(topic, "topic_id", None)
        names.append(name)
    if not names:
        return ""
    named = [repr(_shortened(name)) if isinstance(name, str) else str(name) for name in names[:3]]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f", topics {', '.join(named)}{more}"


def _shortened(text: str | None) -> str | None:
    """Return a text that a client gave, cut: it may have 32 KiB."""
    if text is None or len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}…"


def _name_of(key: int) -> str:
    """Return the name of an API as Kafka's metrics have it."""
    try:
        return ApiKey(key).name.title().replace("_", "")
    except ValueError:
        return str(key)


def _error_name(code: int) -> str:
    try:
        return ErrorCode.of(code).name
    except (KeyError, ValueError):
        return str(code)
