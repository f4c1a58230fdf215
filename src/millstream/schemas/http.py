"""A registry with Confluent's API over HTTP.

Whatever is not a plain answer is one of three things: the registry itself says that it has no such
schema (UnknownSchemaError), it refuses us or is no registry (RegistryRefusedError: no retry mends
it), or it cannot be asked now (RegistryAwayError). Only the first one says anything of a record.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import IO, Any, Final
from urllib.parse import quote, urlsplit

from millstream.client.core.settings import AdminSettings, read_settings
from millstream.client.tls_context import client_context
from millstream.model.errors import ConfigError
from millstream.schemas.schema import (
    InvalidSchemaError,
    Reference,
    Registered,
    RegistryAwayError,
    RegistryRefusedError,
    Schema,
    SchemaKey,
    SchemaType,
    UnknownSchemaError,
    named,
)
from millstream.schemas.settings import PREFIX, RegistrySettings

_PAUSES_S: Final = (0.0, 0.3, 1.0)
"""Before each round over the addresses."""
_MOST_BYTES: Final = 32 << 20
_READ_BYTES: Final = 1 << 16
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_UNKNOWN_CODES: Final = frozenset({40401, 40402, 40403})
"""No such subject, version, schema (Confluent: ``Errors``). Any other 404 is not the registry's."""
_PASSING: Final = frozenset({408, 425, 429})


