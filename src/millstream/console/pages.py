"""The endpoints that need the options of the console: records, groups, files and tables."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Generator, Mapping
from threading import Event
from typing import Any

import anyio
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from millstream import __version__
from millstream.console import decoding, groups, reading, writing
from millstream.console.answers import PROTECTION, named, number, partition_of
from millstream.console.expression import ExpressionError, parse
from millstream.console.log_views import log_view
from millstream.console.options import ConsoleOptions
from millstream.console.problems import ProblemError, problem_of
from millstream.console.sessions import Connection
from millstream.console.table_views import tables_view
from millstream.model.errors import MillstreamError


class Pages:
    """What the pages ask for. ``ended`` is set when the console stops."""

    def __init__(self, options: ConsoleOptions, ended: Event) -> None:
        self._options = options
        self._ended = ended

    def session(self, _: Request, to: Connection) -> dict[str, Any]:
        """Tell what a page has to know of the console."""
        return {
            "cluster_id": to.admin.describe_cluster().cluster_id,
            "bootstrap": str(self._options.client["bootstrap.servers"]),
            "read_only": not self._options.allows_writes,
            "schemas": self._options.schemas is not None,
            "version": __version__,
        }

    def records(self, request: Request, to: Connection) -> dict[str, Any]:
        """Read records."""
        return reading.read(to.admin, to.client, self._wanted(request))

    async def tail(self, request: Request, to: Connection) -> Response:
        """Answer records as server-sent events until the browser goes."""
        ended = Event()

        async def events() -> AsyncIterator[str]:
            source: Generator[dict[str, Any] | None, None, None] | None = None
            try:
                wanted = self._wanted(request)
                any_end = _Any(ended, to.ended, self._ended)
                source = reading.follow(to.admin, to.client, wanted, any_end)
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

        return StreamingResponse(events(), media_type="text/event-stream", headers=PROTECTION)

    def produce(self, request: Request, to: Connection, asked: dict[str, Any]) -> dict[str, Any]:
        """Send one record."""
        return writing.produce(to.client, named(request, "topic"), asked)

    def group(self, request: Request, to: Connection) -> dict[str, Any]:
        """Describe a group."""
        return groups.group(to.admin, to.client, named(request, "group"))

    def reset(self, request: Request, to: Connection, asked: dict[str, Any]) -> dict[str, Any]:
        """Plan a reset, or carry it out."""
        return writing.reset(to.admin, named(request, "group"), asked)

    def log(self, request: Request, to: Connection) -> Mapping[str, object]:
        """Show the files of a partition."""
        at = partition_of(request)
        offset = number(request.query_params.get("offset", ""), "offset", None)
        if to.user is not None:
            # Files know no access rules: who may not see the topic does not see them either.
            to.admin.describe_topics([at.topic])[at.topic].get()
        return log_view(self._options.log_directories, at.topic, at.partition, offset)

    def tables(self, _: Request, to: Connection) -> Mapping[str, object]:
        """Show the tables that loads fill."""
        source = dict(self._options.source)
        if to.user is not None:
            for name in ("sasl.username", "sasl.password"):
                source[f"kafka.{name}"] = str(to.client[name])
        return tables_view(self._options.tables, source)

    def _wanted(self, request: Request) -> reading.Wanted:
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
                400,
                f"There is no start {start!r}.",
                "from",
                "Choose newest, oldest, offset or time.",
            )
        limit = number(query.get("limit", ""), "limit", 200) or 200
        return reading.Wanted(
            topic=named(request, "topic"),
            partition=number(query.get("partition", ""), "partition", None),
            start=start,
            offset=number(query.get("offset", ""), "offset", 0) or 0,
            timestamp=number(query.get("timestamp", ""), "timestamp", 0) or 0,
            limit=max(1, min(reading.MAX_RECORDS, limit)),
            decoder=decoding.check_decoder(query.get("decoder", "auto")),
            matches=matches,
            schemas=self._options.schemas,
        )


class _Any(Event):
    """Set when one of several events is."""

    def __init__(self, *events: Event) -> None:
        super().__init__()
        self._events = events

    def is_set(self) -> bool:
        return any(each.is_set() for each in self._events)
