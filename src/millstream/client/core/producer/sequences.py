"""The idempotence of batches: producer id, epoch and sequences (KIP-98, KIP-360).

Each partition counts its records from 0 in an epoch. A broker accepts a batch whose sequence
follows the last one, acknowledges a duplicate of one of the last five, and refuses anything else.
So:

* A partition has at most five batches in flight, including those that were acknowledged while an
  earlier one was not: otherwise the earlier one would not be recognised as a duplicate when it is
  retried. Until one of an epoch has been acknowledged it has only one, because a broker accepts any
  sequence from a producer that it does not know.
* Retries are sent one by one, the lowest sequence first; new batches do not overtake them.
* When a batch is abandoned, there is a *gap*: brokers refuse everything after it. Once no request
  of the partition is in flight, the producer's epoch is raised and the remaining batches are
  renumbered from 0. A batch with an unknown outcome is only renumbered if nothing can have filled
  the gap in the meantime, because the broker could then have it under both numbers; otherwise it
  fails, and the error says that it may have been written.

=====================  =============================  =========================================
state of a partition   what may be drained            how it ends
=====================  =============================  =========================================
fresh                  one batch                      acknowledged: begun
begun                  five batches                   a batch is given up: gap
gap                    nothing                        all came back: renumbered, fresh
stale (epoch raised    retries only                   all acknowledged: fresh
for another one)
=====================  =============================  =========================================

A transactional producer gets its id and epoch from its coordinator (:meth:`Sequences.adopt`) and
never raises the epoch by itself: a gap ends the transaction, see ``transactions``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from millstream.client.core.producer.batch import NO_IDENTITY, Identity, ProducerBatch
from millstream.model.producer import (
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    next_sequence,
)
from millstream.model.topic import TopicPartition

MAX_ON_THE_WAY: Final = 5
"""The number of batches that a broker remembers to detect duplicates."""


@dataclass(slots=True)
class ProducerIdentity:
    """The id from a broker, and the epoch, which an idempotent producer raises by itself."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_known(self) -> bool:
        """True once a broker has assigned an id."""
        return self.producer_id >= 0

    def raise_epoch(self) -> None:
        """Begin the next epoch; after the last one request a new id."""
        if self.epoch >= MAX_PRODUCER_EPOCH:
            self.producer_id, self.epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        else:
            self.epoch += 1


