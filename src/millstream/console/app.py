"""The application: routes, what every answer carries, and who may ask."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from threading import Event
from typing import Any, Final

import anyio
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from millstream import __version__
from millstream.client.admin import Admin
from millstream.console import cluster, decoding, groups, reading, writing
from millstream.console.expression import ExpressionError, parse
from millstream.console.log_views import log_view
from millstream.console.problems import ProblemError, problem_of
from millstream.console.table_views import ShownTable, tables_view
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicPartition

STATIC: Final = Path(str(resources.files("millstream.console"))) / "static"
_PROTECTION: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
_ASKED_BY_A_PAGE: Final = "x-millstream-console"
"""A header that no other site can send without being allowed to: the guard of every change."""
_SHORT: Final = {"default.api.timeout.ms": 1500, "request.timeout.ms": 1000}
_MAX_BODY: Final = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """``client`` are settings of the client; ``hosts`` the names that browsers may call it by.

    ``source`` are options of the Spark source, for the positions of ``tables``.
    """

    client: Mapping[str, object]
    allows_writes: bool = False
    log_directories: Sequence[Path] = ()
    tables: Sequence[ShownTable] = ()
    source: Mapping[str, str] = field(default_factory=dict)
    hosts: Sequence[str] = ("localhost", "127.0.0.1", "[::1]")


def create_app(options: ConsoleOptions) -> Starlette:
    """Return the console for one cluster; it connects when it is started."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.admin = await run_in_threadpool(lambda: Admin(options.client))
        app.state.disks = await run_in_threadpool(lambda: Admin({**options.client, **_SHORT}))
        try:
            yield
        finally:
            app.state.ended.set()
            await run_in_threadpool(app.state.disks.close)
            await run_in_threadpool(app.state.admin.close)

    pages = _Pages(options)
    app = Starlette(
        routes=[
            Route("/", pages.index),
            Route("/api/session", pages.answer(pages.session)),
            Route("/api/overview", pages.answer(lambda r: cluster.overview(_admin(r), _disks(r)))),
            Route("/api/topics", pages.answer(lambda r: cluster.topics(_admin(r), _disks(r)))),
            Route(
                "/api/topics/{topic}",
                pages.answer(lambda r: cluster.topic(_admin(r), _disks(r), _named(r, "topic"))),
            ),
            Route(
                "/api/topics/{topic}/settings",
                pages.answer(lambda r: cluster.settings(_admin(r), _named(r, "topic"))),
            ),
            Route("/api/topics/{topic}/records", pages.answer(pages.records), methods=["GET"]),
            Route("/api/topics/{topic}/records", pages.change(pages.produce), methods=["POST"]),
            Route("/api/topics/{topic}/tail", pages.tail),
            Route("/api/groups", pages.answer(lambda r: groups.groups(_admin(r)))),
            Route("/api/groups/{group}", pages.answer(pages.group)),
            Route("/api/groups/{group}/reset", pages.change(pages.reset), methods=["POST"]),
            Route("/api/transactions", pages.answer(lambda r: cluster.transactions(_admin(r)))),
            Route(
                "/api/transactions/{id}",
                pages.answer(lambda r: cluster.transaction(_admin(r), _named(r, "id"))),
            ),
            Route("/api/acls", pages.answer(lambda r: cluster.acls(_admin(r)))),
            Route("/api/tables", pages.answer(pages.tables)),
            Route("/api/log/{topic}/{partition:int}", pages.answer(pages.log)),
            Route(
                "/api/replicas/{topic}/{partition:int}",
                pages.answer(lambda r: cluster.replicas(_admin(r), _disks(r), _partition(r))),
            ),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        lifespan=lifespan,
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(options.hosts), www_redirect=False)
        ],
    )
    app.state.ended = Event()
    return app


Ask = Callable[[Request], Mapping[str, Any]]
Endpoint = Callable[[Request], Awaitable[Response]]


