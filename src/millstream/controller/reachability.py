"""Leaders that their followers cannot reach: what a controller concludes from reports. Pure.

A leader reports that followers of its in-sync replicas are silent, and names the leaders that it
cannot fetch from itself. The controller then asks these followers which leaders they cannot fetch
from (:class:`ReachabilityReports`). ``election.after_unreachable`` decides for each partition. A
leader that lost leaderships in this way is suspected for a while (:class:`Suspicions`), so that it
does not get them back by a preferred election while nobody knows whether it can be reached again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.model.broker import BrokerId

SUSPECTED_MS: Final = 60_000.0
"""How long a broker is suspected at first; twice as long with each repetition."""

MAX_SUSPECTED_MS: Final = 600_000.0


@dataclass(frozen=True, slots=True)
class ReachabilityReports:
    """What brokers that live say of the leaders they fetch from: who cannot reach whom.

    A broker that gave no answer is not named: it says nothing against anybody.
    """

    unreachable: Mapping[BrokerId, frozenset[BrokerId]]

    def cannot_reach(self, follower: BrokerId, leader: BrokerId) -> bool:
        """True when ``follower`` says that it cannot fetch from ``leader``."""
        return leader in self.unreachable.get(follower, frozenset())


class Suspicions:
    """Which brokers are suspected to be out of their followers' reach."""

    def __init__(self) -> None:
        self._until_ms: dict[tuple[BrokerId, int], tuple[float, float]] = {}

    def suspect(self, broker_id: BrokerId, broker_epoch: int, now_ms: float) -> float:
        """Suspect one life of a broker from now on; return for how many milliseconds."""
        for key in [each for each in self._until_ms if each[0] == broker_id]:
            if key[1] != broker_epoch:
                del self._until_ms[key]
        known = self._until_ms.get((broker_id, broker_epoch))
        period_ms = SUSPECTED_MS if known is None else min(known[1] * 2, MAX_SUSPECTED_MS)
        self._until_ms[broker_id, broker_epoch] = (now_ms + period_ms, period_ms)
        return period_ms

    def is_suspected(self, broker_id: BrokerId, broker_epoch: int, now_ms: float) -> bool:
        """True while this life of a broker is suspected."""
        known = self._until_ms.get((broker_id, broker_epoch))
        return known is not None and now_ms < known[0]

    def clear(self) -> None:
        """Forget everything: another broker decides now."""
        self._until_ms.clear()
