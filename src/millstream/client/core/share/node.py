"""What one consumer has to say to one broker: its share session, and acknowledgements on their way.

A request is in flight while ``is_busy``. While ``ending`` is there nothing else is asked: the
session that comes after is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.client.core.share.acknowledgements import Acknowledged, Source, ranges_of
from millstream.client.core.share.session import Ranges, SharePartition, ShareSession
from millstream.client.core.waiting import Signal
from millstream.model.deferred import Deferred


@dataclass(slots=True, eq=False)
class Pending:
    """Acknowledgements on their way. ``done`` completes with the error, None if they were taken."""

    acknowledged: Acknowledged
    deadline_ms: float
    is_urgent: bool
    done: Deferred[Exception | None] = field(default_factory=Deferred)

    @property
    def source(self) -> Source:
        """Where the records were acquired."""
        return self.acknowledged.source

    @property
    def partition(self) -> SharePartition:
        """The partition as requests name it."""
        return self.source.topic_id, self.source.topic_partition.partition


Carried = Mapping[SharePartition, list[Pending]]
"""The acknowledgements of one request."""


@dataclass(slots=True, eq=False)
class ShareNode:
    """One broker, its share session, and what is to be said to it."""

    node_id: int
    session: ShareSession = field(default_factory=ShareSession)
    queue: list[Pending] = field(default_factory=list)
    is_busy: bool = False
    ending: Deferred[None] | None = None
    """The end of the session, while it is being ended."""
    answered: Signal = field(default_factory=Signal)
    """Raised when a request has ended, however it did."""
    retry_at_ms: float = 0.0
    attempts: int = 0

    def take(self) -> Carried:
        """Take what is queued, by partition."""
        carried: dict[SharePartition, list[Pending]] = {}
        for pending in self.queue:
            carried.setdefault(pending.partition, []).append(pending)
        self.queue = []
        return carried

    def take_stale(self) -> list[Pending]:
        """Take what is queued of earlier sessions: their acquisitions have ended."""
        number = self.session.number
        stale = [each for each in self.queue if each.source.session_number != number]
        if stale:
            self.queue = [each for each in self.queue if each.source.session_number == number]
        return stale


def ranges_in(carried: Carried) -> Ranges:
    """Return acknowledgements as requests hold them."""
    ranges = {}
    for partition, row in carried.items():
        types: dict[int, int] = {}
        for pending in row:
            types |= pending.acknowledged.types
        ranges[partition] = ranges_of(types)
    return ranges
