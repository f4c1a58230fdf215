"""Detects from fetches whether leaders and followers reach each other. Pure: times are arguments.

A *grey failure* is a broker that its clients and the metadata store reach and its followers do not:
its inter-broker listener resets or swallows connections. It keeps its session and its leaderships,
and acks=all waits until ``replica.lag.time.max.ms`` has passed. Two observations, on the two sides
of the same fetches, distinguish it from a faulty follower and from a paused leader:

* the leader receives no fetches from a follower and has none of it to answer, and
* the follower sends fetches and gets no responses.

A paused leader does not report the first, nor does one whose disk is slow: it knows of the fetches
that wait for it. A faulty or paused follower does not confirm the second. So the controller acts
only on both (``controller.reachability``). Times are of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from millstream.model.broker import BrokerId

SILENT_AFTER_MS: Final = 1_000.0
"""The least time after which a follower that has sent no fetch is silent; twice
``replica.fetch.wait.max.ms`` (500 ms) where that is longer: a leader may keep a fetch so long.
"""

UNANSWERED_AFTER_MS: Final = 700.0
"""How much longer than ``replica.fetch.wait.max.ms`` a response may be overdue before the leader
counts as unreachable.
"""

STALL_MS: Final = 400.0
"""A tick that is this late means that this broker's own loop did not run: missing fetches and
responses of that time do not count.
"""


class FetchContact:
    """Tracks which followers fetch from this broker, and which leaders respond to its own fetches.

    ``tick`` has to be called regularly, every ``interval_ms``: neither silence nor a missing answer
    counts while this broker itself did not run.
    """

    __slots__ = ("_heard_ms", "_interval_ms", "_pending", "_running_since_ms", "_ticked_ms")

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self._heard_ms: dict[BrokerId, float] = {}
        self._pending: dict[BrokerId, int] = {}
        """How many fetches of a follower are to be answered later."""
        self._ticked_ms = -inf
        self._running_since_ms = inf

    def heard(self, follower: BrokerId, now_ms: float) -> None:
        """Record a fetch by a follower."""
        self._heard_ms[follower] = now_ms

    def begin_pending(self, follower: BrokerId) -> None:
        """Record that a fetch is to be answered later. Its follower is not silent before
        :meth:`end_pending`.
        """
        self._pending[follower] = self._pending.get(follower, 0) + 1

    def end_pending(self, follower: BrokerId) -> None:
        """Record that such a fetch is answered, or that its connection is closed."""
        count = self._pending.pop(follower) - 1
        if count:
            self._pending[follower] = count

    def tick(self, now_ms: float) -> None:
        """Record that this broker runs. A late tick resets the times of all brokers."""
        if self._is_stalled(now_ms):
            self._running_since_ms = now_ms
        self._ticked_ms = now_ms

    def silent(
        self, brokers: Iterable[BrokerId], now_ms: float, *, max_wait_ms: float
    ) -> frozenset[BrokerId]:
        """Return which of ``brokers`` have sent no fetch for long, although this broker ran.

        A broker that is passed for the first time counts as seen now. Brokers that are not passed
        are forgotten.
        """
        limit_ms = max(SILENT_AFTER_MS, 2 * max_wait_ms)
        self._heard_ms = {each: self._heard_ms.get(each, now_ms) for each in brokers}
        for each in self._pending.keys() & self._heard_ms.keys():
            # A fetch that waits for records alone would be answered now if it was sent then.
            self._heard_ms[each] = max(self._heard_ms[each], now_ms - max_wait_ms)
        return frozenset(
            each
            for each, heard_ms in self._heard_ms.items()
            if now_ms - max(heard_ms, self._running_since_ms) >= limit_ms
        )

    def unreachable(
        self, unanswered_since_ms: Mapping[BrokerId, float], now_ms: float, *, max_wait_ms: float
    ) -> frozenset[BrokerId]:
        """Return the leaders whose response is overdue for too long, although this broker ran."""
        if self._is_stalled(now_ms):
            return frozenset()
        limit_ms = max_wait_ms + UNANSWERED_AFTER_MS
        return frozenset(
            leader
            for leader, since_ms in unanswered_since_ms.items()
            if now_ms - max(since_ms, self._running_since_ms) >= limit_ms
        )

    def _is_stalled(self, now_ms: float) -> bool:
        return now_ms - self._ticked_ms > self._interval_ms + STALL_MS
