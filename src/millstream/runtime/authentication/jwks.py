"""The keys with which tokens are verified: read from a file or fetched, and again and again, off
the loop.

`sasl.oauthbearer.jwks.endpoint.url` is a ``file:`` or ``https:`` address (``http:`` for this
machine alone). The set is read every `…refresh.ms`; after a failure after `…retry.backoff.ms`,
doubled up to `…retry.backoff.max.ms`, while the keys of before stay. A token with an unknown key
has the set read at once, but not more often than `…retry.backoff.max.ms` (Kafka:
``RefreshingHttpsJwks``).
"""

from __future__ import annotations

import logging
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote, urlsplit

from millstream.client.endpoint_tls import https_context
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import ConfigError
from millstream.runtime.offload import Offload
from millstream.security.sasl.jwt_validation import NO_KEYS, VerificationKeys, parse_jwks

log = logging.getLogger(__name__)

MAX_BYTES: Final = 1 << 20
FETCH_TIMEOUT_SECONDS: Final = 10
LANE: Final = "jwks"

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SETTING: Final = "sasl.oauthbearer.jwks.endpoint.url"


@dataclass(frozen=True, slots=True)
class RefreshTimes:
    """How often a set is read, in milliseconds."""

    refresh_ms: int
    retry_ms: int
    max_retry_ms: int


class Jwks:
    """One set of keys; ``keys`` are those read last."""

    def __init__(
        self,
        url: str,
        times: RefreshTimes,
        clock: Clock,
        offload: Offload,
        options: Mapping[str, str] = {},
    ) -> None:
        """``options`` are those of the login module, of which ``ssl.*`` is about the endpoint."""
        self.keys: VerificationKeys = NO_KEYS
        self._read = reader_of(url, options)
        self._times = times
        self._clock = clock
        self._offload = offload
        self._timer: TimerHandle | None = None
        self._reading = False
        self._closed = False
        self._failures = 0
        self._asked_ms: float | None = None
        """When an unknown key last had the set read."""
        if urlsplit(url).scheme == "file":
            # A file that is not there is a mistake of the settings; who serves keys may come later.
            try:
                self.keys = parse_jwks(self._read())
            except (OSError, ValueError) as error:
                raise ConfigError(f"{_SETTING}: {error}") from error
            self._schedule(times.refresh_ms)
        else:
            self._refresh()

    def close(self) -> None:
        """Read no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def key_is_missing(self, key_id: str) -> None:
        """Read the set again, for a token names a key that it does not have."""
        now_ms = self._clock.monotonic_ms()
        asked_ms = self._asked_ms
        if asked_ms is None or now_ms - asked_ms >= self._times.max_retry_ms:
            self._asked_ms = now_ms
            self._refresh()

    def _refresh(self) -> None:
        if self._reading or self._closed:
            return
        self._reading = True
        if self._timer is not None:
            self._timer.cancel()
        read = self._read
        self._offload.run(LANE, lambda: parse_jwks(read())).on_done(self._done)

    def _done(self, outcome: Deferred[VerificationKeys]) -> None:
        self._reading = False
        try:
            self.keys = outcome.result()
        except Exception as error:  # whatever it is, the keys of before stay
            times = self._times
            wait_ms = min(times.max_retry_ms, times.retry_ms << min(self._failures, 20))
            self._failures += 1
            log.warning("the keys of tokens (%s) could not be read: %s", _SETTING, error)
            self._schedule(wait_ms)
            return
        self._failures = 0
        if not len(self.keys):
            log.warning("%s has no key that could verify a token", _SETTING)
        self._schedule(self._times.refresh_ms)

    def _schedule(self, delay_ms: int) -> None:
        if not self._closed:
            self._timer = self._clock.call_later(max(1, delay_ms), self._refresh)


def reader_of(url: str, options: Mapping[str, str] = {}) -> Callable[[], bytes]:
    """Return what reads an address; ConfigError for one that is not read, and for a trust store
    that cannot be.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
        path = Path(unquote(parts.path))
        return lambda: _at_most(path.read_bytes())
    if parts.scheme == "https":
        context = https_context(options)
        return lambda: _fetch(url, context)
    if parts.scheme == "http" and parts.hostname in _LOOPBACK:
        return lambda: _fetch(url, None)
    raise ConfigError(f"{_SETTING}: it is neither a file: nor an https: address")


def _fetch(url: str, context: ssl.SSLContext | None) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with opener.open(request, timeout=FETCH_TIMEOUT_SECONDS) as response:
        return _at_most(response.read(MAX_BYTES + 1))


def _at_most(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise ValueError(f"the set of keys has more than {MAX_BYTES} bytes")
    return data


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: they may lead to an address that nobody has vouched for."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """Have the redirect reported as an error."""
