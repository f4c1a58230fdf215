"""The application: routes, what every answer carries, and who may ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import resources
from pathlib import Path
from threading import Event
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from millstream.client.admin import Admin
from millstream.console import cluster, groups
from millstream.console.answers import PROTECTION, named, partition_of
from millstream.console.asking import Asking
from millstream.console.options import ConsoleOptions
from millstream.console.pages import Pages
from millstream.console.sessions import Connection, Sessions, connect

STATIC: Final = Path(str(resources.files("millstream.console"))) / "static"
_SWEEP_S: Final = 30.0


def create_app(options: ConsoleOptions) -> Starlette:
    """Return the console for one cluster; it connects when it is started.

    ``app.state.ended`` is an Event: once it is set, live views end. ConfigError for a log-in
    where the cluster has no passwords.
    """
    sessions = Sessions(options.client) if options.login else None
    ended = Event()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if sessions is None:
            asking.shared = await run_in_threadpool(connect, options.client)
        sweeping = asyncio.create_task(_sweep(sessions))
        try:
            yield
        finally:
            ended.set()
            sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await sweeping
            open_now: list[Sessions | Connection | None] = [sessions, asking.shared]
            for each in open_now:
                if each is not None:
                    await run_in_threadpool(each.close)

    asking = Asking(sessions, is_secure=options.is_secure, allows_writes=options.allows_writes)
    pages = Pages(options, ended)
    app = Starlette(
        routes=[
            Route("/", _index),
            Route("/api/session", asking.session_endpoint(pages.session), methods=["GET"]),
            Route("/api/session", asking.log_in, methods=["POST"]),
            Route("/api/session", asking.log_out, methods=["DELETE"]),
            *_of_cluster(asking),
            *_of_pages(asking, pages),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        lifespan=lifespan,
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(options.hosts), www_redirect=False)
        ],
    )
    app.state.ended = ended
    return app


def _of_pages(asking: Asking, pages: Pages) -> list[Route]:
    topic, group = "/api/topics/{topic}", "/api/groups/{group}"
    produce = asking.change("produce", pages.produce)
    return [
        Route(f"{topic}/records", asking.answer(pages.records), methods=["GET"]),
        Route(f"{topic}/records", produce, methods=["POST"]),
        Route(f"{topic}/tail", asking.stream(pages.tail)),
        Route(group, asking.answer(pages.group)),
        Route(f"{group}/reset", asking.change("reset", pages.reset), methods=["POST"]),
        Route("/api/tables", asking.answer(pages.tables)),
        Route("/api/log/{topic}/{partition:int}", asking.answer(pages.log)),
    ]


def _of_cluster(asking: Asking) -> list[Route]:
    """Return the routes of what the cluster alone answers."""

    def both(ask: Callable[[Admin, Admin], Mapping[str, Any]]) -> Callable[..., Any]:
        return asking.answer(lambda _, to: ask(to.admin, to.disks))

    def one(ask: Callable[[Admin], Mapping[str, Any]]) -> Callable[..., Any]:
        return asking.answer(lambda _, to: ask(to.admin))

    def topic(request: Request, to: Connection) -> Mapping[str, Any]:
        return cluster.topic(to.admin, to.disks, named(request, "topic"))

    def settings(request: Request, to: Connection) -> Mapping[str, Any]:
        return cluster.settings(to.admin, named(request, "topic"))

    def transaction(request: Request, to: Connection) -> Mapping[str, Any]:
        return cluster.transaction(to.admin, named(request, "id"))

    def replicas(request: Request, to: Connection) -> Mapping[str, Any]:
        return cluster.replicas(to.admin, to.disks, partition_of(request))

    return [
        Route("/api/overview", both(cluster.overview)),
        Route("/api/topics", both(cluster.topics)),
        Route("/api/topics/{topic}", asking.answer(topic)),
        Route("/api/topics/{topic}/settings", asking.answer(settings)),
        Route("/api/groups", one(groups.groups)),
        Route("/api/transactions", one(cluster.transactions)),
        Route("/api/transactions/{id}", asking.answer(transaction)),
        Route("/api/acls", one(cluster.acls)),
        Route("/api/replicas/{topic}/{partition:int}", asking.answer(replicas)),
    ]


async def _index(_: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers=PROTECTION)


async def _sweep(sessions: Sessions | None) -> None:
    while sessions is not None:
        await asyncio.sleep(_SWEEP_S)
        await run_in_threadpool(sessions.sweep)
