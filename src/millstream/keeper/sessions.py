"""The sessions of a keeper: who may resume one, and when each ends. Pure.

::

    opened --> live --request--> live (its deadline is one time-out from now)
                |  \\--connection closed by the client--> over
                |  \\--connection lost otherwise--> live, until its deadline or until it is resumed
                |--no request until the deadline--> over
    stored (the keeper has started again) --> live, one time-out from the start

A client counts from the moment at which it *sent* a request (`model.session_lease`), a keeper from
the moment at which it has read it, so a session never ends here before its client stops to believe
in it. A keeper that stood still itself (SIGSTOP, a machine that was suspended) has heard nobody
meanwhile, through no fault of theirs: every deadline moves by as long.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

MIN_TIMEOUT_MS: Final = 500
MAX_TIMEOUT_MS: Final = 120_000
LOOK_MS: Final = 50
"""How often :meth:`Sessions.expired` is asked."""


def granted_timeout(wanted_ms: int) -> int:
    """Return the session time-out that a client gets."""
    return max(MIN_TIMEOUT_MS, min(MAX_TIMEOUT_MS, wanted_ms))


@dataclass(slots=True)
class Session:
    """One session that has not ended. Times are monotonic milliseconds of the keeper."""

    secret: bytes
    timeout_ms: int
    deadline_ms: float


class Sessions:
    """Every session that has not ended, by id."""

    def __init__(self, now_ms: float) -> None:
        self._sessions: dict[int, Session] = {}
        self._looked_ms = now_ms

    def __contains__(self, number: int) -> bool:
        return number in self._sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def add(self, number: int, secret: bytes, timeout_ms: int, now_ms: float) -> Session:
        """Begin a session, new or stored, that ends one time-out from now."""
        session = self._sessions[number] = Session(secret, timeout_ms, now_ms + timeout_ms)
        return session

    def resume(self, number: int, secret: bytes, now_ms: float) -> Session | None:
        """Return a session for whoever knows its secret; None when it is over, or not theirs."""
        session = self._sessions.get(number)
        if session is None or not hmac.compare_digest(session.secret, secret):
            return None
        session.deadline_ms = now_ms + session.timeout_ms
        return session

    def heard(self, number: int, now_ms: float) -> bool:
        """Take note of a request; False when the session is over."""
        session = self._sessions.get(number)
        if session is None:
            return False
        session.deadline_ms = now_ms + session.timeout_ms
        return True

    def end(self, number: int) -> bool:
        """Forget a session; False when it was over already."""
        return self._sessions.pop(number, None) is not None

    def expired(self, now_ms: float) -> list[int]:
        """Return the sessions whose deadline has passed. Called every ``LOOK_MS``: if it was not,
        the keeper stood still, and every deadline moves.
        """
        late_ms = now_ms - self._looked_ms - LOOK_MS
        self._looked_ms = now_ms
        if late_ms > LOOK_MS:
            for session in self._sessions.values():
                session.deadline_ms += late_ms
        return [
            number for number, session in self._sessions.items() if session.deadline_ms <= now_ms
        ]
