"""What every answer of the console carries, and how a request is read."""

from __future__ import annotations

import json
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from millstream.console.problems import ProblemError, problem_of
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicPartition

PROTECTION: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_MAX_BODY: Final = 2 * 1024 * 1024


class Json(Response):
    """JSON in ASCII: records may hold halves of surrogate pairs, which UTF-8 cannot have."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        """Return the body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def refusal(error: MillstreamError | OSError, request: Request) -> Response:
    """Return the answer to a request that failed."""
    problem = problem_of(error, request.url.path)
    return Json(problem.body(), status_code=problem.status, headers=PROTECTION)


async def read_body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request. ProblemError for anything else."""
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


def named(request: Request, name: str) -> str:
    """Return a part of the path."""
    return str(request.path_params[name])


def partition_of(request: Request) -> TopicPartition:
    """Return the partition that a path names."""
    return TopicPartition(named(request, "topic"), int(request.path_params["partition"]))


def number(text: str, name: str, default: int | None) -> int | None:
    """Return a whole number of a query, or the default. ProblemError."""
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ProblemError(400, f"{text!r} is not a number.", name, "Give a whole number.")
    return int(text)
