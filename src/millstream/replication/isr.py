"""The in-sync replicas as their leader sees them: agreed with the controller, or on the way to it.

::

                   ┌──── adopted, refused for certain ────┐
                   ▼                                      │
              Committed ──a follower has caught up──▶ PendingExpand
                   │  ▲
                   │  └── adopted, refused for certain ───┐
                   └──a follower lags too long──▶ PendingShrink

While a proposal is on its way nobody knows which of the two sets the controller holds, so whatever
must be safe under both looks at the **maximal** one: the union. What counts towards
``min.insync.replicas`` is the committed one.

A proposal says who is to be in sync as the leader knew them **when it made it**: each with the
broker epoch in which it had fetched all there was. It is repeated word for word. A follower that
was started anew meanwhile may have lost what it had, and the controller knows it by its epoch.
Kafka: ``PartitionState`` in ``Partition.scala``; KIP-497, KIP-903.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from millstream.model.broker import BrokerId
from millstream.model.leadership import IsrMember


@dataclass(frozen=True, slots=True)
class Committed:
    """What the controller wrote, and nothing proposed."""

    isr: tuple[BrokerId, ...]

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """Everybody who may be in sync in the controller's eyes."""
        return self.isr


@dataclass(frozen=True, slots=True)
class PendingExpand:
    """``added`` is proposed to join: the high watermark waits for it already."""

    isr: tuple[BrokerId, ...]
    added: BrokerId
    attempt: int
    since_ms: float
    members: tuple[IsrMember, ...]
    """What was proposed."""

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """Everybody who may be in sync in the controller's eyes."""
        return (*self.isr, self.added)


@dataclass(frozen=True, slots=True)
class PendingShrink:
    """Some are proposed to leave: the high watermark waits for them still."""

    isr: tuple[BrokerId, ...]
    attempt: int
    since_ms: float
    members: tuple[IsrMember, ...]
    """What was proposed."""

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """Everybody who may be in sync in the controller's eyes."""
        return self.isr


Pending: TypeAlias = PendingExpand | PendingShrink
Isr: TypeAlias = Committed | PendingExpand | PendingShrink
