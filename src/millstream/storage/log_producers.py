"""The producer state of one log and its snapshots on disk.

A snapshot is written when a segment is closed, and holds the producers as they were there. After a
cut the state is taken from the latest snapshot that is left and from the batches behind it.
"""

from __future__ import annotations

from collections.abc import Collection

from millstream.model.offsets import Offset
from millstream.records.batch import Batch
from millstream.storage.directory import PRODUCER_SNAPSHOT, file_name
from millstream.storage.durability import Durability
from millstream.storage.environment import LogEnvironment
from millstream.storage.producer_recovery import replay_batch, replay_log, restore_snapshot
from millstream.storage.producer_snapshot import ProducerSnapshots
from millstream.storage.producer_state import (
    ActiveProducer,
    ProducerEntry,
    ProducerStateManager,
)
from millstream.storage.segment import Segment
from millstream.storage.segments import Segments


class LogProducers:
    """The producers of one log, to which appends and truncations add alone. What reads or writes
    files raises OSError.
    """

    __slots__ = ("_durability", "_environment", "snapshots", "state")

    def __init__(
        self,
        environment: LogEnvironment,
        durability: Durability,
        state: ProducerStateManager,
        snapshots: ProducerSnapshots,
    ) -> None:
        self._environment = environment
        self._durability = durability
        self.state = state
        """Sequences and transactions, as of the log end."""
        self.snapshots = snapshots
        """Their files."""

    def entries(self) -> Collection[ProducerEntry]:
        """Return the producers remembered as they are; only to look at."""
        return self.state.producers.values()

    def active(self) -> list[ActiveProducer]:
        """Return the producers remembered, by id."""
        return [
            ActiveProducer.of(entry)
            for entry in sorted(self.entries(), key=lambda entry: entry.producer_id)
        ]

    def replay(self, segment: Segment, batches: list[Batch]) -> None:
        """Update the producers from batches that are in the log, in ``segment``."""
        for batch in batches:
            aborted = replay_batch(self.state, batch)
            if aborted is not None:
                segment.transaction_index.append(aborted)

    def write_snapshot(self, offset: Offset) -> None:
        """Write a snapshot that holds up to ``offset``, the log end."""
        if self.snapshots.write(offset, self.entries()):
            self._durability.note_replaced(file_name(offset, PRODUCER_SNAPSHOT))

    def drop_snapshots(self, base_offsets: Collection[Offset]) -> None:
        """Remove the snapshots of segments that are gone."""
        for base_offset in base_offsets:
            self.snapshots.remove(base_offset)
        self._durability.forget(file_name(each, PRODUCER_SNAPSHOT) for each in base_offsets)

    def clear(self, offset: Offset) -> None:
        """Forget everything: the log restarts, empty, at ``offset``."""
        self.state.clear()
        self.snapshots.keep(above=offset, up_to=offset)

    def reload(
        self,
        segments: Segments,
        *,
        log_start_offset: Offset,
        log_end_offset: Offset,
        now_ms: int,
    ) -> None:
        """Restore the state as of the log end after a truncation. Raises CorruptLogError too."""
        start = restore_snapshot(
            self.state,
            self.snapshots,
            self._environment,
            log_start_offset=log_start_offset,
            up_to=log_end_offset,
            now_ms=now_ms,
        )
        replay_log(self.state, segments, start, log_end_offset)

    def expire(self, now_ms: int) -> None:
        """Forget producers idle for ``producer.id.expiration.ms``."""
        self.state.expire(now_ms, self._environment.producer_id_expiration_ms)

    def forget_oldest(self, keep: int) -> None:
        """Forget all but the ``keep`` producers that wrote last, and those in a transaction.

        A forgotten producer may continue with any sequence, as after ``producer.id.expiration.ms``.
        """
        self.state.forget_oldest(keep)
