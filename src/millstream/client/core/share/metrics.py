"""The metrics of a share consumer, under the names of Kafka's Java client.

Group ``consumer-share-fetch-manager-metrics``. Rates are since the creation of the consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SHARE_FETCH_GROUP: Final = "consumer-share-fetch-manager-metrics"


class ShareMetrics:
    """All counters of one share consumer."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self.records_consumed = 0
        """Records that polls have returned."""
        self._acknowledged = 0
        self._refused = 0

    def on_settled(self, count: int, error: Exception | None) -> None:
        """Count acknowledgements that a broker has taken, or that have failed."""
        if error is None:
            self._acknowledged += count
        else:
            self._refused += count

    def values(self) -> dict[tuple[str, str], float]:
        """Return everything by group and name."""
        seconds = max((self._now_ms() - self._began_ms) / 1000, 0.001)
        sent = self._acknowledged + self._refused
        found = {
            "records-consumed-total": float(self.records_consumed),
            "records-consumed-rate": self.records_consumed / seconds,
            "acknowledgements-send-total": float(sent),
            "acknowledgements-send-rate": sent / seconds,
            "acknowledgements-error-total": float(self._refused),
            "acknowledgements-error-rate": self._refused / seconds,
        }
        return {(SHARE_FETCH_GROUP, name): value for name, value in found.items()}
