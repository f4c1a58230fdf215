"""What the share coordinator keeps of one share partition. Kafka: ``ShareGroupOffset``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.coordinator.share.state_batches import combine_batches
from millstream.share.state import ANY_EPOCH, UNINITIALIZED_START_OFFSET, StateBatch


@dataclass(frozen=True, slots=True)
class PersistedState:
    """The newest snapshot with all updates since.

    ``create_timestamp_ms`` is when the state was last snapshotted because it had changed,
    ``write_timestamp_ms`` when it was last snapshotted at all.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: tuple[StateBatch, ...]
    create_timestamp_ms: int
    write_timestamp_ms: int

    @property
    def is_cold(self) -> bool:
        """True if nothing has changed between the last two snapshots."""
        return self.create_timestamp_ms != self.write_timestamp_ms

    def updated(
        self,
        *,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        state_batches: tuple[StateBatch, ...],
    ) -> PersistedState:
        """Return the state after an update; -1 leaves leader epoch or start offset as it is."""
        if start_offset == UNINITIALIZED_START_OFFSET:
            start_offset = self.start_offset
        return replace(
            self,
            leader_epoch=self.leader_epoch if leader_epoch == ANY_EPOCH else leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=combine_batches(
                (*self.state_batches, *state_batches), start_offset=start_offset
            ),
        )
