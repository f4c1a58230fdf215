"""The replicas and the leader of a partition."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from millstream.model.broker import NO_BROKER_EPOCH, BrokerId
from millstream.model.offsets import LeaderEpoch

NO_LEADER = BrokerId(-1)


class LeaderRecoveryState(Enum):
    """Whether a leader may lack acknowledged records (Kafka: ``LeaderRecoveryState``, KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


class IsrMember(NamedTuple):
    """A replica with the broker epoch in which it joined the ISR or ELR (KIP-841, KIP-903);
    ``broker_epoch`` is -1 if unknown.
    """

    broker_id: BrokerId
    broker_epoch: int = NO_BROKER_EPOCH


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The controller's state of one partition (Kafka: ``LeaderAndIsr`` plus the
    assignment).

    ``replicas`` is in assignment order: the first is the preferred leader; while replicas are being
    moved it holds ``adding_replicas`` and ``removing_replicas`` too. ``partition_epoch`` is the
    version of the stored state, so that of two states the newer is known.

    ``elr`` are replicas outside the ISR that hold everything committed, ``last_known_elr`` those
    that did before both became empty (KIP-966). ``isr_broker_epochs`` has the broker epoch in which
    members of both joined; a broker without an entry counts as -1.
    """

    replicas: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: int = 0
    controller_epoch: int = 0
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()
    last_known_elr: tuple[BrokerId, ...] = ()
    leader_recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    isr_broker_epochs: tuple[IsrMember, ...] = ()

    @property
    def is_alone(self) -> bool:
        """True if the partition has one replica and none is being added."""
        return len(self.replicas) == 1


UNKNOWN_STATE: Final = PartitionState((), NO_LEADER, -1, ())
"""A partition without a state from the controller yet."""
