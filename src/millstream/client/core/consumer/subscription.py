"""What a consumer reads, and its position in each partition (Kafka: ``SubscriptionState``).

A partition's phase::

    AWAIT_COMMITTED -> FETCHING        the group has committed an offset
    AWAIT_COMMITTED -> AWAIT_RESET     it has not: auto.offset.reset decides
    AWAIT_RESET     -> FETCHING        ListOffsets returned
    FETCHING        -> AWAIT_VALIDATION  a new leader: does its log hold what was read? (KIP-320)
    AWAIT_VALIDATION-> FETCHING        yes, or cut back to where it parts
    FETCHING        -> AWAIT_RESET     the position is out of range
    any             -> FETCHING        seek

Everything changes on the client's loop, with one exception: a position advances when records are
returned, which may be on another thread. That thread writes only ``advanced``: one tuple that
includes the fence under which it was written, so that it is ignored after a seek on the loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from millstream.client.core.consumer.record import OffsetAndMetadata
from millstream.client.core.consumer.reset import ResetStrategy
from millstream.model.offsets import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from millstream.model.topic import TopicPartition


class Phase(Enum):
    """The phase of a partition on its way to being fetched."""

    AWAIT_COMMITTED = auto()
    AWAIT_RESET = auto()
    AWAIT_VALIDATION = auto()
    FETCHING = auto()


class PartitionState:
    """One assigned partition.

    ``position`` is the next record to return, ``fetch_offset`` the next one to fetch; those between
    them are buffered. Data buffered under another ``fence`` is invalid.
    """

    __slots__ = (
        "advanced",
        "base",
        "buffered_bytes",
        "fence",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "paused",
        "phase",
        "preferred_replica",
        "preferred_until_ms",
        "reset",
        "retry_at_ms",
        "revoking",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.phase = Phase.AWAIT_COMMITTED
        self.base: tuple[Offset, LeaderEpoch] = (NO_OFFSET, NO_LEADER_EPOCH)
        """The position at which the fence began."""
        self.advanced: tuple[int, Offset, LeaderEpoch] = (-1, NO_OFFSET, NO_LEADER_EPOCH)
        """A fence, and the position reached under it."""
        self.fetch_offset: Offset = NO_OFFSET
        self.fence = 0
        self.paused = False
        self.revoking = False
        """True while the partition is being revoked: no more records are returned."""
        self.reset: ResetStrategy | None = None
        self.leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
        self.high_watermark: Offset = NO_OFFSET
        self.last_stable_offset: Offset = NO_OFFSET
        self.log_start_offset: Offset = NO_OFFSET
        self.preferred_replica: int | None = None
        self.preferred_until_ms = 0.0
        self.retry_at_ms = 0.0
        self.buffered_bytes = 0

    @property
    def position(self) -> Offset:
        """The next offset to return, −1 while there is none."""
        fence, offset, _ = self.advanced
        return offset if fence == self.fence else self.base[0]

    @property
    def position_epoch(self) -> LeaderEpoch:
        """The leader epoch of the record before the position, −1 when it is not known."""
        fence, _, epoch = self.advanced
        return epoch if fence == self.fence else self.base[1]

    @property
    def has_position(self) -> bool:
        """True once a position was found, sought or reset to."""
        return self.position >= 0

    @property
    def is_deliverable(self) -> bool:
        """True if records may be returned now."""
        return not self.paused and not self.revoking

    def void(self) -> None:
        """Drop what is buffered, and read again from the position."""
        self._begin(self.position, self.position_epoch)

    def _begin(self, offset: Offset, epoch: LeaderEpoch) -> None:
        self.base = (offset, epoch)
        self.fence += 1
        self.fetch_offset = offset
        self.buffered_bytes = 0

    def seek(self, offset: Offset, leader_epoch: LeaderEpoch = NO_LEADER_EPOCH) -> None:
        """Read on from ``offset``; ``leader_epoch`` is that of the record before, if known."""
        self._begin(offset, leader_epoch)
        self.reset = None
        self.preferred_replica = None
        self.retry_at_ms = 0.0
        validate = leader_epoch >= 0 and self.leader_epoch >= 0
        self.phase = Phase.AWAIT_VALIDATION if validate else Phase.FETCHING

    def await_reset(self, strategy: ResetStrategy) -> None:
        """Find a position by ``strategy``; buffered data becomes invalid."""
        self.phase = Phase.AWAIT_RESET
        self.reset = strategy
        self.preferred_replica = None
        self.retry_at_ms = 0.0
        self._begin(NO_OFFSET, NO_LEADER_EPOCH)

    def await_committed(self) -> None:
        """Find a position as for a new partition; buffered data becomes invalid."""
        self.phase = Phase.AWAIT_COMMITTED
        self.reset = None
        self.preferred_replica = None
        self.retry_at_ms = 0.0
        self._begin(NO_OFFSET, NO_LEADER_EPOCH)

    def on_leader(self, leader_epoch: LeaderEpoch) -> None:
        """Apply the leader epoch of metadata; a new leader may have lost what was read."""
        if leader_epoch < 0 or leader_epoch == self.leader_epoch:
            return
        if leader_epoch < self.leader_epoch:
            return
        first = self.leader_epoch < 0
        self.leader_epoch = leader_epoch
        if self.phase is Phase.FETCHING and self.position_epoch >= 0:
            stale = not first or self.position_epoch < leader_epoch
            if stale:
                self.phase = Phase.AWAIT_VALIDATION
                self.preferred_replica = None
                self.retry_at_ms = 0.0


class SubscriptionKind(Enum):
    """How partitions are assigned to a consumer."""

    NONE = auto()
    TOPICS = auto()
    PATTERN = auto()
    REMOTE_PATTERN = auto()
    """The coordinator matches topics."""
    ASSIGNED = auto()


_GROUPED: Final = (
    SubscriptionKind.TOPICS,
    SubscriptionKind.PATTERN,
    SubscriptionKind.REMOTE_PATTERN,
)


class Subscription:
    """The subscription of a consumer, and the state of its assigned partitions."""

    def __init__(self) -> None:
        self.kind = SubscriptionKind.NONE
        self.topics: frozenset[str] = frozenset()
        """Topics subscribed to; with a pattern those that match it by now, with an expression
        those that are assigned.
        """
        self.pattern: re.Pattern[str] | None = None
        self.expression: str | None = None
        self.partitions: dict[TopicPartition, PartitionState] = {}

    @property
    def uses_group(self) -> bool:
        """True when the group's coordinator assigns the partitions."""
        return self.kind in _GROUPED

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics; the assignment stays until the group rebalances."""
        self._become(SubscriptionKind.TOPICS)
        self.topics = frozenset(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to the topics whose whole name matches."""
        self._become(SubscriptionKind.PATTERN)
        self.pattern = pattern
        self.topics = frozenset()

    def subscribe_expression(self, expression: str) -> None:
        """Subscribe to the topics that the coordinator matches with an expression of RE2."""
        self._become(SubscriptionKind.REMOTE_PATTERN)
        self.expression = expression
        self.topics = frozenset()

    def match(self, existing: Iterable[str]) -> bool:
        """Set the topics that match the pattern; return True if they changed."""
        assert self.pattern is not None
        matching = frozenset(name for name in existing if self.pattern.fullmatch(name))
        changed = matching != self.topics
        self.topics = matching
        return changed

    def matches(self, topic: str) -> bool:
        """Return True when the topic belongs to the subscription."""
        if self.kind is SubscriptionKind.PATTERN:
            assert self.pattern is not None
            return self.pattern.fullmatch(topic) is not None
        return topic in self.topics

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without the group."""
        self._become(SubscriptionKind.ASSIGNED)
        self.set_partitions(partitions)

    def unsubscribe(self) -> None:
        """Unsubscribe."""
        self.kind = SubscriptionKind.NONE
        self.topics = frozenset()
        self.pattern = None
        self.expression = None
        self.set_partitions(())

    def set_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the assigned partitions; those that stay keep their state, including buffers."""
        before = self.partitions
        self.partitions = {
            topic_partition: before.get(topic_partition) or PartitionState(topic_partition)
            for topic_partition in partitions
        }
        for topic_partition, state in before.items():
            if topic_partition not in self.partitions:
                state.revoking = True
                state.void()

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the position of every partition that has one, in the form of a commit."""
        return {
            topic_partition: OffsetAndMetadata(state.position, "", state.position_epoch)
            for topic_partition, state in self.partitions.items()
            if state.has_position
        }

    def in_phase(self, phase: Phase, now_ms: float) -> list[PartitionState]:
        """Return the partitions in a phase that may be tried now."""
        return [
            state
            for state in self.partitions.values()
            if state.phase is phase and state.retry_at_ms <= now_ms
        ]

    def _become(self, kind: SubscriptionKind) -> None:
        compatible = self.kind in (SubscriptionKind.NONE, kind) or (
            self.kind in _GROUPED and kind in _GROUPED
        )
        if not compatible:
            raise ValueError("subscribe and assign cannot be combined: call unsubscribe in between")
        self.kind = kind
        if kind is not SubscriptionKind.PATTERN:
            self.pattern = None
        if kind is not SubscriptionKind.REMOTE_PATTERN:
            self.expression = None
