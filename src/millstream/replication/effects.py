"""What a replication machine asks of its driver. Effects are carried out in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from millstream.model.leadership import IsrMember
from millstream.model.offsets import LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Everything below ``offset`` is committed: tell the log, the writers and the readers."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Ask the controller for another ISR; the answer comes back with ``attempt``."""

    attempt: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    members: tuple[IsrMember, ...]


@dataclass(frozen=True, slots=True)
class RetryProposal:
    """Call ``retry_proposal`` with ``attempt`` in ``delay_ms``: nobody knows what became of it."""

    attempt: int
    delay_ms: float


@dataclass(frozen=True, slots=True)
class AwaitNewState:
    """There is newer state than this leader's: it comes by a push, or has to be read."""


LeaderEffect: TypeAlias = AdvanceHighWatermark | ProposeIsr | RetryProposal | AwaitNewState
