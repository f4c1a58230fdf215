"""How the console asks the cluster: as one user for everybody, or for each browser as its own.

With a log-in, a browser gives the name and password of a user of the cluster. They are checked by
the brokers (SASL), and the session asks through connections of that user, so access rules and the
audit log of the cluster hold. A session is a random token in a cookie that scripts cannot read::

    (none) --name, password--> open --log-out, an hour without a request, twelve hours--> ended
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from millstream.client.admin import Admin
from millstream.client.errors import AuthenticationError, TlsError
from millstream.console.problems import ProblemError
from millstream.model.errors import ConfigError

PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
FROM_A_PAGE: Final = "1"
"""What the header of a change says where there are no sessions: another site cannot send it."""

IDLE_S: Final = 3_600.0
LONGEST_S: Final = 12 * 3_600.0
_MOST_SESSIONS: Final = 100
_FAILURES: Final = 5
_FAILURES_WITHIN_S: Final = 60.0
_PEERS_KEPT: Final = 10_000
_AT_ONCE: Final = 4
"""Log-ins at the same time: each costs connections, and SCRAM costs the brokers work."""
_LONGEST_WORD: Final = 1_000
_SHORT: Final = {"default.api.timeout.ms": 1500, "request.timeout.ms": 1000}
_CREDENTIALS: Final = ("sasl.username", "sasl.password", "sasl.jaas.config")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Connections of one user of the cluster. ``user`` is None where there is no log-in."""

    user: str | None
    client: Mapping[str, object] = field(repr=False)
    admin: Admin
    disks: Admin
    """Waits for a short time only: a page does not wait for a broker that is paused."""
    guard: str = field(default=FROM_A_PAGE, repr=False)
    """What the header of a change has to say."""
    ended: Event = field(default_factory=Event)

    def close(self) -> None:
        """Close the connections; live views end."""
        self.ended.set()
        self.disks.close()
        self.admin.close()


def connect(client: Mapping[str, object]) -> Connection:
    """Return the connections of the console's own user; nothing is asked yet."""
    return Connection(user=None, client=client, admin=Admin(client), disks=_disks(client))


def _disks(client: Mapping[str, object]) -> Admin:
    return Admin({**client, **_SHORT})


def check_log_in(client: Mapping[str, object]) -> None:
    """Raise ConfigError where users cannot log in with a password."""
    protocol = str(client.get("security.protocol", "PLAINTEXT"))
    mechanism = str(client.get("sasl.mechanism", ""))
    if protocol not in PROTOCOLS or mechanism not in PASSWORD_MECHANISMS:
        raise ConfigError(
            "--login needs a listener of the cluster with passwords: security.protocol of "
            f"{' or '.join(PROTOCOLS)} and sasl.mechanism of {', '.join(PASSWORD_MECHANISMS)}"
        )


@dataclass(slots=True)
class _Session:
    connection: Connection
    begun_s: float
    used_s: float


class Sessions:
    """The sessions of all browsers; methods may be called from any thread, and ``log_in`` blocks.

    Tokens are kept as digests: what reads this memory has no cookie that opens anything.
    """

    def __init__(
        self, client: Mapping[str, object], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """ConfigError where users cannot log in with a password."""
        check_log_in(client)
        self._client = {name: each for name, each in client.items() if name not in _CREDENTIALS}
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._open: dict[bytes, _Session] = {}
        self._failures: dict[str, deque[float]] = {}
        self._room = threading.BoundedSemaphore(_AT_ONCE)

    def log_in(self, user: str, password: str, peer: str) -> tuple[str, Connection]:
        """Return a token and its connections. ProblemError, or an error of the cluster."""
        if not 0 < len(user) <= _LONGEST_WORD or not 0 < len(password) <= _LONGEST_WORD:
            raise _refused(self._client["sasl.mechanism"])
        self._check_rate(peer)
        if not self._room.acquire(blocking=False):
            raise ProblemError(503, "Others are logging in now.", peer, "Try again in a moment.")
        try:
            connection = self._connected(user, password, peer)
        finally:
            self._room.release()
        token = secrets.token_urlsafe(32)
        with self._lock:
            if len(self._open) < _MOST_SESSIONS:
                now_s = self._clock_s()
                self._failures.pop(peer, None)
                self._open[_digest(token)] = _Session(connection, now_s, now_s)
                _log.warning("%r logged in from %s", user, peer)
                return token, connection
        connection.close()
        raise ProblemError(
            503,
            f"{_MOST_SESSIONS} sessions are open, which is the most.",
            peer,
            "Log out elsewhere, or wait until one has been idle for an hour.",
        )

    def _connected(self, user: str, password: str, peer: str) -> Connection:
        client = {**self._client, "sasl.username": user, "sasl.password": password}
        try:
            admin = Admin(client)
        except ConfigError:  # a name or password that SASL cannot have
            self._failed(user, peer)
            raise _refused(client["sasl.mechanism"]) from None
        try:
            admin.describe_cluster()
            disks = _disks(client)
        except TlsError:
            admin.close()
            raise
        except AuthenticationError:
            admin.close()
            self._failed(user, peer)
            raise _refused(client["sasl.mechanism"]) from None
        except BaseException:
            admin.close()
            raise
        return Connection(
            user=user, client=client, admin=admin, disks=disks, guard=secrets.token_urlsafe(32)
        )

    def _check_rate(self, peer: str) -> None:
        with self._lock:
            failures = self._failures.get(peer)
            while failures and failures[0] <= self._clock_s() - _FAILURES_WITHIN_S:
                failures.popleft()
            if failures and len(failures) >= _FAILURES:
                raise ProblemError(
                    429, "Too many log-ins have failed from here.", peer, "Wait for a minute."
                )

    def _failed(self, user: str, peer: str) -> None:
        _log.warning("log-in of %r from %s was refused", user, peer)
        with self._lock:
            if len(self._failures) >= _PEERS_KEPT:
                self._failures.pop(next(iter(self._failures)))
            self._failures.setdefault(peer, deque(maxlen=_FAILURES)).append(self._clock_s())

    def find(self, token: str | None) -> Connection | None:
        """Return the connections of a token that is open, and note that it is used."""
        if not token:
            return None
        now_s = self._clock_s()
        with self._lock:
            found = self._open.get(_digest(token))
            if found is None or _is_over(found, now_s):
                return None
            found.used_s = now_s
            return found.connection

    def log_out(self, token: str | None) -> None:
        """End a session and close its connections."""
        with self._lock:
            found = self._open.pop(_digest(token or ""), None)
        if found is not None:
            found.connection.close()

    def sweep(self) -> None:
        """End what has been idle or open for too long."""
        now_s = self._clock_s()
        with self._lock:
            over = [key for key, each in self._open.items() if _is_over(each, now_s)]
            ended = [self._open.pop(key) for key in over]
        for each in ended:
            each.connection.close()

    def close(self) -> None:
        """End all sessions."""
        with self._lock:
            ended = list(self._open.values())
            self._open.clear()
        for each in ended:
            each.connection.close()


def _is_over(session: _Session, now_s: float) -> bool:
    return now_s - session.used_s > IDLE_S or now_s - session.begun_s > LONGEST_S


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _refused(mechanism: object) -> ProblemError:
    return ProblemError(
        401,
        "The cluster does not know this user and password.",
        f"SASL {mechanism}",
        "Check both; a user may have passwords for some mechanisms only.",
    )
