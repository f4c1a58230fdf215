"""The in-sync replicas as their leader sees them: agreed with the controller, or proposed to it.

::

                   ┌──── adopted, refused for certain ────┐
                   ▼                                      │
              Committed ──a follower has caught up──▶ PendingExpand
                   │  ▲
                   │  └── adopted, refused for certain ───┐
                   └──a follower lags too long──▶ PendingShrink

While a proposal is pending it is unknown which of the two sets the controller holds, so whatever
must be safe under both uses the **maximal** one: the union. What counts towards
``min.insync.replicas`` is the committed one.

A proposal says who is to be in sync as the leader knew them **when it made it**: each with the
broker epoch in which it had fetched all there was. It is repeated unchanged. A follower that was
restarted meanwhile may have lost data, and the controller detects that by its epoch. Kafka:
``PartitionState`` in ``Partition.scala``; KIP-497, KIP-903.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from millstream.model.broker import BrokerId
from millstream.model.leadership import IsrMember


@dataclass(frozen=True, slots=True)
class Committed:
    """The ISR that the controller wrote; nothing is proposed."""

    isr: tuple[BrokerId, ...]

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """Every replica that may be in the controller's ISR."""
        return self.isr


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """``added`` is proposed to join: the high watermark already waits for it."""

    isr: tuple[BrokerId, ...]
    added: BrokerId
    attempt: int
    since_ms: float
    members: tuple[IsrMember, ...]
    """The proposal."""

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """Every replica that may be in the controller's ISR."""
        return (*self.isr, self.added)


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """Some are proposed to leave: the high watermark still waits for them."""

    isr: tuple[BrokerId, ...]
    attempt: int
    since_ms: float
    members: tuple[IsrMember, ...]
    """The proposal."""

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """Every replica that may be in the controller's ISR."""
        return self.isr


Pending: TypeAlias = PendingExpand | PendingShrink
Isr: TypeAlias = Committed | PendingExpand | PendingShrink