@dataclass(slots=True)
class PartitionSequences:
    """The sequences of one partition. ``on_the_way`` are batches with a sequence, in order."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    next_sequence: int = 0
    has_begun: bool = False
    on_the_way: deque[ProducerBatch] = field(default_factory=deque)
    has_gap: bool = False
    gap_may_fill: bool = False
    """True if the batch that caused the gap may still reach the broker."""
    in_old_log: dict[ProducerBatch, int] = field(default_factory=dict)
    """Batches, with their attempts, that were in the network when the log was replaced by an empty
    one: an answer to that attempt may speak of the log before.
    """
    gap_sequence: int = NO_SEQUENCE
    """The last abandoned sequence; if a later one is acknowledged, it was written."""


class Sequences:
    """The sequences of all partitions of one producer."""

    def __init__(self) -> None:
        self.identity = ProducerIdentity()
        self._partitions: dict[TopicPartition, PartitionSequences] = {}

    def of(self, topic_partition: TopicPartition) -> PartitionSequences:
        """Return a partition's sequences."""
        known = self._partitions.get(topic_partition)
        if known is None:
            known = self._partitions[topic_partition] = PartitionSequences()
        return known

    def may_drain(self, batch: ProducerBatch) -> bool:
        """Return True when ``batch``, the first of its queue, may be sent now."""
        if not self.identity.is_known:
            return False
        numbers = self.of(batch.topic_partition)
        if numbers.has_gap:
            return False
        if batch.has_sequence:
            return numbers.on_the_way[0] is batch
        if not numbers.on_the_way:
            return True
        if self._is_stale(numbers):
            return False
        return numbers.has_begun and len(numbers.on_the_way) < MAX_ON_THE_WAY

    def number(self, batch: ProducerBatch) -> None:
        """Assign the next sequence to a batch that :meth:`may_drain` has allowed."""
        numbers = self.of(batch.topic_partition)
        if self._is_stale(numbers):
            self._restart(numbers)
        batch.identify(Identity(numbers.producer_id, numbers.epoch, numbers.next_sequence))
        numbers.next_sequence = next_sequence(numbers.next_sequence, batch.count)
        numbers.on_the_way.append(batch)

    def acknowledged(self, batch: ProducerBatch) -> None:
        """Record that the broker has the batch."""
        numbers = self.of(batch.topic_partition)
        if batch not in numbers.on_the_way:
            return
        numbers.has_begun = True
        batch.is_acknowledged = True
        if numbers.gap_sequence >= 0 and comes_after(
            batch.identity.base_sequence, numbers.gap_sequence
        ):
            numbers.has_gap = numbers.gap_may_fill = False
            numbers.gap_sequence = NO_SEQUENCE
        _drop_acknowledged(numbers.on_the_way)

    def doubt(self, topic_partition: TopicPartition) -> None:
        """The log was replaced by an empty one: see :meth:`is_doubted`."""
        numbers = self.of(topic_partition)
        numbers.in_old_log = {
            batch: batch.attempts for batch in numbers.on_the_way if batch.in_network
        }

    def is_doubted(self, batch: ProducerBatch) -> bool:
        """Return True if what was acknowledged may be in a log that is gone."""
        return self.of(batch.topic_partition).in_old_log.get(batch) == batch.attempts

    def is_first(self, batch: ProducerBatch) -> bool:
        """Return True when everything before the batch has been acknowledged."""
        on_the_way = self.of(batch.topic_partition).on_the_way
        return bool(on_the_way) and on_the_way[0] is batch

    def given_up(self, batch: ProducerBatch) -> None:
        """Abandon the batch, which leaves a gap if it had a sequence."""
        numbers = self.of(batch.topic_partition)
        if batch not in numbers.on_the_way:
            return
        after = list(numbers.on_the_way)[numbers.on_the_way.index(batch) + 1 :]
        numbers.on_the_way.remove(batch)
        _drop_acknowledged(numbers.on_the_way)
        if any(each.is_acknowledged for each in after):
            # The broker accepted a later batch, so it has this one.
            return
        numbers.has_gap = True
        numbers.gap_sequence = batch.identity.base_sequence
        numbers.gap_may_fill = numbers.gap_may_fill or batch.is_ambiguous

    def refused_as_gap(self, batch: ProducerBatch) -> None:
        """Handle a broker that misses a batch before the first one: its log or state has lost
        it.
        """
        self.of(batch.topic_partition).has_gap = True

    def replaced(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """Split a batch that is too large; its parts get its sequences."""
        numbers = self.of(batch.topic_partition)
        if batch not in numbers.on_the_way:
            return
        topic_partition = numbers.on_the_way.index(batch)
        sequence = batch.identity.base_sequence
        for part in parts:
            part.identify(batch.identity._replace(base_sequence=sequence))
            sequence = next_sequence(sequence, part.count)
        rest = list(numbers.on_the_way)
        rest[topic_partition : topic_partition + 1] = parts
        numbers.on_the_way = deque(rest)

    def renumber(self) -> list[ProducerBatch]:
        """Close the gaps of partitions without requests in flight; raise the epoch once.

        Returns the batches that cannot be renumbered and have failed; the caller completes them.
        Batches that were renumbered stay in their queues.
        """
        ready = [
            numbers
            for numbers in self._partitions.values()
            if numbers.has_gap and not any(batch.in_network for batch in numbers.on_the_way)
        ]
        if not ready:
            return []
        self.identity.raise_epoch()
        lost: list[ProducerBatch] = []
        for numbers in ready:
            kept: list[ProducerBatch] = []
            for batch in numbers.on_the_way:
                if batch.is_acknowledged:
                    continue
                unknown = numbers.gap_may_fill and batch.is_ambiguous
                (lost if unknown else kept).append(batch)
            numbers.has_gap = numbers.gap_may_fill = False
            numbers.gap_sequence = NO_SEQUENCE
            self._restart(numbers)
            # Without a sequence they are numbered when they are drained next, in their order.
            for batch in kept:
                batch.identity = NO_IDENTITY
        return lost

    def adopt(self, producer_id: int, epoch: int) -> None:
        """Take a transactional producer's id and epoch. With another one than before, sequences
        begin at 0; no batch of the old one is sent again.
        """
        identity = self.identity
        if (identity.producer_id, identity.epoch) != (producer_id, epoch):
            identity.producer_id, identity.epoch = producer_id, epoch
            self._partitions.clear()

    def restart(self, topic_partition: TopicPartition) -> None:
        """Begin at 0 in the present epoch: a new log, which has nothing of this producer. No batch
        of the partition is without an outcome.
        """
        self._partitions.pop(topic_partition, None)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Reset the sequences of a recreated topic, whose brokers have no state of this
        producer.
        """
        numbers = self._partitions.get(topic_partition)
        if numbers is not None:
            numbers.has_gap = True

    def _is_stale(self, numbers: PartitionSequences) -> bool:
        identity = self.identity
        return (numbers.producer_id, numbers.epoch) != (identity.producer_id, identity.epoch)

    def _restart(self, numbers: PartitionSequences) -> None:
        numbers.producer_id = self.identity.producer_id
        numbers.epoch = self.identity.epoch
        numbers.next_sequence = 0
        numbers.has_begun = False
        numbers.on_the_way.clear()


def comes_after(sequence: int, other: int) -> bool:
    """Return True when a sequence follows another; they wrap around at 2³¹."""
    return 0 < (sequence - other) & 0x7FFFFFFF < 1 << 30


def _drop_acknowledged(on_the_way: deque[ProducerBatch]) -> None:
    while on_the_way and on_the_way[0].is_acknowledged:
        on_the_way.popleft()
