"""PLAIN: a name and a password as they are (RFC 4616, Kafka: ``PlainSaslServer``)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from millstream.model.principal import USER, KafkaPrincipal
from millstream.security.sasl.mechanism import (
    Authenticated,
    InvalidExchangeError,
    SaslAuthenticationError,
)

PLAIN: Final = "PLAIN"


class PlainUsers:
    """The passwords of the users of a listener. No password is part of the text of this object."""

    __slots__ = ("_digests", "_nobody")

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {name: _digest(password) for name, password in passwords.items()}
        self._nobody = bytes(hashlib.sha256().digest_size)

    def verify(self, username: str, password: str) -> bool:
        """Tell whether this is the user's password. An unknown user, and a password of another
        length, take the same time as a wrong one.
        """
        expected = self._digests.get(username)
        same = hmac.compare_digest(_digest(password), expected or self._nobody)
        return same and expected is not None


class PlainServer:
    """The broker's side: one message."""

    __slots__ = ("_users", "authenticated", "claimed_name")

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.claimed_name = ""
        self.authenticated: Authenticated | None = None

    def evaluate(self, response: bytes) -> bytes:
        """Check ``[authorization id] NUL user NUL password``; the challenge is empty."""
        if self.authenticated is not None:
            raise InvalidExchangeError("a message came after the last one")
        try:
            parts = response.decode().split("\0")
        except UnicodeDecodeError:
            raise InvalidExchangeError("the message is not UTF-8") from None
        if len(parts) != 3:
            raise InvalidExchangeError(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        authorization_id, username, password = parts
        if not username:
            raise InvalidExchangeError("Authentication failed: username not specified")
        self.claimed_name = username
        if not password:
            raise InvalidExchangeError("Authentication failed: password not specified")
        if not self._users.verify(username, password):
            raise SaslAuthenticationError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", username):
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.authenticated = Authenticated(KafkaPrincipal(USER, username))
        return b""


class PlainClient:
    """The client's side: one message; the broker proves nothing."""

    __slots__ = ("_message", "is_complete")

    mechanism = PLAIN

    def __init__(self, username: str, password: str) -> None:
        if not username or not password or "\0" in username + password:
            raise SaslAuthenticationError("PLAIN needs a user name and a password without NUL")
        self._message = f"\0{username}\0{password}".encode()
        self.is_complete = False

    def evaluate(self, challenge: bytes | None) -> bytes:
        """Return the message; a challenge that has something in it is an error."""
        if challenge or self.is_complete:
            raise SaslAuthenticationError("the broker asked for more than PLAIN has")
        self.is_complete = True
        return self._message


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()
