"""Features: behaviour that all brokers of a cluster switch on together (KIP-584, KIP-1022).

A broker *supports* a range of levels of each feature (:data:`SUPPORTED`); the controller
*finalizes* one level for the whole cluster (:class:`FinalizedFeatures`), which UpdateFeatures
changes. Level 0 is off. A cluster that has never finalized anything runs at
:data:`DEFAULT_LEVELS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

TRANSACTION_VERSION: Final = "transaction.version"
"""1: records of ``__transaction_state`` with tagged fields; 2: partitions are added by Produce and
each EndTxn bumps the producer epoch (KIP-890)."""
GROUP_VERSION: Final = "group.version"
"""1: the consumer group protocol of KIP-848."""
SHARE_VERSION: Final = "share.version"
"""1: share groups (KIP-932); 2: dead-letter topics of share groups (KIP-1191)."""


class LevelRange(NamedTuple):
    """The lowest and the highest level of a feature that a broker supports."""

    lowest: int
    highest: int


SUPPORTED: Final[Mapping[str, LevelRange]] = MappingProxyType(
    {
        GROUP_VERSION: LevelRange(0, 1),
        SHARE_VERSION: LevelRange(0, 2),
        TRANSACTION_VERSION: LevelRange(0, 2),
    }
)

DEFAULT_LEVELS: Final[Mapping[str, int]] = MappingProxyType(
    {name: levels.highest for name, levels in SUPPORTED.items()} | {SHARE_VERSION: 1}
)
"""Of `share.version` the level of Apache Kafka 4.3: at 2 states are stored that 4.3 cannot read."""


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The levels in force; ``epoch`` grows with each change (Kafka: ``FinalizedFeaturesEpoch``)."""

    levels: Mapping[str, int] = field(default_factory=lambda: DEFAULT_LEVELS)
    epoch: int = 0

    def level(self, name: str) -> int:
        """Return the level of a feature; 0 where it is off or unknown."""
        return self.levels.get(name, 0)
