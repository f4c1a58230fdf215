"""How many events of a class are recorded: a bucket of tokens."""

from __future__ import annotations


class TokenBucket:
    """Lets ``burst`` events through at once and ``rate`` in a second in the long run. Times are
    monotonic, in milliseconds.
    """

    __slots__ = ("_burst", "_rate", "_since_ms", "_tokens")

    def __init__(self, rate: int, burst: int, now_ms: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._since_ms = now_ms

    def take(self, now_ms: float) -> bool:
        """Let one event through; False for one that is too many."""
        if now_ms > self._since_ms:
            gained = (now_ms - self._since_ms) * self._rate / 1_000
            self._tokens = min(float(self._burst), self._tokens + gained)
            self._since_ms = now_ms
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def set_limits(self, rate: int, burst: int) -> None:
        """Take over other limits; what may be recorded at once is never more than ``burst``."""
        self._rate = rate
        self._burst = burst
        self._tokens = min(self._tokens, float(burst))
