"""What became of a request: the errors in its response, for one resource or for all.

``{"status": "SUCCESS"}``, ``{"status": "FAILURE", "error": "TOPIC_ALREADY_EXISTS"}``, or, for a
request about several things, ``PARTIAL`` or ``FAILURE`` with ``errors``: the name of each thing
that failed, or its place in the request, and its error. Messages are left out: some quote the
settings that they refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from millstream.model.errors import ErrorCode
from millstream.protocol.message import Response
from millstream.protocol.schema import Struct
from millstream.security.audit.event import JsonValue
from millstream.security.audit.redaction import name_of, shortened

MAX_ERRORS: Final = 100

SUCCESS: Final[Mapping[str, JsonValue]] = {"status": "SUCCESS"}

AUTHORIZATION_ERRORS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    }
)


def failure(error: ErrorCode) -> Mapping[str, JsonValue]:
    """Return the result of a request, or a part of it, that was refused."""
    return {"status": "FAILURE", "error": error.name}


def top_error(response: Response) -> ErrorCode:
    """Return the error of a response as a whole."""
    return ErrorCode.of(getattr(response, "error_code", 0) or 0)


def result_of(response: Response, name: str | None) -> Mapping[str, JsonValue]:
    """Return what became of a request: for the resource ``name``, where the response has something
    of it, and else for all.
    """
    error = top_error(response)
    if error is not ErrorCode.NONE:
        return failure(error)
    parts = list(_parts(response))
    if name is not None:
        own = [code for part, code in parts if part == name]
        if own:
            first = next((code for code in own if code), 0)
            return failure(ErrorCode.of(first)) if first else SUCCESS
    failed = [(part, code) for part, code in parts if code]
    if not failed:
        return SUCCESS
    errors: list[JsonValue] = [
        {"item": shortened(part), "error": ErrorCode.of(code).name}
        for part, code in failed[:MAX_ERRORS]
    ]
    status = "FAILURE" if len(failed) == len(parts) else "PARTIAL"
    result: dict[str, JsonValue] = {"status": status, "errors": errors}
    if len(failed) > MAX_ERRORS:
        result["errorsOmitted"] = len(failed) - MAX_ERRORS
    return result


def _parts(struct: Struct, above: str = "") -> Iterator[tuple[str, int]]:
    """Yield the name, or the place, and the error code of each part of a response."""
    for field in type(struct).FIELDS:
        items = getattr(struct, field.name)
        if not isinstance(items, list):
            continue
        for index, each in enumerate(items):
            if not isinstance(each, Struct):
                break
            name = name_of(each)
            if name is None:
                name = f"{above}#{index}" if above else f"#{index}"
            code = getattr(each, "error_code", None)
            if isinstance(code, int):
                yield name, code
            else:
                yield from _parts(each, name)
