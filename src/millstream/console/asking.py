"""Who asks: sessions in cookies, the guard of changes, and the line that each change leaves."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from hmac import compare_digest
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from millstream.client.errors import AuthenticationError, TlsError
from millstream.console.answers import PROTECTION, Json, read_body, refusal
from millstream.console.problems import ProblemError
from millstream.console.sessions import FROM_A_PAGE, LONGEST_S, Connection, Sessions
from millstream.model.errors import MillstreamError

GUARD: Final = "x-millstream-console"
"""A header that no other site can send without being allowed to: the guard of every change."""

Ask = Callable[[Request, Connection], Mapping[str, Any]]
Act = Callable[[Request, Connection, dict[str, Any]], dict[str, Any]]
Endpoint = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger(__name__)


class Asking:
    """Makes endpoints of functions that ask the cluster. Without ``sessions`` all browsers ask
    through ``shared``, which is set before the first request.
    """

    def __init__(self, sessions: Sessions | None, *, is_secure: bool, allows_writes: bool) -> None:
        self._sessions = sessions
        self._is_secure = is_secure
        self._allows_writes = allows_writes
        # With the prefix a browser takes the cookie over TLS alone, and from no other host.
        self._cookie = "__Host-millstream" if is_secure else "millstream-console"
        self.shared: Connection | None = None

    def answer(self, ask: Ask) -> Endpoint:
        """Return an endpoint of what asks the cluster, on a thread, and may fail."""

        async def endpoint(request: Request) -> Response:
            try:
                to = self._connection(request)
                return Json(await run_in_threadpool(ask, request, to), headers=PROTECTION)
            except (MillstreamError, OSError) as error:
                return await self._failed(error, request)

        return endpoint

    def stream(self, answer: Callable[[Request, Connection], Awaitable[Response]]) -> Endpoint:
        """Return an endpoint that makes its own answer, which may go on for long."""

        async def endpoint(request: Request) -> Response:
            try:
                return await answer(request, self._connection(request))
            except (MillstreamError, OSError) as error:
                return await self._failed(error, request)

        return endpoint

    def change(self, name: str, act: Act) -> Endpoint:
        """Return an endpoint that changes something: only where allowed, only from the page."""

        async def endpoint(request: Request) -> Response:
            try:
                if not self._allows_writes:
                    raise ProblemError(
                        403,
                        "The console is read only.",
                        request.url.path,
                        "Start it with --allow-writes.",
                    )
                to = self._connection(request)
                _check_guard(request, to.guard)
                asked = await read_body(request)
                try:
                    answer = await run_in_threadpool(act, request, to, asked)
                except (MillstreamError, OSError) as error:
                    _note(name, request, to, asked, failed=str(error) or type(error).__name__)
                    raise
                if answer.get("executed") is not False:  # a plan alone changes nothing
                    _note(name, request, to, asked, failed=None)
                return Json(answer, headers=PROTECTION)
            except (MillstreamError, OSError) as error:
                return await self._failed(error, request)

        return endpoint

    # --- sessions --------------------------------------------------------------------------------

    def session_endpoint(self, ask: Ask) -> Endpoint:
        """Return the endpoint that tells who asks; without a session that there has to be one."""

        def tell(request: Request) -> dict[str, Any]:
            if self._sessions is not None and self._find(request) is None:
                return {"login": True, "user": None, "read_only": True}
            to = self._connection(request)
            return {
                "login": self._sessions is not None,
                "user": to.user,
                "guard": to.guard,
                **ask(request, to),
            }

        async def endpoint(request: Request) -> Response:
            try:
                return Json(await run_in_threadpool(tell, request), headers=PROTECTION)
            except (MillstreamError, OSError) as error:
                return await self._failed(error, request)

        return endpoint

    async def log_in(self, request: Request) -> Response:
        """Begin a session for a name and a password of the cluster."""
        try:
            if self._sessions is None:
                raise ProblemError(
                    404, "There is no log-in here.", request.url.path, "Start it with --login."
                )
            _check_guard(request, FROM_A_PAGE)
            asked = await read_body(request)
            user, password = asked.get("user"), asked.get("password")
            if not isinstance(user, str) or not isinstance(password, str):
                raise ProblemError(
                    400, "This is not a log-in.", request.url.path, "Give user and password."
                )
            await run_in_threadpool(self._sessions.log_out, request.cookies.get(self._cookie))
            token, _ = await run_in_threadpool(
                self._sessions.log_in, user, password, _peer(request)
            )
        except (MillstreamError, OSError) as error:
            return refusal(error, request)
        answer = Json({"user": user}, headers=PROTECTION)
        answer.set_cookie(
            self._cookie,
            token,
            max_age=int(LONGEST_S),
            secure=self._is_secure,
            httponly=True,
            samesite="strict",
        )
        return answer

    async def log_out(self, request: Request) -> Response:
        """End the session."""
        try:
            found = self._find(request)
            if found is not None:
                _check_guard(request, found.guard)
        except ProblemError as error:
            return refusal(error, request)
        answer = Json({"user": None}, headers=PROTECTION)
        await self._end(request)
        answer.delete_cookie(self._cookie, secure=self._is_secure, httponly=True, samesite="strict")
        return answer

    def _find(self, request: Request) -> Connection | None:
        if self._sessions is None:
            return None
        return self._sessions.find(request.cookies.get(self._cookie))

    def _connection(self, request: Request) -> Connection:
        found = self.shared if self._sessions is None else self._find(request)
        if found is None:
            raise ProblemError(
                401, "You are not logged in.", request.url.path, "Log in as a user of the cluster."
            )
        return found

    async def _end(self, request: Request) -> None:
        if self._sessions is not None:
            await run_in_threadpool(self._sessions.log_out, request.cookies.get(self._cookie))

    async def _failed(self, error: MillstreamError | OSError, request: Request) -> Response:
        if (
            self._sessions is not None
            and isinstance(error, AuthenticationError)
            and not isinstance(error, TlsError)
        ):
            # The user is gone, or has another password.
            await self._end(request)
            error = ProblemError(
                401, "The cluster does not let you in any more.", request.url.path, "Log in again."
            )
        return refusal(error, request)


def _check_guard(request: Request, guard: str) -> None:
    given = request.headers.get(GUARD, "")
    if not compare_digest(given.encode("utf-8", "replace"), guard.encode()):
        raise ProblemError(
            403,
            "A change comes from the console's own page.",
            request.url.path,
            f"Programs send the header {GUARD} with the guard of /api/session.",
        )


def _peer(request: Request) -> str:
    return "unknown" if request.client is None else request.client.host


def _note(
    action: str, request: Request, to: Connection, asked: Mapping[str, Any], *, failed: str | None
) -> None:
    """Write one line of JSON about a change. Keys and values of records are not in it."""
    said = {
        "action": action,
        "user": to.user,
        "from": _peer(request),
        **request.path_params,
        **{
            name: asked[name]
            for name in ("topic", "partition", "to", "value")
            if action == "reset" and name in asked
        },
        "outcome": "done" if failed is None else failed,
    }
    _log.warning("audit %s", json.dumps(said, default=str))
