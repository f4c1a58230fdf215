"""How long a session of a metadata store can still be believed in, by our own clock. Pure.

A client library learns that its session expired only when it reaches a server again; cut off, it
would never know. The servers count from the last request that reached them, so a session surely
lives until one session time-out after the moment at which a request was *sent* that was answered
later. After that, the broker must not act for the session. The time-out is the one that the server
grants, which may differ from the requested one.
"""

from __future__ import annotations

from millstream.model.metadata_store import CLOCK_DRIFT


class SessionLease:
    """Until when a session is guaranteed to exist. Times are monotonic milliseconds."""

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        """The session time-out: the requested one until a server grants another.
        """
        self._known_alive_ms: float | None = None

    def grant(self, timeout_ms: float) -> None:
        """Set the time-out that a server has granted."""
        self.timeout_ms = timeout_ms

    def confirm(self, sent_ms: float) -> None:
        """Renew the lease by an answer to a request that was sent at ``sent_ms``."""
        if self._known_alive_ms is None or sent_ms > self._known_alive_ms:
            self._known_alive_ms = sent_ms

    def forget(self) -> None:
        """Reset: the session has ended."""
        self._known_alive_ms = None

    def holds(self, now_ms: float) -> bool:
        """True while the session cannot have expired by this clock."""
        known_alive_ms = self._known_alive_ms
        return known_alive_ms is not None and known_alive_ms + self.timeout_ms > now_ms

    def remaining_ms(self, now_ms: float) -> float:
        """Return for how long the session is guaranteed to exist, allowing for ``CLOCK_DRIFT``; 0
        or less if unknown.
        """
        if self._known_alive_ms is None:
            return 0.0
        return self._known_alive_ms + self.timeout_ms * (1 - CLOCK_DRIFT) - now_ms
