"""OAUTHBEARER: a token that somebody else has signed (RFC 7628, KIP-255, KIP-342), both sides.

::

    client                                         broker
    n,,^Aauth=Bearer TOKEN^A[name=value^A]^A ──▶   validates the token
                     ◀───────── nothing            it is accepted
    or               ◀───────── {"status":"…"}     it is not
    ^A ────────────────────────────────────────▶   the authentication fails with the same text

What a token means is decided by the validator that the broker's side is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.model.errors import MillstreamError
from millstream.model.principal import USER, KafkaPrincipal
from millstream.security.sasl.mechanism import (
    Authenticated,
    InvalidExchangeError,
    SaslAuthenticationError,
)

OAUTHBEARER: Final = "OAUTHBEARER"
MAX_MESSAGE_BYTES: Final = 128 * 1024
"""A message that is larger is not read. Tokens have one or two kilobytes."""

_SEPARATOR: Final = "\x01"
_NAME: Final = re.compile(r"(?:[^\0=,]|=2C|=3D)+", re.DOTALL)
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_AUTH: Final = re.compile(r"(?P<scheme>\w+)[ ]+(?P<token>[-_.~+/=a-zA-Z0-9]+)", re.ASCII)


class InvalidTokenError(MillstreamError):
    """A token is not accepted. The text is for the log and has nothing of the token; the client is
    told ``status`` and, where the token lacks it, the scope.
    """

    def __init__(self, text: str, *, status: str = "invalid_token", scope: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.scope = scope


@dataclass(frozen=True, slots=True)
class BearerToken:
    """What a valid token says: for whom it stands, and its end in milliseconds since 1970."""

    principal_name: str
    expires_at_ms: int


Validate = Callable[[str], BearerToken]
"""Returns what a token says; InvalidTokenError for one that is not accepted."""


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """The client's message; the token is not part of its text."""

    token: str = field(repr=False)
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


def write_response(response: ClientResponse) -> bytes:
    """Return the message; SaslAuthenticationError for what it cannot hold."""
    if re.fullmatch(r"[-_.~+/=a-zA-Z0-9]+", response.token) is None:
        raise SaslAuthenticationError("the token has characters that no token has")
    for name, value in response.extensions.items():
        if name == "auth" or not _KEY.fullmatch(name) or not _VALUE.fullmatch(value):
            raise SaslAuthenticationError(f"Extension name {name!r} or its value is invalid")
    name = response.authorization_id.replace("=", "=3D").replace(",", "=2C")
    pairs = [f"auth=Bearer {response.token}"]
    pairs += [f"{key}={value}" for key, value in response.extensions.items()]
    header = f"n,{f'a={name}' if name else ''},"
    return (header + _SEPARATOR + _SEPARATOR.join(pairs) + _SEPARATOR * 2).encode()


def read_response(message: bytes) -> ClientResponse:
    """Read the client's message; InvalidExchangeError, without its text, when it is malformed."""
    if len(message) > MAX_MESSAGE_BYTES:
        raise InvalidExchangeError("the message is too large")
    try:
        header, *pairs, last, after = message.decode().split(_SEPARATOR)
    except ValueError:  # not UTF-8, or too few separators
        raise InvalidExchangeError("Invalid OAUTHBEARER client first message") from None
    flag, _, name = header.partition(",")
    if flag not in ("n", "y") or not name.endswith(",") or last or after:
        raise InvalidExchangeError("Invalid OAUTHBEARER client first message")
    properties: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise InvalidExchangeError("Invalid OAUTHBEARER client first message")
        properties[key] = value
    auth = _AUTH.fullmatch(properties.pop("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise InvalidExchangeError(
            "Invalid OAUTHBEARER client first message: invalid 'auth' format"
        )
    return ClientResponse(auth["token"], _authorization_id(name.removesuffix(",")), properties)


def _authorization_id(text: str) -> str:
    if not text:
        return ""
    letter, _, name = text.partition("=")
    if letter != "a" or _NAME.fullmatch(name) is None:
        raise InvalidExchangeError("Invalid OAUTHBEARER client first message")
    return name.replace("=2C", ",").replace("=3D", "=")


class OAuthBearerServer:
    """The broker's side. All extensions are accepted, as Kafka's own handlers do."""

    claimed_name = ""

    def __init__(self, validate: Validate, on_refused: Callable[[str], None]) -> None:
        """``on_refused`` is told why a token was not accepted, for the log."""
        self._validate = validate
        self._on_refused = on_refused
        self._error = ""
        self._ended = False
        self.extensions: Mapping[str, str] = {}
        self.authenticated: Authenticated | None = None

    def evaluate(self, response: bytes) -> bytes:
        """Validate a token; the challenge is empty, or the error that the client has to confirm."""
        if self._error:
            error, self._error = self._error, ""
            self._ended = True
            raise SaslAuthenticationError(error)
        if self._ended:
            raise InvalidExchangeError("a message came after the last one")
        self._ended = True
        said = read_response(response)
        try:
            token = self._validate(said.token)
        except InvalidTokenError as error:
            self._on_refused(str(error))
            scope = f', "scope":"{error.scope}"' if error.scope else ""
            self._error = f'{{"status":"{error.status}"{scope}}}'
            self._ended = False
            return self._error.encode()
        if said.authorization_id not in ("", token.principal_name):
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        self.extensions = said.extensions
        self.authenticated = Authenticated(
            KafkaPrincipal(USER, token.principal_name), token.expires_at_ms
        )
        return b""


class OAuthBearerClient:
    """The client's side of one exchange."""

    __slots__ = ("_message", "_refused", "is_complete")

    mechanism = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        self._message = write_response(ClientResponse(token, "", extensions or {}))
        self._refused = ""
        self.is_complete = False

    def evaluate(self, challenge: bytes | None) -> bytes:
        """Return the token, then nothing; an error of the broker is confirmed with ``^A``."""
        if challenge is None:
            message, self._message = self._message, b""
            return message
        if self._refused or self._message or self.is_complete:
            raise SaslAuthenticationError(
                f"the broker refused the token: {self._refused}"
                if self._refused
                else "the broker spoke out of turn"
            )
        if challenge:
            self._refused = challenge[:1024].decode(errors="replace")
            return _SEPARATOR.encode()
        self.is_complete = True
        return b""