class HttpSource:
    """Asks a registry, each of its addresses in turn."""

    def __init__(self, settings: RegistrySettings) -> None:
        """ConfigError for settings of TLS that do not fit together."""
        self._settings = settings
        self._opener = _opener(settings)

    def schema(self, key: SchemaKey) -> Schema:
        """Return the schema of an id or a GUID."""
        path = f"/schemas/ids/{key}" if isinstance(key, int) else f"/schemas/guids/{key}"
        return _schema(self._get(path, named(key)))

    def version(self, subject: str, version: int | None) -> Registered:
        """Return a version of a subject, None for the newest."""
        which = "latest" if version is None else str(version)
        about = f"{'the newest version' if version is None else f'version {version}'} of {subject}"
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions/{which}", about)
        schema = _schema(found)
        try:
            return Registered(subject, int(found["version"]), int(found["id"]), schema)
        except (KeyError, TypeError, ValueError):
            raise RegistryRefusedError(_no_registry(self._settings.addresses[0])) from None

    def _get(self, path: str, about: str) -> Mapping[str, Any]:
        away: RegistryAwayError | None = None
        for pause in _PAUSES_S:
            time.sleep(pause)
            for address in self._settings.addresses:
                try:
                    return self._ask(address, path, about)
                except RegistryAwayError as error:
                    away = error
        assert away is not None
        raise away

    def _ask(self, address: str, path: str, about: str) -> Mapping[str, Any]:
        request = urllib.request.Request(address + path, headers={"Accept": _ACCEPT})
        authorization = _authorization(self._settings)
        if authorization is not None:
            request.add_unredirected_header("Authorization", authorization)
        timeout_s = self._settings.timeout_ms / 1000
        deadline = time.monotonic() + timeout_s
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                return _value(_body(answer, deadline), address)
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error, _error_body(error, deadline), address, about) from None
        except urllib.error.URLError as error:
            raise _unreachable(error.reason, address) from None
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(error, address) from None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, with credentials to the same server only, and never from TLS to none."""

    max_redirections = 5

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if old.scheme == "https" and new.scheme != "https":
            raise RegistryRefusedError(
                f"the schema registry {_shown(req.full_url)} redirects to {_shown(newurl)}, "
                "without TLS: give the right address"
            )
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        authorization = req.unredirected_hdrs.get("Authorization")
        if request is not None and authorization and old[:2] == new[:2]:
            request.add_unredirected_header("Authorization", authorization)
        return request


def _opener(settings: RegistrySettings) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_Redirects()]
    if any(each.startswith("https://") for each in settings.addresses):
        try:
            client = read_settings(
                AdminSettings, {"bootstrap.servers": "-:1", **dict(settings.tls)}
            )
            context = client_context(client)
        except ConfigError as error:
            raise ConfigError(f"{PREFIX}{error}") from None
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def _authorization(settings: RegistrySettings) -> str | None:
    if settings.token is not None:
        return f"Bearer {settings.token}"
    if settings.user_info is not None:
        return f"Basic {base64.b64encode(settings.user_info.encode()).decode()}"
    return None


def _body(answer: Any, deadline: float) -> bytes:
    """Return the body; RegistryAwayError where it does not end in time, or is cut off."""
    expected = answer.headers.get("Content-Length")
    parts, size = [], 0
    while part := answer.read1(_READ_BYTES):
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline:
            raise TimeoutError("its answer did not end in time")
        if size > _MOST_BYTES:
            raise http.client.HTTPException(f"its answer has more than {_MOST_BYTES} bytes")
    if expected is not None and expected.isdecimal() and size < int(expected):
        raise http.client.HTTPException("its answer was cut off")
    return b"".join(parts)


def _error_body(error: urllib.error.HTTPError, deadline: float) -> bytes:
    try:
        return _body(error, deadline)
    except (OSError, http.client.HTTPException) as cut:
        raise _unreachable(cut, error.url) from None


def _value(body: bytes, address: str) -> Mapping[str, Any]:
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = None
        if body.lstrip()[:1] == b"{":
            raise RegistryAwayError(
                f"the schema registry {_shown(address)} sent half an answer"
            ) from None
    if not isinstance(value, dict):
        raise RegistryRefusedError(_no_registry(address))
    return value


def _schema(value: Mapping[str, Any]) -> Schema:
    text, kind = value.get("schema"), value.get("schemaType") or SchemaType.AVRO.value
    if not isinstance(text, str):
        raise RegistryRefusedError("the answer of the schema registry has no schema")
    if kind not in SchemaType.__members__:
        raise InvalidSchemaError(f"a schema of type {kind}, which is not supported")
    try:
        references = tuple(
            Reference(each["name"], each["subject"], int(each["version"]))
            for each in value.get("references") or ()
        )
    except (KeyError, TypeError, ValueError):
        raise RegistryRefusedError("the schema registry gives references without names") from None
    return Schema(SchemaType(kind), text, references)


def _refused(
    error: urllib.error.HTTPError, body: bytes, address: str, about: str
) -> UnknownSchemaError | RegistryRefusedError | RegistryAwayError:
    where = f"the schema registry {_shown(address)}"
    try:
        value: Any = json.loads(body)
        code, message = int(value["error_code"]), str(value.get("message", ""))
    except (ValueError, KeyError, TypeError, RecursionError):
        code, message = 0, ""
    if error.code >= 500 or error.code in _PASSING:
        return RegistryAwayError(f"{where} answers {error.code} {error.reason}".rstrip())
    if error.code == 404 and code in _UNKNOWN_CODES:
        return UnknownSchemaError(f"{about} is unknown to the schema registry")
    if error.code in (401, 403):
        return RegistryRefusedError(
            f"{where} refuses us ({error.code}): check {PREFIX}basic.auth.user.info, "
            f"{PREFIX}bearer.auth.token and what they may read"
        )
    if error.code == 404 and code == 0:
        return RegistryRefusedError(_no_registry(address))
    said = f": {message[:200]}" if message else ""
    return RegistryRefusedError(f"{where} answers {error.code} to {about}{said}")


def _unreachable(reason: object, address: str) -> RegistryAwayError | RegistryRefusedError:
    where = f"the schema registry {_shown(address)}"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return RegistryRefusedError(
            f"{where} has a certificate that is not trusted ({reason.verify_message}): check "
            f"{PREFIX}ssl.truststore.location and the host's name"
        )
    if isinstance(reason, TimeoutError):
        return RegistryAwayError(f"{where} does not answer in time")
    return RegistryAwayError(f"{where} cannot be reached: {reason}")


def _no_registry(address: str) -> str:
    return (
        f"what answers at {_shown(address)} is not a schema registry with Confluent's API: give "
        "its address, with the path if it has one"
    )


def _shown(address: str) -> str:
    """Return an address without what may be secret in it."""
    split = urlsplit(address)
    return f"{split.scheme}://{split.netloc.rpartition('@')[2]}{split.path}"
