"""What makes batches recognisable: producer id, epoch and sequences (KIP-98, KIP-360).

Each partition counts its records from 0 in an epoch. A broker takes a batch whose sequence follows
the last one, says "have it" to one of the last five, and refuses anything else. So:

* A partition has at most five batches on the way, those included that were acknowledged while an
  earlier one was not: else that one, sent again, would no longer be recognised. Until one of an
  epoch has been acknowledged it has only one, because a broker that has not seen the producer
  takes any sequence for the first.
* What has to be sent again goes one by one, the lowest sequence first; nothing new overtakes it.
* When a batch is given up, there is a *gap*: no broker will take what follows. Once everything of
  the partition has come back from the network, the producer's epoch is raised and what is left is
  numbered anew from 0. A batch whose fate is unknown is only renumbered when nothing can have
  filled the gap in the meantime, because the broker could then have it under both numbers;
  otherwise it fails, and its sender learns that it may be there.

=====================  =============================  =========================================
state of a partition   what may be drained            how it ends
=====================  =============================  =========================================
fresh                  one batch                      acknowledged: begun
begun                  five batches                   a batch is given up: gap
gap                    nothing                        all came back: renumbered, fresh
stale (epoch raised    retries only                   all acknowledged: fresh
for another one)
=====================  =============================  =========================================

This is where transactions will join: a transaction manager gives the producer id and epoch in the
place of :class:`ProducerIdentity`, and marks batches transactional.
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
"""As many batches as a broker recognises when they come again."""


@dataclass(slots=True)
class ProducerIdentity:
    """The id that a broker gave, and the epoch, which an idempotent producer raises by itself."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_known(self) -> bool:
        """True once a broker has given an id."""
        return self.producer_id >= 0

    def raise_epoch(self) -> None:
        """Begin the next epoch; after the last one ask for a new id."""
        if self.epoch >= MAX_PRODUCER_EPOCH:
            self.producer_id, self.epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        else:
            self.epoch += 1


@dataclass(slots=True)
class PartitionSequences:
    """One partition's numbers. ``on_the_way`` are batches with a sequence, in its order."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    next_sequence: int = 0
    has_begun: bool = False
    on_the_way: deque[ProducerBatch] = field(default_factory=deque)
    has_gap: bool = False
    gap_may_fill: bool = False
    """True when what left the gap may still reach the broker."""
    gap_sequence: int = NO_SEQUENCE
    """The last sequence that was given up; a later one acknowledged shows that it arrived."""


class Sequences:
    """The numbers of all partitions of one producer."""

    def __init__(self) -> None:
        self.identity = ProducerIdentity()
        self._partitions: dict[TopicPartition, PartitionSequences] = {}

    def of(self, topic_partition: TopicPartition) -> PartitionSequences:
        """Return a partition's numbers."""
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
        """Give the next sequence to a batch that :meth:`may_drain` let through."""
        numbers = self.of(batch.topic_partition)
        if self._is_stale(numbers):
            self._restart(numbers)
        batch.identify(Identity(numbers.producer_id, numbers.epoch, numbers.next_sequence))
        numbers.next_sequence = next_sequence(numbers.next_sequence, batch.count)
        numbers.on_the_way.append(batch)

    def acknowledged(self, batch: ProducerBatch) -> None:
        """The broker has the batch."""
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

    def is_first(self, batch: ProducerBatch) -> bool:
        """Return True when everything before the batch has been acknowledged."""
        on_the_way = self.of(batch.topic_partition).on_the_way
        return bool(on_the_way) and on_the_way[0] is batch

    def given_up(self, batch: ProducerBatch) -> None:
        """The batch will not be sent again: leaves a gap if it had a number."""
        numbers = self.of(batch.topic_partition)
        if batch not in numbers.on_the_way:
            return
        after = list(numbers.on_the_way)[numbers.on_the_way.index(batch) + 1 :]
        numbers.on_the_way.remove(batch)
        _drop_acknowledged(numbers.on_the_way)
        if any(each.is_acknowledged for each in after):
            # The broker took something behind it, so it had taken this one.
            return
        numbers.has_gap = True
        numbers.gap_sequence = batch.identity.base_sequence
        numbers.gap_may_fill = numbers.gap_may_fill or batch.is_ambiguous

    def refused_as_gap(self, batch: ProducerBatch) -> None:
        """The broker misses something before the first batch: its log or memory lost it."""
        self.of(batch.topic_partition).has_gap = True

    def replaced(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """The batch was too large; its parts take its numbers."""
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
        """Close the gaps whose partitions have nothing in the network; raise the epoch once.

        Returns the batches that cannot be renumbered and have failed; the caller tells their
        senders. Batches that were renumbered stay in their queues.
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
            # Without a number they are numbered when they are drained next, in their order.
            for batch in kept:
                batch.identity = NO_IDENTITY
        return lost

    def forget(self, topic_partition: TopicPartition) -> None:
        """The topic was created anew: its brokers know no sequences of ours."""
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
