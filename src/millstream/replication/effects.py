"""What a replication state machine asks its driver to do. Effects are carried out in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from millstream.model.leadership import IsrMember
from millstream.model.offsets import LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Everything below ``offset`` is committed: update the log, complete waiting produces and
    fetches.
    """

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
    """Call ``retry_proposal`` with ``attempt`` in ``delay_ms``: the outcome of the attempt is
    unknown.
    """

    attempt: int
    delay_ms: float


@dataclass(frozen=True, slots=True)
class AwaitNewState:
    """The controller has newer state than this leader: wait for its push, or read the stored
    state.
    """


LeaderEffect: TypeAlias = AdvanceHighWatermark | ProposeIsr | RetryProposal | AwaitNewState
