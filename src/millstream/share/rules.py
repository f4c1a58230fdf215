"""What a share group is set to, as far as its share partitions go by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MIN_THROTTLE_COUNT: Final = 2


@dataclass(frozen=True, slots=True)
class ShareRules:
    """The settings of a share group. They may change at any time."""

    delivery_count_limit: int = 5
    """How often a record is delivered before it is archived (``share.delivery.count.limit``)."""
    max_record_locks: int = 2000
    """Offsets in flight from which on no new ones are acquired
    (``share.partition.max.record.locks``).
    """
    record_lock_duration_ms: int = 30_000
    renew_acknowledge: bool = True
    has_dead_letters: bool = False
    """True where the group has a dead-letter topic."""

    @property
    def throttle_count(self) -> int:
        """The delivery count from which on records are delivered in smaller portions, so that one
        that no consumer survives does not take its neighbours with it.
        """
        return max(_MIN_THROTTLE_COUNT, (self.delivery_count_limit + 1) // 2)

    def portion(self, *, delivery_count: int, acquired_together: int) -> int:
        """Return how many records that were delivered so often are delivered together."""
        limit = self.delivery_count_limit
        if limit > _MIN_THROTTLE_COUNT and delivery_count >= limit - 1:
            return 1
        return max(1, acquired_together >> (delivery_count - self.throttle_count + 1))
