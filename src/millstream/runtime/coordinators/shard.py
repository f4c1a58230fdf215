"""What a coordinator's state machine offers to its driver (``coordinator_shard``)."""

from __future__ import annotations

from typing import Protocol, TypeVar

from millstream.coordinator.result import CoordinatorRecord, Instant, Result, TopicChange


class Shard(Protocol):
    """A coordinator's state machine: what it offers to its driver. It does no I/O and knows no
    clock. Kafka: ``CoordinatorShard``.
    """

    @property
    def next_deadline_ms(self) -> float | None:
        """When :meth:`expire` has something to do, on the monotonic clock."""

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Read a stored record; None for one that means nothing here."""

    def replay(
        self, record: CoordinatorRecord, *, record_offset: int, producer_id: int = -1
    ) -> None:
        """Apply a record that is in the log, or is about to be."""

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker that ends a producer's transaction."""

    def expire(self, now: Instant) -> Result[None]:
        """Do what the deadlines that have passed ask for."""

    def postpone(self, by_ms: float) -> None:
        """Move every deadline later: for so long no request was taken."""

    def topic_changed(self, change: TopicChange, now: Instant) -> Result[None]:
        """Take note of a topic that was created or deleted."""

    def on_loaded(self, now: Instant) -> Result[None]:
        """Begin to serve what the log says."""

    def on_suspended(self, now: Instant) -> Result[None]:
        """Answer everybody who waits: another broker may be the coordinator. State is kept, for
        this broker may go on.
        """

    def on_unloaded(self) -> Result[None]:
        """Answer everybody who waits: they have to look for another coordinator."""


S = TypeVar("S", bound=Shard)
