"""Where bearer tokens come from (KIP-255, KIP-768, KIP-1139), and how long one is used.

A source keeps a token until four fifths of its time have passed
(``sasl.login.refresh.window.factor``), so that a session that is renewed gets a new one; while no
new one can be had, the old one is used to its end. A token that does not say when it ends is used
once.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast
from urllib.parse import unquote, urlsplit

from millstream.client.core.security_settings import SecuritySettings
from millstream.client.endpoint_tls import https_context
from millstream.client.errors import AuthenticationError, ConnectionFailedError
from millstream.model.errors import ConfigError

_MOST_ANSWER_BYTES: Final = 1 << 20
_UNSECURED_SECONDS: Final = 3600
_STRING_CLAIM: Final = "unsecuredLoginStringClaim_"
_LIST_CLAIM: Final = "unsecuredLoginListClaim_"
_EXTENSION: Final = "extension_"
_REFUSALS: Final = frozenset({400, 401, 403, 404})
"""HTTP codes after which the same request will fail again."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its time in seconds since 1970; ``expires_at_s`` is None where it is unknown."""

    text: str = field(repr=False)
    fetched_at_s: float
    expires_at_s: float | None = None


Fetch = Callable[[], object]
"""Returns a text, or a text and the second since 1970 at which it ends."""


