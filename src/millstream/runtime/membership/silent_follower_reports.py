"""Reports to the controller which followers have stopped to fetch from this broker.

A broker that leads looks several times a second (`replication.contact`). While followers are
silent it reports them, together with the leaders that it cannot fetch from itself: at once, then
after pauses that double from ``FIRST_PAUSE_MS`` to ``LONGEST_PAUSE_MS``. What follows from a report
is decided by the controller (``broker_reports.BrokerReports.silent_followers``). It may not reach
this broker with its decision; it answers a report with whether this broker has acknowledged all
that it was told, and where not the broker looks into the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from millstream.model.broker import BrokerId
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError
from millstream.runtime.replicas.replica_manager import CONTACT_INTERVAL_MS

FIRST_PAUSE_MS: Final = 500.0
LONGEST_PAUSE_MS: Final = 8_000.0

Brokers: TypeAlias = Collection[BrokerId]
Send: TypeAlias = Callable[[Brokers, Brokers], Deferred[bool]]


class SilentFollowerReports:
    """One broker's reports. ``silent`` names the followers, ``unreachable`` the leaders that do not
    answer this broker; ``send`` carries both to the controller, which answers True when this broker
    has not acknowledged all that it was told; ``on_behind`` is called then with the silent
    followers.
    """

    def __init__(
        self,
        clock: Clock,
        silent: Callable[[], Brokers],
        unreachable: Callable[[], Brokers],
        send: Send,
        on_behind: Callable[[Brokers], None],
    ) -> None:
        self._clock = clock
        self._silent = silent
        self._unreachable = unreachable
        self._send = send
        self._on_behind = on_behind
        self._timer: TimerHandle | None = None
        self._under_way = False
        self._pause_ms = FIRST_PAUSE_MS
        self._not_before_ms = 0.0

    def start(self) -> None:
        """Look now and every ``CONTACT_INTERVAL_MS``."""
        self._look()
        self._timer = self._clock.call_later(CONTACT_INTERVAL_MS, self.start)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        silent = self._silent()
        now_ms = self._clock.monotonic_ms()
        if not silent:
            self._pause_ms = FIRST_PAUSE_MS
            self._not_before_ms = now_ms
        elif not self._under_way and now_ms >= self._not_before_ms:
            self._under_way = True
            self._not_before_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)
            done = self._send(sorted(silent), sorted(self._unreachable()))
            done.on_done(lambda sent: self._sent(silent, sent))

    def _sent(self, silent: Brokers, done: Deferred[bool]) -> None:
        self._under_way = False
        try:
            is_behind = done.result()
        except KafkaError:
            return  # a later report says it again
        if is_behind:
            self._on_behind(silent)
