"""The states of a classic group and the moves between them (Kafka: ``ClassicGroupState``).

::

    EMPTY ──join──▶ PREPARING_REBALANCE ──all joined──▶ COMPLETING_REBALANCE ──sync──▶ STABLE
      ▲                │        ▲   ▲                          │                         │
      └──all left──────┘          │   └──join, leave, expiry─────┘                         │
                                └──────────join, leave, expiry───────────────────────────┘

EMPTY holds offsets, or a generation whose members all left; PREPARING_REBALANCE waits for every
member to join again; COMPLETING_REBALANCE waits for the leader's assignment. DEAD is reported for a
group that does not exist.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """The value is the name in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
}
