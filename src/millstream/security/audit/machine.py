"""The audit log as a machine: events go in, records come out, each with its destination.

::

    event ──route──▶ off: nothing
             │
             ├─ allowed, and seen a short while ago ──▶ counted (`repeats`)
             │                                              │ when its interval ends
             │                                              ▼
             └────────────────────────────────────────▶ rate limit ──▶ record
                                                            └──▶ left out: counted

Nothing is dropped without a trace: every event is in a record (of its own, or as one of those that
a record stands for), or it is counted as left out, and the counts become records (``left-out``) as
soon as there is room for them. ``Entry.stands_for`` says how many events a record stands for, so
that what is lost behind this machine (``lost``) is counted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from millstream.model.topic import AUDIT_LOG_TOPIC
from millstream.security.audit import record
from millstream.security.audit.event import Authentication, Authorization, JsonValue, Moment
from millstream.security.audit.kinds import CLASSES, REPEATED, EventKind, Outcome
from millstream.security.audit.rate_limit import TokenBucket
from millstream.security.audit.repeats import Repeated, Repeats

LEFT_OUT_INTERVAL_MS: Final = 1_000
"""How often at most what was left out for one reason becomes a record."""
MIN_INTERVAL_OF_READERS_MS: Final = 60_000
"""Reads of the audit log's own topic are counted at least so long instead of recorded again: each
record of a read would be the next thing to read.
"""


class Destination(Enum):
    """Where records go; the value is the word in settings."""

    TOPIC = "topic"
    FILE = "file"


class Reason(Enum):
    """Why an event is not in the log; the value is the word in records."""

    RATE_LIMIT = "rate-limit"
    QUEUE_FULL = "queue-full"
    WRITE_FAILED = "write-failed"


EventClass: TypeAlias = tuple[EventKind, Outcome]


@dataclass(frozen=True, slots=True)
class Policy:
    """What is recorded. A class without a route is off."""

    routes: Mapping[EventClass, Destination]
    max_events_per_second: int
    burst_events: int
    repeat_interval_ms: int
    excluded_principals: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Entry:
    """A record: ``value`` is one line of JSON, ``key`` the principal."""

    destination: Destination
    time_ms: int
    key: bytes
    value: bytes
    stands_for: Mapping[str, int]
    """How many events, by kind and outcome as ``produce.denied``."""


@dataclass(slots=True)
class _LeftOut:
    counts: Counter[str] = field(default_factory=Counter)
    from_ms: int = 0
    to_ms: int = 0


class AuditMachine:
    """``emit`` is given each record and tells whether there was room for it."""

    def __init__(
        self, policy: Policy, *, source: str, run: str, now: Moment, emit: Callable[[Entry], bool]
    ) -> None:
        """``source`` names this broker; ``run`` begins the ids of its records and is another one at
        each start.
        """
        self._policy = policy
        self._source = source
        self._run = run
        self._emit = emit
        self._number = 0
        self._buckets = {
            each: TokenBucket(policy.max_events_per_second, policy.burst_events, now.monotonic_ms)
            for each in CLASSES
        }
        self._repeats: Repeats[Authorization] = Repeats()
        self._left_out: dict[tuple[Destination, Reason], _LeftOut] = {}
        self._told_ms: dict[tuple[Destination, Reason], float] = {}

    def set_policy(self, policy: Policy, now: Moment) -> None:
        """Record something else from now on."""
        if policy == self._policy:
            return
        self.end_repeats(now)
        self._policy = policy
        for bucket in self._buckets.values():
            bucket.set_limits(policy.max_events_per_second, policy.burst_events)

    def records(self, kind: EventKind, outcome: Outcome) -> bool:
        """Tell whether events of a class are recorded."""
        return (kind, outcome) in self._policy.routes

    def excludes(self, principal: str) -> bool:
        """Tell whether nothing is recorded of what a principal was allowed."""
        return principal in self._policy.excluded_principals

    @property
    def is_busy(self) -> bool:
        """True while ``tick`` has something to wait for."""
        return bool(self._repeats) or bool(self._left_out)

    def authentication(self, event: Authentication, now: Moment) -> None:
        """Take an authentication that ended."""
        destination = self._policy.routes.get((EventKind.AUTHENTICATION, event.outcome))
        principal = event.origin.principal
        if destination is None or (
            event.outcome is not Outcome.FAILED and principal in self._policy.excluded_principals
        ):
            return
        event_class = EventKind.AUTHENTICATION, event.outcome
        if self._admit(event_class, destination, 1, now):
            data = record.authentication_data(event)
            self._write(
                destination, record.AUTHENTICATION, data, event_class, principal, None, now.wall_ms
            )

    def authorization(self, event: Authorization, now: Moment) -> None:
        """Take a decision of which each is recorded."""
        destination = self._destination(event)
        if destination is not None:
            self._record(event, destination, now)

    def counts(self, kind: EventKind, key: tuple[str | int | None, ...], now: Moment) -> bool:
        """Count an allowed event of a kind that is like one of a short while ago; False for one
        that ``repeatable`` has to be told of, with the same key. Of a kind that is not recorded it
        is to be asked nothing.
        """
        return self._repeats.count((kind, key), now.wall_ms, now.monotonic_ms)

    def repeatable(
        self, event: Authorization, key: tuple[str | int | None, ...], now: Moment
    ) -> None:
        """Take an allowed event that is none of a short while ago, see ``counts``."""
        destination = self._destination(event)
        if destination is None:
            return
        interval_ms = self._policy.repeat_interval_ms
        if event.name == AUDIT_LOG_TOPIC:
            interval_ms = max(interval_ms, MIN_INTERVAL_OF_READERS_MS)
        if interval_ms and event.kind in REPEATED:
            ends_ms = now.monotonic_ms + interval_ms
            self._write_repeats(self._repeats.began((event.kind, key), event, ends_ms), now)
        self._record(event, destination, now)

    def tick(self, now: Moment) -> None:
        """Write what has become due: to be called about once a second while ``is_busy``."""
        self._write_repeats(self._repeats.end(now.monotonic_ms), now)
        for key in list(self._left_out):
            if now.monotonic_ms - self._told_ms.get(key, float("-inf")) >= LEFT_OUT_INTERVAL_MS:
                self._tell_left_out(*key, now)

    def end_repeats(self, now: Moment) -> None:
        """Write what was counted so far: the policy changes, or the broker stops."""
        self._write_repeats(self._repeats.end_all(), now)

    def end(self, now: Moment) -> None:
        """Write all that is left: the broker stops."""
        self.end_repeats(now)
        for key in list(self._left_out):
            self._tell_left_out(*key, now)

    def lost(self, entry: Entry, reason: Reason, now: Moment) -> None:
        """Count the events of a record that was emitted and could not be written."""
        self._leave_out(entry.destination, reason, entry.stands_for, entry.time_ms, now.wall_ms)

    @property
    def left_out(self) -> Mapping[str, int]:
        """What was left out and is in no record yet, by kind and outcome."""
        total: Counter[str] = Counter()
        for each in self._left_out.values():
            total.update(each.counts)
        return total

    def _destination(self, event: Authorization) -> Destination | None:
        if event.decision.is_allowed and event.origin.principal in self._policy.excluded_principals:
            return None
        return self._policy.routes.get((event.kind, event.outcome))

    def _record(self, event: Authorization, destination: Destination, now: Moment) -> None:
        event_class = event.kind, event.outcome
        if self._admit(event_class, destination, 1, now):
            self._write_authorization(destination, event, record.authorization_data(event), 1, now)

    def _write_repeats(self, ended: list[Repeated[Authorization]], now: Moment) -> None:
        for each in ended:
            event = each.event
            destination = self._policy.routes.get((event.kind, event.outcome))
            if destination is None:
                continue
            if self._admit((event.kind, event.outcome), destination, each.count, now):
                data = record.repeated(
                    record.authorization_data(event),
                    count=each.count,
                    from_ms=each.first_ms,
                    to_ms=each.last_ms,
                )
                self._write_authorization(destination, event, data, each.count, now)

    def _write_authorization(
        self,
        destination: Destination,
        event: Authorization,
        data: dict[str, JsonValue],
        count: int,
        now: Moment,
    ) -> None:
        self._write(
            destination,
            record.AUTHORIZATION,
            data,
            (event.kind, event.outcome),
            event.origin.principal,
            record.subject_of(event),
            now.wall_ms,
            count,
        )

    def _admit(
        self, event_class: EventClass, destination: Destination, count: int, now: Moment
    ) -> bool:
        """Tell whether the rate limit lets a record through; count its events where not."""
        if self._buckets[event_class].take(now.monotonic_ms):
            return True
        counts = {_word(event_class): count}
        self._leave_out(destination, Reason.RATE_LIMIT, counts, now.wall_ms, now.wall_ms)
        return False

    def _write(
        self,
        destination: Destination,
        type_: str,
        data: Mapping[str, JsonValue],
        event_class: EventClass,
        principal: str,
        subject: str | None,
        wall_ms: int,
        count: int = 1,
    ) -> None:
        value = self._encoded(type_, data, subject, wall_ms)
        entry = Entry(
            destination,
            wall_ms,
            principal.encode(errors="replace"),
            value,
            {_word(event_class): count},
        )
        if not self._emit(entry):
            self._leave_out(destination, Reason.QUEUE_FULL, entry.stands_for, wall_ms, wall_ms)

    def _tell_left_out(self, destination: Destination, reason: Reason, now: Moment) -> None:
        """Write what was left out, or go on counting where there is no room."""
        key = destination, reason
        left_out = self._left_out[key]
        data = record.left_out_data(
            reason.value, left_out.counts, from_ms=left_out.from_ms, to_ms=left_out.to_ms
        )
        value = self._encoded(record.LEFT_OUT, data, None, now.wall_ms)
        entry = Entry(destination, now.wall_ms, b"", value, dict(left_out.counts))
        if self._emit(entry):
            del self._left_out[key]
            self._told_ms[key] = now.monotonic_ms

    def _leave_out(
        self,
        destination: Destination,
        reason: Reason,
        counts: Mapping[str, int],
        from_ms: int,
        to_ms: int,
    ) -> None:
        left_out = self._left_out.get((destination, reason))
        if left_out is None:
            left_out = self._left_out[destination, reason] = _LeftOut(from_ms=from_ms, to_ms=to_ms)
        left_out.counts.update(counts)
        left_out.from_ms = min(left_out.from_ms, from_ms)
        left_out.to_ms = max(left_out.to_ms, to_ms)

    def _encoded(
        self, type_: str, data: Mapping[str, JsonValue], subject: str | None, wall_ms: int
    ) -> bytes:
        self._number += 1
        return record.encoded(
            type_,
            data,
            event_id=f"{self._run}-{self._number}",
            source=self._source,
            subject=subject,
            time_ms=wall_ms,
        )


def _word(event_class: EventClass) -> str:
    kind, outcome = event_class
    return f"{kind.value}.{outcome.value}"
