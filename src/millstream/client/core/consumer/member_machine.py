"""The states of a member whose coordinator assigns the partitions (KIP-848, KIP-932), purely.

States (Kafka: ``MemberState``)::

    UNSUBSCRIBED  --a poll after subscribing-->      JOINING        epoch 0, everything is sent
    JOINING       --answer with an assignment-->     RECONCILING
    RECONCILING   --revoked, assigned-->             ACKNOWLEDGING  a heartbeat is due at once
    ACKNOWLEDGING --heartbeat is sent-->             STABLE, or RECONCILING for a newer assignment
    STABLE        --another assignment-->            RECONCILING
    any of these  --FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID--> FENCED; partitions lost: JOINING
    any of these  --no poll for max.poll.interval.ms--> STALE; partitions lost, a poll: JOINING
    any of these  --unsubscribe, close-->            LEAVING, then UNSUBSCRIBED
    any           --an error that no retry mends-->  FATAL

The epoch is the coordinator's: 0 joins, −1 leaves, −2 leaves for a moment (static members), any
other is what the coordinator has answered. The coordinator counts a partition as given up when a
heartbeat reports the owned partitions without it, so the assignment that is reported is the one
that was applied (Kafka: ``AbstractMembershipManager``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from millstream.model.topic import TopicId

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2


class MemberState(Enum):
    """The state of a member."""

    UNSUBSCRIBED = auto()
    JOINING = auto()
    RECONCILING = auto()
    ACKNOWLEDGING = auto()
    STABLE = auto()
    FENCED = auto()
    STALE = auto()
    LEAVING = auto()
    FATAL = auto()


_TAKES_PART: Final = frozenset(
    {
        MemberState.JOINING,
        MemberState.RECONCILING,
        MemberState.ACKNOWLEDGING,
        MemberState.STABLE,
    }
)


class TopicIdPartition(NamedTuple):
    """A partition as the coordinator names it."""

    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """Partitions of one member. ``number`` tells two assignments of the same partitions apart when
    there was another one between them: each has to be acknowledged.
    """

    number: int = -1
    partitions: frozenset[TopicIdPartition] = frozenset()


NO_ASSIGNMENT: Final = Assignment()


class MemberMachine:
    """The state of one membership."""

    def __init__(self) -> None:
        self.state = MemberState.UNSUBSCRIBED
        self.epoch = JOIN_EPOCH
        self.target = NO_ASSIGNMENT
        """What the coordinator assigned last."""
        self.current = NO_ASSIGNMENT
        """What was applied last, and is reported."""
        self.life = 0
        """Grows when the membership begins or ends: answers to what was sent before are void."""
        self.era = 0
        """Grows with ``life`` and when leaving begins: assignments from before are not applied."""
        self.is_announced = False
        """True once a heartbeat of this life was sent, so that the coordinator may know it."""

    @property
    def takes_part(self) -> bool:
        """True while assignments are applied."""
        return self.state in _TAKES_PART

    @property
    def is_member(self) -> bool:
        """True while the coordinator has given this member an epoch."""
        return self.epoch > JOIN_EPOCH

    @property
    def heartbeats(self) -> bool:
        """True while heartbeats are sent, also while the user's listener hears of the end."""
        return self.takes_part or (self.state is MemberState.LEAVING and self.is_member)

    @property
    def is_reconciled(self) -> bool:
        """True if the last assignment was applied."""
        return self.current == self.target

    @property
    def heartbeats_now(self) -> bool:
        """True if a heartbeat is due without waiting for the interval."""
        return self.state in (MemberState.JOINING, MemberState.ACKNOWLEDGING)

    def join(self) -> None:
        """Join, or join again, with nothing owned."""
        assert self.state is not MemberState.FATAL
        self._begin(MemberState.JOINING)

    def on_heartbeat(self, epoch: int, partitions: Iterable[TopicIdPartition] | None) -> None:
        """Apply an answer; ``partitions`` is None if the assignment is unchanged."""
        if not self.heartbeats or epoch < 0:
            return
        self.epoch = epoch
        if not self.takes_part:
            return
        if partitions is not None:
            chosen = frozenset(partitions)
            if self.target is NO_ASSIGNMENT or chosen != self.target.partitions:
                self.target = Assignment(self.target.number + 1, chosen)
        if not self.is_reconciled:
            if self.state is not MemberState.ACKNOWLEDGING:
                self.state = MemberState.RECONCILING
        elif self.state in (MemberState.JOINING, MemberState.RECONCILING):
            self.state = MemberState.STABLE

    def reconciled(self, assignment: Assignment) -> None:
        """An assignment, or the part of it whose topics are known, was applied."""
        assert self.state is MemberState.RECONCILING
        self.current = assignment
        self.state = MemberState.ACKNOWLEDGING

    def sent(self) -> None:
        """A heartbeat with the present epoch and assignment is sent."""
        self.is_announced = True
        if self.state is MemberState.ACKNOWLEDGING:
            done = self.is_reconciled
            self.state = MemberState.STABLE if done else MemberState.RECONCILING

    def fence(self) -> bool:
        """The coordinator does not know this epoch; return True if the member was to stay."""
        if not self.takes_part:
            if self.state is MemberState.LEAVING:
                self._begin(MemberState.UNSUBSCRIBED)
            return False
        self._begin(MemberState.FENCED)
        return True

    def expire(self) -> None:
        """The user has not polled for ``max.poll.interval.ms``."""
        self._begin(MemberState.STALE)

    def prepare_to_leave(self) -> None:
        """The user unsubscribes or closes: assignments are not applied any more."""
        if self.takes_part:
            self.state = MemberState.LEAVING
            self.era += 1

    def left(self) -> None:
        """The member is out of the group, or no longer tries to be in it."""
        if self.state is not MemberState.FATAL:
            self._begin(MemberState.UNSUBSCRIBED)

    def fail(self) -> None:
        """An error ends the membership for good."""
        self._begin(MemberState.FATAL)

    def _begin(self, state: MemberState) -> None:
        self.state = state
        self.epoch = JOIN_EPOCH
        self.target = self.current = NO_ASSIGNMENT
        self.is_announced = False
        self.life += 1
        self.era += 1
