"""Whether leaders and followers reach each other, as fetches tell. Pure: times are arguments.

A *grey failure* is a broker that its clients and the metadata store reach and its followers do not:
its inter-broker listener resets or swallows connections. It keeps its session, so it leads on, and
acks=all waits until ``replica.lag.time.max.ms`` has passed. Two observations, made on the two sides
of the same fetches, tell it from a follower that is ill and from a leader that is paused:

* the leader hears nothing from a follower, and
* the follower asks and gets no answer.

A paused leader does not report silence, and an ill or paused follower does not confirm it, so the
controller acts only on both (``controller.reachability``). Times are of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from millstream.model.broker import BrokerId

SILENT_AFTER_MS: Final = 1_000.0
"""The least time after which a follower that has sent no fetch is silent; twice
``replica.fetch.wait.max.ms`` (500 ms) where that is longer: a leader may keep a fetch so long."""

UNANSWERED_AFTER_MS: Final = 700.0
"""How much longer than ``replica.fetch.wait.max.ms`` a leader owes an answer before it counts as
out of reach."""

STALL_MS: Final = 400.0
"""A tick that comes this much late was held up by a loop that did not run: what was not heard in
the meantime is no silence of others."""


class FetchContact:
    """Which followers this broker hears as a leader, and which leaders answer it as a follower.

    ``tick`` has to be called regularly, every ``interval_ms``: neither silence nor a missing answer
    counts while this broker itself did not run.
    """

    __slots__ = ("_heard_ms", "_interval_ms", "_running_since_ms", "_ticked_ms")

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self._heard_ms: dict[BrokerId, float] = {}
        self._ticked_ms = -inf
        self._running_since_ms = inf

    def heard(self, follower: BrokerId, now_ms: float) -> None:
        """Take note of a fetch by a follower."""
        self._heard_ms[follower] = now_ms

    def tick(self, now_ms: float) -> None:
        """Take note that this broker runs. A tick that comes late begins anew with everybody."""
        if self._is_stalled(now_ms):
            self._running_since_ms = now_ms
        self._ticked_ms = now_ms

    def silent(
        self, brokers: Iterable[BrokerId], now_ms: float, *, max_wait_ms: float
    ) -> frozenset[BrokerId]:
        """Return which of ``brokers`` have sent no fetch for long, although this broker ran.

        One that is named for the first time counts as heard now. Others are forgotten.
        """
        limit_ms = max(SILENT_AFTER_MS, 2 * max_wait_ms)
        self._heard_ms = {each: self._heard_ms.get(each, now_ms) for each in brokers}
        return frozenset(
            each
            for each, heard_ms in self._heard_ms.items()
            if now_ms - max(heard_ms, self._running_since_ms) >= limit_ms
        )

    def unreachable(
        self, unanswered_since_ms: Mapping[BrokerId, float], now_ms: float, *, max_wait_ms: float
    ) -> frozenset[BrokerId]:
        """Return which leaders have owed an answer for too long, although this broker ran."""
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