class _Pages:
    """The endpoints that need the options of the console."""

    def __init__(self, options: ConsoleOptions) -> None:
        self._options = options

    async def index(self, _: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers=_PROTECTION)

    def answer(self, ask: Ask) -> Endpoint:
        """Return an endpoint of what asks the cluster, on a thread, and may fail."""

        async def endpoint(request: Request) -> Response:
            try:
                return _Json(await run_in_threadpool(ask, request), headers=_PROTECTION)
            except (MillstreamError, OSError) as error:
                return _refusal(error, request)

        return endpoint

    def change(self, act: Callable[[Request, dict[str, Any]], dict[str, Any]]) -> Endpoint:
        """Return an endpoint that changes something: only where allowed, only from the page."""

        async def endpoint(request: Request) -> Response:
            try:
                if not self._options.allows_writes:
                    raise ProblemError(
                        403,
                        "The console is read only.",
                        request.url.path,
                        "Start it with --allow-writes.",
                    )
                if request.headers.get(_ASKED_BY_A_PAGE) != "1":
                    raise ProblemError(
                        403,
                        "A change comes from the console's own page.",
                        request.url.path,
                        f"Programs send the header {_ASKED_BY_A_PAGE}: 1.",
                    )
                asked = await _body(request)
                return _Json(await run_in_threadpool(act, request, asked), headers=_PROTECTION)
            except (MillstreamError, OSError) as error:
                return _refusal(error, request)

        return endpoint

    def session(self, request: Request) -> dict[str, Any]:
        return {
            "cluster_id": _admin(request).describe_cluster().cluster_id,
            "bootstrap": str(self._options.client["bootstrap.servers"]),
            "read_only": not self._options.allows_writes,
            "version": __version__,
        }

    def records(self, request: Request) -> dict[str, Any]:
        return reading.read(_admin(request), self._options.client, _wanted(request))

    async def tail(self, request: Request) -> Response:
        """Answer records as server-sent events until the browser goes."""
        ended = Event()
        stopped: Event = request.app.state.ended

        async def events() -> AsyncIterator[str]:
            source: Generator[dict[str, Any] | None, None, None] | None = None
            try:
                wanted = _wanted(request)
                source = reading.follow(
                    _admin(request), self._options.client, wanted, _Either(ended, stopped)
                )
                async for record in iterate_in_threadpool(source):
                    if record is None:
                        yield ": nothing yet\n\n"
                    else:
                        yield f"event: record\ndata: {json.dumps(record)}\n\n"
            except (MillstreamError, OSError) as error:
                body = problem_of(error, request.url.path).body()["error"]
                yield f"event: failure\ndata: {json.dumps(body)}\n\n"
            finally:
                ended.set()
                if source is not None:
                    # The consumer's connections close now, and not on the event loop.
                    with anyio.CancelScope(shield=True):
                        await run_in_threadpool(source.close)

        return StreamingResponse(events(), media_type="text/event-stream", headers=_PROTECTION)

    def produce(self, request: Request, asked: dict[str, Any]) -> dict[str, Any]:
        return writing.produce(self._options.client, _named(request, "topic"), asked)

    def group(self, request: Request) -> dict[str, Any]:
        return groups.group(_admin(request), self._options.client, _named(request, "group"))

    def reset(self, request: Request, asked: dict[str, Any]) -> dict[str, Any]:
        return writing.reset(_admin(request), _named(request, "group"), asked)

    def log(self, request: Request) -> Mapping[str, object]:
        at = _partition(request)
        offset = _number(request.query_params.get("offset", ""), "offset", None)
        return log_view(self._options.log_directories, at.topic, at.partition, offset)

    def tables(self, _: Request) -> Mapping[str, object]:
        return tables_view(self._options.tables, self._options.source)


class _Either(Event):
    """Set when one of two events is."""

    def __init__(self, one: Event, other: Event) -> None:
        super().__init__()
        self._both = one, other

    def is_set(self) -> bool:
        return any(each.is_set() for each in self._both)


def _admin(request: Request) -> Admin:
    admin: Admin = request.app.state.admin
    return admin


def _disks(request: Request) -> Admin:
    admin: Admin = request.app.state.disks
    return admin


def _named(request: Request, name: str) -> str:
    return str(request.path_params[name])


def _partition(request: Request) -> TopicPartition:
    return TopicPartition(_named(request, "topic"), int(request.path_params["partition"]))


class _Json(Response):
    """JSON in ASCII: records may hold halves of surrogate pairs, which UTF-8 cannot have."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def _refusal(error: MillstreamError | OSError, request: Request) -> Response:
    problem = problem_of(error, request.url.path)
    return _Json(problem.body(), status_code=problem.status, headers=_PROTECTION)


async def _body(request: Request) -> dict[str, Any]:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > _MAX_BODY:
            raise ProblemError(
                413,
                "This is too large for the console.",
                request.url.path,
                "`millstream produce` takes records of any size.",
            )
    try:
        asked = json.loads(data)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise ProblemError(
            400,
            "The request is not a JSON object.",
            request.url.path,
            "docs/console.md has the shapes.",
        )
    return asked


def _wanted(request: Request) -> reading.Wanted:
    query = request.query_params
    filter_ = query.get("filter", "").strip()
    try:
        matches = parse(filter_) if filter_ else None
    except ExpressionError as error:
        raise ProblemError(
            400,
            f"{error}.",
            "Only where",
            'For example: value.status >= 500 and "health" not in value.path',
        ) from error
    start = query.get("from", "newest")
    if start not in ("newest", "oldest", "offset", "time"):
        raise ProblemError(
            400, f"There is no start {start!r}.", "from", "Choose newest, oldest, offset or time."
        )
    return reading.Wanted(
        topic=_named(request, "topic"),
        partition=_number(query.get("partition", ""), "partition", None),
        start=start,
        offset=_number(query.get("offset", ""), "offset", 0) or 0,
        timestamp=_number(query.get("timestamp", ""), "timestamp", 0) or 0,
        limit=max(
            1, min(reading.MAX_RECORDS, _number(query.get("limit", ""), "limit", 200) or 200)
        ),
        decoder=decoding.check_decoder(query.get("decoder", "auto")),
        matches=matches,
    )


def _number(text: str, name: str, default: int | None) -> int | None:
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ProblemError(400, f"{text!r} is not a number.", name, "Give a whole number.")
    return int(text)
