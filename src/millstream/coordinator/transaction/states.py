"""The states of a transactional id, and which may follow which.

::

    Empty ─partitions─▶ Ongoing ─commit─▶ PrepareCommit ─markers─▶ CompleteCommit ─┐
      ▲                  ▲    └─abort, fence─▶ PrepareAbort ─markers─▶ CompleteAbort ─┤
      │                  └───────────────────────partitions────────────────────────┤
      └───────────────────────────────InitProducerId───────────────────────────────┘

======================  =========================================================================
state                   may follow
======================  =========================================================================
``EMPTY``               Empty, CompleteCommit, CompleteAbort
``ONGOING``             Ongoing, Empty, CompleteCommit, CompleteAbort
``PREPARE_COMMIT``      Ongoing
``PREPARE_ABORT``       Ongoing, PrepareEpochFence, and of transaction version 2 (a producer that
                        does not know whether a partition was added aborts all the same) Empty,
                        CompleteCommit, CompleteAbort
``COMPLETE_COMMIT``     PrepareCommit
``COMPLETE_ABORT``      PrepareAbort
``DEAD``                Empty, CompleteCommit, CompleteAbort
``PREPARE_EPOCH_FENCE`` Ongoing
======================  =========================================================================

The last two are never stored. A dead id is a tombstone. PrepareEpochFence is the step in which
the coordinator bumps the epoch of a transaction that it aborts itself; here that step and
PrepareAbort are one record. Kafka: ``TransactionState``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class TransactionState(IntEnum):
    """A state, with its number in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """Kafka's name, in ListTransactions and DescribeTransactions: ``PrepareCommit``."""
        return self.name.title().replace("_", "")


_ENDED: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)

PREVIOUS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = MappingProxyType(
    {
        TransactionState.EMPTY: _ENDED,
        TransactionState.ONGOING: _ENDED | {TransactionState.ONGOING},
        TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
        TransactionState.PREPARE_ABORT: _ENDED
        | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
        TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
        TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
        TransactionState.DEAD: _ENDED,
        TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
    }
)
"""The states that each may follow: the table above."""

EXPIRES: Final = _ENDED
"""States in which an unused transactional id is forgotten."""

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""States in which the outcome is decided and markers are being written."""

BY_TEXT: Final[Mapping[str, TransactionState]] = MappingProxyType(
    {state.text: state for state in TransactionState}
)
