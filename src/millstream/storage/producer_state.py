"""The state of a partition's idempotent and transactional producers.

Per producer id: the epoch, the last five batches, the epoch of the coordinator that last wrote a
marker, and where the open transaction began. A produced batch is checked before it is written, and
the state changes only after the write (KAFKA-6683). In this order (Kafka: ``ProducerAppendInfo``)::

    same epoch, first and last sequence of one of the five batches   a duplicate: success, as then
    older epoch                                      INVALID_PRODUCER_EPOCH
    newer epoch, sequence not 0                      OUT_OF_ORDER_SEQUENCE_NUMBER
    same epoch, sequence not last + 1 (2**31-1 + 1 = 0)   OUT_OF_ORDER_SEQUENCE_NUMBER
    not transactional while a transaction is open    INVALID_TXN_STATE
    a producer that is not known                     any sequence

A coordinator's own batches have no sequence (-1), and only their epoch is checked. A marker that
ends a transaction has at least the producer's epoch; one of transaction version 2, where each end
bumps the epoch, has a larger one, or repeats the marker that was written last:

    older epoch                                      INVALID_PRODUCER_EPOCH
    the same epoch, version 2, transaction open      INVALID_PRODUCER_EPOCH
    older coordinator epoch                          TRANSACTION_COORDINATOR_FENCED

A new epoch forgets the five batches. Batches and markers from a leader, or read back from the log,
are taken as they are. KIP-98, KIP-360, KIP-890.

**Verification** (KIP-890): the batch that begins a transaction here is appended only after the
transaction coordinator has said that the partition belongs to the transaction. A
:class:`VerificationState` is made before the coordinator is asked, and forgotten with the first
transactional batch and with every marker of the producer; the batch is appended if its own is still
there. So an answer for a transaction that has ended meanwhile lets nothing into the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import NO_OFFSET, NO_TIMESTAMP, Offset
from millstream.model.producer import NO_PRODUCER_EPOCH, NO_SEQUENCE, next_sequence
from millstream.records.control import ControlType, EndTransactionMarker
from millstream.storage.transaction_index import VERSION, AbortedEntry

BATCHES_KEPT: Final = 5
EPOCH_BUMPED_FROM: Final = 2
"""The first level of ``transaction.version`` whose markers carry the epoch of the next
transaction."""


class BatchMetadata(NamedTuple):
    """A batch in a producer's window; ``timestamp`` is its largest."""

    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> Offset:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        """Sequence of the first record."""
        return next_sequence(self.last_sequence, -self.offset_delta)


class ProducerEntry:
    """One producer."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_sequence",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int, producer_epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches: list[BatchMetadata] = []
        self.last_sequence = NO_SEQUENCE
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = -1
        self.current_txn_first_offset = NO_OFFSET

    def add(self, producer_epoch: int, batch: BatchMetadata) -> None:
        """Record a batch that was written."""
        self.move_to_epoch(producer_epoch)
        batches = self.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(batch)
        self.last_sequence = batch.last_sequence
        self.last_timestamp = batch.timestamp

    def repeats(self, producer_epoch: int, base_sequence: int, last_offset_delta: int) -> bool:
        """True for a batch that is one of the five."""
        if producer_epoch == self.producer_epoch:
            last_sequence = next_sequence(base_sequence, last_offset_delta)
            for each in self.batches:
                if each.last_sequence == last_sequence and each.offset_delta == last_offset_delta:
                    return True
        return False

    def move_to_epoch(self, producer_epoch: int) -> None:
        """Forget the window when the epoch is another."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()
            self.last_sequence = NO_SEQUENCE


class VerificationState:
    """A producer that is about to begin a transaction in this partition; two of them are the same
    only if they are one object (Kafka: ``VerificationStateEntry`` and its ``VerificationGuard``).

    ``lowest_sequence`` is the smallest sequence that has asked: a larger one must not be the first
    of the transaction, or the smaller one would be refused for good when it is sent again.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "timestamp_ms")

    def __init__(self, producer_epoch: int, base_sequence: int, now_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = base_sequence
        self.timestamp_ms = now_ms

    def note(self, producer_epoch: int, base_sequence: int) -> None:
        """Take note of one more batch that asks."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = base_sequence
        elif producer_epoch == self.producer_epoch and base_sequence < self.lowest_sequence:
            self.lowest_sequence = base_sequence


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that the partition remembers (DescribeProducers)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: Offset

    @classmethod
    def of(cls, entry: ProducerEntry) -> ActiveProducer:
        """Return the description of a producer entry."""
        return cls(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )


class ProducerStateManager:
    """The producers of one partition, and its open transactions."""

    __slots__ = ("_completed", "_open", "_verifications", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self._verifications: dict[int, VerificationState] = {}
        self._open: dict[Offset, int] = {}
        """First offset of each open transaction, ascending, to its producer."""
        self._completed: dict[Offset, Offset] = {}
        """First offset of each transaction whose marker is not committed yet, to the marker."""

    def check(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        is_transactional: bool,
    ) -> BatchMetadata | None:
        """Check a produced batch; return the batch that it repeats, or None when it is new.

        Raises KafkaError as the table above says. Nothing changes.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return None
        if producer_epoch == entry.producer_epoch:
            expected = next_sequence(entry.last_sequence)
            if base_sequence not in (expected, NO_SEQUENCE):
                last_sequence = next_sequence(base_sequence, last_offset_delta)
                for batch in entry.batches:
                    if (
                        batch.last_sequence == last_sequence
                        and batch.offset_delta == last_offset_delta
                    ):
                        return batch
                raise _out_of_order(entry, base_sequence, expected)
        elif producer_epoch < entry.producer_epoch:
            raise _fenced(entry, producer_epoch)
        elif base_sequence > 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
            raise _out_of_order(entry, base_sequence, 0)
        if not is_transactional and entry.current_txn_first_offset != NO_OFFSET:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has a transaction open since offset "
                f"{entry.current_txn_first_offset} and wrote outside of it",
            )
        return None

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Raise INVALID_PRODUCER_EPOCH for an epoch that is older than the producer's."""
        entry = self.producers.get(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise _fenced(entry, producer_epoch)

    # Verification

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int
    ) -> VerificationState | None:
        """Return the verification that a transactional batch has to wait for; None while the
        producer's transaction of this epoch is open here, which was verified then.

        Raises INVALID_PRODUCER_EPOCH: the coordinator need not be asked about an older epoch.
        """
        if self.is_in_transaction(producer_id, producer_epoch):
            return None
        self.check_epoch(producer_id, producer_epoch)
        state = self._verifications.get(producer_id)
        if state is None:
            state = VerificationState(producer_epoch, base_sequence, now_ms)
            self._verifications[producer_id] = state
        else:
            state.note(producer_epoch, base_sequence)
        return state

    def verification_of(self, producer_id: int) -> VerificationState | None:
        """Return the verification that counts for a producer, if there is one."""
        return self._verifications.get(producer_id)

    def forget_verification(self, producer_id: int) -> None:
        """Let no verification of a producer count: a marker is about to be appended."""
        self._verifications.pop(producer_id, None)

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """True while the producer's transaction of this epoch is open here."""
        entry = self.producers.get(producer_id)
        return (
            entry is not None
            and entry.current_txn_first_offset != NO_OFFSET
            and entry.producer_epoch == producer_epoch
        )

    def check_verified(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        verified: VerificationState | None,
        *,
        bumps_epoch: bool,
    ) -> None:
        """Check a new transactional batch before :meth:`check`; ``verified`` is the verification
        that has succeeded for it. ``bumps_epoch``: its transaction is of version 2, where each
        begins with sequence 0.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE for a batch that is in no open
        transaction and not verified, OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        if self.is_in_transaction(producer_id, producer_epoch):
            return
        self.check_epoch(producer_id, producer_epoch)
        entry = self.producers.get(producer_id)
        state = self._verifications.get(producer_id)
        if state is None or state is not verified:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction"
            )
        begins_late = bumps_epoch and base_sequence > 0 and (entry is None or not entry.batches)
        if begins_late or base_sequence > state.lowest_sequence:
            expected = 0 if begins_late else state.lowest_sequence
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {base_sequence} of producer {producer_id} would begin its transaction, "
                f"where {expected} is due",
            )

    def check_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int = 0,
    ) -> None:
        """Check a marker from the transaction coordinator.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        is_open = entry.current_txn_first_offset != NO_OFFSET
        lowest = entry.producer_epoch + (transaction_version >= EPOCH_BUMPED_FROM and is_open)
        if producer_epoch < lowest:
            raise _fenced(entry, producer_epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} is older than {entry.coordinator_epoch}",
            )

    def add_batch(
        self,
        producer_id: int,
        producer_epoch: int,
        batch: BatchMetadata,
        is_transactional: bool,
    ) -> None:
        """Record a data batch that was written or read back."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        entry.add(producer_epoch, batch)
        if is_transactional:
            self._verifications.pop(producer_id, None)
            if entry.current_txn_first_offset == NO_OFFSET:
                first_offset = batch.base_offset
                entry.current_txn_first_offset = first_offset
                self._open[first_offset] = producer_id

    def add_marker(
        self,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        offset: Offset,
        timestamp: int,
    ) -> AbortedEntry | None:
        """Record a marker that was written or read back; return what the transaction index
        has to hold, None unless it ended an open transaction by aborting it.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id)
        self._verifications.pop(producer_id, None)
        entry.move_to_epoch(producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        first_offset = entry.current_txn_first_offset
        if first_offset == NO_OFFSET:
            return None
        entry.current_txn_first_offset = NO_OFFSET
        del self._open[first_offset]
        self._completed[first_offset] = offset
        if marker.control_type is not ControlType.ABORT:
            return None
        last_stable_offset = next(iter(self._open), offset + 1)
        return AbortedEntry(VERSION, producer_id, first_offset, offset, last_stable_offset)

    @property
    def has_undecided(self) -> bool:
        """True when the last stable offset may lie below the high watermark."""
        return bool(self._open or self._completed)

    @property
    def first_unstable_offset(self) -> Offset | None:
        """First offset of the oldest transaction that is open, or whose marker lies at or beyond
        the high watermark; None if there is none.
        """
        oldest_open = next(iter(self._open), None)
        if not self._completed:
            return oldest_open
        oldest_completed = min(self._completed)
        return oldest_completed if oldest_open is None else min(oldest_open, oldest_completed)

    def committed_up_to(self, high_watermark: Offset) -> None:
        """Record that everything below ``high_watermark`` is committed, markers included."""
        if self._completed:
            self._completed = {
                first: marker
                for first, marker in self._completed.items()
                if marker >= high_watermark
            }

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without an open transaction whose last write is too long ago."""
        expired = [
            entry.producer_id
            for entry in self.producers.values()
            if is_expired(entry, now_ms, expiration_ms)
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        self._verifications = {
            producer_id: state
            for producer_id, state in self._verifications.items()
            if now_ms - state.timestamp_ms < expiration_ms
        }

    def forget_oldest(self, keep: int) -> None:
        """Forget all but the ``keep`` producers that wrote last, and those in a transaction."""
        idle = [e for e in self.producers.values() if e.current_txn_first_offset == NO_OFFSET]
        idle.sort(key=lambda entry: entry.batches[-1].last_offset if entry.batches else NO_OFFSET)
        for entry in idle[: max(0, len(self.producers) - keep)]:
            del self.producers[entry.producer_id]

    def clear(self) -> None:
        """Forget everything."""
        self.producers.clear()
        self._verifications.clear()
        self._open.clear()
        self._completed.clear()

    def take_over(self, other: ProducerStateManager) -> None:
        """Take over all that another log of the same partition knows, which is used no more."""
        self.producers = other.producers
        self._verifications = other._verifications
        self._open = other._open
        self._completed = other._completed

    def restore(self, entries: Iterable[ProducerEntry]) -> None:
        """Take over the producers of a snapshot."""
        self.clear()
        self.producers.update((entry.producer_id, entry) for entry in entries)
        began = sorted(
            (entry.current_txn_first_offset, entry.producer_id)
            for entry in self.producers.values()
            if entry.current_txn_first_offset != NO_OFFSET
        )
        self._open.update(began)


def is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    """Tell whether a producer may be forgotten: idle, and no transaction open."""
    return (
        entry.current_txn_first_offset == NO_OFFSET
        and now_ms - entry.last_timestamp >= expiration_ms
    )


def _fenced(entry: ProducerEntry, producer_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {producer_epoch} of producer {entry.producer_id} is older than "
        f"{entry.producer_epoch}",
    )


def _out_of_order(entry: ProducerEntry, base_sequence: int, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {base_sequence} of producer {entry.producer_id}, where {expected} is next",
    )