class TokenSource:
    """Tokens of one client; :meth:`token` may be called on any thread, and may block.

    One fetch runs at a time. Who comes meanwhile gets the last token while that is valid, and else
    waits for the fetch, but not for ever: a function that hangs holds up one thread.
    """

    def __init__(
        self,
        fetch: Fetch,
        *,
        setting: str = "sasl.oauth.token",
        window_factor: float = 0.8,
        patience_s: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.setting = setting
        """The setting that names the source."""
        self._fetch = fetch
        self._window_factor = window_factor
        self._patience_s = patience_s
        self._clock = clock
        self._token: Token | None = None
        self._lock = threading.Lock()
        self._fetched: threading.Event | None = None
        """Set when the fetch that runs has ended; None if none runs."""

    def token(self, resolve: Callable[[object], object] | None = None) -> str:
        """Return a token that has not expired.

        ``resolve`` waits for an awaitable. AuthenticationError for a source that refuses or fails,
        ConnectionFailedError while it cannot be reached, or does not return.
        """
        known = self._begin_fetch(self._is_usable)
        if known is None:
            try:
                known = self._new(resolve)
                self._token = known
            except (AuthenticationError, ConnectionFailedError):
                known = self._token
                if known is None or not self._is_valid(known):
                    raise
            finally:
                self._end_fetch()
        return known.text

    def renew(self) -> Token:
        """Fetch a token now, whatever is left of the last one; raises as :meth:`token` does."""
        self._begin_fetch(lambda token, is_running: False)
        try:
            self._token = token = self._new(None)
        finally:
            self._end_fetch()
        return token

    def _begin_fetch(self, may_use: Callable[[Token, bool], bool]) -> Token | None:
        """Return the last token if it may be used, which depends on whether a fetch is running;
        None once the caller is to fetch.
        """
        deadline = time.monotonic() + self._patience_s
        while True:
            with self._lock:
                token, running = self._token, self._fetched
                if token is not None and may_use(token, running is not None):
                    return token
                if running is None:
                    self._fetched = threading.Event()
                    return None
            if not running.wait(max(deadline - time.monotonic(), 0)):
                raise ConnectionFailedError(
                    f"{self.setting} has not returned a token for {self._patience_s:.0f} s"
                )

    def _end_fetch(self) -> None:
        with self._lock:
            fetched, self._fetched = self._fetched, None
        if fetched is not None:
            fetched.set()

    def _is_usable(self, token: Token, is_running: bool) -> bool:
        return self._is_fresh(token) or (is_running and self._is_valid(token))

    def _is_valid(self, token: Token) -> bool:
        return token.expires_at_s is not None and self._clock() < token.expires_at_s

    def _is_fresh(self, token: Token) -> bool:
        if token.expires_at_s is None:
            return False
        usable_s = (token.expires_at_s - token.fetched_at_s) * self._window_factor
        return self._clock() < token.fetched_at_s + usable_s

    def _new(self, resolve: Callable[[object], object] | None) -> Token:
        try:
            value = self._fetch()
            if inspect.isawaitable(value):
                value = _refuse_awaitable(value) if resolve is None else resolve(value)
        except (AuthenticationError, ConnectionFailedError):
            raise
        except Exception as error:
            # Not its text, which may hold a secret of the function's author.
            raise AuthenticationError(
                f"sasl.oauth.token raised {type(error).__name__}; its cause is attached"
            ) from error
        return self._read(value)

    def _read(self, value: object) -> Token:
        text, expires_at_s = (
            value if isinstance(value, tuple) and len(value) == 2 else (value, None)
        )
        if not isinstance(text, str) or not text.strip():
            raise AuthenticationError("the source of tokens returned no text")
        text = text.strip()
        if expires_at_s is None:
            expires_at_s = expiry_of(text)
        if expires_at_s is not None and not isinstance(expires_at_s, int | float):
            raise AuthenticationError("the source of tokens returned an end that is not a number")
        token = Token(text, self._clock(), expires_at_s)
        if expires_at_s is not None and not self._is_valid(token):
            raise AuthenticationError("the source of tokens returned an expired token")
        return token


def _refuse_awaitable(value: object) -> object:
    close = getattr(value, "close", None)
    if callable(close):
        close()
    raise AuthenticationError(
        "sasl.oauth.token returned an awaitable: only the asyncio API supports such a function"
    )


def expiry_of(token: str) -> float | None:
    """Return the claim ``exp`` of a JWT, unverified; None for any other token."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError):
        return None


def open_source(
    settings: SecuritySettings,
    options: Mapping[str, str],
    *,
    clock: Callable[[], float] = time.time,
) -> TokenSource:
    """Return the source that the settings name, or the options of ``sasl.jaas.config``.

    ConfigError for none, and for several.
    """
    url = settings.sasl_oauthbearer_token_endpoint_url
    unsecured = {name for name in options if name.startswith("unsecuredLogin")}
    named = {
        "sasl.oauth.token": settings.sasl_oauth_token is not None,
        "sasl.oauthbearer.token.endpoint.url": url is not None,
        "the options unsecuredLogin… of sasl.jaas.config": bool(unsecured),
    }
    given = [name for name, is_given in named.items() if is_given]
    if len(given) > 1:
        raise ConfigError(f"only one of {' and '.join(given)} can be given")
    if not given:
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER needs a source of tokens: "
            "sasl.oauthbearer.token.endpoint.url, or sasl.oauth.token as a function"
        )
    if settings.sasl_oauth_token is not None:
        fetch = cast("Fetch", settings.sasl_oauth_token)
    elif url is not None:
        fetch = _of_url(url, settings, options)
    else:
        fetch = _unsecured(options)
    factor = settings.sasl_login_refresh_window_factor
    return TokenSource(fetch, setting=given[0], window_factor=factor, clock=clock)


def extensions_of(settings: SecuritySettings, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the SASL extensions (KIP-342): ``logicalCluster=…`` of a managed Kafka."""
    found = {
        name.removeprefix(_EXTENSION): value
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    }
    for item in settings.sasl_oauthbearer_extensions:
        name, equals, value = item.partition("=")
        if not equals:
            raise ConfigError("sasl.oauthbearer.extensions takes NAME=VALUE,NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


# --- a file, an endpoint -------------------------------------------------------------------------


def _of_url(url: str, settings: SecuritySettings, options: Mapping[str, str]) -> Fetch:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return _File(Path(unquote(parts.path)))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("sasl.oauthbearer.token.endpoint.url takes https://… or file:///…")
    if parts.username or parts.password:
        raise ConfigError("sasl.oauthbearer.token.endpoint.url has no place for credentials")
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or options.get("clientId")
    secret = settings.sasl_oauthbearer_client_credentials_client_secret or options.get(
        "clientSecret"
    )
    for name, value in (("client.id", client_id), ("client.secret", secret)):
        if not value:
            raise ConfigError(f"sasl.oauthbearer.client.credentials.{name} is missing")
    assert client_id is not None
    assert secret is not None
    return ClientCredentials(
        url,
        client_id=client_id,
        client_secret=secret,
        scope=settings.sasl_oauthbearer_scope or options.get("scope"),
        timeout_s=max(settings.sasl_login_connect_timeout_ms, settings.sasl_login_read_timeout_ms)
        / 1000,
        context=(
            https_context(options, ca_location=settings.https_ca_location)
            if parts.scheme == "https"
            else None
        ),
    )


@dataclass(frozen=True, slots=True)
class _File:
    """A token that somebody else writes to a file, and renews there."""

    path: Path

    def __call__(self) -> str:
        try:
            return self.path.read_text(encoding="ascii")
        except OSError as error:
            raise ConnectionFailedError(
                f"no token: sasl.oauthbearer.token.endpoint.url: {self.path}: {error.strerror}"
            ) from None
        except UnicodeError:
            raise AuthenticationError(f"{self.path} holds no token") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The credentials are for this address and for no other."""

    def redirect_request(self, *_: object) -> None:
        return None


class ClientCredentials:
    """Asks an endpoint for a token (RFC 6749, section 4.4)."""

    def __init__(
        self,
        url: str,
        *,
        client_id: str,
        client_secret: str,
        scope: str | None,
        timeout_s: float,
        context: ssl.SSLContext | None,
    ) -> None:
        self._url = url
        pair = f"{client_id}:{client_secret}".encode()
        self._authorization = "Basic " + base64.b64encode(pair).decode()
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        self._body = urllib.parse.urlencode(form).encode()
        self._timeout_s = timeout_s
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def __call__(self) -> tuple[str, float | None]:
        """Return a token and its end."""
        request = urllib.request.Request(
            self._url,
            data=self._body,
            headers={
                "Authorization": self._authorization,
                "Accept": "application/json",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                body = answer.read(_MOST_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                told = _told(error.read(_MOST_ANSWER_BYTES))
            text = f"{self._url} refused a token: HTTP {error.code}{told}"
            kind = AuthenticationError if error.code in _REFUSALS else ConnectionFailedError
            raise kind(text) from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise AuthenticationError(
                    f"no token from {self._url}: {reason.verify_message} (https.ca.location)"
                ) from None
            raise ConnectionFailedError(f"no token from {self._url}: {reason}") from None
        return self._read(body)

    def _read(self, body: bytes) -> tuple[str, float | None]:
        try:
            answer = json.loads(body if len(body) <= _MOST_ANSWER_BYTES else b"{}")
            token = answer["access_token"]
            lifetime_s = answer.get("expires_in")
            ends = None if lifetime_s is None else time.time() + float(lifetime_s)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise AuthenticationError(f"{self._url} answered with no token") from None
        return token, ends


def _told(body: bytes) -> str:
    """Return what an endpoint says of a refusal (RFC 6749, section 5.2)."""
    try:
        answer = json.loads(body)
        told = [answer[name] for name in ("error", "error_description") if name in answer]
    except (ValueError, TypeError, RecursionError):
        return ""
    return "".join(f", {each}"[:200] for each in told if isinstance(each, str))


# --- for tests -----------------------------------------------------------------------------------


def _unsecured(options: Mapping[str, str]) -> Fetch:
    """Return tokens without a signature, which only a broker that is being tried out takes.

    Kafka: ``OAuthBearerUnsecuredLoginCallbackHandler`` and its options.
    """
    if f"{_STRING_CLAIM}sub" not in options:
        raise ConfigError("sasl.jaas.config lacks the option unsecuredLoginStringClaim_sub")
    lifetime = options.get("unsecuredLoginLifetimeSeconds", str(_UNSECURED_SECONDS))
    if not (lifetime.isascii() and lifetime.isdecimal() and int(lifetime)):
        raise ConfigError("unsecuredLoginLifetimeSeconds takes a whole number above 0")
    claims: dict[str, object] = {
        name.removeprefix(_STRING_CLAIM): value
        for name, value in options.items()
        if name.startswith(_STRING_CLAIM)
    }
    for name, value in options.items():
        if name.startswith(_LIST_CLAIM):
            separator, rest = value[:1], value[1:]
            claims[name.removeprefix(_LIST_CLAIM)] = rest.split(separator) if separator else []

    def fetch() -> tuple[str, float]:
        now = time.time()
        ends = now + int(lifetime)
        body = json.dumps({**claims, "iat": now, "exp": ends}).encode()
        header = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=")
        payload = base64.urlsafe_b64encode(body).rstrip(b"=")
        return f"{header.decode()}.{payload.decode()}.", ends

    return fetch
