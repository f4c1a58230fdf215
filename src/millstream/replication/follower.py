"""The follower of one partition: decides what each fetch response means. Pure: no clock, no I/O.

A follower fetches from its log end, and every response decides the next step::

    records            append, then raise the high watermark       fetch again
    a diverging epoch  cut the log back to the common part         fetch again
    OFFSET_OUT_OF_RANGE  the leader's log begins where this one ends, or later: restart there
    74, 75, 6 and others pause, longer each time; after twice the lag time ask for the state

There is no truncation to the high watermark: the high watermark of a follower lags, and what lies
above it may be committed (KIP-101). The high watermark moves after the cut and after the append,
never before (KAFKA-14704). Kafka: ``AbstractFetcherThread``, ``ReplicaFetcherThread``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from millstream.model.broker import BrokerId
from millstream.model.epoch_end import EpochEndOffset
from millstream.model.errors import ErrorCode
from millstream.model.offsets import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from millstream.replication.divergence import truncation_offset

FIRST_PAUSE_MS: Final = 50.0
"""The pause after one error: leader and follower rarely apply a metadata change at the same
moment.
"""


class FetchPosition(NamedTuple):
    """The fetch position of one partition: its log end and the leader epoch."""

    leader_epoch: LeaderEpoch
    offset: Offset
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset


class FetchAnswer(NamedTuple):
    """A fetch response for one partition, without the records.

    ``log_start_offset`` and ``high_watermark`` are -1 if the response has an error.
    """

    error: ErrorCode = ErrorCode.NONE
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    diverging: EpochEndOffset | None = None
    has_records: bool = False


class LogView(NamedTuple):
    """The follower's own log at the moment of an answer."""

    log_end_offset: Offset
    high_watermark: Offset
    end_of_epoch: Callable[[LeaderEpoch], EpochEndOffset]


@dataclass(frozen=True, slots=True)
class Append:
    """Append the records; then ``high_watermark_after`` says how far the high watermark goes."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log back to ``offset``. ``loses_committed``: below the follower's own high watermark,
    which is logged as an error, because consumers may have read those records.
    """

    offset: Offset
    loses_committed: bool


@dataclass(frozen=True, slots=True)
class RestartAt:
    """Truncate fully and restart at ``offset``: the leader has nothing older."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class ReadState:
    """The known leader has returned errors for too long: read the stored state."""


FollowerEffect: TypeAlias = Append | Truncate | RestartAt | ReadState

_APPEND: Final = (Append(),)


@dataclass(frozen=True, slots=True)
class FollowerRules:
    """The settings of a follower."""

    lag_time_max_ms: float = 30_000
    pause_max_ms: float = 1_000


class FollowerReplication:
    """One partition that follows ``leader`` in one leadership."""

    __slots__ = (
        "_pause_ms",
        "_refused_since_ms",
        "_rules",
        "leader",
        "leader_epoch",
        "paused_until_ms",
    )

    def __init__(self, leader: BrokerId, leader_epoch: LeaderEpoch, rules: FollowerRules) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self._rules = rules
        self._pause_ms = 0.0
        self._refused_since_ms: float | None = None
        self.paused_until_ms = float("-inf")
        """Nothing is fetched before this moment."""

    def position(
        self, *, log_end_offset: Offset, log_start_offset: Offset, latest_epoch: LeaderEpoch
    ) -> FetchPosition:
        """Return the position to fetch from: the log end."""
        return FetchPosition(self.leader_epoch, log_end_offset, latest_epoch, log_start_offset)

    def on_answer(
        self, asked: FetchPosition, answer: FetchAnswer, log: LogView, now_ms: float
    ) -> tuple[FollowerEffect, ...]:
        """Decide what a response means.

        It is used only if it belongs to this leadership and the log still ends at the fetch offset:
        records requested before a truncation would leave a gap.
        """
        if asked.leader_epoch != self.leader_epoch or asked.offset != log.log_end_offset:
            return ()
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(answer, log, now_ms)
        if answer.error is not ErrorCode.NONE:
            return self._refused(now_ms)
        self._pause_ms = 0.0
        self._refused_since_ms = None
        if answer.diverging is not None:
            return self._diverging(answer.diverging, log, now_ms)
        return _APPEND

    def _diverging(
        self, diverging: EpochEndOffset, log: LogView, now_ms: float
    ) -> tuple[FollowerEffect, ...]:
        own_end = log.end_of_epoch(diverging.leader_epoch)
        offset = truncation_offset(diverging, own_end, log_end_offset=log.log_end_offset)
        if offset >= log.log_end_offset:
            # Nothing to truncate: fetching again at once would get the same response for ever.
            return self._refused(now_ms)
        return (Truncate(offset, loses_committed=offset < log.high_watermark),)

    def _out_of_range(
        self, answer: FetchAnswer, log: LogView, now_ms: float
    ) -> tuple[FollowerEffect, ...]:
        if answer.log_start_offset >= log.log_end_offset:
            return (RestartAt(answer.log_start_offset),)
        return self._refused(now_ms)

    def on_no_answer(self, now_ms: float) -> tuple[FollowerEffect, ...]:
        """Pause after a fetch without a response: the leader's broker is not reachable."""
        return self._refused(now_ms)

    def _refused(self, now_ms: float) -> tuple[FollowerEffect, ...]:
        self._pause_ms = min(max(FIRST_PAUSE_MS, 2 * self._pause_ms), self._rules.pause_max_ms)
        self.paused_until_ms = now_ms + self._pause_ms
        if self._refused_since_ms is None:
            self._refused_since_ms = now_ms
        if now_ms - self._refused_since_ms <= 2 * self._rules.lag_time_max_ms:
            return ()
        self._refused_since_ms = now_ms
        return (ReadState(),)


def high_watermark_after(
    *, own: Offset, leader_high_watermark: Offset, log_end_offset: Offset
) -> Offset:
    """Return a follower's high watermark after an append: the leader's, as far as its own log goes.

    The high watermark never goes back, even if a new leader reports a lower one.
    """
    return max(own, min(leader_high_watermark, log_end_offset))


def last_fetched_epoch(latest_epoch: LeaderEpoch, log_end_offset: Offset) -> LeaderEpoch:
    """Return the epoch of the last record, -1 for a log that has had none."""
    return latest_epoch if log_end_offset > 0 else NO_LEADER_EPOCH
